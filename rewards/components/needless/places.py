"""What part a path plays: test, documentation, generated file, stray file."""

from __future__ import annotations

import re
from collections.abc import Collection

from patchgym.rewards.tampering.roles import TEST_FOLDERS, is_test_path

_DOC_FOLDERS = frozenset({"doc", "docs", "documentation", "changelog", "changelog.d", "changes",
                          "news", "newsfragments", "release-notes", "whatsnew"})  # fmt: skip
_DOC_SUFFIXES = (".md", ".rst", ".txt", ".adoc", ".rdoc")
_DOC_NAMES = re.compile(r"(?i)(authors|change(s|log)|contributors|copying|history|licen[cs]e|news"
                        r"|readme|todo)([._-].*)?")  # fmt: skip
_SCRIPT_FOLDERS = frozenset(
    {"bin", "scripts", "script", "tools", "examples", "example", "benchmarks", "benchmark", "ci",
     "asv_bench", "release", "tutorials", "demo", "demos", "galleries", "build_tools", ".github",
     "commands"}
)  # fmt: skip
_SCRIPTS = frozenset({"setup.py", "__main__.py", "noxfile.py", "conftest.py", "fabfile.py",
                      "tasks.py", "manage.py", "cli.py", "main.py"})  # fmt: skip
_LOCKS = frozenset(
    {"poetry.lock", "uv.lock", "pdm.lock", "pipfile.lock", "package-lock.json", "yarn.lock",
     "pnpm-lock.yaml", "npm-shrinkwrap.json", "cargo.lock", "go.sum", "gemfile.lock",
     "composer.lock", "conda-lock.yml", "pixi.lock", "bun.lockb"}
)  # fmt: skip
_MANIFESTS = frozenset(
    {"pyproject.toml", "setup.cfg", "setup.py", "pipfile", "package.json", "cargo.toml", "go.mod",
     "gemfile", "composer.json", "environment.yml", "pixi.toml"}
)  # fmt: skip
_GENERATED_NAMES = re.compile(
    r".*\.min\.(js|css)|.*_pb2(_grpc)?\.pyi?|.*\.pb\.go|.*\.py[cod]|.*\.(js|css)\.map"
    r"|.*\.(o|obj|a|so|pyd|dll|dylib|class|whl|egg)"
    r"|\.coverage(\..*)?|coverage\.xml|junit.*\.xml|\.ds_store|thumbs\.db"
)  # fmt: skip
_GENERATED_FOLDERS = re.compile(
    r"__pycache__|.*\.(egg|dist)-info|node_modules|htmlcov|\.(pytest|mypy|ruff|hypothesis)(_cache)?"
    r"|\.tox|\.nox|\.?venv|\.eggs|\.ipynb_checkpoints"
)
_STRAY_NAMES = re.compile(
    r".*\.(orig|rej|log|bak|backup|old|swp|swo|tmp|temp|prof|dmp)|.*~|#.*#|nohup\.out|core(\.\d+)?"
    r"|.*[._ -](backup|old|orig|copy)(\.\w{1,5}|[ _-]?\d*\.\w{1,5})|.*\.(sqlite3?|db)"
)
_STRAY_FOLDERS = frozenset({".idea", ".vscode", ".vs", ".aider.tags.cache"})
_STRAY_SCRIPTS = re.compile(
    r"(repro(duce|ducer|duction)?|debug|scratch|tmp|temp|check|verify|validate|try|demo|quick|simple"
    r"|minimal|manual|final|comprehensive|run|edge_cases?|fix|patch|apply|edit|example)"
    r"([_-]\w*)?\.(py|sh|js|ipynb)"
)
_STRAY_NOTES = re.compile(
    r"(?i)(notes?|scratch|summary|solution|analysis|plan|report|output|results?|out|temp|tmp|answer"
    r"|(\w+[_-])?(fix|bug|issue|change|changes|implementation|patch|solution|test)"
    r"[_-](summary|notes?|report|explanation|analysis|description|plan|results?|output)"
    r"|(my|the)?[_-]?(patch|fix|solution))\.(md|txt|rst|json|diff|patch|out)"
)


def is_test(path: str, test_files: Collection[str] = ()) -> bool:
    """A test or what tests need, by its path or because the task says so."""
    return path in test_files or is_test_path(path) or path.rpartition("/")[2] == "conftest.py"


def is_docs(path: str) -> bool:
    """Documentation, the change log, a licence."""
    *folders, name = path.split("/")
    if any(folder.lower() in _DOC_FOLDERS for folder in folders):
        return True
    lower = name.lower()
    if lower.startswith(("requirements", "constraints", "cmakelists")):
        return False
    return lower.endswith(_DOC_SUFFIXES) or bool(_DOC_NAMES.fullmatch(name))


def is_library(path: str, test_files: Collection[str] = ()) -> bool:
    """Python that others import: no test, no documentation, no script."""
    *folders, name = path.split("/")
    if not name.endswith((".py", ".pyx")) or is_test(path, test_files) or is_docs(path):
        return False
    return name not in _SCRIPTS and not any(folder in _SCRIPT_FOLDERS for folder in folders)


def is_manifest(path: str) -> bool:
    """Where a project names what it depends on."""
    name = path.rpartition("/")[2].lower()
    return name in _MANIFESTS or name.startswith("requirements")


def generated(path: str) -> str:
    """Why the file is one that a tool writes; empty when it is not."""
    *folders, name = path.lower().split("/")
    if name in _LOCKS:
        return "a lock file"
    if _GENERATED_NAMES.fullmatch(name) or any(_GENERATED_FOLDERS.fullmatch(f) for f in folders):
        return "a generated file"
    return ""


def stray(path: str, test_files: Collection[str], *, binary: bool) -> str:
    """Why a new file looks left behind; empty when it does not."""
    *folders, name = path.split("/")
    lower = name.lower()
    if any(folder in _STRAY_FOLDERS for folder in folders):
        return "an editor's file"
    if any(folder.lower() in TEST_FOLDERS | _DOC_FOLDERS for folder in folders):
        return ""
    if _STRAY_NAMES.fullmatch(lower):
        return "a left-over file"
    homes = {test.rpartition("/")[0] for test in test_files}
    if "/".join(folders) in homes and is_test(path):
        return ""
    if not folders and _STRAY_SCRIPTS.fullmatch(lower):
        return "a script that was left behind"
    if len(folders) < 2 and _STRAY_NOTES.fullmatch(name):
        return "notes that were left behind"
    if not folders and is_test_path(path) and test_files:
        return "a test outside of where the tests are"
    if binary and not folders:
        return "a binary file"
    return ""
