"""`view`: the numbered lines of a file, or the entries of a folder, a page at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from patchgym.agent.action import Observation
from patchgym.sandbox import CommandResult, Sandbox, SandboxError

from .place import LOOK_SECONDS, Place, look
from .text import readable

LINE_BYTES = 2000  # of one line that are shown
PAGE = 'tail -n +"$2" -- "$1" | head -n "$3" | LC_ALL=C cut -b "-$4" | head -c "$5"'
LISTING = (
    'LC_ALL=C ls -1Ap -- "$1" | grep -v \'^\\.git/$\' | tail -n +"$2" | head -n "$3" | head -c "$5"'
)


async def view(
    sandbox: Sandbox,
    path: str,
    *,
    first: int = 1,
    last: int | None = None,
    told: str,
    lines: int,
    characters: int,
) -> Observation:
    """At most `lines` lines and about `characters` characters from line `first` on, from 1."""
    place = await look(sandbox, path, told)
    count = place.size if place.kind == "folder" else place.lines
    problem = place.problem or _bad_range(first, last, count)
    if problem:
        return told_off(problem)
    if place.binary:
        return _output(f"{place.path} is a binary file of {place.size} bytes.")
    wanted = min(lines, (count if last is None else last) - first + 1)
    script = LISTING if place.kind == "folder" else PAGE
    words = [f"./{place.path}", str(first), str(max(wanted, 1)), str(LINE_BYTES + 1)]
    room = 4 * characters
    result = await sandbox.run(
        ["sh", "-c", script, "sh", *words, str(room)], timeout=LOOK_SECONDS, output_limit=2 * room
    )
    data = _complete(result, place.path)
    if count and not data:
        return told_off(f"{place.path} can't be read: {readable(result.stderr.head).strip()}")
    return _output(_page(place, data, first, count, characters))


def numbered(lines: Iterable[str], first: int) -> Iterator[str]:
    """Lines of a file as they are shown."""
    for number, line in enumerate(lines, first):
        yield f"{number:>6}\t{line}"


def told_off(text: str) -> Observation:
    """The observation for arguments that don't fit."""
    return Observation(kind="tool_error", text=text, done=False)


def split_lines(data: bytes) -> list[bytes]:
    """By line feeds alone, without them."""
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _page(place: Place, data: bytes, first: int, count: int, characters: int) -> str:
    """A heading, the lines that fit, and how to go on."""
    raw = split_lines(data)
    shown: list[str] = []
    room = characters
    for line in map(_line, raw) if place.kind == "folder" else numbered(map(_line, raw), first):
        room -= len(line) + 1
        if room < 0 and shown:
            break
        shown.append(line)
    last = first + len(shown) - 1
    if place.kind == "folder":
        name = "The repository's root" if place.path == "." else f"{place.path}/"
        head = f"{name}, entries {first} to {last} of {count}:" if count else f"{name} is empty."
    elif count == 0:
        head = f"{place.path} is an empty file."
    else:
        crlf = " (CRLF line ends)" if _is_crlf(raw) else ""
        head = f"{place.path}, lines {first} to {last} of {count}{crlf}:"
    more = [f"[go on with first={last + 1}]"] if 0 < last < count else []
    return "\n".join([head, *shown, *more])


def _is_crlf(lines: list[bytes]) -> bool:
    """Whether these lines, of which the last may be unended, end in CRLF."""
    ended = lines[:-1] or lines
    return all(line.endswith(b"\r") for line in ended)


def _line(data: bytes) -> str:
    text = readable(data[:LINE_BYTES].removesuffix(b"\r"))
    return f"{text} [line cut here]" if len(data) > LINE_BYTES else text


def _bad_range(first: int, last: int | None, count: int) -> str:
    if first < 1:
        return f"`first` is {first}: lines are counted from 1."
    if last is not None and last < first:
        return f"`last` is {last}: it must not be below `first`, {first}."
    if first > max(count, 1):
        return f"`first` is {first}, and there are only {count} lines."
    return ""


def _complete(result: CommandResult, path: str) -> bytes:
    if result.timed_out:
        raise SandboxError(f"could not read {path} within {LOOK_SECONDS:.0f} s")
    return result.stdout.head + result.stdout.tail


def _output(text: str) -> Observation:
    return Observation(kind="output", text=text, done=False)
