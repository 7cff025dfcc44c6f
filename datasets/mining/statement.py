"""What a policy is told: the commit's message, the issue, and how the tests fail. Pure.

No line that the fix adds is quoted: what holds one is left out, line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

SHORTEST = 12
"""Characters, blanks left out, below which a line of the fix is no secret: `return None`."""
TESTS_SHOWN = 10
MESSAGE_LIMIT = 600  # characters of one test's failure
ISSUE_LIMIT = 8000
BODY_LIMIT = 4000

_TRAILER = re.compile(
    r"(?i)^(?:signed-off-by|co-authored-by|reviewed-by|acked-by|tested-by|reported-by|change-id|cc|"
    r"pull-request|differential revision|git-svn-id|reviewers?|approved-by|backport of)\s*:.*$"
)
_MERGE = re.compile(r"(?i)^merge (?:pull request|branch|remote-tracking branch|tag|commit|pr)\b.*$")
_CLOSING = re.compile(
    r"(?i)^[-*\s]*(?:(?:this )?(?:fix(?:es|ed)?|close[sd]?|resolve[sd]?|refs?|see|addresse[sd]|gh)"
    r"[:\s]*)?(?:issue\s*)?(?:#|gh-)\d+(?:[,\s]*(?:and\s*)?(?:#|gh-)\d+)*\.?$"
)
_RULE = re.compile(r"^-{3,}$")  # between the messages of a squashed branch
_NOISE = (_TRAILER, _MERGE, _CLOSING, _RULE)
_NUMBER = re.compile(r"(?i)(?<![\w&])(?:#|gh-|(?:fix(?:es|ed)?|closes?|resolves?)\s+#?)(\d+)\b")
_PULL = re.compile(r"\s*\(#\d+\)\s*$")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
_PLACE = re.compile(r"/tmp/[\w./-]+")


def issue_numbers(messages: Iterable[str]) -> tuple[str, ...]:
    """Numbers of issues that messages name as `#12`, `gh-12`, `fixes 12`, in order."""
    found = (number for message in messages for number in _NUMBER.findall(message))
    return tuple(dict.fromkeys(found))


def fix_lines(gold_patch: str) -> frozenset[str]:
    """Lines that the fix adds and that nothing had before, blanks left out; the short ones too."""
    known, added = set(), set()
    for line in re.split(r"\r?\n", gold_patch):
        text = squeezed(line[1:])
        if line.startswith("+") and not line.startswith("+++ "):
            added.add(text)
        elif line.startswith(("-", " ")):
            known.add(text)
    return frozenset(text for text in added - known if len(text) >= SHORTEST)


def quoted(text: str, secrets: Iterable[str]) -> tuple[str, ...]:
    """The lines of the fix that a text holds, however it is spaced and wrapped."""
    said = squeezed(text)
    return tuple(sorted(line for line in secrets if line in said))


def squeezed(text: str) -> str:
    """A text without blanks."""
    return re.sub(r"\s+", "", text)


def steady(message: str) -> str:
    """A failure's message without what differs from run to run: addresses and scratch paths."""
    return _PLACE.sub("/tmp/...", _ADDRESS.sub("0x...", message))


def statement(
    *,
    messages: Sequence[str],
    issues: Mapping[str, str],
    failures: Mapping[str, str],
    gold_patch: str,
) -> str:
    """The task in prose; empty when nothing can be told.

    `messages` are the commit's, then those of what it merged; `issues` the texts by number;
    `failures` by test what it says without the fix.
    """
    secrets = fix_lines(gold_patch)
    parts = [_message(messages)[:BODY_LIMIT]]
    for number, text in issues.items():
        parts.append(f"Issue #{number}:\n\n{text.strip()[:ISSUE_LIMIT]}")
    kept = [_without(part, secrets) for part in parts]
    told = [part for part in kept if part and not re.fullmatch(r"Issue #\d+:", part)]
    if not told:
        told = ["Something is broken in this repository: tests that have to pass fail."]
    told.append(_without(_failures(failures), secrets))
    while told and quoted("\n\n".join(told), secrets):
        told.pop()  # a line of the fix came about where two parts meet
    return "\n\n".join(part for part in told if part)


def _message(messages: Sequence[str]) -> str:
    first = _cleaned(messages[0]) if messages else ""
    merged = [_cleaned(message) for message in messages[1:]]
    # a merge that only says that it is one: what it merged says what it is about
    return first or "\n\n".join(dict.fromkeys(text for text in merged if text))


def _cleaned(message: str) -> str:
    lines = message.replace("\r", "").split("\n")
    lines = [_PULL.sub("", line).rstrip() for line in lines]
    kept = [line for line in lines if not any(rule.match(line) for rule in _NOISE)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


def _failures(failures: Mapping[str, str]) -> str:
    if not failures:
        return ""
    lines = ["Tests that fail now and have to pass:", ""]
    for test, message in list(failures.items())[:TESTS_SHOWN]:
        text = " ".join(steady(message).split())[:MESSAGE_LIMIT]
        lines.append(f"- {test}: {text}" if text else f"- {test}")
    if len(failures) > TESTS_SHOWN:
        lines.append(f"- and {len(failures) - TESTS_SHOWN} more")
    return "\n".join(lines)


def _without(text: str, secrets: frozenset[str]) -> str:
    """The text without the lines that quote the fix, and without any that do so together."""
    lines = [line for line in text.split("\n") if not quoted(line, secrets)]
    while (held := quoted("\n".join(lines), secrets)) and lines:
        lines.pop(_where(lines, held[0]))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _where(lines: Sequence[str], secret: str) -> int:
    """The line in which a quote that runs over several of them ends."""
    for number in range(len(lines)):
        if secret in squeezed("\n".join(lines[: number + 1])):
            return number
    return len(lines) - 1
