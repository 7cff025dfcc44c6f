"""Git diffs as text: put together, and looked for where they must not be."""

from __future__ import annotations

import re
from collections.abc import Mapping

NULL = "/dev/null"
LONG_ENOUGH = 2  # changed lines, below which a hunk is too short to be called quoted


def ended(diff: str) -> str:
    """With the newline that a diff ends with; rows have lost it now and then."""
    return diff if not diff or diff.endswith("\n") else diff + "\n"


def new_files(contents: Mapping[str, str]) -> str:
    """The diff that adds these files, path -> text."""
    return "".join(_new_file(path, text) for path, text in contents.items())


def _new_file(path: str, text: str) -> str:
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\n"
    if not text:
        return head
    lines = text.split("\n")
    cut = lines.pop() if lines[-1] == "" else None
    body = "".join(f"+{line}\n" for line in lines)
    note = "" if cut is not None else "\\ No newline at end of file\n"
    return f"{head}--- {NULL}\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n{body}{note}"


def quoted_hunk(statement: str, diff: str) -> bool:
    """Whether a text holds a hunk of the diff: its lines in order, markers and all."""
    said = _lines(statement)
    for hunk in re.split(r"(?m)^(?:@@ .*|diff --git .*)$", diff)[1:]:
        lines = [line for line in _lines(hunk) if line]
        changed = [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]
        if len(changed) >= LONG_ENOUGH and _holds(said, changed):
            return True
    return False


def _lines(text: str) -> list[str]:
    """Without the blanks around them and between a marker and its line."""
    return [re.sub(r"^([+-])\s+", r"\1", line.strip()) for line in text.split("\n")]


def _holds(said: list[str], wanted: list[str]) -> bool:
    """Whether the lines come one after the other, whatever is between them in a hunk."""
    changed = [line for line in said if line[:1] in ("+", "-") and line not in ("+", "-")]
    wanted = [line for line in wanted if line not in ("+", "-")]
    width = len(wanted)
    return bool(wanted) and any(
        changed[start : start + width] == wanted for start in range(len(changed) - width + 1)
    )
