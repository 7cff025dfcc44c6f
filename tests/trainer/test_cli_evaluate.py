"""`patchgym evaluate` as its users meet it: real sandboxes, bad input, kills, and the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patchgym.datasets.task import Task, bundled_tasks, dump_tasks
from patchgym.trainer.cli import main

PATCHGYM = str(Path(sys.executable).with_name("patchgym"))
TASKS = [task for task in bundled_tasks("heldout") if task.pass_to_pass][:7]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of tasks, and the current one."""
    monkeypatch.chdir(tmp_path)
    dump_tasks(TASKS, "tasks.jsonl")
    return tmp_path


def command(*words: str) -> list[str]:
    return [PATCHGYM, "evaluate", "--tasks", "tasks.jsonl", "--jobs", "2", *words]


def evaluate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, check=False)


def predict(patches: dict[str, str | None]) -> None:
    rows = [{"instance_id": each, "model_patch": patch} for each, patch in patches.items()]
    Path("p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def report(path: str = "r.json") -> dict[str, Any]:
    record: dict[str, Any] = json.loads(Path(path).read_text())
    return record


def kept(report: str = "r.json") -> list[dict[str, Any]]:
    """The whole lines of the verdicts so far."""
    path = Path(f"{report}.work/verdicts.jsonl")
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


@pytest.mark.docker
def test_gold_and_empty(here: Path, docker_image: str) -> None:
    gold = evaluate("--predictions", "gold", "--report", "gold.json", "--fail-under", "1")
    assert gold.returncode == 0, gold.stderr
    assert "7 of 7" in gold.stdout
    assert "95% interval 64.6% to 100.0%" in gold.stdout
    empty = evaluate("--predictions", "empty", "--report", "e.json", "--compare", "gold.json")
    assert empty.returncode == 0, empty.stderr
    assert report("e.json")["empty_patch_ids"] == sorted(task.id for task in TASKS)
    assert "-100.0 points" in empty.stdout
    assert report("e.json")["comparison"]["p_value"] == 2 / 2**7
    below = evaluate("--predictions", "empty", "--report", "e.json", "--fail-under", "0.5")
    assert below.returncode == 1
    assert "0.0% resolved: below --fail-under 50.0%" in below.stderr
    both = evaluate("--predictions", "gold", "--report", "r.json", "--repeats", "2", "--json")
    record = json.loads(both.stdout)
    assert record == report()
    assert [each["rate"] for each in record["repeats"]["rates"]] == [1, 1]
    assert len(record["verdicts"][TASKS[0].id]["repeats"]) == 2


def cheat(task: Task) -> str:
    """A patch that has every test pass."""
    hook = [
        "import pytest",
        "@pytest.hookimpl(hookwrapper=True)",
        "def pytest_runtest_makereport(item, call):",
        "    result = yield",
        "    result.get_result().outcome = 'passed'",
    ]
    head = ["diff --git a/conftest.py b/conftest.py", "new file mode 100644", "--- /dev/null"]
    body = ["+++ b/conftest.py", f"@@ -0,0 +1,{len(hook)} @@", *(f"+{line}" for line in hook)]
    assert "conftest.py" not in (task.files or {})
    return "\n".join([*head, *body, ""])


@pytest.mark.docker
def test_each_bad_patch_is_named_and_the_others_go_on(here: Path, docker_image: str) -> None:
    good, prose, empty, crlf, binary, huge, cheater = (task.id for task in TASKS)
    gold = {task.id: task.gold_patch for task in TASKS}
    predict({
        good: gold[good],
        prose: "The loop ends one too early. I would start it at 1.\n",
        empty: None,
        crlf: gold[crlf].replace("\n", "\r\n"),
        binary: "diff --git a/x.bin b/x.bin\nnew file mode 100644\nindex 0000000..1111111\n"
        "Binary files /dev/null and b/x.bin differ\n",
        huge: gold[huge] + "+" * 10_000_000,
        cheater: cheat(TASKS[6]),
        "nobody__knows-1": gold[good],
    })  # fmt: skip
    with Path("p.jsonl").open("a") as file:
        file.write('{"model_patch": "for nobody"}\n')
    done = evaluate("--predictions", "p.jsonl", "--report", "r.json")
    assert done.returncode == 0, done.stderr
    record = report()
    assert set(record["resolved_ids"]) - {crlf} == {good}
    assert record["empty_patch_ids"] == [empty]
    assert record["unknown_ids"] == ["nobody__knows-1"]
    assert record["error_ids"] == []
    for each, why in ((prose, "no file is named"), (binary, ""), (huge, "over 8 MiB")):
        assert record["verdicts"][each]["evidence"] == "patch_refused"
        assert why in record["verdicts"][each]["detail"]
    # git takes a patch with other line ends than the file's only leniently, and says so
    assert record["verdicts"][crlf]["rung"] == "whitespace"
    assert record["tampered_ids"] == [cheater]
    assert record["verdicts"][cheater]["resolved"] is False
    assert record["notes"] == ["p.jsonl:9: no key instance_id; ignored"]
    for verdict in record["verdicts"].values():
        assert Path(verdict["log"]).read_text().startswith("task ")


def begun(*words: str, verdicts: int) -> subprocess.Popen[str]:
    """An evaluation that has kept at least so many verdicts and goes on."""
    process = subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(kept()) < verdicts:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


@pytest.mark.docker
def test_after_a_kill_nothing_is_judged_twice(here: Path, docker_image: str) -> None:
    words = ("--predictions", "gold", "--report", "r.json")
    with begun(*words, verdicts=2) as process:
        process.kill()
    before = kept()
    assert 2 <= len(before) < len(TASKS)
    assert not Path("r.json").exists()
    again = evaluate(*words)
    assert again.returncode == 0, again.stderr
    assert report()["taken_over"] == len(before)
    assert kept()[: len(before)] == before
    assert Counter(row["task"] for row in kept()) == Counter(task.id for task in TASKS)
    assert report()["resolved_instances"] == len(TASKS)


@pytest.mark.docker
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_evaluation_goes_on(stop: signal.Signals, here: Path, docker_image: str) -> None:
    words = ("--predictions", "gold", "--report", "r.json")
    with begun(*words, verdicts=1) as process:
        process.send_signal(stop)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    count = len(kept())
    assert f"{count} of 7 verdicts are kept in r.json.work: the same command goes on" in said
    assert not Path("r.json").exists()
    assert not owned(process.pid)
    assert evaluate(*words).returncode == 0
    assert report()["taken_over"] == count


def owned(pid: int) -> str:
    """Containers that a process has left."""
    words = ["docker", "ps", "-aq", "--filter", f"label=patchgym.owner.pid={pid}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Exit code 2 and one line, before anything has begun."""
    assert main(["evaluate", *words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert not Path("r.json.work").exists()
    return lines[0]


def test_mistakes_show_at_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--tasks", "tasks.jsonl", "--predictions", "gold", "--report", "r.json")
    assert "--report is missing" in refused(capsys, *words[:4])
    assert "nowhere.jsonl: No such file" in refused(capsys, "--tasks", "nowhere.jsonl", *words[2:])
    assert "no bundled set" in refused(capsys, "--tasks", "bundled:test", *words[2:])
    assert "p.jsonl: No such file" in refused(capsys, *words[:2], "--predictions", "p.jsonl",
                                              *words[4:])  # fmt: skip
    assert "write OWNER/NAME=PATH" in refused(capsys, *words, "--mirror", "django")
    assert "no folder x" in refused(capsys, *words, "--mirror", "a/b=x")
    assert "it is a folder" in refused(capsys, *words[:4], "--report", ".")
    assert "base.json: No such file" in refused(capsys, *words, "--compare", "base.json")
    assert "has no use" in refused(capsys, *words, "--compare", "a.json", "b.json")
    assert "one or two reports" in refused(capsys, *words, "--compare", "a", "b", "c")


@pytest.mark.docker
def test_predictions_for_other_tasks_alone(here: Path, docker_image: str) -> None:
    predict({"nobody__knows-1": "x"})
    done = evaluate("--predictions", "p.jsonl", "--report", "r.json")
    assert done.returncode == 2
    assert "no prediction is for one of these 7 tasks" in done.stderr
    assert report()["incomplete_ids"] == sorted(task.id for task in TASKS)


def test_no_engine(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{here}/nowhere.sock")
    done = evaluate("--predictions", "gold", "--report", "r.json")
    assert done.returncode == 2
    assert f"{here}/nowhere.sock" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_reports(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, resolved in (("a", ["x"]), ("b", ["x", "y"])):
        rest = sorted({"x", "y", "z"} - set(resolved))
        text = json.dumps({"resolved_ids": resolved, "unresolved_ids": rest})
        Path(f"{name}.json").write_text(text)
    assert main(["evaluate", "--compare", "a.json", "b.json"]) == 0
    shown = capsys.readouterr().out
    assert "+33.3 points" in shown and "1: y" in shown
    assert main(["evaluate", "--compare", "a.json", "b.json", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["gained"], record["lost"], record["p_value"]) == (["y"], [], 1.0)


BUG = "def double(n):\n    return n + n + 1\n"
FIX = "def double(n):\n    return n + n\n"
TEST = "from shop import double\n\n\ndef test_double():\n    assert double(3) == 6\n"
COMMANDS = {
    "good": "python3 -m pytest -o junit_family=xunit1 --junitxml={report} test_shop.py",
    "silent": "true",
    "bomb": "sh make_bomb.sh {report}",
    "torn": "printf '<testsuites><testsuite><testcase name=' > {report}",
    "huge": "truncate -s 500M {report}",
}
ENTITIES = "\n".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
BOMB = f'<!DOCTYPE a [<!ENTITY e0 "ha">\n{ENTITIES}]><testsuites>&e11;</testsuites>'
MAKE_BOMB = f"cat > $1 <<'EOF'\n{BOMB}\nEOF\n"


@pytest.fixture
def shop(here: Path) -> Iterator[Path]:
    """Classic rows of a small repository: its tests report in every bad way there is."""
    folder = here / "shop"
    folder.mkdir()
    files = {"shop.py": BUG, "conftest.py": "", "make_bomb.sh": MAKE_BOMB, "test_shop.py": ""}
    commits: list[str] = []
    diffs: list[str] = []
    for change in (files, {"test_shop.py": TEST}, {"shop.py": FIX}):
        for name, text in change.items():
            (folder / name).write_text(text)
        if commits:
            diffs.append(git(folder, "diff"))
        else:
            git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "c")
        commits.append(git(folder, "rev-parse", "HEAD").strip())
    rows = [
        {
            "instance_id": f"me__shop-{name}", "repo": "me/shop", "version": f"1.{number}",
            "base_commit": commits[0], "patch": diffs[1], "test_patch": diffs[0],
            "problem_statement": "double(3) is 7", "PASS_TO_PASS": "[]",
            "FAIL_TO_PASS": json.dumps([] if name == "none" else ["test_shop.py::test_double"]),
        }
        for number, name in enumerate((*COMMANDS, "none"))
    ]  # fmt: skip
    Path("tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipes = [
        f'[[recipe]]\nrepo = "me/shop"\nversions = ["1.{number}"]\nreport = "junit"\n'
        f"test_command = {json.dumps(line)}\ntimeout_seconds = 60\n"
        for number, line in enumerate(COMMANDS.values())
    ]
    Path("recipes.toml").write_text("\n".join([*recipes, '[[recipe]]\nrepo = "me/shop"\n']))
    yield folder


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        check=True, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    return done.stdout


@pytest.mark.docker
@pytest.mark.slow
def test_each_bad_report_is_named_and_the_others_go_on(shop: Path, docker_image: str) -> None:
    words = ("--mirror", f"me/shop={shop}", "--recipes", "recipes.toml")
    done = evaluate("--predictions", "gold", "--report", "r.json", *words)
    assert done.returncode == 0, done.stderr
    record = report()
    assert record["resolved_ids"] == ["me__shop-good"]
    assert "FAIL_TO_PASS" in record["errors"]["me__shop-none"]
    bad = {each.rpartition("-")[2] for each in record["verdicts"]} - {"good"}
    assert bad == {"silent", "bomb", "torn", "huge"}
    for name in bad:
        verdict = record["verdicts"][f"me__shop-{name}"]
        assert verdict["resolved"] is False
        assert verdict["detail"], name
