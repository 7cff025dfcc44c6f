"""Proposals for Python projects: which Python, which packages, whether an install is needed.

Requirements go into `setup`, so that commits with equal manifests share an image. The project is
imported from where it is: its folders are in PYTHONPATH, and its name, version and entry points
are written down beside the installed packages. Only what has to be compiled, or is written by the
build, is installed, which costs an image a commit.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from patchgym.datasets.environment import Environment

from .manifests import Project
from .pins import install_command
from .proposal import Kind, Proposal

BASES: Mapping[str, tuple[int, int, int]] = {"bookworm": (3, 11, 2), "bullseye": (3, 9, 2)}
"""The Pythons of the bases that are made here."""
ALWAYS: Mapping[str, tuple[str, ...]] = {"bullseye": ("python3-distutils",)}
"""Packages without which neither pip nor uv starts on a base."""
RELEASED: Mapping[int, datetime] = {
    minor: datetime(year, month, day, tzinfo=UTC)
    for minor, (year, month, day) in {
        4: (2014, 3, 16), 5: (2015, 9, 13), 6: (2016, 12, 23), 7: (2018, 6, 27), 8: (2019, 10, 14),
        9: (2020, 10, 5), 10: (2021, 10, 4), 11: (2022, 10, 24), 12: (2023, 10, 2),
        13: (2024, 10, 7), 14: (2025, 10, 7),
    }.items()
}  # fmt: skip
"""Python 3's minor versions."""
SETTLED = timedelta(days=120)  # until most packages have wheels for a new Python
EARLIER = timedelta(days=30)  # most breakage by a new release is mended sooner
WORKDIR = "/workspace"
COMPILERS = ("build-essential", "python3-dev")
CLAUSE = r"(~=|===|==|!=|<=|>=|<|>)\s*v?(\d+(?:\.\d+)*)(\.\*)?\S*"
SITE = "$(python3 -c 'import site; print(site.getsitepackages()[0])')"
COLLECT_UNITTEST = """import sys, unittest
loader = unittest.TestLoader()
count = sum(loader.discover(each, top_level_dir=".").countTestCases() for each in sys.argv[1:])
print(*loader.errors, sep="\\n")
print(f"{count - len(loader.errors)} tests collected / {len(loader.errors)} errors")
sys.exit(bool(loader.errors))"""
LATER: tuple[Kind, ...] = (
    "dependency_conflict", "dependency_missing", "compiler_missing", "system_library", "timeout",
    "python_version", "unknown",
)  # fmt: skip
"""Failures of old packages that today's may not have."""
UNREADY: tuple[Kind, ...] = ("tests_not_collected",)


def propose_python(
    project: Project, *, date: datetime, dates: bool, release: str, subproject: str
) -> tuple[Proposal, ...]:
    """The ladder for one project, best first.

    `dates`: whether the index says when files were uploaded. `release`: what tools that derive the
    version from git are told.
    """
    base, notes = choose_base(project, date)
    if not dates:
        locked = f"{len(project.locked)} pinned by a lock file" if project.locked else "none pinned"
        notes = (*notes, f"the index has no dates: packages are today's, {locked}")
    plan = _Plan(project, base, notes, date if dates else None, release, subproject)
    must = (project.compiled or project.generated) and project.installable
    rungs = [plan.proposal(install=must)]
    if project.installable and not must:
        rungs.append(plan.proposal(install=True, optional=True, after=UNREADY))
    elif project.optional:
        rungs.append(plan.proposal(install=must, optional=True, after=UNREADY))
    if project.locked:
        rungs.append(plan.proposal(install=must, lock=False))
    if dates:
        rungs.append(plan.earlier().proposal(install=must, lock=False, after=UNREADY))
        rungs.append(plan.today().proposal(install=must, lock=False))
    other = next((each for each in BASES if each != base and _allowed(project, each)), None)
    if other is not None and base in BASES:
        note = f"on {other}: {base} did not do"
        rungs.append(plan.on(other, note).proposal(install=must))
    rungs.append(plan.today().proposal(install=must, lock=False, minimal=True, after=LATER))
    unique: dict[str, Proposal] = {}
    for rung in rungs:
        unique.setdefault(repr(rung.environment), rung)
    return tuple(unique.values())


class _Plan:
    """What the rungs of one ladder have in common."""

    def __init__(
        self,
        project: Project,
        base: str,
        notes: tuple[str, ...],
        date: datetime | None,
        release: str,
        subproject: str,
    ) -> None:
        self._project, self._base, self._notes = project, base, notes
        self._date, self._release, self._subproject = date, release, subproject

    def today(self) -> _Plan:
        """The same with the newest packages."""
        notes = self._notes if self._date is None else (*self._notes, "packages are today's")
        return _Plan(self._project, self._base, notes, None, self._release, self._subproject)

    def earlier(self) -> _Plan:
        """The same with packages from before something new broke them."""
        date = self._date and self._date - EARLIER
        notes = (*self._notes, f"packages are {EARLIER.days} days older than the commit")
        return _Plan(self._project, self._base, notes, date, self._release, self._subproject)

    def on(self, base: str, note: str) -> _Plan:
        """The same on another base."""
        notes = (*self._notes, note)
        return _Plan(self._project, base, notes, self._date, self._release, self._subproject)

    def proposal(
        self,
        *,
        install: bool,
        optional: bool = False,
        minimal: bool = False,
        lock: bool = True,
        after: tuple[Kind, ...] = (),
    ) -> Proposal:
        """One rung; `optional` adds the other extras, `minimal` leaves out what tests require,
        `lock` takes the versions of a lock file."""
        project = self._project
        wanted = [*project.requires, *(() if minimal else project.tests)]
        wanted += project.optional if optional else ()
        if project.name.lower() != "pytest" and project.runner == "pytest":
            wanted += () if any(re.match(r"(?i)pytest\b", each) for each in wanted) else ("pytest",)
        if install:
            wanted += project.build or ("setuptools",)
            wanted += ("wheel",)  # setuptools of a few years ago needs it, and does not say so
        if _needs_setuptools(self._date):
            wanted.append("setuptools")
        locked = project.locked if lock else {}
        setup = [
            install_command(dict.fromkeys(wanted), before=self._date, locked=locked)
        ] if wanted else []  # fmt: skip
        if not install and project.name:
            setup.append(metadata_command(project, self._release))
        return Proposal(
            environment=Environment(
                base=self._base,
                packages=(
                    *ALWAYS.get(self._base, ()),
                    *(COMPILERS if install and project.compiled else ()),
                ),
                setup=tuple(setup),
                install=(self._install(),) if install else (),
                test_command=_test_command(project),
                report="pytest" if project.runner == "pytest" else "unittest",
                variables={} if install else {"PYTHONPATH": _paths(project)},
                workdir=WORKDIR,
            ),
            notes=(*self._notes, *(("without the requirements of tests",) if minimal else ())),
            after=after,
            check=_check(project),
        )

    def _install(self) -> str:
        place = f"./{self._subproject.strip('/')}" if self._subproject.strip("/") else "."
        version = shlex.quote(self._release or self._project.version or "0")
        scm = f"SETUPTOOLS_SCM_PRETEND_VERSION={version} PBR_VERSION={version} "
        return f"{scm}pip install --no-deps --no-build-isolation -e {shlex.quote(place)}"


def choose_base(project: Project, date: datetime) -> tuple[str, tuple[str, ...]]:
    """The base for a project at a date, and what is not as wished."""
    wished = wished_minor(project, date)
    able = [base for base in BASES if _allowed(project, base)]
    if not able:
        image = f"python:3.{wished}-bookworm"
        return image, (f"Python 3.{wished} needs the image {image}, from a registry",)

    def distance(base: str) -> tuple[bool, bool, int]:
        minor = BASES[base][1]
        unnamed = bool(project.minors) and f"3.{minor}" not in project.minors
        return unnamed, RELEASED[minor] > date, abs(minor - wished)

    best = min(able, key=distance)
    have = BASES[best][1]
    if have == wished:
        return best, ()
    return best, (f"Python 3.{wished} would suit the date; {best} has 3.{have}",)


def wished_minor(project: Project, date: datetime) -> int:
    """Python 3's minor version that people would have used: the newest that had settled, that the
    project allows and, if it names any, that it names."""
    old = [minor for minor, day in RELEASED.items() if day + SETTLED <= date] or [min(RELEASED)]
    allowed = [minor for minor in RELEASED if allows(project.python, (3, minor, 99))]
    named = [minor for minor in allowed if f"3.{minor}" in project.minors] or allowed
    settled = [minor for minor in named if minor in old]
    return max(settled) if settled else min(named, default=max(old))


def allows(specifier: str, version: tuple[int, int, int]) -> bool:
    """Whether a version fits a specifier such as `>=3.8,<4`; a clause that is no such fits all."""
    for clause in specifier.split(","):
        found = re.fullmatch(CLAUSE, clause.strip())
        if found is None:
            continue
        operator, given = found[1], tuple(int(each) for each in found[2].split("."))
        mine = version[: len(given)]
        whole = given + (0,) * (3 - len(given))
        fits = {
            "~=": version >= whole and mine[:-1] == given[:-1],
            "==": mine == given,
            "===": mine == given,
            "!=": mine != given,
            "<=": mine <= given,
            ">=": version >= whole,
            "<": version < whole,
            ">": version > whole,
        }[operator]
        if not fits:
            return False
    return True


def metadata_command(project: Project, release: str) -> str:
    """A command that writes down a distribution's name, version, requirements and entry points
    beside the installed packages, and its scripts, as an install would."""
    version = project.version or release or "0"
    name = re.sub(r"[-_.]+", "_", project.name)
    lines = ["Metadata-Version: 2.1", f"Name: {project.name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {each}" for each in project.requires]
    points = [
        line
        for group, entries in project.entry_points.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
    ]
    parts = [
        f'folder="{SITE}/{name}-{version}.dist-info"',
        'mkdir -p "$folder"',
        _written("$folder/METADATA", lines),
        _written("$folder/INSTALLER", ["patchgym"]),
        _written("$folder/entry_points.txt", points),
    ]
    for script, target in project.entry_points.get("console_scripts", {}).items():
        found = re.match(r"([\w.]+)\s*:\s*([\w.]+)", target)
        if found and re.fullmatch(r"[\w.+-]+", script):
            path = f"/usr/local/bin/{script}"
            first = found[2].partition(".")[0]
            code = [
                "#!/usr/bin/env python3",
                "import sys",
                f"from {found[1]} import {first}",
                f"sys.exit({found[2]}())",
            ]
            parts += [_written(path, code), f"chmod 755 {path}"]
    return " && ".join(parts)


def with_packages(environment: Environment, packages: Iterable[str]) -> Environment:
    """The same with more Debian packages."""
    every = tuple(sorted({*environment.packages, *packages}))
    return replace(environment, packages=every)


def _written(path: str, lines: Iterable[str]) -> str:
    words = " ".join(map(shlex.quote, lines))
    return f"printf '%s\\n' {words} > \"{path}\"" if words else f': > "{path}"'


def _allowed(project: Project, base: str) -> bool:
    return allows(project.python, BASES[base])


def _needs_setuptools(date: datetime | None) -> bool:
    """Whether packages of that time import pkg_resources, which nothing else brings along."""
    return date is not None and date < datetime(2021, 1, 1, tzinfo=UTC)


def _paths(project: Project) -> str:
    return ":".join(
        WORKDIR if each == "." else f"{WORKDIR}/{each}" for each in project.sources
    )  # fmt: skip


def _test_command(project: Project) -> str:
    return {
        "pytest": "python3 -m pytest {test_files}",
        "unittest": "python3 -m unittest {test_files}",
        "django": "python3 manage.py test {test_modules}",
        "runtests": "python3 tests/runtests.py --parallel 1 {test_modules}",
    }[project.runner]


def _check(project: Project) -> str:
    folders = " ".join(map(shlex.quote, project.test_folders))
    return {
        "pytest": f"python3 -m pytest --collect-only -q {folders}",
        "unittest": f"python3 -c {shlex.quote(COLLECT_UNITTEST)} {folders or '.'}",
        "django": "python3 manage.py test --help",
        "runtests": "python3 tests/runtests.py --help",
    }[project.runner].strip()
