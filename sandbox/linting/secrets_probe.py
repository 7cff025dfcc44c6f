"""Source that runs inside sandboxes, under the Python that has detect-secrets; see `DetectSecrets`.

Prints one JSON document: {"findings": [{"path", "line", "kind", "confidence"}], "unread": {path:
reason}, "seen": [path], "version"}. A secret itself, or a hash of it, is in none of it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

TOKENS = (
    "AWSKeyDetector", "AzureStorageKeyDetector", "DiscordBotTokenDetector", "GitHubTokenDetector",
    "GitLabTokenDetector", "JwtTokenDetector", "MailchimpDetector", "NpmDetector", "OpenAIDetector",
    "PrivateKeyDetector", "PypiTokenDetector", "SendGridDetector", "SlackDetector",
    "SquareOAuthDetector", "StripeDetector", "TelegramBotTokenDetector", "TwilioKeyDetector",
)  # fmt: skip
"""Plugins that know a secret by its form."""
GUESSES = ("KeywordDetector", "BasicAuthDetector")
"""Plugins that go by what stands around it."""
ENTROPY = ("Base64HighEntropyString", "HexHighEntropyString")
"""Plugins that see randomness, which is no secret unless its name says so."""
FORMS = {
    "GitHub Fine-Grained Token": re.compile(r"\bgithub_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    "Google API Key": re.compile(r"\bAIza[A-Za-z0-9_-]{35}"),
    "Anthropic API Key": re.compile(r"\bsk-ant-[A-Za-z0-9]{1,9}-[A-Za-z0-9_-]{40}"),
    "Hugging Face Token": re.compile(r"\bhf_[A-Za-z0-9]{34}"),
}
"""Secrets with a form of their own that detect-secrets does not know."""
NAMES = re.compile(
    r"(?i)token|secret|passw|pwd|credential"
    r"|(api|access|account|auth|client|encryption|master|private|service|signing)[-_]?key"
)
NAMED = re.compile(
    r"(?i)(?:token|passphrase|credential|bearer)\w*[\"']?\]?\s*(?::\s*str\s*)?[:=]=?\s*"
    r"[\"']([A-Za-z0-9_-]{12,200})[\"']"
)
"""Names that KeywordDetector does not know, with the text that they are given."""
PLACEHOLDER = re.compile(
    r"(?i)(my|the|your|some|a|dummy|fake|test|example)?[-_ ]?"
    r"(pass(word|wd|phrase)?|pwd?|secret|token|(api|secret|access|private)?[-_]?key|change[-_]?me"
    r"|example|dummy|fake|test|none|null|true|false|str(ing)?|optional|required|user(name)?|dev)s?"
    r"|your[-_ ].*|.*(\.\.\.|xxx|\*\*\*|example).*|[<{$%].*|.*\{\w*\}.*"
)
CODE = re.compile(r".*\.(py|pyi|js|jsx|ts|tsx|java|go|c|cc|cpp|h|cs|php|rb|rs|swift|kt|scala|m|tf)")
SETTINGS = re.compile(r".*(\.(ya?ml|toml|ini|cfg|conf|cnf|properties|json|env|sh)|/\.env[\w.]*)")
LONG = re.compile(r"[\w+/=.:-]{20}|PRIVATE KEY|PuTTY")
"""In every line with a token."""
HINTS = re.compile(r"(?i)key|pass|pwd|secret|contrase|://")
"""In every line that a guess can be about."""
FILTERS = "detect_secrets.filters"
OFF = (
    f"{FILTERS}.allowlist.is_line_allowlisted",
    f"{FILTERS}.heuristic.is_swagger_file",
    f"{FILTERS}.heuristic.is_lock_file",
    f"{FILTERS}.heuristic.is_non_text_file",
)
"""A diff could use these to hide a secret: by a comment, or by the name of a file."""
INDIRECT = f"{FILTERS}.heuristic.is_indirect_reference"
"""Takes `key = f("...")` for no secret, whatever the dots are."""
LINE_LIMIT = 2000  # characters of a line that are looked at
PATIENCE = 6  # times the seconds of one file, for all of them
FINDINGS_LIMIT = 1000  # of one file

Known = dict[tuple[str, str], list[tuple[str, str]]]
"""Kinds and confidences of what is in a line, by the kind of file and the line."""


class _TooLong(Exception):
    """A file took more than its time."""


def main(seconds: int, paths: list[str]) -> None:
    """Look at `paths`, each for at most `seconds`."""
    version = importlib.metadata.version("detect-secrets")
    signal.signal(signal.SIGALRM, _stop)
    findings: list[dict[str, object]] = []
    unread: dict[str, str] = {}
    known: Known = {}
    end = time.monotonic() + PATIENCE * seconds
    for path in paths:
        signal.alarm(max(1, min(seconds, int(end - time.monotonic()))))
        try:
            found = _findings(path, known, unread)
        except _TooLong:
            unread[path] = f"it took more than {seconds} s"
        except (OSError, UnicodeDecodeError, RecursionError, MemoryError) as problem:
            unread[path] = f"it can't be read: {type(problem).__name__}"
        else:
            findings += found
        finally:
            signal.alarm(0)
    told = {"findings": findings, "unread": unread, "seen": paths, "version": version}
    sys.stdout.write(json.dumps(told))


def _stop(*_: object) -> None:
    raise _TooLong


def _findings(path: str, known: Known, unread: dict[str, str]) -> list[dict[str, object]]:
    """What is in a file; most of its lines were in its other state and are not looked at again."""
    with open(path, encoding="utf-8", newline="\n") as file:
        whole = file.read().split("\n")
    lines = [line[:LINE_LIMIT] for line in whole]
    name = path.rpartition("/")[2]
    sort = name if name.startswith(".env") else name.rpartition(".")[2]
    fresh = [line for line in dict.fromkeys(lines) if (sort, line) not in known]
    found: Known = {(sort, line): [] for line in fresh}
    for number, kind, confidence in sorted(set(_secrets(path, fresh))):
        found[sort, fresh[number - 1]].append((kind, confidence))
    known.update(found)
    told: list[dict[str, object]] = [
        {"path": path, "line": number, "kind": kind, "confidence": confidence}
        for number, line in enumerate(lines, 1)
        for kind, confidence in known[sort, line]
    ]
    if len(told) > FINDINGS_LIMIT:
        unread[path] = f"it has more than {FINDINGS_LIMIT} secrets"
    elif max(map(len, whole)) > LINE_LIMIT:
        unread[path] = f"what is past {LINE_LIMIT} characters of a line was not looked at"
    return told[:FINDINGS_LIMIT]


def _secrets(path: str, lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """Number, kind and confidence for each secret in these lines of a file."""
    for number, line in enumerate(lines, 1):
        for kind, form in FORMS.items():
            if form.search(line):
                yield number, kind, "high"
        named = NAMED.search(line)
        if named and _is_random(named[1]) and _is_code(path):
            yield number, "Secret Keyword", "medium"
    for at, _, secret in _scan(path, lines, TOKENS, LONG):
        yield at, secret.type, "high"
    for at, line, secret in _scan(path, lines, GUESSES, HINTS):
        confidence = _guess(path, line, secret.secret_value or "", secret.type)
        if confidence:
            yield at, secret.type, confidence
    for at, line, secret in _scan(path, lines, ENTROPY, NAMES):
        if NAMES.search(line.partition(secret.secret_value or "\0")[0][-200:]):
            yield at, secret.type, "medium" if _is_code(path) else "low"


def _scan(
    path: str, lines: list[str], plugins: tuple[str, ...], hint: re.Pattern[str]
) -> Iterator[tuple[int, str, Any]]:
    """Number and text of a line, and the secret there."""
    settings = importlib.import_module("detect_secrets.settings")
    scan = importlib.import_module("detect_secrets.core.scan")
    asked = [(number, line) for number, line in enumerate(lines, 1) if hint.search(line)]
    off = OFF if plugins is GUESSES and not CODE.fullmatch(path) else (*OFF, INDIRECT)
    with settings.transient_settings({"plugins_used": [{"name": name} for name in plugins]}) as now:
        now.disable_filters(*off)
        for secret in scan._process_line_based_plugins(asked, path):
            yield secret.line_number, lines[secret.line_number - 1], secret


def _is_random(value: str) -> bool:
    """At least two of each: digits, capitals, small letters."""
    return all(len(re.findall(kind, value)) > 1 for kind in ("[0-9]", "[A-Z]", "[a-z]"))


def _is_code(path: str) -> bool:
    """Rather than prose."""
    return bool(CODE.fullmatch(path) or SETTINGS.fullmatch(path))


def _guess(path: str, line: str, value: str, kind: str) -> str:
    """How sure a guess is; nothing when it is a placeholder or words for people."""
    if PLACEHOLDER.fullmatch(value) or re.search(r"\s", value) or len(value) < 4:
        return ""
    before = line.partition(value)[0].lower()
    if value.lower().replace("-", "_") in before:
        return ""  # a constant that is its own name
    if kind == "Basic Auth Credentials":
        return "medium"
    if not _is_code(path):
        return ""
    mixed = re.search(r"[0-9]", value) and re.search(r"[A-Za-z]", value)
    return "medium" if mixed and len(value) >= 8 else "low"


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
