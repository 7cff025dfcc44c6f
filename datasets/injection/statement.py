"""The bug report that a task's policy gets: what is seen, and what was expected, from the tests.

It names tests and values, never the file, line or code that is wrong.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence, Set

ADDRESS = re.compile(r"\b0?x[0-9a-fA-F]{4,}\b")  # pytest may have cut its beginning away
TEMPORARY = re.compile(r"/tmp/[\w./-]+")
PLACE = re.compile(r"\nat (?P<path>[^\n:]+):\d+: (?P<code>[^\n]*)\Z")
LONG = 300  # characters of one value or line
SHOWN = 3  # failing tests that are told of in full
OPENINGS = (
    "Something that used to work in {name} is broken.",
    "I get wrong behaviour from {name}.",
    "There is a regression in {name}.",
    "{name} does not behave as its tests say it should.",
)


def report_bug(
    name: str, failing: Mapping[str, str], *, code: Set[str], choice: int, details: bool = True
) -> str:
    """A report in prose. `code` are lines of the files that are wrong, which it must not quote.

    `choice` picks one of several openings; without `details` it only names the tests.
    """
    tests = sorted(failing)
    parts = [OPENINGS[choice % len(OPENINGS)].format(name=name)]
    if details:
        told = dict.fromkeys(_tell(test, failing[test], code) for test in tests)
        parts += [each for each in told if each][:SHOWN]
    parts.append(_seen(tests))
    return "\n\n".join(parts) + "\n"


def _seen(tests: Sequence[str]) -> str:
    subjects = ", ".join(f"`{_short(test)}`" for test in tests[:SHOWN])
    rest = len(tests) - SHOWN
    more = f" and {rest} more {'test' if rest == 1 else 'tests'}" if rest > 0 else ""
    files = sorted({test.partition("::")[0] for test in tests})
    where = f" (in {', '.join(f'`{file}`' for file in files[:SHOWN])})"
    verb = "fails because of it; it" if len(tests) == 1 else "fail because of it; they"
    return f"{subjects}{more}{where} {verb} passed before."


def _short(test: str) -> str:
    return test.partition("::")[2] or test


def subject(test: str) -> str:
    """What a test is about, from its name: `test_partition_all[3]` is about `partition all`."""
    last = test.rpartition("::")[2].partition("[")[0]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last)
    return " ".join(part for part in words.lower().split("_") if part not in ("", "test"))


def _tell(test: str, message: str, code: Set[str]) -> str:
    """One failure in prose; empty when there is nothing that can be told."""
    message = TEMPORARY.sub("/tmp/...", ADDRESS.sub("0x...", message))
    about = subject(test) or "the basic case"
    place = PLACE.search(message)
    if place is not None:
        what = message[: place.start()].strip()
        line = place["code"].strip()
        own = place["path"] == test.partition("::")[0] and line not in code and line != "?"
        where = f"`{_cut(line)}`" if own else "It"
        return _raised(about, where, what)
    last = message.rpartition("\n")[2]
    if last.startswith("E "):  # a file of tests that could not be loaded
        return _raised(about, "Loading the tests", last[1:].strip())
    line, _, got = message.strip().partition("\n")
    if line.strip() in code or not line.startswith("assert"):
        return f"With {about}: a check does not hold{_got(got)}." if message else ""
    return _compared(about, line, got)


def _raised(about: str, where: str, what: str) -> str:
    kind, _, detail = what.partition(": ")
    if kind == "Failed" and "DID NOT RAISE" in detail:
        expected = re.search(r"'([\w.]+)'", detail)
        name = expected[1] if expected else "an exception"
        return f"With {about}: no `{name}` is raised where one is expected."
    return f"With {about}: {where} raises `{_cut(what)}`; no such error is expected."


def _compared(about: str, line: str, got: str) -> str:
    """An assertion of a test: what was expected, and what is there."""
    try:
        (check,) = ast.parse(line.strip()).body
    except (SyntaxError, ValueError):
        # the statement goes on below the one line that is known
        return f"With {about}: a check does not hold{_got(got)}."
    test = check.test if isinstance(check, ast.Assert) else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        left, right = ast.unparse(test.left), ast.unparse(test.comparators[0])
        return f"With {about}: `{_cut(left)}` should be `{_cut(right)}`, but it is not{_got(got)}."
    claim = ast.unparse(test) if test is not None else line
    return f"With {about}: `{_cut(claim)}` should hold, but it does not{_got(got)}."


def _got(got: str) -> str:
    got = got.strip()
    if got.startswith("got "):
        return f": I get `{_cut(got[4:])}`"
    return f" (`{_cut(got)}`)" if got.startswith("assert ") else ""


def _cut(text: str) -> str:
    text = " ".join(text.split()).replace("`", "'")
    return text if len(text) <= LONG else f"{text[:LONG]}..."
