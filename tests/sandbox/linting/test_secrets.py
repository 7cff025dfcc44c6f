"""Secrets in a diff, with the real detect-secrets; they are made up as the tests run."""

from __future__ import annotations

import json
import random
import string

import pytest

from patchgym.sandbox import CommandResult, Output, UnreadableOutput
from patchgym.sandbox.linting import (
    DetectSecrets,
    LintReport,
    Ruff,
    RuffFormat,
    Semgrep,
    default_linters,
)

from .conftest import Bench, Files

LETTERS = string.ascii_letters + string.digits
RANDOM = random.Random(7)


def drawn(count: int, alphabet: str = LETTERS) -> str:
    """A made-up part of a secret, the same in every run."""
    return "".join(RANDOM.choice(alphabet) for _ in range(count))


CAPITALS = string.ascii_uppercase + string.digits
AWS = "AKIA" + drawn(16, CAPITALS)
GITHUB = "ghp_" + drawn(36)
GOOGLE = "AIza" + drawn(35)
HEX = drawn(40, "0123456789abcdef")
PASSWORD = "x7Q" + drawn(9)
HEADER = "-----BEGIN RSA PRIVATE" + " KEY-----"
SECRETS = {
    f'client = connect("s3", "{AWS}")': "aws-access-key",
    f'URL = "https://{GITHUB}@code.invalid/x"': "github-token",
    f'MAPS = "{GOOGLE}"': "google-api-key",
    f'AUTH_TOKEN = "{HEX}"': "hex-high-entropy-string",
    f'TOKEN = "{drawn(8)}aA1{drawn(8)}bB2"': "secret-keyword",
    f'password = "{PASSWORD}"': "secret-keyword",
    f'session = login("ada", password="{PASSWORD}")': "secret-keyword",
    f'DB = "postgres://ada:{PASSWORD}@db.invalid/shop"': "basic-auth-credentials",
    f'PEM = "{HEADER}"': "private-key",
}
HARMLESS = (
    'password = "password"', 'secret_key = ""', 'password = get_password("shop")',
    'api_key = os.environ["API_KEY"]', 'help_text = "Enter your password: "', 'token = "{token}"',
    f'digest = "{HEX}"', 'PASSWORD_FIELD = "password_field"[3:]', 'secret: str = "<secret>"',
    'password = "your-password"', "if password == other_password:",
)  # fmt: skip


def numbered(report: LintReport) -> dict[int, set[str]]:
    """Rules by line."""
    found: dict[int, set[str]] = {}
    for each in report.new:
        found.setdefault(each.line, set()).add(each.rule)
    return found


async def test_each_form_of_secret_is_found_and_what_only_looks_like_one_is_not(
    bench: Bench,
) -> None:
    text = "\n".join([*SECRETS, *HARMLESS]) + "\n"
    report = await bench.lint({}, {"a.py": text}, DetectSecrets())
    found = numbered(report)
    for number, (line, rule) in enumerate(SECRETS.items(), 1):
        assert rule in found.get(number, set()), line
    assert max(found) <= len(SECRETS)
    assert {each.severity for each in report.new} == {"error"} and report.complete
    sure = {each.rule: each.confidence for each in report.new}
    assert sure["github-token"] == "high" and sure["secret-keyword"] == "medium"
    assert report.versions["detect-secrets"] == "1.5.0"


async def test_no_finding_of_any_linter_quotes_the_secret_or_a_hash_of_it(bench: Bench) -> None:
    text = f'password = "{PASSWORD}"\nlogin(password="{PASSWORD}")\nexec("{AWS}", x)\n'
    report = await bench.lint({}, {"a.py": text}, *default_linters())
    tools = {each.tool for each in report.new}
    assert tools >= {"bandit", "ruff", "detect-secrets"} and len(report.new) > 6
    assert PASSWORD not in repr(report) and AWS not in repr(report)
    secrets = [each for each in report.new if each.tool == "detect-secrets"]
    assert not any(len(word) >= 32 for each in secrets for word in each.message.split())


async def test_comments_and_names_of_files_hide_no_secret(bench: Bench) -> None:
    quiet = f'A = "{GITHUB}"  # pragma: allowlist secret\n'
    quiet += f'# pragma: allowlist nextline secret\nB = "{AWS}"\n'
    names = ["a.py", "swagger/b.py", "c.css", "d/LICENSE", "e.yaml"]
    after = dict.fromkeys(names, quiet)
    report = await bench.lint({}, after, DetectSecrets())
    assert {(each.path, each.line) for each in report.new} == {
        (name, line) for name in after for line in (1, 3)
    }


async def test_an_old_secret_is_not_new_wherever_it_moves(bench: Bench) -> None:
    line = f'TOKEN = "{GITHUB}"\n'
    report = await bench.lint({"a.py": line}, {"a.py": "import os\n\n" + line}, DetectSecrets())
    assert report.new == ()
    gone = await bench.lint({"a.py": line}, {"a.py": "import os\n"}, DetectSecrets())
    assert {each.rule for each in gone.fixed} >= {"github-token"}


async def test_prose_is_read_for_secrets_with_a_form_alone(bench: Bench) -> None:
    text = f"Set password: {PASSWORD}\npassword = '{PASSWORD}'\nor use {GITHUB}\n"
    report = await bench.lint({}, {"README.md": text}, DetectSecrets())
    assert numbered(report) == {3: {"github-token"}}


async def test_files_that_configure_linters_are_looked_at_as_the_diff_leaves_them(
    bench: Bench,
) -> None:
    after = {
        "pyproject.toml": f'[tool.shop]\npassword = "{PASSWORD}"\n',
        "ruff.toml": f"# {GITHUB}\n",
        "a.py": "x=1\n",
    }
    base = {"pyproject.toml": "[tool.ruff]\n", "a.py": "x = 1\n"}
    report = await bench.lint(base, after, DetectSecrets(), Ruff(), RuffFormat())
    assert {each.path for each in report.new} == {"pyproject.toml", "ruff.toml"}
    assert report.complete  # no linter that they steer is for them
    assert [each.path for each in report.formatting] == ["a.py"]


async def test_files_without_text_are_not_asked_for(bench: Bench) -> None:
    after: Files = {
        "a.png": b"\x89PNG\0",
        "uv.lock": f"{HEX}\n",
        "b.txt": b"caf\xe9\n",
        "c.dat": b"\0",
    }
    report = await bench.lint({}, after, DetectSecrets())
    assert {each.path: each.reason for each in report.skipped} == {
        "b.txt": "it is not UTF-8", "c.dat": "a binary file",
    }  # fmt: skip
    assert report.new == ()


async def test_what_takes_too_long_is_skipped_and_the_others_are_not(bench: Bench) -> None:
    slow = "".join(f"{'password' * 240}{number}\n" for number in range(300))
    after = {"a.py": slow, "b.py": f'TOKEN = "{GITHUB}"\n', "c.json": "x" * 3000 + "\n"}
    report = await bench.lint({}, after, DetectSecrets(seconds=1))
    assert {each.path: each.reason for each in report.skipped} == {
        "a.py": "it took more than 1 s",
        "c.json": "what is past 2000 characters of a line was not looked at",
    }
    assert {each.path for each in report.new} == {"b.py"}


async def test_a_file_full_of_secrets_is_cut(bench: Bench) -> None:
    text = "".join(f'password = "{PASSWORD}{number}"\n' for number in range(1100))
    report = await bench.lint({}, {"a.py": text}, DetectSecrets(), Semgrep())
    assert len([each for each in report.new if each.tool == "detect-secrets"]) == 1000
    assert any("more than 1000 secrets" in each.reason for each in report.skipped)


def result(data: bytes) -> CommandResult:
    """A command that printed this."""
    return CommandResult(exit_code=0, stdout=Output(head=data), stderr=Output(head=b""))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 200_000, b'{"findings": {}}',
             json.dumps({"findings": [{}] * 20_001}).encode()]
)  # fmt: skip
def test_output_that_makes_no_sense_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableOutput):
        DetectSecrets().read(result(data))


def test_findings_of_odd_shapes_are_read_as_far_as_they_go() -> None:
    odd = [7, {"line": -3, "path": ["a"]}, {"line": "x", "kind": "\ud800", "confidence": {}}]
    told = {"findings": odd, "unread": {"a.py": 3}, "seen": 5, "version": {}}
    reading = DetectSecrets().read(result(json.dumps(told).encode()))
    assert [(each.line, each.confidence) for each in reading.problems] == [(1, None)] * 3
    assert reading.version is None and reading.seen == frozenset()
