"""What the files of a tree say of a Python project: what it requires, for which Python, and how it
is tested. Pure functions over `Mapping[path, bytes]`; nothing is executed.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .code_manifests import read_nox, read_setup_py
from .declared import PREFERENCE, Declared
from .ini_manifests import read_ini
from .line_manifests import read_conda, read_requirements
from .toml_manifests import read_lock, read_pipfile, read_pyproject

READERS: Mapping[str, Callable[[str], Declared]] = {
    "pyproject.toml": read_pyproject,
    "setup.cfg": read_ini,
    "setup.py": read_setup_py,
    "Pipfile": read_pipfile,
    "tox.ini": read_ini,
    "noxfile.py": read_nox,
    "environment.yml": read_conda,
    "environment.yaml": read_conda,
}
"""In the order of their say: the first that has a name, a version or requirements is believed."""
LOCKS = ("uv.lock", "poetry.lock", "pdm.lock")
OTHERS = (
    "package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml",
    "go.mod", "go.sum", "Cargo.toml", "Cargo.lock", "pom.xml", "build.gradle", "build.gradle.kts",
    "gradle.lockfile",
)  # fmt: skip
MATTER = (*READERS, *LOCKS, *OTHERS, "pytest.ini", "Makefile")
VERSIONS = ("__init__.py", "__about__.py", "__version__.py", "_version.py", "version.py")
"""Where a version is looked for that no manifest gives."""
TEST_FILES = re.compile(
    r"(tests?|testing|dev|ci|unit|unittest)([-_.]?(requirements|reqs|requires|deps|packages))?"
    r"|(requirements|reqs|requires|deps)[-_.]?(tests?|testing|dev|develop|development|ci|unit)"
)
RUNTIME_FILES = ("requirements.txt", "requirements/base.txt", "requirements/requirements.txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A Python project, as its manifests tell of it."""

    name: str = ""
    """Name of the distribution; empty when nothing gives one."""
    version: str = ""
    """When a manifest or a source file has it as a literal."""
    python: str = ""
    """Specifier of the Pythons it is for, such as `>=3.8`."""
    minors: tuple[str, ...] = ()
    """Pythons that it names, such as `3.11`."""
    requires: tuple[str, ...] = ()
    """Requirements at run time."""
    tests: tuple[str, ...] = ()
    """Requirements of its tests."""
    optional: tuple[str, ...] = ()
    """Requirements of its other extras, which some tests may need."""
    locked: Mapping[str, str] = field(default_factory=dict)
    """Version by name in a lock file."""
    entry_points: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    build: tuple[str, ...] = ()
    """Requirements of its build."""
    compiled: bool = False
    """Whether something has to be compiled."""
    generated: bool = False
    """Whether its build writes a file that the sources import."""
    installable: bool = False
    """Whether pip can install it."""
    sources: tuple[str, ...] = (".",)
    """Folders to import from, relative to the repository's root."""
    test_folders: tuple[str, ...] = ()
    """Folders of tests, relative to the repository's root; empty: the runner's own choice."""
    runner: str = "pytest"
    """pytest, unittest, django (`manage.py test`) or runtests (Django's own)."""
    manifests: tuple[str, ...] = ()
    """Paths that were read, relative to the repository's root."""


def is_manifest(path: str) -> bool:
    """Whether a file's content matters here, by its path."""
    name = posixpath.basename(path)
    return name in MATTER or _is_requirements(path) or name == "conftest.py"


def read_project(files: Mapping[str, bytes], subproject: str = "") -> Project | None:
    """The Python project in a folder of the tree; None when no manifest is there.

    `files` has every path of the tree; those whose content does not matter may be empty.
    """
    tree = _below(files, subproject)
    read = {name: reader(_text(tree, name)) for name, reader in READERS.items() if name in tree}
    listed = [path for path in tree if _is_requirements(path)]
    if not read and not listed:
        return None
    order = list(read.values())
    name = _first(each.name for each in order) or _only_package(tree)
    requires = _first_of(each.requires for each in order)
    if not requires:
        runtime = [path for path in RUNTIME_FILES if path in tree]
        requires = tuple(_expand(tree, runtime[:1]))
    ours = _normal(name)
    tests = tuple(_test_requirements(tree, read, listed, ours))
    extras = {key: value for each in order for key, value in each.extras.items()}
    optional = [
        each
        for key, value in extras.items()
        if not re.search(r"doc|lint|mypy|typing|dev|benchmark|release", key)
        for each in value
    ]
    prefix = f"{subproject.strip('/')}/" if subproject.strip("/") else ""
    named = tuple(path for path in (*read, *listed, *LOCKS) if path in tree)
    return Project(
        name=name,
        version=_first(each.version for each in order) or _version_in(tree, name),
        python=_first(each.python for each in order),
        minors=_first_of(each.minors for each in order),
        requires=_clean(requires, ours),
        tests=_clean(tests, ours),
        optional=_clean(optional, ours),
        locked=_locked(tree),
        entry_points=next((each.entry_points for each in order if each.entry_points), {}),
        build=_first_of(each.build for each in order),
        compiled=any(each.compiled for each in order) or any(p.endswith(".pyx") for p in tree),
        generated=any(each.generated for each in order),
        installable="setup.py" in tree or any(each.backend for each in order),
        sources=tuple(posixpath.normpath(prefix + each) for each in _sources(tree)),
        test_folders=tuple(prefix + each for each in _test_folders(tree)),
        runner=_runner(tree, order, (*requires, *tests)),
        manifests=tuple(prefix + each for each in named),
    )


def _below(files: Mapping[str, bytes], subproject: str) -> dict[str, bytes]:
    prefix = subproject.strip("/")
    if not prefix:
        return dict(files)
    cut = len(prefix) + 1
    return {path[cut:]: data for path, data in files.items() if path.startswith(f"{prefix}/")}


def _text(tree: Mapping[str, bytes], path: str) -> str:
    return tree.get(path, b"").decode("utf-8", "replace").lstrip("\ufeff")


def _first(values: Iterable[str]) -> str:
    return next((value for value in values if value), "")


def _first_of(values: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return next((value for value in values if value), ())


def _is_requirements(path: str) -> bool:
    """requirements.txt and its kin, at the root or in a folder for them."""
    folder, name = posixpath.split(path)
    stem, extension = posixpath.splitext(name)
    if extension not in (".txt", ".in") or folder.count("/") > 0:
        return False
    if folder and not re.fullmatch(r"requirements|reqs|requires|tests?|ci|\.ci|testing", folder):
        return False
    if re.search(r"requirements|reqs|requires", stem):
        return True
    return folder in ("requirements", "reqs", "requires")


def _test_requirements(
    tree: Mapping[str, bytes], read: Mapping[str, Declared], listed: list[str], ours: str
) -> Iterator[str]:
    """From the place that is most surely meant for the tests: what tox or nox ask for, an extra or
    group by its name, a requirements file by its name, what tox or nox install themselves."""
    extras = {key: value for each in read.values() for key, value in each.tests.items()}
    every = {key: value for each in read.values() for key, value in each.extras.items()}
    wants = [name for each in read.values() for name in each.wants]
    named = [name for name in wants if name in every or name in extras]
    if not named:
        named = [name for name in PREFERENCE if extras.get(name)][:1]
        named = named or [name for name in extras if name not in ("tox", "nox")][:1]
    for name in named:
        yield from _own(every.get(name) or extras.get(name, ()), every, ours)
    paths = [path for each in read.values() for path in each.includes]
    if not named and not paths:
        paths = sorted(filter(_for_tests, listed), key=lambda path: ("test" not in path, path))[:1]
    yield from _expand(tree, paths)
    for key in ("tox", "nox"):
        yield from extras.get(key, ())


def _for_tests(path: str) -> bool:
    folder, name = posixpath.split(path)
    stem = posixpath.splitext(name)[0].lower()
    return bool(TEST_FILES.fullmatch(stem)) or folder in ("test", "tests", "testing")


def _own(
    requirements: Iterable[str], extras: Mapping[str, tuple[str, ...]], ours: str
) -> Iterator[str]:
    """Requirements with `ours[extra]` replaced by what that extra holds."""
    for each in requirements:
        found = re.match(r"([\w.-]+)\s*\[([^\]]*)\]", each)
        if found and _normal(found[1]) == ours:
            for extra in re.findall(r"[\w-]+", found[2]):
                yield from (one for one in extras.get(extra, ()) if not one.startswith(found[1]))
        else:
            yield each


def _expand(tree: Mapping[str, bytes], paths: Iterable[str], depth: int = 0) -> Iterator[str]:
    """The requirements of files and of those that they include."""
    for path in paths:
        read = read_requirements(_text(tree, posixpath.normpath(path)))
        if depth < 5:
            folder = posixpath.dirname(path)
            yield from _expand(
                tree, [posixpath.join(folder, one) for one in read.includes], depth + 1
            )
        yield from read.requires


def _clean(requirements: Iterable[str], ours: str) -> tuple[str, ...]:
    """Each once, in order, without the project itself, addresses and paths."""
    kept: dict[str, None] = {}
    for each in requirements:
        found = re.match(r"[A-Za-z0-9][\w.-]*", each)
        local = "://" in each.partition(";")[0] or "/" in each.partition(";")[0]
        if found and not local and _normal(found[0]) != ours:
            kept[each] = None
    return tuple(kept)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _locked(tree: Mapping[str, bytes]) -> Mapping[str, str]:
    return next((read_lock(_text(tree, name)) for name in LOCKS if name in tree), {})


def _only_package(tree: Mapping[str, bytes]) -> str:
    """The one package there is, for a name that setup.py computes."""
    if "setup.py" not in tree:
        return ""
    found = {
        each[1]
        for path in tree
        if (each := re.fullmatch(r"(?:src/)?(\w+)/__init__\.py", path))
        and not re.fullmatch(r"tests?|testing|docs?|examples?|benchmarks?|src", each[1])
    }
    return found.pop() if len(found) == 1 else ""


def _version_in(tree: Mapping[str, bytes], name: str) -> str:
    """A literal `__version__` in the package's own files."""
    package = _normal(name).replace("-", "_")
    for root in ("", "src/"):
        for file in VERSIONS:
            text = _text(tree, f"{root}{package}/{file}")
            found = re.search(
                r"(?m)^(?:__version__|version)\s*(?::\s*\w+\s*)?=\s*['\"](\d[^'\"]*)", text
            )
            if found:
                return found[1]
    return ""


def version_paths(paths: Iterable[str]) -> Iterator[str]:
    """The paths of a tree in which a version may stand, for who reads only what matters."""
    for path in paths:
        parts = path.removeprefix("src/").split("/")
        if len(parts) == 2 and parts[1] in VERSIONS:
            yield path


def _sources(tree: Mapping[str, bytes]) -> tuple[str, ...]:
    """`src` when packages or modules lie there, and the root."""
    found = any(re.match(r"src/([^/]+\.py|[^/]+/[^/]+\.py)$", path) for path in tree)
    lib = not found and any(re.match(r"lib/[^/]+/__init__\.py$", path) for path in tree)
    return (*(("src",) if found else ()), *(("lib",) if lib else ()), ".")


def _test_folders(tree: Mapping[str, bytes]) -> tuple[str, ...]:
    return tuple(
        folder
        for folder in ("tests", "test", "testing")
        if any(path.startswith(f"{folder}/") and path.endswith(".py") for path in tree)
    )


def _runner(tree: Mapping[str, bytes], order: list[Declared], requires: Iterable[str]) -> str:
    if "tests/runtests.py" in tree and "django/__init__.py" in tree:
        return "runtests"
    named = {name for each in order for name in each.runners}
    pytest = "pytest" in named or any(re.match(r"(?i)pytest\b", each) for each in requires)
    if pytest or "pytest.ini" in tree or any(p.endswith("conftest.py") for p in tree):
        return "pytest"
    if "manage.py" in tree or "django" in named:
        return "django"
    if "unittest" in named or re.search(r"-m unittest", _text(tree, "Makefile")):
        return "unittest"
    return "pytest"
