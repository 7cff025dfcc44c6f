"""What a change's paths and modes tell, without a look at the code."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator

from .base import FileChange, TamperFinding, finding
from .roles import Scene, is_runner, is_test_path

_FRAMEWORK = frozenset(
    {"pytest", "_pytest", "pluggy", "iniconfig", "py", "_py", "unittest", "doctest", "nose",
     "hypothesis", "xdist", "coverage", "mock", "exceptiongroup", "tomli", "packaging", "attr",
     "attrs", "colorama", "pygments", "pytest_asyncio", "pytest_cov", "pytest_mock",
     "pytest_timeout"}
)  # fmt: skip
_STANDARD = frozenset(sys.stdlib_module_names) - {"test", "this", "antigravity", "__main__"}
_TOP = frozenset({"", "src", "lib", "python"})
_COMPILED = re.compile(r".*\.(so|pyd|dylib|pyc|pyo|egg|whl)(\.\d+)*", re.IGNORECASE)
_STARTUP = re.compile(
    r"((site|user)customize(\.\w+)*|.*\._pth|\.python(rc|startup)(\.py)?|pyvenv\.cfg|.*\.egg-link"
    r"|__editable__.*)"
)
_DRIVER = re.compile(rb"(?m)^[^#\n]*\b(filter=(?!lfs\b)\S+|working-tree-encoding=\S+)")


def path_findings(change: FileChange, scene: Scene) -> Iterator[TamperFinding]:
    """Start-up files, shadows, compiled code, links, git's own files."""
    path = change.path
    if change.after is None:
        return
    yield from _startup(change)
    yield from _repository(change)
    if change.mode == "120000":
        yield from _link(change, scene)
        return
    name = path.rpartition("/")[2]
    if _COMPILED.fullmatch(name) or "__pycache__" in path.split("/"):
        archive = name.lower().endswith((".whl", ".egg"))
        if not (archive and is_test_path(path)):  # a packaging tool's test data
            yield finding("compiled-file", path, "compiled code that nobody can read")
    if change.before is None:
        yield from _shadow(path)
    if is_runner(path) and change.before == change.after and change.old_path is None:
        yield finding("test-command", path, f"its mode is {change.mode} now")


def _startup(change: FileChange) -> Iterator[TamperFinding]:
    path, content = change.path, change.after or b""
    parts = path.split("/")
    if {"site-packages", "dist-packages"} & set(parts[:-1]):
        yield finding("site-packages", path, "a file among the installed packages")
    elif any(p.endswith((".egg-info", ".dist-info")) for p in parts[:-1]):
        if parts[-1] in ("entry_points.txt", "RECORD", "top_level.txt") and _adds_plugin(change):
            yield finding("site-packages", path, "metadata of an installed package")
    elif _STARTUP.fullmatch(parts[-1]) or parts[0] in ("sitecustomize", "usercustomize"):
        yield finding("startup-file", path, "Python runs it, or what it names, at every start")
    elif parts[-1].endswith(".pth") and b"\0" not in content[:4096]:
        yield finding("startup-file", path, "Python reads .pth files at every start")


def _adds_plugin(change: FileChange) -> bool:
    name = change.path.rpartition("/")[2]
    if name != "entry_points.txt":
        return change.before is None
    return change.before is None or (
        b"pytest11" in (change.after or b"") and b"pytest11" not in change.before
    )


def _repository(change: FileChange) -> Iterator[TamperFinding]:
    path = change.path
    parts = path.split("/")
    if any(part.lower().rstrip(". ") in (".git", "git~1") for part in parts):
        yield finding("git-configuration", path, "inside .git")
    elif parts[-1] in (".gitmodules", ".gitconfig") or change.mode == "160000":
        yield finding("git-configuration", path, "a submodule or git's own settings")
    elif parts[-1] == ".gitattributes":
        had = set(_DRIVER.findall(change.before or b""))
        for driver in _DRIVER.findall(change.after or b""):
            if driver not in had:
                yield finding("git-configuration", path, f"adds {driver.decode('latin-1')}")
    elif {".githooks", ".husky", "git-hooks", "githooks"} & set(parts[:-1]):
        yield finding("git-hook-script", path, "a script for git's hooks")


def _link(change: FileChange, scene: Scene) -> Iterator[TamperFinding]:
    path = change.path
    target = (change.after or b"").decode("utf-8", "surrogateescape").strip()
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if target.startswith("/") or place.split("/")[0] == "..":
        yield finding("bad-symlink", path, f"leads out of the repository: {target}")
    elif ".git" in place.split("/"):
        yield finding("bad-symlink", path, f"leads into .git: {target}")
    elif scene.holds_tests(path) and b"\n" in (change.before or b"\n"):  # it was no link before
        yield finding("bad-symlink", path, f"a test's path leads to {target}")
    elif not is_test_path(path) and (is_test_path(place + "/x") or scene.holds_tests(place)):
        yield finding("bad-symlink", path, f"leads onto tests: {target}")


def _shadow(path: str) -> Iterator[TamperFinding]:
    match = re.fullmatch(r"([^.]*?)(/__init__)?(\.[^/]*)?\.(py|pyc|so|pyd)", path)
    if match is None or len(path) > 4096:
        return
    folder, _, name = match[1].rpartition("/")
    package = match[2] is not None
    inside_tests = not package and is_test_path(folder + "/x") and folder.count("/") < 2
    if name == "__init__" or not (folder in _TOP or inside_tests):
        return
    if name in _FRAMEWORK:
        yield finding("shadowed-module", path, f"is imported in place of {name}")
    elif name in _STANDARD:
        yield finding("shadowed-module", path, f"is imported in place of the standard {name}")
