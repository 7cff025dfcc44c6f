"""Git on the host: nobody's programs run, and what goes wrong is one line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from patchgym.sandbox.host_git import GitFailure, run_git


@pytest.fixture
def hostile(tmp_path: Path) -> tuple[Path, Path]:
    """A repository whose configuration names a program, and the mark that the program leaves."""
    folder, mark, program = tmp_path / "r", tmp_path / "ran", tmp_path / "program"
    folder.mkdir()
    run_git(folder, "init", "-q")
    (folder / "a.txt").write_text("a")
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "reference-transaction"):
        (hooks / name).symlink_to(program)
    for key, value in (("core.fsmonitor", program), ("core.hooksPath", hooks)):
        run_git(folder, "config", key, str(value))
    return folder, mark


def test_a_repository_s_programs_are_not_run(hostile: tuple[Path, Path]) -> None:
    folder, mark = hostile
    run_git(folder, "add", "-A")
    run_git(folder, "status")
    run_git(folder, "write-tree")
    assert not mark.exists()
    # They would be, by git as it comes: the test would see it.
    subprocess.run(["git", "-C", str(folder), "status"], check=True, capture_output=True)
    assert mark.exists()


def test_what_goes_wrong_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GitFailure, match="not a git repository"):
        run_git(tmp_path, "rev-parse", "--git-dir", variables={"GIT_CEILING_DIRECTORIES": "/"})
    with pytest.raises(GitFailure, match="took more than 0 s"):
        run_git(tmp_path, "init", timeout=0.0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitFailure, match="git is not installed"):
        run_git(tmp_path, "init")


def test_input_variables_and_options_reach_git(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q")
    name = run_git(tmp_path, "hash-object", "-w", "--stdin", stdin=b"\xff\0")
    assert run_git(tmp_path, "cat-file", "blob", name.decode().strip()) == b"\xff\0"
    apart = {"GIT_INDEX_FILE": str(tmp_path / "index")}
    run_git(tmp_path, "--literal-pathspecs", "read-tree", "--empty", variables=apart)
    assert (tmp_path / "index").exists()
