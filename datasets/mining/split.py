"""Which side of a task each changed path is on: the fix, its tests, or neither. Pure.

source, config ──► the gold patch       test, fixture, snapshot ──► the test patch
generated, vendored ──► with the gold patch where it does not work without, else left out
lock, docs, upkeep, submodule, lfs ──► left out
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .history import Changed

Kind = Literal[
    "source", "config", "test", "fixture", "snapshot", "lock", "generated", "vendored", "docs",
    "upkeep", "submodule", "lfs",
]  # fmt: skip
TEST_SIDE: tuple[Kind, ...] = ("test", "fixture", "snapshot")
GOLD_SIDE: tuple[Kind, ...] = ("source", "config")
SPARE: tuple[Kind, ...] = ("generated", "vendored")
"""Kinds that join the gold patch where it does not work without."""

MAX_FILES = 100
"""Files on either side; a change of more is no single repair."""
MAX_BYTES = 1 << 19
"""Bytes of either patch."""
HEAD = 1024  # bytes in which a mark of what made a file is looked for
LFS = b"version https://git-lfs.github.com/spec/v1"

_CODE = (
    r"(?:py|pyx|js|jsx|mjs|cjs|ts|tsx|go|rs|java|kt|scala|rb|php|cs|c|cc|cpp|cxx|h|hpp|m|swift|"
    r"dart|ex|exs|erl|hs|ml|lua|pl|r|jl|sh)"
)
_MODULE = re.compile(
    r"test_[^/]*\.py|[^/]*_tests?\.py|tests?\.py|[^/]*_test\.(?:go|rb|exs|dart|c|cc|cpp)|"
    r"[^/]*[._-](?:test|spec)\.(?:jsx?|tsx?|mjs|cjs)|[^/]*_spec\.rb|"
    r"(?:[^/]*(?:Test|Tests|TestCase|IT)|Test[A-Z][^/]*)\.(?:java|kt|scala|cs|php|swift)"
)
_TEST_FOLDERS = {
    "tests", "__tests__", "spec", "specs", "e2e", "testdata", "test_data", "test-data",
    "__fixtures__", "testcases", "unittests",
}  # fmt: skip
_SNAPSHOT = re.compile(
    r"(?:^|/)(?:__snapshots__|__image_snapshots__|snapshots|cassettes)/|"
    r"\.(?:snap|ambr|golden|approved\.\w+)$"
)
_LOCKS = {
    "poetry.lock", "pdm.lock", "uv.lock", "pipfile.lock", "package-lock.json", "yarn.lock",
    "npm-shrinkwrap.json", "pnpm-lock.yaml", "bun.lockb", "cargo.lock", "go.sum", "gemfile.lock",
    "composer.lock", "mix.lock", "flake.lock", "conda-lock.yml", "gradle.lockfile", "pubspec.lock",
    "packages.lock.json", "podfile.lock",
}  # fmt: skip
_VENDORED = re.compile(
    r"(?:^|/)(?:vendor|vendored|_vendor|third_party|third-party|node_modules|bower_components|"
    r"extern|externals)/"
)
_GENERATED = re.compile(
    r"_pb2(?:_grpc)?\.pyi?$|\.pb\.(?:go|cc|h)$|\.min\.(?:js|css)$|\.(?:js|css)\.map$|"
    r"(?:^|/)(?:parsetab|lextab)\.py$|(?:^|/)(?:dist|_build)/|\.egg-info/|(?:^|/)__pycache__/"
)
_MARKS = re.compile(
    rb"@generated|code generated .{0,80}do not edit|"
    rb"(?:auto(?:matically)?[- ]?generated|generated (?:by|from)).{0,200}do not (?:edit|modify)|"
    rb"do not (?:edit|modify).{0,200}(?:generated (?:by|from))",
    re.IGNORECASE | re.DOTALL,
)
_DOCS = re.compile(
    r"\.(?:md|rst|adoc|markdown)$|(?:^|/)(?:docs?|documentation|changes|news)/", re.I
)
_DOC_NAMES = re.compile(
    r"(?:readme|changelog|changes|history|news|authors|contributors|contributing|license|copying|"
    r"notice|code_of_conduct|security|maintainers)(?:[._-].*)?",
    re.IGNORECASE,
)
_UPKEEP = re.compile(
    r"^\.(?:github|gitlab|circleci|azure|vscode|idea|ci)/|"
    r"(?:^|/)(?:\.git(?:ignore|attributes|modules|-blame-ignore-revs)|\.mailmap|\.editorconfig|"
    r"\.pre-commit-config\.yaml|\.travis\.yml|\.gitlab-ci\.yml|appveyor\.yml|\.?codecov\.yml|"
    r"\.coveragerc|azure-pipelines\.yml|\.readthedocs\.ya?ml|\.flake8|\.pylintrc)$"
)
_CONFIG = {
    "pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "noxfile.py", "manifest.in", "makefile",
    "dockerfile", "package.json", "tsconfig.json", "cargo.toml", "go.mod", "pom.xml",
    "build.gradle", "gemfile", "pytest.ini", "mypy.ini", "environment.yml", "pipfile",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a repository keeps what."""

    tests: tuple[str, ...] = ()
    """Globs of paths that hold tests, on top of the usual ones."""
    subproject: str = ""
    """Folder to stay in, without a slash at the end; empty is the whole repository."""

    def holds(self, path: str) -> bool:
        """Whether a path is in the subproject."""
        return not self.subproject or path.startswith(f"{self.subproject}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A commit's paths by side."""

    gold: tuple[str, ...]
    """What the gold patch holds."""
    tests: tuple[str, ...]
    """What the test patch holds."""
    modules: tuple[str, ...]
    """Test files that are there afterwards, and are run."""
    left_out: Mapping[str, Kind] = field(default_factory=dict)
    """What neither holds, and why."""

    @property
    def fuller(self) -> tuple[str, ...]:
        """The gold patch's paths with the spare ones."""
        more = (path for path, kind in self.left_out.items() if kind in SPARE)
        return tuple(sorted({*self.gold, *more}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Why a commit makes no task."""

    reason: str
    """One of `report.REASONS`."""
    detail: str = ""
    """In one line."""


def kind_of(path: str, head: bytes = b"", layout: Layout | None = None) -> Kind:
    """What a path is, by its name and the first bytes of its content."""
    name = path.rpartition("/")[2].lower()
    if layout is not None and any(fnmatch.fnmatchcase(path, glob) for glob in layout.tests):
        return "test"
    if head.startswith(LFS):
        return "lfs"
    if name in _LOCKS:
        return "lock"
    if _VENDORED.search(path):
        return "vendored"
    if _GENERATED.search(path):
        return "generated"
    if (side := _test_kind(path)) is not None:
        return side
    if _MARKS.search(head[:HEAD]):
        return "generated"
    if _UPKEEP.search(path):
        return "upkeep"
    if _is_docs(path, name):
        return "docs"
    configures = name in _CONFIG or re.fullmatch(r"requirements.*\.(?:txt|in)", name)
    return "config" if configures else "source"


def split(
    changes: Sequence[Changed], heads: Mapping[str, bytes], layout: Layout
) -> Split | Dropped:
    """Sort a commit's changes; `heads` are the first bytes of each path's content, as far as known.

    A path that moves from one side to the other goes from the first and comes to the second.
    """
    kinds: dict[str, Kind] = {}
    for change in changes:
        kind = kind_of(change.path, heads.get(change.path, b""), layout)
        kinds[change.path] = "submodule" if change.submodule else kind
    odd = [path for path in kinds if not _is_text(path)]
    if odd:
        return Dropped(reason="odd-path", detail=ascii(odd[0]))
    found = Split(
        gold=tuple(path for path, kind in kinds.items() if kind in GOLD_SIDE),
        tests=tuple(path for path, kind in kinds.items() if kind in TEST_SIDE),
        modules=tuple(
            change.path
            for change in changes
            if kinds[change.path] == "test" and change.status != "D" and layout.holds(change.path)
        ),
        left_out={
            path: kind for path, kind in kinds.items() if kind not in (*GOLD_SIDE, *TEST_SIDE)
        },
    )
    return _problem(found, kinds, changes, layout) or found


def _problem(
    found: Split, kinds: Mapping[str, Kind], changes: Sequence[Changed], layout: Layout
) -> Dropped | None:
    inside = {kind for path, kind in kinds.items() if layout.holds(path)}
    if not inside:
        return Dropped(reason="outside-subproject")
    if "source" not in inside:
        rest = sorted(inside - {"test", "fixture", "snapshot"})
        return Dropped(reason="no-source", detail=", ".join(rest))
    if not inside & set(TEST_SIDE):
        return Dropped(reason="no-tests")
    if not found.modules:
        return Dropped(reason="no-test-module", detail=found.tests[0])
    links = [each.path for each in changes if each.link and each.path in found.tests]
    if links:
        return Dropped(reason="symlink-in-tests", detail=links[0])
    if max(len(found.gold), len(found.tests)) > MAX_FILES:
        return Dropped(reason="too-large", detail=f"{len(changes)} files")
    return None


def _test_kind(path: str) -> Kind | None:
    *folders, name = path.split("/")
    if _SNAPSHOT.search(path) and (_in_tests(folders, name) or "snapshots/" not in path):
        return "snapshot"
    if name == "conftest.py":
        return "fixture"
    if _MODULE.fullmatch(name) and not _is_library(folders, name):
        return "test"
    if not _in_tests(folders, name):
        return None
    runs = "__tests__" in folders and re.search(rf"\.{_CODE}$", name)
    return "test" if runs else "fixture"


def _in_tests(folders: Sequence[str], name: str) -> bool:
    if any(folder.lower() in _TEST_FOLDERS for folder in folders):
        return True
    if "test" not in folders:
        return False
    # a package's own tools for testing, such as django/test, are its source
    package = (
        folders.index("test") == 1 and name.endswith(".py") and folders[0] not in ("src", "lib")
    )
    return not package


def _is_library(folders: Sequence[str], name: str) -> bool:
    """Whether something named as a test is the source of a testing tool: `test.py` in a package."""
    return name in ("test.py", "tests.py") and bool(folders) and folders[-1] == "testing"


def _is_docs(path: str, name: str) -> bool:
    if re.search(rf"\.{_CODE}$", name):
        return bool(re.match(r"docs?/", path))
    return bool(_DOCS.search(path) or _DOC_NAMES.fullmatch(name))


def _is_text(path: str) -> bool:
    return path.isprintable() and not re.search("[\ud800-\udfff]", path)
