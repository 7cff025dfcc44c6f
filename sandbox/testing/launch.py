"""Where our probe goes into a test command, and what its placeholders stand for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from patchgym.sandbox.errors import SandboxUsageError

PROBE = '-c "$PATCHGYM_PROBE"'
WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def fill(template: str, *, files: Sequence[str], ids: Sequence[str], report: str = "") -> str:
    """The command with its placeholders replaced, each word quoted for the shell."""
    values = {
        "test_files": " ".join(map(shlex.quote, files)),
        "test_modules": " ".join(shlex.quote(dotted(file)) for file in files),
        "test_ids": " ".join(map(shlex.quote, ids)),
        "report": shlex.quote(report),
    }
    return re.sub(r"\{(\w+)\}", lambda found: values[found.group(1)], template)


def dotted(file: str) -> str:
    """`tests/forms/test_x.py` as `forms.test_x`, the way Django's runner names it."""
    return file.removeprefix("tests/").removesuffix(".py").replace("/", ".")


def with_probe(command: str) -> str:
    """The shell command with our probe as what its last simple command's Python runs.

    Raises SandboxUsageError when there is no Python, pytest or script in it.
    """
    start = max((found.end() for found in re.finditer(r"&&|\|\||;|\n", command)), default=0)
    words = [(found.start(), found.group()) for found in re.finditer(r"\S+", command[start:])]
    place = 0
    while place < len(words) and (
        re.match(r"\w+=", words[place][1]) or words[place][1] in ("env", "exec", "time")
    ):
        place += 1
    if place == len(words):
        raise _no_place(command)
    offset, word = words[place]
    here = start + offset
    name = word.rpartition("/")[2]
    if re.fullmatch(r"python[\d.]*", name):
        return _after_python(command, start, words[place + 1 :])
    if name in ("pytest", "py.test"):
        rest = command[here + len(word) :]
        return f"{command[:here]}{_python(word)} {PROBE} -m pytest{rest}"
    if name.endswith(".py") or "/" in word:
        return f"{command[:here]}python3 {PROBE} {command[here:]}"
    raise _no_place(command)


def _python(word: str) -> str:
    """The Python beside a pytest that is named with its folder, else the one in the path."""
    folder = word.rpartition("/")[0]
    return f"{folder}/python" if folder else '"$(command -v python || command -v python3)"'


def _after_python(command: str, start: int, words: Sequence[tuple[int, str]]) -> str:
    skip = False
    for offset, word in words:
        if skip:
            skip = False
        elif word in WITH_VALUE:
            skip = True
        elif word in ("-m", "-c") or not word.startswith("-"):
            here = start + offset
            return f"{command[:here]}{PROBE} {command[here:]}"
    raise _no_place(command)


def _no_place(command: str) -> SandboxUsageError:
    return SandboxUsageError(
        f"test command {command!r}: our probe needs `python3 ...`, `pytest ...` or a script in its "
        "last part; for another runner let it write JUnit XML to {report} (report = junit)"
    )
