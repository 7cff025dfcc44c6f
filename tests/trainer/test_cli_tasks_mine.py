"""`patchgym tasks mine` as its users meet it: real repositories and sandboxes, stops, bad input."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from git_history import History

from patchgym.datasets.mining import REASONS
from patchgym.datasets.mining.statement import fix_lines, quoted
from patchgym.datasets.task import load_tasks
from patchgym.trainer.cli import main
from patchgym.trainer.cli.tasks.mine import add_arguments

PATCHGYM = str(Path(sys.executable).with_name("patchgym"))
START = "def price(base, share):\n    return base - share\n"
TESTS = """from price import price


def test_nothing_off():
    assert price(10, 0) == 10


def test_part_off():
    assert price(10, 50) == 5
"""
FIXED = "def price(base, share):\n    return base - base * share / 100\n"
NETWORK = """import urllib.request


def test_page():
    assert urllib.request.urlopen("http://example.org").status == 200
"""
FLAKY = """import os
import time

from price import cheap


def test_now_and_then():
    assert cheap() and time.time_ns() % 1000000 < 500000


def test_cheap():
    assert cheap() == 1
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shop(tmp_path: Path) -> History:
    """A repository in which one commit is a task, and others nearly are."""
    made = History(tmp_path / "own" / "shop")
    made.commit("Start", {"price.py": START, "conftest.py": "", "README.md": "shop\n"})
    made.commit(
        "Percentages are taken as an amount (#7)\n\n    return base - base * share / 100\n",
        {"price.py": FIXED, "test_price.py": TESTS, "README.md": "a shop\n"},
    )
    made.commit("Say more", {"README.md": "a good shop\n"})
    made.commit("Tidy", {"price.py": f'"""Prices."""\n\n{FIXED}', "test_price.py": f"{TESTS}\n"})
    made.commit("Ask the web", {"price.py": f"{FIXED}\n# web\n", "test_web.py": NETWORK})
    return made


def words(*more: str, repository: str = "own/shop") -> list[str]:
    return ["tasks", "mine", repository, "--out", "tasks.jsonl", "--jobs", "2", *more]


def mine(*more: str, repository: str = "own/shop") -> subprocess.CompletedProcess[str]:
    command = [PATCHGYM, *words(*more, repository=repository)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.docker
@pytest.mark.slow
def test_a_repository_becomes_tasks(shop: History, docker_image: str) -> None:
    Path("issues.json").write_text('{"7": "price(10, 50) is -40.", "8": "no"}')
    first = told(mine("--json", "--repeats", "2", "--issues", "issues.json"))
    assert first["dropped"] == {"network": 1, "no-source": 1, "not-broken": 1, "root": 1}
    (task,) = load_tasks("tasks.jsonl")
    assert task.fail_to_pass == ("test_price.py::test_part_off",)
    assert task.pass_to_pass == ("test_price.py::test_nothing_off",)
    assert task.id.startswith("own__shop-")
    assert task.statement == (
        "Percentages are taken as an amount\n\nIssue #7:\n\nprice(10, 50) is -40.\n\n"
        "Tests that fail now and have to pass:\n\n"
        "- test_price.py::test_part_off: assert price(10, 50) == 5 got -40"
    )
    assert not quoted(task.statement, fix_lines(task.gold_patch))
    assert task.provenance["left_out"] == "README.md (docs)"
    assert json.loads(Path("tasks.jsonl").read_text())["repository"] == "own/shop"
    valid = [PATCHGYM, "tasks", "validate", "tasks.jsonl", "--jobs", "1"]
    assert subprocess.run(valid, capture_output=True, check=False).returncode == 0

    # the next night: nothing is run again, and what is new joins the file
    before = Path("tasks.jsonl").read_bytes()
    again = told(mine("--json", "--repeats", "2", "--issues", "issues.json"))
    assert (again["taken_over"], again["candidates"]) == (3, 3)
    assert Path("tasks.jsonl").read_bytes() == before
    (Path("tasks.jsonl.work") / "state.json").unlink()
    most = told(mine("--json", "--repeats", "2", "--issues", "issues.json", "--max-tasks", "1"))
    assert (most["looked_at"], most["tasks"]) == (4, 1)
    assert Path("tasks.jsonl").read_bytes() == before
    told(mine("--json", "--repeats", "2", "--issues", "issues.json"))
    cheap = f"{FIXED}\n\ndef cheap():\n    return 1\n"
    shop.commit("Cheap prices", {"price.py": cheap, "test_cheap.py": FLAKY})
    night = told(mine("--json", "--since", "last", "--repeats", "4"))
    assert (night["looked_at"], night["tasks"], night["file_tasks"]) == (1, 1, 2)
    assert Path("tasks.jsonl").read_bytes().startswith(before)
    assert "test_cheap.py::test_cheap" in load_tasks("tasks.jsonl")[1].fail_to_pass

    # from nothing, elsewhere: the same bytes
    Path("tasks.jsonl").rename("first.jsonl")
    Path("tasks.jsonl.work").rename("first.work")
    told(mine("--json", "--repeats", "2", "--issues", "issues.json", "--jobs", "1"))
    assert Path("tasks.jsonl").read_bytes().startswith(before)


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_stopped_and_gone_on(shop: History, docker_image: str, number: signal.Signals) -> None:
    slow = "import time\n\n\ndef test_slow():\n    time.sleep(60)\n"
    commit = shop.commit("Slow", {"price.py": f"{FIXED}\n# slow\n", "test_slow.py": slow})
    with Path("log").open("w") as log:
        running = subprocess.Popen(
            [PATCHGYM, *words("--repeats", "1")], stdout=log, stderr=log, start_new_session=True
        )
        decided = Path("tasks.jsonl.work/decided.jsonl")
        deadline = time.monotonic() + 240
        while not (decided.exists() and decided.read_text().count("\n") >= 3):
            assert running.poll() is None, Path("log").read_text()
            assert time.monotonic() < deadline, Path("log").read_text()
            time.sleep(0.05)
        os.kill(running.pid, number)
        code = running.wait(60)
    if number != signal.SIGKILL:
        assert code == 130
        assert "3 of 4 candidates are decided" in Path("log").read_text()
        assert len(load_tasks("tasks.jsonl")) == 1
    assert commit not in decided.read_text()
    shop.git("reset", "-q", "--hard", "HEAD~1")
    document = told(mine("--json", "--repeats", "1"))
    assert (document["taken_over"], document["tasks"]) == (3, 1)


@pytest.fixture
def odd(tmp_path: Path) -> History:
    """Everything that makes a repository hard to read, in one fix."""
    made = History(tmp_path / "odd")
    text = "".join(f"x{number} = {number}\n" for number in range(30))
    other = History(tmp_path / "other")
    other.commit("Start", {"a": "a\n"})
    allow = ("-c", "protocol.file.allow=always")
    made.git(*allow, "submodule", "add", "-q", str(other.folder), "other")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 1\n"
    made.commit(
        "Start",
        {
            "api/crlf.py": b"def one():\r\n    return 0\r\n",
            "api/latin.py": b"# coding: latin-1\nWORD = 'caf\xe9'\n",
            "api/old.py": text,
            "api/model.bin": pointer.format(0),
            "api/data/blob": b"\x00\x01",
            "web/app.py": "a = 1\n",
        },
        links={"api/link.py": "old.py"},
    )
    other.commit("More", {"a": "b\n"})
    made.git(*allow, "-C", "other", "pull", "-q")
    tests = (
        "import crlf, latin, link\n\n\ndef test_all():\n"
        "    assert (crlf.one(), latin.WORD, link.y) == (1, 'th\u00e9', 2)\n\n\n"
        "def test_blob():\n    import pathlib\n"
        "    blob = pathlib.Path(__file__).parent.parent / 'data' / 'blob'\n"
        "    assert blob.read_bytes()[:1] == bytes(1)\n"
    )
    made.commit(
        "Mend all of it",
        {
            "api/crlf.py": b"def one():\r\n    return 1\r\n",
            "api/latin.py": b"# coding: latin-1\nWORD = 'th\xe9'\n",
            "api/old.py": None,
            "api/new.py": f"{text}y = 2\n",
            "api/model.bin": pointer.format(1),
            "api/data/blob": b"\x00\x02",
            "api/tests/test_all.py": tests,
            "api/tests/data/latin.txt": b"\xe9\r\n",
        },
        links={"api/link.py": "new.py"},
    )
    made.commit("Web", {"web/app.py": "a = 2\n", "web/test_app.py": "def test_a(): pass\n"})
    return made


@pytest.mark.docker
@pytest.mark.slow
def test_an_odd_and_hostile_repository(odd: History, here: Path, docker_image: str) -> None:
    marker, script = here / "ran", here / "script"
    script.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    script.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "core.sshCommand", "core.pager"):
        odd.git("config", key, str(script))
    hooks = odd.folder / ".git" / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).symlink_to(script)
    marker.unlink(missing_ok=True)
    found = told(mine("--json", "--subproject", "api", "--repeats", "1", repository="odd"))
    assert found["dropped"] == {"outside-subproject": 1, "root": 1}
    (task,) = load_tasks("tasks.jsonl")
    assert [test.rpartition("::")[2] for test in task.fail_to_pass] == ["test_all"]
    assert [test.rpartition("::")[2] for test in task.pass_to_pass] == ["test_blob"]
    assert task.provenance["left_out"] == "api/model.bin (lfs), other (submodule)"
    assert "rename from api/old.py" in task.gold_patch
    assert "return 1\r\n" in task.gold_patch
    assert "GIT binary patch" in task.gold_patch
    assert not marker.exists()


BAD = {
    "none": ([], "none: no such folder: name a git repository"),
    "empty": ([], "empty is no git repository: clone it there"),
    "unborn": ([], "no commit in its HEAD: commit, or check out a branch"),
    "own/shop": (["--since", "yesterday"], "--since yesterday: neither a date nor a commit"),
    "own/shop ": (["--issues", "bad.json"], "--issues bad.json: not texts by number"),
    "own/shop  ": (["--subproject", "../x"], "--subproject ../x: name a folder inside"),
    "own/shop   ": (["--recipes", "none.toml"], "none.toml: No such file"),
    "own/shop    ": (["--out", "none/tasks.jsonl"], "--out none/tasks.jsonl: name a file"),
    "own/shop     ": (["--out", "bad.json"], "bad.json:1: no task"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(
    case: str, here: Path, shop: History, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "empty").mkdir()
    History(here / "unborn")
    Path("bad.json").write_text("[]")
    more, complaint = BAD[case]
    assert main(words(*more, repository=case.strip())) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert "Traceback" not in error


def test_the_page_names_every_option_and_reason(root: Path) -> None:
    page = (root / "docs" / "mining.md").read_text()
    arguments = argparse.ArgumentParser()
    add_arguments(arguments)
    options = {word for action in arguments._actions for word in action.option_strings}
    assert not [word for word in options - {"-h", "--help"} if not re.search(rf"{word}\b", page)]
    assert not [reason for reason in REASONS if f"`{reason}`" not in page]


def test_a_history_without_tests_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = History(here / "plain")
    plain.commit("Start", {"a.py": "a = 1\n"})
    plain.commit("More", {"a.py": "a = 2\n"})
    assert main(words(repository="plain")) == 1
    said = capsys.readouterr()
    assert "no tasks in 2 commits: the table says why" in said.err
    assert "no-tests" in said.out
    assert not Path("tasks.jsonl").exists()


RECIPE = """[[recipe]]
repo = "own/shop"
setup = ["echo broken on purpose >&2; exit 1"]
test_command = "python3 -m pytest {test_files}"
"""


@pytest.mark.docker
@pytest.mark.slow
def test_environments_that_all_fail(shop: History, docker_image: str) -> None:
    Path("recipes.toml").write_text(RECIPE)
    done = mine("--recipes", "recipes.toml", "--repo", "own/shop", "--max-tasks", "1")
    assert done.returncode == 2
    assert "no candidate has an environment: give --recipes" in done.stderr
    assert "broken on purpose" in done.stderr
    assert "Traceback" not in done.stderr
