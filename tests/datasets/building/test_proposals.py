"""Which environments are proposed for a tree, in which order; neighbours get equal ones."""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from patchgym.datasets.building import Proposal, propose, read_project, sharing_date
from patchgym.datasets.building.history import read_tree
from patchgym.datasets.building.ladder import enough_collected
from patchgym.datasets.building.other_languages import put
from patchgym.datasets.building.pins import dated, index_has_dates, install_command
from patchgym.datasets.building.python import allows, choose_base, metadata_command, wished_minor
from patchgym.sandbox import BuildAccess

AUTUMN = datetime(2023, 10, 30, tzinfo=UTC)
SHOP = {
    "pyproject.toml": b"""
[project]
name = "shop"
version = "1.0"
requires-python = ">=3.8"
dependencies = ["attrs"]
[project.optional-dependencies]
tests = ["pytest", "faker"]
web = ["flask"]
""",
    "shop/__init__.py": b"",
    "tests/test_a.py": b"",
}


def proposals(files: Mapping[str, bytes], **more: object) -> tuple[Proposal, ...]:
    """For a tree of autumn 2023."""
    return propose(files, date=AUTUMN, **more)  # type: ignore[arg-type]


def test_the_best_is_dated_and_needs_no_install() -> None:
    best = proposals(SHOP)[0]
    assert best.environment.base == "bookworm"
    assert best.environment.install == ()
    assert best.environment.variables == {"PYTHONPATH": "/workspace"}
    assert best.environment.test_command == "python3 -m pytest {test_files}"
    assert "--exclude-newer 2023-10-30T00:00:00Z attrs pytest faker" in best.environment.setup[0]
    assert "shop-1.0.dist-info" in best.environment.setup[1]
    assert best.check == "python3 -m pytest --collect-only -q tests"
    assert best.notes == ()


def test_then_comes_what_may_help() -> None:
    _, installed, earlier, today, other, minimal = proposals(SHOP)
    assert installed.environment.install
    assert "flask" in installed.environment.setup[0]
    assert installed.after == ("tests_not_collected",)
    assert "--exclude-newer 2023-09-30" in earlier.environment.setup[0]
    assert "--exclude-newer" not in today.environment.setup[0]
    assert other.environment.base == "bullseye"
    assert other.environment.packages == ("python3-distutils",)
    assert "faker" not in minimal.environment.setup[0]
    assert "tests_not_collected" not in minimal.after


def test_an_index_without_dates_is_noted_and_a_lock_file_used() -> None:
    lock = b'[[package]]\nname = "attrs"\nversion = "22.1"\n'
    best, *_ = proposals({**SHOP, "poetry.lock": lock}, dates=False)
    assert "the index has no dates" in best.notes[0]
    assert "1 pinned by a lock file" in best.notes[0]
    assert "attrs==22.1" in best.environment.setup[0]
    assert "--exclude-newer" not in best.environment.setup[0]
    assert "none pinned" in proposals(SHOP, dates=False)[0].notes[0]


def test_what_is_compiled_or_generated_is_installed_at_once() -> None:
    compiled = proposals({**SHOP, "shop/fast.pyx": b""})[0].environment
    assert compiled.install
    assert compiled.packages == ("build-essential", "python3-dev")
    assert compiled.variables == {}
    scm = SHOP["pyproject.toml"] + b'[build-system]\nrequires = ["setuptools"]\n'
    scm += b'[tool.setuptools_scm]\nversion_file = "shop/_version.py"\n'
    generated = proposals({**SHOP, "pyproject.toml": scm}, release="2.1")[0].environment
    assert "SETUPTOOLS_SCM_PRETEND_VERSION=2.1 " in generated.install[0]
    assert generated.packages == ()


def test_files_that_say_nothing_of_the_environment_do_not_change_it() -> None:
    more = {**SHOP, "shop/new.py": b"x = 1\n", "README.md": b"hello\n", "tests/test_b.py": b""}
    assert proposals(more)[0].environment == proposals(SHOP)[0].environment


def test_a_subproject_is_imported_and_tested_where_it_is() -> None:
    files = {f"libs/shop/{path}": data for path, data in SHOP.items()}
    best, installed, *_ = proposals(files, subproject="libs/shop")
    assert best.environment.variables == {"PYTHONPATH": "/workspace/libs/shop"}
    assert best.check.endswith("libs/shop/tests")
    assert installed.environment.install[0].endswith(" -e ./libs/shop")
    assert proposals(files) == ()


@pytest.mark.parametrize(
    ("specifier", "fits"),
    [
        ("", True),
        (">=3.8", True),
        (">=3.8, <4", True),
        (">=2.7, !=3.0.*, !=3.1.*", True),
        ("~=3.9", True),
        ("==3.11.*", True),
        (">=3.11.4", False),
        ("<3.11", False),
        ("!=3.11.*", False),
        ("~=3.12", False),
        ("==3.9.*", False),
        (">3.6", True),
    ],
)
def test_specifiers(specifier: str, fits: bool) -> None:
    assert allows(specifier, (3, 11, 2)) is fits


@pytest.mark.parametrize(
    ("date", "python", "classifiers", "wished", "base"),
    [
        ((2023, 10, 30), ">=3.8", (), 11, "bookworm"),
        ((2020, 5, 1), ">=3.5", (), 8, "bullseye"),
        ((2021, 6, 1), ">=3.6", ("3.6", "3.9"), 9, "bullseye"),
        ((2025, 6, 1), ">=3.9", (), 13, "bookworm"),
        ((2022, 1, 1), ">=3.10", (), 10, "bookworm"),
        ((2024, 6, 1), "<3.10", (), 9, "bullseye"),
        ((2025, 6, 1), ">=3.12", (), 13, "python:3.13-bookworm"),
    ],
)
def test_the_python_of_that_time(
    date: tuple[int, int, int],
    python: str,
    classifiers: tuple[str, ...],
    wished: int,
    base: str,
) -> None:
    listed = "".join(f'"Programming Language :: Python :: {each}",' for each in classifiers)
    text = f'[project]\nname="a"\nrequires-python="{python}"\nclassifiers=[{listed}]\n'
    project = read_project({"pyproject.toml": text.encode()})
    assert project is not None
    day = datetime(*date, tzinfo=UTC)
    chosen, notes = choose_base(project, day)
    assert wished_minor(project, day) == wished
    assert chosen == base
    assert bool(notes) is (base not in ("bookworm", "bullseye") or wished not in (11, 9))


def test_metadata_is_what_an_install_would_have_left(tmp_path: Path) -> None:
    project = read_project(
        {
            "pyproject.toml": b"""
            [project]
            name = "shop-floor"
            version = "1.5"
            dependencies = ["attrs>=20; python_version<'4'"]
            [project.entry-points."shop.plugins"]
            till = "shop_floor:Till"
            """
        }
    )
    assert project is not None
    command = metadata_command(project, "").replace(
        "site.getsitepackages()[0]", repr(str(tmp_path))
    )
    command = command.replace(f"print('{tmp_path}')", f'print("{tmp_path}")')
    subprocess.run(["sh", "-c", command], check=True)
    asked = (
        "import importlib.metadata as m; d = m.distribution('shop-floor'); "
        "print(d.version, d.requires, [e.name for e in d.entry_points])"
    )
    told = subprocess.run(
        ["python3", "-c", asked],
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert told.strip() == "1.5 [\"attrs>=20; python_version<'4'\"] ['till']"


def test_pins_by_date_or_by_lock() -> None:
    command = install_command(["attrs>=20", "x[y]; python_version<'4'"], before=AUTUMN)
    words = shlex.split(command)
    assert words[-2:] == ["attrs>=20", "x[y]; python_version<'4'"]
    assert "--exclude-newer" in words
    locked = install_command(["attrs"], before=None, locked={"attrs": "22.1"})
    assert "attrs==22.1" in locked
    assert shlex.split(locked)[-3:] == ["-c", "$HOME/locked.txt", "attrs"]


def test_whether_an_index_has_dates() -> None:
    files = [{"filename": "a-1.tar.gz", "upload-time": "2020-01-01T00:00:00Z"}]
    assert dated(json.dumps({"files": files}).encode())
    assert not dated(json.dumps({"files": [*files, {"filename": "a-2.tar.gz"}]}).encode())
    assert not dated(b"<html>")
    assert not dated(b"[]")


class Index(BaseHTTPRequestHandler):
    """Answers as an index with upload times does at /new, and as an old one at /old."""

    def do_GET(self) -> None:
        """One distribution's page."""
        file = {"filename": "setuptools-1.tar.gz"}
        if self.path == "/new/setuptools/" and "simple.v1+json" in self.headers["Accept"]:
            file["upload-time"] = "2020-01-01T00:00:00Z"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"files": [file]}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_an_index_is_asked_for_dates() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        answers = [
            index_has_dates(BuildAccess(settings={"index-url": f"{address}/{place}"}))
            for place in ("new", "old/")
        ]
        server.shutdown()
        thread.join()
    assert answers == [True, False]
    assert index_has_dates(BuildAccess())
    assert not index_has_dates(BuildAccess(settings={"no-index": "true"}))
    assert not index_has_dates(BuildAccess(settings={"index-url": address}))


@pytest.mark.parametrize(
    ("commit", "manifests", "pinned"),
    [
        ((2023, 10, 30), (2023, 10, 19), (2023, 10, 20)),
        ((2023, 11, 30), (2023, 10, 19), (2023, 10, 20)),
        ((2023, 11, 30), (2021, 1, 1), (2023, 10, 1)),
        ((2024, 1, 1), (2023, 12, 31), (2024, 1, 1)),
        ((2023, 12, 31), (2023, 12, 31), (2024, 1, 1)),
    ],
)
def test_neighbours_share_a_date(
    commit: tuple[int, int, int], manifests: tuple[int, int, int], pinned: tuple[int, int, int]
) -> None:
    at = sharing_date(datetime(*commit, 9, tzinfo=UTC), datetime(*manifests, 23, tzinfo=UTC))
    assert at == datetime(*pinned, tzinfo=UTC)


@pytest.mark.parametrize(
    ("code", "printed", "enough"),
    [
        (0, "12 tests collected in 0.1s", True),
        (5, "no tests collected in 0.1s", True),
        (2, "tests/a.py::test_a\n12 tests collected, 1 error in 0.1s", True),
        (2, "tests/a.py::test_a\n12 tests collected, 2 errors in 0.1s", False),
        (2, "no tests collected, 1 error in 0.1s", False),
        (1, "3 tests collected / 1 errors", True),
        (4, "error: unrecognized arguments: --cov", False),
        (None, "12 tests collected in 0.1s", False),
    ],
)
def test_what_counts_as_collected(code: int | None, printed: str, enough: bool) -> None:
    assert enough_collected(code, printed) is enough


def test_node_shares_modules_above_the_work_tree() -> None:
    package = b'{"name": "shop", "scripts": {"test": "node --test"}}'
    lock = b'{"lockfileVersion": 3}'
    only, *rest = proposals({"package.json": package, "package-lock.json": lock})
    assert rest == []
    environment = only.environment
    assert environment.report == "junit"
    assert environment.install == ()
    assert "npm ci" in environment.setup[-1]
    assert "/node_modules" in environment.setup[-1]
    assert only.notes == ()


@pytest.mark.parametrize(
    ("files", "word", "install"),
    [
        ({"package.json": b'{"devDependencies": {"jest": "29"}}', "yarn.lock": b""}, "jest", False),
        ({"package.json": b'{"devDependencies": {"vitest": "1"}}'}, "vitest", False),
        ({"package.json": b'{"devDependencies": {"mocha": "1"}}'}, "mocha", False),
        ({"package.json": b'{"workspaces": ["a"]}'}, "node --test", True),
        ({"go.mod": b"module a\ngo 1.21\n", "go.sum": b""}, "gotestsum", False),
        ({"Cargo.toml": b'[package]\nname = "a"\n', "Cargo.lock": b""}, "nextest", False),
        ({"Cargo.toml": b"[workspace]\n"}, "nextest", True),
        ({"pom.xml": b"<project/>"}, "mvn", True),
        ({"build.gradle": b"", "gradle.lockfile": b""}, "gradle", True),
    ],
)
def test_other_languages_report_junit(files: dict[str, bytes], word: str, install: bool) -> None:
    (only,) = proposals(files)
    assert only.environment.report == "junit"
    assert word in only.environment.test_command
    assert "{report}" in only.environment.test_command
    assert bool(only.environment.install) is install
    assert only.environment.command.kind == "junit"


def test_python_comes_before_the_language_of_its_pages() -> None:
    assert proposals({**SHOP, "package.json": b"{}"})[0].environment.report == "pytest"
    pages = {"package.json": b"{}", "requirements.txt": b"sphinx\n"}
    assert proposals(pages)[0].environment.report == "junit"


def test_large_files_go_into_a_build_in_pieces(tmp_path: Path) -> None:
    data = bytes(range(256)) * 2000 + repr(list(range(60_000))).encode()
    commands = put({"lock.json": data})
    assert len(commands) > 3
    assert max(map(len, commands)) < 100_000
    for command in commands:
        subprocess.run(["sh", "-c", command], env={"HOME": str(tmp_path)}, check=True)
    assert (tmp_path / "project" / "lock.json").read_bytes() == data


def test_a_commit_is_read_with_its_dates_and_release(tmp_path: Path) -> None:
    root = tmp_path / "ada+shop" / "repo"
    root.mkdir(parents=True)

    def git(*words: str, day: str = "2023-10-19") -> str:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
        stamp = f"{day}T12:00:00Z"
        dates = {"GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp, "PATH": "/usr/bin:/bin"}
        command = ["git", "-C", str(root), *identity, *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=dates
        ).stdout.strip()

    git("init", "-q")
    for path, data in SHOP.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(data or b"# nothing\n")
    git("add", "-A")
    git("commit", "-qm", "start")
    git("tag", "v1.0.1")
    (root / "shop" / "__init__.py").write_text("x = 1\n")
    git("commit", "-qam", "code", day="2023-11-30")
    tree = read_tree(root, git("rev-parse", "HEAD"))
    assert set(tree.files) == set(SHOP)
    assert tree.files["pyproject.toml"] == SHOP["pyproject.toml"]
    assert tree.files["tests/test_a.py"] == b""
    assert (tree.committed.month, tree.changed.month) == (11, 10)
    assert tree.release == "1.0.1"
    assert tree.names == ("ada/shop",)
