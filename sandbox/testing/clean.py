"""The state that a test run began in, to begin another run in the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchgym.sandbox.errors import SandboxError

if TYPE_CHECKING:
    from patchgym.sandbox.container import Sandbox

SECONDS = 60.0
GIT = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c safe.directory=*"
TAKE = f"""
set -e
export GIT_OPTIONAL_LOCKS=0
if top=$(git rev-parse --absolute-git-dir 2>/dev/null); then
  export GIT_INDEX_FILE=$(mktemp -u)
  cp "$top/index" "$GIT_INDEX_FILE" 2>/dev/null || true
  {GIT} add -A >&2
  {GIT} write-tree
  rm -f "$GIT_INDEX_FILE"
else
  echo none
fi
"""
LIST = """
git ls-files -o -z 2>/dev/null | sed -z "s|^|$PWD/|"
find /tmp "$HOME" -mindepth 1 -print0 2>/dev/null
"""
RESTORE = f"""
set -e
export GIT_INDEX_FILE=$(mktemp -u)
{GIT} read-tree "$1"
{GIT} checkout-index -f -a
rm -f "$GIT_INDEX_FILE"
"""


@dataclass(frozen=True, slots=True)
class CleanState:
    """The work tree as a git tree, and the files that git does not know, in /tmp and at home too.

    Files of those that a run changes keep their change; only new ones go.
    """

    tree: str
    files: frozenset[bytes]

    @classmethod
    async def take(cls, sandbox: Sandbox) -> CleanState:
        """The present state; without a git work tree, only new files outside can be undone."""
        result = await sandbox.run(["sh", "-c", TAKE], timeout=SECONDS)
        if not result.ok:
            raise SandboxError(f"could not note the work tree: {result.stderr.text().strip()}")
        return cls(result.stdout.text().strip(), await _files(sandbox))

    async def restore(self, sandbox: Sandbox) -> None:
        """Put the work tree back, and remove what is new."""
        new = sorted(await _files(sandbox) - self.files)
        if new:
            await sandbox.run(
                ["xargs", "-0", "rm", "-rf", "--"], timeout=SECONDS, stdin=b"\0".join(new), cwd="/"
            )
        if self.tree != "none":
            result = await sandbox.run(["sh", "-c", RESTORE, "sh", self.tree], timeout=SECONDS)
            if not result.ok:
                raise SandboxError(f"could not restore the tree: {result.stderr.text().strip()}")


async def _files(sandbox: Sandbox) -> frozenset[bytes]:
    result = await sandbox.run(["sh", "-c", LIST], timeout=SECONDS, output_limit=64 << 20)
    return frozenset((result.stdout.head + result.stdout.tail).split(b"\0")) - {b""}
