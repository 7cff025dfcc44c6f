"""Does a task give its fix away: in the statement, or in what the container's git knows?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from patchgym.sandbox import SandboxError

from .task import Task

if TYPE_CHECKING:
    from patchgym.sandbox import Sandbox

TRIVIAL = 12  # characters, blanks left out, below which a line says nothing
KNOWN = """
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || { echo none; exit 0; }
echo "commits $(git rev-list --all --reflog | wc -l)"
echo "remotes $(git remote | wc -l)"
echo "tags $(git tag | wc -l)"
git rev-list --objects --all | cut -d' ' -f1 | sort -u > /tmp/.patchgym-reached
git cat-file --batch-all-objects --batch-check='%(objectname)' | sort -u > /tmp/.patchgym-objects
echo "unreachable $(comm -13 /tmp/.patchgym-reached /tmp/.patchgym-objects | wc -l)"
rm -f /tmp/.patchgym-reached /tmp/.patchgym-objects
"""
ALLOWED = {"commits": 1, "remotes": 0, "tags": 0, "unreachable": 0}


def quoted_lines(task: Task) -> tuple[str, ...]:
    """Lines that the gold patch adds, and nothing removes or surrounds, that the statement has."""
    said = _squeezed(task.statement)
    lines = task.gold_patch.splitlines()
    known = {_squeezed(line[1:]) for line in lines if line[:1] in ("-", " ")}
    found = []
    for line in lines:
        text = _squeezed(line[1:])
        if not line.startswith("+") or line.startswith("+++") or len(text) < TRIVIAL:
            continue
        if text not in known and text in said and not _is_comment(line[1:]):
            found.append(line[1:].strip())
    return tuple(found)


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _is_comment(line: str) -> bool:
    return line.strip().startswith(("#", "//", "import ", "from "))


async def future_in(sandbox: Sandbox) -> str:
    """What the checkout's git knows past its one commit, in words; empty when nothing."""
    result = await sandbox.run(["sh", "-c", KNOWN], timeout=60)
    if not result.ok:
        raise SandboxError(f"could not ask git what it knows: {result.stderr.text().strip()}")
    found = []
    for line in result.stdout.text().splitlines():
        name, _, number = line.partition(" ")
        if name in ALLOWED and int(number) > ALLOWED[name]:
            found.append(f"{number} {name}")
    return ", ".join(found)
