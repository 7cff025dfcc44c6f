"""The calc repository as a task, and edits on it as git diffs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from calc_repository import BASE, BUG, FAILING, FIX, PASSING, TEST_FILES

from patchgym.datasets.task import Task

GIT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{who}_{what}": "calc@localhost" for who in ("AUTHOR", "COMMITTER") for what in
       ("NAME", "EMAIL")},
    "GIT_AUTHOR_DATE": "946684800 +0000",
    "GIT_COMMITTER_DATE": "946684800 +0000",
}  # fmt: skip
EXECUTABLE = {"bin/test": "100755"}


class CalcRepository:
    """A repository on disk, and what it takes to make patches for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._git("init", "-q", "-b", "main")
        self.commit = self._commit(BASE)
        self.task = self._task()

    def diff(self, after: Mapping[str, bytes], modes: Mapping[str, str] | None = None) -> bytes:
        """A git diff from the base commit to these files."""
        self._write(after, modes or {})
        self._git("add", "-A", "-f")
        made = self._git("diff", "--cached", "--binary", "--full-index", "HEAD")
        self._git("reset", "-q", "--hard")
        return made

    def _task(self) -> Task:
        library = {**BASE, "calc/arithmetic.py": BASE["calc/arithmetic.py"].replace(
            BUG.encode(), FIX.encode())}  # fmt: skip
        return Task(
            id="calc/mean",
            statement="mean() of two numbers is too small.",
            base_commit=self.commit,
            gold_patch=self.diff(library).decode(),
            fail_to_pass=FAILING,
            pass_to_pass=PASSING,
            test_files=TEST_FILES,
            repository=str(self.folder),
        )

    def _commit(self, files: Mapping[str, bytes]) -> str:
        self._write(files, {})
        self._git("add", "-A", "-f")
        self._git("commit", "-q", "-m", "Start")
        return self._git("rev-parse", "HEAD").decode().strip()

    def _write(self, files: Mapping[str, bytes], modes: Mapping[str, str]) -> None:
        for entry in self.folder.iterdir():
            if entry.name == ".git":
                continue
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if modes.get(name) == "120000":
                path.symlink_to(content.decode())
            else:
                path.write_bytes(content)
                path.chmod(0o755 if modes.get(name, EXECUTABLE.get(name)) == "100755" else 0o644)

    def _git(self, *words: str) -> bytes:
        return subprocess.run(
            ["git", "-C", str(self.folder), *words], env=GIT, check=True, capture_output=True
        ).stdout
