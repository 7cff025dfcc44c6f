"""Linting a diff with the real tools: what is new, what is old, and what can't be hidden."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from patchgym.sandbox import (
    Bandit,
    CommandResult,
    Linter,
    LintReport,
    Pool,
    Reading,
    Ruff,
    RuffFormat,
    SandboxLost,
    SandboxSpec,
    SandboxUsageError,
    SarifLinter,
    Semgrep,
    Tool,
    default_linters,
    lint,
)
from patchgym.sandbox.linting.linter import Layout

from .conftest import WAIT, Bench

pytestmark = pytest.mark.docker
EVAL = "def old(x):\n    return eval(x)\n"
BOTH = EVAL + "\n\ndef new(x):\n    return exec(x)\n"
ONE_EACH = (Ruff(select=("S",)), Bandit(), Semgrep())
RULES = Path(__file__).with_name("rules")


def told(report: LintReport) -> set[tuple[str, str, int]]:
    """Tool, rule and line of what is new."""
    return {(each.tool, each.rule, each.line) for each in report.new}


async def test_each_linter_finds_what_is_new_and_not_what_was_there(bench: Bench) -> None:
    report = await bench.lint({"a.py": EVAL}, {"a.py": BOTH}, *default_linters())
    assert told(report) == {
        ("ruff", "S102", 6), ("bandit", "B102", 6), ("semgrep", "python-dynamic-code", 6),
    }  # fmt: skip
    assert report.complete and report.fixed == () and report.formatting == ()
    assert report.files == ("a.py",)
    assert {name: version.split(".")[0] for name, version in report.versions.items()} == {
        "ruff": "0", "ruff-format": "0", "bandit": "1", "semgrep": "1", "detect-secrets": "1",
    }  # fmt: skip
    assert report.seconds.keys() == report.versions.keys() and min(report.seconds.values()) > 0
    (semgrep,) = [each for each in report.new if each.tool == "semgrep"]
    assert (semgrep.severity, semgrep.confidence, semgrep.source, semgrep.caused) == (
        "error", "high", "return exec(x)", False,
    )  # fmt: skip
    assert report.text().startswith("a.py:6: error: semgrep python-dynamic-code: eval, exec and")
    left = await bench.sandbox.run("ls -A /tmp; git status --short", timeout=60)
    assert left.stdout.text() == " M a.py\n"
    back = await bench.lint({"a.py": BOTH}, {"a.py": EVAL}, *ONE_EACH)
    assert back.new == () and {each.rule for each in back.fixed} == {
        "S102", "B102", "python-dynamic-code",
    }  # fmt: skip


async def test_moved_renamed_and_shifted_code_is_not_new(bench: Bench) -> None:
    filler = "".join(f"\n\ndef f{n}(x):\n    return x + {n}\n" for n in range(20))
    shifted = await bench.lint({"a.py": EVAL}, {"a.py": "X = 1\n\n\n" + EVAL}, *ONE_EACH)
    assert shifted.new == () and shifted.fixed == ()
    moved = await bench.lint(
        {"a.py": EVAL + filler}, {"a.py": filler.lstrip() + "\n\n" + EVAL}, *ONE_EACH
    )
    assert moved.new == () and moved.fixed == ()
    renamed = await bench.lint(
        {"a.py": EVAL + filler},
        {"a.py": None, "d/b.py": EVAL + filler + "\n\nexec(f0)\n"},
        *ONE_EACH,
    )
    assert {(each.path, each.rule) for each in renamed.new} == {
        ("d/b.py", "S102"), ("d/b.py", "B102"), ("d/b.py", "python-dynamic-code"),
    }  # fmt: skip
    assert renamed.fixed == () and renamed.files == ("d/b.py",)
    other = await bench.lint(
        {"a.py": EVAL, "b.py": filler}, {"a.py": None, "b.py": EVAL + filler}, *ONE_EACH
    )
    assert other.new == () and other.fixed == ()


async def test_a_finding_on_an_untouched_line_is_caused(bench: Bench) -> None:
    before = {"a.py": "import os\n\n\ndef f(x):\n    return os.path.join(x)\n"}
    after = {"a.py": "import os\n\n\ndef f(x):\n    return x\n"}
    report = await bench.lint(before, after, Ruff())
    assert [(each.rule, each.line, each.caused) for each in report.new] == [("F401", 1, True)]
    assert report.text().endswith("(on an unchanged line)")


async def test_suppressions_that_the_diff_adds_hide_nothing(bench: Bench) -> None:
    quiet = "  # noqa  # nosec  # nosemgrep"
    after = f"# ruff: noqa\n# flake8: noqa\n{EVAL}\n\ndef new(x):\n    return exec(x){quiet}\n"
    after += f"\n\n# ruff: disable[S102]\nexec(new){quiet}\n# ruff: enable[S102]\n"
    report = await bench.lint({"a.py": EVAL}, {"a.py": after}, *ONE_EACH)
    rules = {"S102", "B102", "python-dynamic-code"}
    assert {(each.rule, each.line) for each in report.new} == {
        (rule, line) for rule in rules for line in (8, 12)
    }
    known = {"a.py": "def old(x):\n    return eval(x)  # noqa # nosec\n"}
    old = await bench.lint(known, {"a.py": "X = 1\n" + known["a.py"]}, *ONE_EACH)
    assert old.new == ()


async def test_configuration_is_the_base_commits(bench: Bench) -> None:
    silent = "[tool.ruff]\nline-length = 30\n[tool.ruff.lint]\nper-file-ignores = {'*' = ['ALL']}\n"
    after = {
        "pyproject.toml": silent,
        "d/ruff.toml": "lint.per-file-ignores = {'*' = ['ALL']}\n",
        ".bandit": "[bandit]\nskips: B102\n",
        ".semgrepignore": "*\n",
        ".gitignore": "*.py\n",
        ".gitattributes": "*.py binary -diff filter=x\n",
        "d/a.py": BOTH,
        "d/hidden.py": "exec(X)  # a name that ruff's base commit's line length lets pass\n",
    }
    base = {"pyproject.toml": "[tool.ruff]\nline-length = 100\n", "d/a.py": EVAL}
    paths = await bench.apply(base, after)
    broken = b"*.py working-tree-encoding=UTF-16 text eol=crlf\n"  # git can't even add such files
    await bench.sandbox.write(".gitattributes", broken)
    report = await lint(bench.sandbox, [*ONE_EACH, RuffFormat()], timeout=WAIT, paths=paths)
    assert {(each.path, each.rule) for each in report.new} == {
        (path, rule)
        for path in ("d/a.py", "d/hidden.py")
        for rule in ("S102", "B102", "python-dynamic-code")
    }
    assert report.formatting == () and report.complete and report.notes == ()
    # the repository's own exceptions hold, as it had them
    tests = {"pyproject.toml": "[tool.ruff.lint]\nper-file-ignores = {'t/*' = ['S']}\n"}
    allowed = await bench.lint(tests, {"t/a.py": EVAL}, Ruff(), Bandit())
    assert {each.tool for each in allowed.new} == {"bandit"}


async def test_a_configuration_that_ruff_refuses_is_done_without(bench: Bench) -> None:
    base = {"ruff.toml": "required-version = '==0.0.1'\n", "a.py": "x = 1\n"}
    report = await bench.lint(base, {"a.py": "x = 1\ny=eval(x)\n"}, Ruff(), RuffFormat())
    assert told(report) == {("ruff", "S307", 2)}
    assert [each.ranges for each in report.formatting] == [((2, 2),)]
    assert report.complete and len(report.notes) == 2
    assert report.notes[0].startswith("ruff had to run in another way: it failed (exit 2)")


async def test_first_party_packages_are_known_by_the_repositorys_outline(bench: Bench) -> None:
    base = {
        "shop/__init__.py": "",
        "src/till/__init__.py": "",
        "tool.py": "",
        "a.py": "import os\n",
    }
    sort = Ruff(select=("I",))
    good = "import os\n\nimport requests\n\nimport shop\nimport till\nimport tool\n"
    assert (await bench.lint(base, {"a.py": good}, sort)).new == ()
    bad = "import os\n\nimport requests\nimport shop\n"
    assert [each.rule for each in (await bench.lint(base, {"a.py": bad}, sort)).new] == ["I001"]


async def test_a_comment_at_the_end_makes_nothing_new(bench: Bench) -> None:
    after = {"a.py": EVAL.replace("eval(x)", "eval(x)  # noqa: S307  # nosec")}
    report = await bench.lint({"a.py": EVAL}, after, *ONE_EACH)
    assert report.new == () and report.fixed == ()


async def test_files_that_do_not_fit_the_sandbox_are_skipped(
    lint_image: str, tmp_path: Path
) -> None:
    spec = SandboxSpec(image=lint_image, disk_mib=16)
    many = {f"m{number}.py": f"{number}\n" + "x = 1\n" * 170_000 for number in range(9)}
    more = {path: text + "eval(x)\n" for path, text in many.items()}
    async with Pool(spec, size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
        report = await Bench(sandbox, tmp_path).lint(many, more, Ruff())
        assert not (await sandbox.run("ls -A /tmp", timeout=60)).stdout.head
    assert [(each.tool, each.path) for each in report.skipped] == [("ruff", None)]
    assert "could not be laid out" in report.skipped[0].reason and "full" in report.text()


async def test_a_syntax_error_is_a_finding_and_fixes_nothing(bench: Bench) -> None:
    report = await bench.lint({"a.py": EVAL}, {"a.py": EVAL + "def (:\n"}, *default_linters())
    assert {(each.tool, each.rule) for each in report.new} == {("ruff", "invalid-syntax")}
    assert report.fixed == ()
    assert {(each.tool, each.path) for each in report.skipped} == {
        ("bandit", "a.py"), ("ruff-format", "a.py"), ("semgrep", "a.py"),
    }  # fmt: skip
    mended = await bench.lint({"a.py": "def (:\n" + EVAL}, {"a.py": EVAL + "exec(X)\n"}, *ONE_EACH)
    assert {(each.rule, each.line) for each in mended.new} >= {("S102", 3), ("B102", 3)}
    assert not any(each.line == 2 for each in mended.new)  # it was there, though nobody could see
    assert ("ruff", "invalid-syntax") in {(each.tool, each.rule) for each in mended.fixed}


async def test_formatting_counts_on_touched_lines_only(bench: Bench) -> None:
    ugly = "import os\nx=1\n\ndef f( a ):\n  return a\n\n\ny = os.sep\n"
    after = ugly.replace("y = os.sep\n", "y = os.sep\nz=  2  # fmt: skip\n")
    report = await bench.lint({"a.py": ugly}, {"a.py": after}, RuffFormat())
    (found,) = report.formatting
    assert (found.path, found.ranges, found.was_formatted) == ("a.py", ((9, 9),), False)
    clean = await bench.lint({"a.py": ugly}, {"a.py": ugly + "z = 2\n"}, RuffFormat())
    assert clean.formatting == ()
    styled = {
        "pyproject.toml": "[tool.ruff]\nformat = {quote-style = 'single'}\n",
        "a.py": "x = 'a'\n",
    }
    own = await bench.lint(
        styled, {"a.py": "x = 'a'\ny = 'b'\n", "n.py": 'z = "c"\n'}, RuffFormat()
    )
    assert [(each.path, each.was_formatted) for each in own.formatting] == [("n.py", None)]


async def test_files_that_can_not_be_linted_are_named(bench: Bench) -> None:
    before = {"big.py": "x = 1\n" * 900_000, "gone.py": EVAL, "mode.py": EVAL}
    after = {
        "big.py": "x = 1\n" * 900_000 + "eval(x)\n",
        "binary.py": b"eval(x)\n\0",
        "latin.py": "# caf\xe9\neval(x)\n".encode("latin-1"),
        "new\nline.py": EVAL,
        "book.ipynb": "{}",
        "gone.py": None,
        "-dash é '\"[x]*.py": EVAL,
        "%41 b.pyi": "import os\n",
        "tests/node_modules/.tox/a.py": EVAL,
    }
    report = await bench.lint(before, after, *ONE_EACH)
    assert {each.path: each.reason.split(",")[0] for each in report.skipped} == {
        "big.py": "over 1 MiB",
        "binary.py": "a binary file",
        "latin.py": "it is not UTF-8",
        "new\nline.py": "there are control characters in its name",
    }
    odd = {"-dash é '\"[x]*.py", "tests/node_modules/.tox/a.py"}
    rules = {"S307", "B307", "python-dynamic-code"}
    # what went with gone.py explains one of each
    assert len(report.new) == 3 and {each.path for each in report.new} < odd
    assert {each.rule for each in report.new} == rules and report.fixed == ()


async def test_missing_hung_crashed_and_babbling_tools_are_skipped(bench: Bench) -> None:
    def program(name: str, *words: str) -> SarifLinter:
        return SarifLinter(name=name, arguments=words, suffixes=(".py",))

    odd = (
        program("missing", "no-such-linter"),
        program("hung", "sleep", "600"),
        program("crashed", "sh", "-c", "echo oh no >&2; exit 3"),
        program("killed", "sh", "-c", "kill -9 $$"),
        program("babbling", "sh", "-c", "head -c 40000000 /dev/zero"),
        program("malformed", "echo", '{"runs": [{"results": ['),
        program("silent", "true"),
    )
    report = await bench.lint(
        {"a.py": EVAL}, {"a.py": BOTH}, *odd, Ruff(), _Stumbling(), timeout=20
    )
    reasons = {each.tool: each.reason for each in report.skipped}
    assert reasons["missing"].startswith("it is not in the image")
    assert re.fullmatch(r"no answer within \d+\.\d s", reasons["hung"])
    assert reasons["crashed"] == "it failed (exit 3): oh no"
    assert reasons["killed"].startswith("it failed (signal 9)")
    assert reasons["babbling"] == "its output is too long"
    assert "no JSON" in reasons["malformed"] and "no JSON" in reasons["silent"]
    assert reasons["stumbling"] == "its output can't be read: KeyError: 'results'"
    assert told(report) == {("ruff", "S102", 6)} and not report.complete
    late = await lint(bench.sandbox, [Ruff()], timeout=0.001)
    assert [each.tool for each in late.skipped] == ["ruff"] and late.new == ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stumbling:
    """A plug-in whose reader is not prepared for what it reads."""

    tool: Tool = field(default_factory=lambda: Tool(name="stumbling"))
    fallback: Linter | None = None

    def wants(self, path: str) -> bool:
        return True

    def command(self, targets: Sequence[str], folder: str) -> Sequence[str]:
        return ["echo", "{}"]

    def read(self, result: CommandResult) -> Reading:
        facts: dict[str, Reading] = {}
        return facts["results"]


PLUGIN = """
import json, os, pathlib, sys
results = []
for name in sys.argv[2:] or [str(p) for p in pathlib.Path(".").rglob("*.js")]:
    for number, line in enumerate(open(name, encoding="utf-8"), 1):
        if "TODO" in line:
            uri = pathlib.Path(name).absolute().as_uri() if sys.argv[1] == "absolute" else name
            place = {"artifactLocation": {"uri": uri}, "region": {"startLine": number}}
            results.append({"ruleId": "no-todo", "level": "note", "message": {"text": line.strip()},
                            "locations": [{"physicalLocation": place}]})
steering = open(".todorc").read().strip() if os.path.exists(".todorc") else "none"
driver = {"name": "todo", "version": f"{steering} {os.path.exists('other.txt')}"}
print(json.dumps({"runs": [{"tool": {"driver": driver}, "results": results}]}))
"""


async def test_a_linter_of_ones_own_by_its_sarif(bench: Bench) -> None:
    def todo(name: str, layout: Layout, *arguments: str) -> SarifLinter:
        return SarifLinter(
            name=name,
            arguments=("python3", "{folder}/todo.py", *arguments),
            suffixes=(".js",),
            layout=layout,
            configuration=(".todorc",),
            files={"todo.py": PLUGIN.encode()},
        )

    each = todo("each", "each", "absolute", "{targets}")
    project = todo("project", "project", "relative")
    before = {
        "a b.js": "// TODO old\n",
        "other.js": "// TODO\n",
        "other.txt": "",
        ".todorc": "base",
    }
    after = {
        "a b.js": "// TODO new\n// TODO old\n",
        ".todorc": "theirs",
        "-é.js": "// TODO\n",
        "c/.todorc": "x",
    }
    report = await bench.lint(before, after, each, project)
    found = {(one.tool, one.path, one.line, one.severity) for one in report.new}
    assert found == {
        (tool, path, 1, "note") for tool in ("each", "project") for path in ("a b.js", "-é.js")
    }
    assert report.fixed == () and report.complete
    assert report.versions == {"each": "base False", "project": "base True"}


async def test_bundled_semgrep_rules_hit_what_they_should_and_nothing_else(bench: Bench) -> None:
    after = {path.name.removesuffix(".txt"): path.read_text() for path in RULES.iterdir()}
    own = {
        "own.yaml": (
            b"rules:\n- {id: own.rule, languages: [python], severity: INFO, message: m, "
            b"pattern: good(...)}\n"
        )
    }
    report = await bench.lint({}, {**after, "c.py": "good(1)\n"}, Semgrep(rules=own))
    wanted = {("c.py", 1, "own.rule")}
    for name, text in after.items():
        for number, line in enumerate(text.splitlines(), 1):
            rules = line.partition("hit: ")[2].split()
            wanted |= {(name, number, rule) for rule in rules}
    assert {(each.path, each.line, each.rule) for each in report.new} == wanted
    assert len({rule for _, _, rule in wanted}) > 18
    slow = await bench.lint({}, {"c.py": "good(1)\n"}, Semgrep(rules=own, native=False))
    assert slow.complete and slow.versions["semgrep"] == report.versions["semgrep"]
    assert [each.rule for each in slow.new] == ["own.rule"]


async def test_what_took_semgrep_too_long_is_skipped(bench: Bench) -> None:
    report = await bench.lint({}, {"a.py": "eval(x)\n" * 60_000}, Semgrep(seconds=0.5))
    assert [(each.tool, each.path) for each in report.skipped] == [("semgrep", "a.py")]
    assert "Timeout" in report.skipped[0].reason


async def test_nothing_to_lint_and_mistakes_of_the_caller(bench: Bench) -> None:
    report = await bench.lint({"a.png": "x\n"}, {"a.png": "y\n"}, *default_linters())
    assert report == LintReport()
    with pytest.raises(SandboxUsageError, match="plain names of their own"):
        await lint(bench.sandbox, [Ruff(), Ruff()], timeout=WAIT)
    await bench.apply({"a.py": EVAL}, {"a.py": BOTH})
    by_git = await lint(bench.sandbox, [Ruff()], timeout=WAIT)  # without the diff's paths
    assert told(by_git) == {("ruff", "S102", 6)}
    await bench.sandbox.run("rm -rf .git", timeout=60)
    with pytest.raises(SandboxUsageError, match="git can't tell the changes"):
        await lint(bench.sandbox, [Ruff()], timeout=WAIT)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_lost_sandbox_is_raised_as_such(bench: Bench) -> None:
    await bench.apply({"a.py": EVAL}, {"a.py": BOTH})
    arguments = ("sh", "-c", "touch /tmp/began; sleep 600")
    sleeper = SarifLinter(name="sleeper", arguments=arguments, suffixes=(".py",))

    async def kill() -> None:
        began = "until test -e /tmp/began; do sleep 0.1; done"
        assert (await bench.sandbox.run(began, timeout=WAIT)).ok
        await anyio.run_process(["docker", "kill", bench.sandbox.name])

    async with anyio.create_task_group() as group:
        group.start_soon(kill)
        with pytest.raises(SandboxLost):
            await lint(bench.sandbox, [sleeper, Ruff()], timeout=WAIT)


async def test_a_plain_image_has_no_linters(docker_image: str, tmp_path: Path) -> None:
    async with Pool(SandboxSpec(image=docker_image), size=1) as pool:
        async with pool.lease(timeout=WAIT) as sandbox:
            report = await Bench(sandbox, tmp_path).lint({}, {"a.py": EVAL}, *default_linters())
    assert {each.tool for each in report.skipped} == {
        "ruff", "ruff-format", "bandit", "semgrep", "detect-secrets",
    }  # fmt: skip
    assert all("not in the image" in each.reason for each in report.skipped)
    assert report.new == () and report.versions == {}
