"""Paths that a policy gives: inside the repository, or refused in words."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Literal

from patchgym.sandbox import Sandbox, SandboxError

from .text import readable

LOOK_SECONDS = 60.0
TEST_BYTES = 8000  # at a file's start, of which none may be zero in a text
PlaceKind = Literal["file", "folder", "missing", "outside", "unreadable", "special", "unknown"]

# Prints what the path is; of a file also its bytes, lines and whether it is binary. Without
# readlink's -m, which not every image has: the deepest part that exists tells where a path leads.
LOOK = f"""
root=$(pwd -P) near=$1
while [ ! -e "$near" ] && [ ! -L "$near" ]; do
    case $near in */*) near=${{near%/*}} ;; *) near=. ;; esac
done
real=$(readlink -f -- "$near") || {{ echo outside; exit; }}
case $real/ in "$root"/*) ;; *) echo outside; exit ;; esac
if [ ! -e "$1" ]; then echo missing
elif [ ! -r "$1" ]; then echo unreadable
elif [ -d "$1" ]; then echo folder "$(LC_ALL=C ls -1Ap -- "$1" | grep -cv '^\\.git/$')"
elif [ -f "$1" ]; then
    start=$(head -c {TEST_BYTES} -- "$1" | wc -c)
    text=$(head -c {TEST_BYTES} -- "$1" | tr -d '\\000' | wc -c)
    echo file $(wc -c <"$1") $(wc -l <"$1") $((start - text)) "$(tail -c 1 -- "$1" | wc -l)"
else echo special; fi
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a path stands for."""

    path: str
    """Relative to the repository, normalized; `.` is its root."""
    kind: PlaceKind
    size: int = 0
    """Bytes of a file, entries of a folder."""
    lines: int = 0
    """Lines of a file, an unended last one included."""
    binary: bool = False
    complaint: str = ""
    """Why nothing is known of it."""

    @property
    def problem(self) -> str:
        """Why it can't be read, in words for the policy; empty when it can."""
        return {
            "missing": f"There is no {self.path} in the repository.",
            "outside": f"{self.path} leads out of the repository: use paths inside it.",
            "unreadable": f"{self.path} can't be read: its permissions forbid it.",
            "special": f"{self.path} is neither a file nor a folder.",
            "unknown": f"{self.path} can't be looked at: {self.complaint}.",
        }.get(self.kind, "")


async def look(sandbox: Sandbox, path: str, told: str) -> Place:
    """What `path` is, relative to the repository or below it, which the policy knows as `told`."""
    inside = _relative(path, (told, sandbox.spec.workdir))
    if inside is None:
        return Place(path=path, kind="outside")
    result = await sandbox.run(["sh", "-c", LOOK, "sh", f"./{inside}"], timeout=LOOK_SECONDS)
    if result.timed_out:
        raise SandboxError(f"could not look at {inside} within {LOOK_SECONDS:.0f} s")
    kind, *numbers = result.stdout.text().split() or [""]
    match kind:
        case "folder" if len(numbers) == 1:
            return Place(path=inside, kind=kind, size=int(numbers[0]))
        case "file" if len(numbers) == 4:
            size, ends, zeros, ended = map(int, numbers)
            lines = ends + (size > 0 and not ended)
            return Place(path=inside, kind=kind, size=size, lines=lines, binary=zeros > 0)
        case "missing" | "outside" | "unreadable" | "special":
            return Place(path=inside, kind=kind)
        case _:  # no process could be started, say: what the policy left running is in the way
            words = readable(result.stderr.head).strip().splitlines() or ["no reason given"]
            return Place(path=inside, kind="unknown", complaint=words[-1])


def _relative(path: str, roots: tuple[str, str]) -> str | None:
    """The normalized path below the repository; None when it is not below it."""
    for root in roots:
        if path == root or path.startswith(f"{root}/"):
            path = path[len(root) :].lstrip("/") or "."
            break
    inside = posixpath.normpath(path or ".")
    return None if inside.startswith("/") or inside.split("/")[0] == ".." else inside
