"""Real git repositories for tests, commit by commit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

DATE = 1_700_000_000  # seconds since 1970 of the first commit


class History:
    """A repository that grows by commits whose ids depend on its content alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._commits = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", "--template=")

    def commit(
        self,
        message: str,
        files: Mapping[str, str | bytes | None] | None = None,
        *,
        links: Mapping[str, str] | None = None,
    ) -> str:
        """Write files (None removes one) and symlinks, and commit; the commit's id."""
        for path, data in (files or {}).items():
            file = self.folder / path
            if data is None:
                file.unlink()
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data.encode() if isinstance(data, str) else data)
        for path, target in (links or {}).items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).unlink(missing_ok=True)
            (self.folder / path).symlink_to(target)
        self.git("add", "-A", "-f")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head

    @property
    def head(self) -> str:
        """Id of the newest commit."""
        return self.git("rev-parse", "HEAD").strip()

    def git(self, *words: str) -> str:
        """Run git in it, each time a minute later."""
        self._commits += words[0] in ("commit", "merge")
        date = f"{DATE + 60 * self._commits} +0000"
        environment = {
            **os.environ,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_DATE": date,
            "LC_ALL": "C",
        }
        for role in ("AUTHOR", "COMMITTER"):
            environment |= {f"GIT_{role}_NAME": "a", f"GIT_{role}_EMAIL": "a@localhost"}
        command = ["git", "-c", "core.autocrlf=false", "-C", str(self.folder), *words]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return done.stdout.decode("utf-8", "replace")
