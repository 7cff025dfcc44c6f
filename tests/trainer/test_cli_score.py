"""`patchgym score` as its users meet it: real sandboxes and linters, patches good and bad."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from calc_repository import BASE
from calc_task import CalcRepository

from patchgym.datasets.task import bundled_tasks, dump_tasks
from patchgym.rewards.registry import BUILT_IN
from patchgym.sandbox import BuildAccess, ImageStore, ensure_lint_image

TASK = next(task for task in bundled_tasks("heldout") if task.id.startswith("repair/count_vowels"))
NAME = f"bundled:heldout#{TASK.id}"
BAD = """\
diff --git a/count_vowels.py b/count_vowels.py
--- a/count_vowels.py
+++ b/count_vowels.py
@@ -1,2 +1,6 @@
 def count_vowels(text):
-    return len([c for c in text])
+    import os, subprocess
+    PASSWORD = "hunter2-s3cr3t-aWs0me"
+    print("\x1b[41mdebug")
+    subprocess.call("echo " + text, shell=True)
+    return len([ c for c in text if c in 'aeiou' ])
diff --git a/notes.txt b/notes.txt
new file mode 100644
--- /dev/null
+++ b/notes.txt
@@ -0,0 +1 @@
+scratch
"""
BINARY = """\
diff --git a/x.bin b/x.bin
new file mode 100644
index 0000000000000000000000000000000000000000..eaf36c1daccfdf325514461cd1a2ffbc139b5464
GIT binary patch
literal 4
LcmZQzWMT#Y01f~L

literal 0
HcmV?d00001

"""
WRONG = BAD.replace("len([c for c in text])", "something else")
CHEAP = "tests = 1.0\npatch_size = 0.05\n"


@pytest.fixture(scope="module")
def linters(docker_image: str) -> None:
    """The image with the linters is there."""

    async def build() -> None:
        access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
        async with ImageStore(access=access) as store:
            await ensure_lint_image(store)

    anyio.run(build)


def run(
    folder: Path, *words: str, patch: str = "", task: str = NAME, columns: int = 80
) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("patchgym")), "score", "--task", task, *words]
    return subprocess.run(command, input=patch, capture_output=True, text=True, check=False,
                          cwd=folder, env={**os.environ, "COLUMNS": str(columns)})  # fmt: skip


def scores(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    record = json.loads(done.stdout)
    return {score["name"]: score for score in record["scores"]}


@pytest.mark.docker
def test_a_bad_patch_is_explained_line_by_line(tmp_path: Path, linters: None) -> None:
    done = run(tmp_path, "--patch", "-", patch=BAD)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{TASK.id}  resolved by report  reward 1.000")
    assert lines[1] == "2 files, +6 -1 lines"
    for name in BUILT_IN:
        assert any(line.startswith(f"{name} ") for line in lines), name
    assert "sum: tests +1.000, patch_size 0.000 = 1.000" in lines
    assert "notes.txt: stray" in done.stdout
    assert '      3 | PASSWORD = "hunter2-s3cr3t-aWs0me"' in lines
    assert '      5 | subprocess.call("echo " + text, shell=True)' in lines
    assert '      4 | print("·[41mdebug")' in lines
    assert "\x1b" not in done.stdout
    assert max(map(len, lines)) <= 80


@pytest.mark.docker
def test_one_json_document_has_the_same(tmp_path: Path, linters: None) -> None:
    done = run(tmp_path, "--patch", "-", "--json", patch=BAD)
    found = scores(done)
    assert set(found) == set(BUILT_IN)
    fired = {name for name, score in found.items() if (score["value"] or 0) > 0}
    assert fired >= {"tests", "needless_changes", "formatting", "lint", "security"}
    sources = {fault["source"] for fault in found["security"]["faults"]}
    assert 'subprocess.call("echo " + text, shell=True)' in {
        each.strip() for each in sources if each
    }
    assert found["lint"]["contribution"] == 0
    record = json.loads(done.stdout)
    assert record["change"]["files"][1] == {
        "path": "notes.txt", "added": 1, "removed": 0, "binary": False
    }  # fmt: skip
    assert record["total"] == pytest.approx(1 + found["patch_size"]["contribution"])
    assert record["sum"] == "sum: tests +1.000, patch_size 0.000 = 1.000"


@pytest.mark.docker
def test_a_file_of_rewards_says_what_is_measured(tmp_path: Path, docker_image: str) -> None:
    (tmp_path / "cheap.toml").write_text(CHEAP)
    (tmp_path / "run.toml").write_text(f"[run]\nsteps = 3\n[reward]\n{CHEAP}clip = [0.0, 0.5]\n")
    done = run(tmp_path, "--patch", "gold", "--rewards", "cheap.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert list(scores(done)) == ["tests", "patch_size"]
    assert "linters" not in done.stderr
    done = run(tmp_path, "--patch", "gold", "--rewards", "run.toml")
    assert "patch_size 0.000 = 1.000, clipped to 0 to 0.5 = 0.500" in done.stdout


@pytest.mark.docker
@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("", "the diff changes nothing"),
        (WRONG, "the diff does not apply: "),
        ("I would change line 3.\n", "the diff does not apply: "),
        (BINARY, "1 file, +0 -0 lines, 1 binary"),
    ],
)
def test_a_patch_that_does_nothing_good_is_no_error(
    patch: str, words: str, tmp_path: Path, docker_image: str
) -> None:
    (tmp_path / "cheap.toml").write_text(CHEAP)
    done = run(tmp_path, "--patch", "-", "--rewards", "cheap.toml", patch=patch)
    assert done.returncode == 1, done.stderr
    assert words in done.stdout.splitlines()[1]
    assert "gated: tests is 0" in done.stdout
    assert "sum: tests 0.000 = 0.000" in done.stdout


@pytest.mark.docker
def test_a_patch_on_a_repository_that_cheats_and_breaks_things(
    tmp_path: Path, docker_image: str
) -> None:
    calc = CalcRepository(tmp_path / "calc")
    dump_tasks([calc.task], tmp_path / "tasks.jsonl")
    broken = BASE["calc/arithmetic.py"].replace(b"result += value", b"result -= value")
    diff = calc.diff(
        {**BASE, "calc/arithmetic.py": broken, "tests/test_arithmetic.py": b"# none\n"}
    )
    (tmp_path / "strict.toml").write_text("tests = 1.0\nregressions = 0.5\ntampering = 0.5\n")
    words = ("--patch", "-", "--rewards", "strict.toml")
    done = run(tmp_path, *words, patch=diff.decode(), task="tasks.jsonl", columns=120)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("calc/mean  unresolved by ")
    assert "\ntampering\n  tests/test_arithmetic.py: " in done.stdout
    assert "noted: " not in done.stdout
    assert "sum: tests 0.000, regressions -0." in done.stdout
    assert "tests pass (" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120


@pytest.mark.docker
def test_all_adds_what_the_file_does_not_name(tmp_path: Path, linters: None) -> None:
    (tmp_path / "mine.toml").write_text('[reward]\ncombine = "rubric"\nlint = 0.5\ntests = 1.0\n')
    done = run(tmp_path, "--patch", "gold", "--rewards", "mine.toml", "--all", "--json")
    found = scores(done)
    assert set(found) == set(BUILT_IN)
    assert list(found)[:2] == ["lint", "tests"]
    assert found["tests"]["weight"] == 1.0
    assert found["formatting"]["weight"] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("testz = 1.0", "bad.toml: reward.testz: no such component; did you mean tests?"),
        ("tests = nan", "bad.toml: reward.tests.weight is nan"),
        ("tests = ", "--rewards bad.toml: not TOML"),
        ('mine = {use = "none.py:Mine", weight = 1}', "reward.mine: no such file: none.py"),
    ],
)
def test_a_mistake_in_the_file_of_rewards(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    done = run(tmp_path, "--patch", "gold", "--rewards", "bad.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_files_that_are_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, "--patch", "gold", "--rewards", "none.toml")
    assert (done.returncode, done.stderr) == (
        2, "patchgym: --rewards none.toml: No such file or directory\n",
    )  # fmt: skip
    done = run(tmp_path, "--patch", "none.diff")
    assert (done.returncode, done.stderr) == (
        2, "patchgym: --patch none.diff: No such file or directory\n",
    )  # fmt: skip
