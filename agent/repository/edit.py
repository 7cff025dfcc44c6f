"""`edit`: an exact replacement in one file, or a new file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import anyio.to_thread

from patchgym.agent.action import Observation
from patchgym.sandbox import Sandbox, SandboxUsageError

from .near import nearest
from .place import Place, look
from .replacing import MOST, Replaced, replace_once
from .text import cut, readable
from .view import numbered, split_lines, told_off

FILE_BYTES = 8 << 20  # of a file that can be edited
AROUND = 3  # lines shown before and after a change
SHOWN = 30  # lines shown of a change
PARSE_SECONDS = 10.0
PARSE = """
import ast, sys
data = sys.stdin.buffer.read()
try:
    compile(data, "x", "exec", ast.PyCF_ONLY_AST, True)
except SyntaxError as error:
    print("%s (line %s)" % (error.msg, error.lineno))
except Exception as error:
    print("%s: %s" % (type(error).__name__, error))
"""


async def edit(
    sandbox: Sandbox, path: str, search: str, replace: str, *, told: str, characters: int
) -> Observation:
    """Replace the one match of `search`; with an empty `search`, make a file of `replace`."""
    place = await look(sandbox, path, told)
    problem = _refused(place, search)
    if problem:
        return told_off(problem)
    if not search:
        return await _create(sandbox, place, replace, characters)
    if search == replace:
        text = "`search` and `replace` are the same: nothing to do."
        return Observation(kind="no_change", text=text, done=False)
    try:
        before = await sandbox.read(place.path)
    except SandboxUsageError as error:  # it was there a moment ago
        return told_off(f"Can't read {place.path}: {error}.")
    found = await anyio.to_thread.run_sync(replace_once, before, search, replace)
    if found.data is None:
        why = await anyio.to_thread.run_sync(_mismatch, place.path, before, search, found)
        text, dropped = cut(why, characters)
        return Observation(kind="patch_refused", text=text, done=False, dropped=dropped)
    if found.data == before:
        text = "`search` and `replace` are the same but for line ends, and those are kept."
        return Observation(kind="no_change", text=text, done=False)
    problem = await _write(sandbox, place.path, found.data, before)
    if problem:
        return told_off(problem)
    first, last = found.lines[0], found.last
    shown = await anyio.to_thread.run_sync(_around, found.data, first, last)
    lines = f"line {first}" if first >= last else f"lines {first} to {last}"
    words = [f"Edited {place.path}, {lines}:", *shown]
    words += await _parse_problem(sandbox, place.path, found.data, before)
    text, dropped = cut("\n".join(words), characters)
    return Observation(kind="output", text=text, done=False, dropped=dropped)


async def _create(sandbox: Sandbox, place: Place, replace: str, characters: int) -> Observation:
    data = replace.encode()
    problem = await _write(sandbox, place.path, data, None)
    if problem:
        return told_off(problem)
    count = len(split_lines(data))
    words = [f"Made {place.path}: {count} line{'' if count == 1 else 's'}."]
    words += await _parse_problem(sandbox, place.path, data, None)
    return Observation(kind="output", text=cut("\n".join(words), characters)[0], done=False)


def _refused(place: Place, search: str) -> str:
    """Why there is nothing to edit here; empty when there is."""
    if place.path.split("/")[0] == ".git":
        return "Files of git's own, in .git, are not for editing."
    if place.kind == "folder":
        return f"{place.path} is a folder."
    if not search:
        exists = f"{place.path} exists: give the text to replace in `search`."
        if place.kind == "missing":
            return ""
        return place.problem or exists
    if place.kind == "missing":
        return f"There is no {place.path}; to make it, leave `search` empty."
    if place.size > FILE_BYTES:
        return f"{place.path} has {place.size} bytes; over {FILE_BYTES >> 20} MiB, use bash."
    return place.problem


async def _write(sandbox: Sandbox, path: str, data: bytes, before: bytes | None) -> str:
    """Write the file, with its mode kept; why that failed, in which case it is put back."""
    try:
        await sandbox.write(path, data)
    except SandboxUsageError as error:
        kept = await _put_back(sandbox, path, before)
        end = "Nothing has changed." if kept else "The file is damaged now: see to it with bash."
        return f"Can't write {path}: {error}. {end}"
    return ""


async def _put_back(sandbox: Sandbox, path: str, before: bytes | None) -> bool:
    """Undo half a write, as a full disk leaves it; whether the file is what it was."""
    if before is None:
        await sandbox.run(["rm", "-f", "--", path], timeout=PARSE_SECONDS)
        return True
    with suppress(SandboxUsageError):  # where it could not be opened, it is as it was
        await sandbox.write(path, before)
    try:
        return await sandbox.read(path) == before
    except SandboxUsageError:
        return False


def _around(data: bytes, first: int, last: int) -> list[str]:
    """The changed lines with their numbers, and some around them."""
    start = max(first - AROUND, 1)
    lines = split_lines(data)[start - 1 : last + AROUND]
    shown = [readable(line.removesuffix(b"\r")) for line in lines[:SHOWN]]
    more = len(lines) - len(shown)
    return [*numbered(shown, start), *([f"[{more} more lines]"] if more else [])]


def _mismatch(path: str, data: bytes, search: str, found: Replaced) -> str:
    """Why there was not exactly one match; runs in a thread."""
    if found.matches:
        count = f"over {MOST}" if found.matches >= MOST else str(found.matches)
        more = ", ..." if found.matches > len(found.lines) else ""
        lines = ", ".join(map(str, found.lines)) + more
        return (
            f"`search` is in {path} {count} times, at lines {lines}: nothing has changed. "
            "Give more of the text around the one that is meant."
        )
    head = f"`search` is not in {path}: nothing has changed."
    near = nearest(readable(data), search.replace("\r\n", "\n"))
    if near is None:
        return f"{head} Nothing there is like it."
    place = f"line {near.first}" if near.first == near.last else f"lines {near.first}-{near.last}"
    if near.blanks:
        head += f" Only blanks differ from {place}: {near.blanks}."
    else:
        head += f" Most like it: {place}."
    return "\n".join([head, "From yours (-) to the file's (+):", *near.diff])


async def _parse_problem(
    sandbox: Sandbox, path: str, data: bytes, before: bytes | None
) -> Sequence[str]:
    """A line when a Python file does not parse any more, by the sandbox's own Python."""
    if not path.endswith((".py", ".pyi")):
        return ()
    problem = await _syntax(sandbox, data)
    if not problem or (before is not None and await _syntax(sandbox, before)):
        return ()
    return (f"Now {path} does not parse as Python: {problem}. The edit stays.",)


async def _syntax(sandbox: Sandbox, data: bytes) -> str:
    words = ["python3", "-I", "-S", "-W", "ignore", "-c", PARSE]
    result = await sandbox.run(words, timeout=PARSE_SECONDS, stdin=data)
    return readable(result.stdout.head).strip() if result.ok else ""
