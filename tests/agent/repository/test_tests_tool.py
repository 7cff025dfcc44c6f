"""`run_tests`: what may be run, what is told, and nothing that a replay would tell otherwise."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from patchgym.agent import Observation, ToolCall
from patchgym.agent.repository import RepositoryEnvironment
from patchgym.agent.repository.testing import _steady  # pyright: ignore[reportPrivateUsage]
from patchgym.sandbox import Pool

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
Tool = Callable[..., Awaitable[Observation]]
Opened = Callable[..., RepositoryEnvironment]


async def test_the_task_s_own_tests_run_without_a_name(tool: Tool) -> None:
    found = await tool("run_tests")
    assert (found.kind, found.tool, found.done, found.timed_out) == (
        "tests", "run_tests", False, False
    )  # fmt: skip
    assert found.outcomes == {
        "test_calc.py::test_add": "failed",
        "test_calc.py::test_twice": "failed",
        "test_calc.py::test_zero": "passed",
    }
    assert found.text.startswith("1 of 3 tests passed.\nfailed test_calc.py::test_add\n")
    assert "assert add(2, 3) == 5" in found.text
    await tool("edit", path="calc.py", search="a - b", replace="a + b")
    found = await tool("run_tests")
    assert (found.text, found.done) == ("3 of 3 tests passed.", False)


async def test_tests_can_be_named(tool: Tool) -> None:
    one = await tool("run_tests", tests=["test_calc.py::test_zero"])
    assert one.text == "1 of 1 tests passed."
    whole = await tool("run_tests", tests=["test_calc.py"])
    assert set(whole.outcomes) == {f"test_calc.py::test_{n}" for n in ("add", "twice", "zero")}
    assert "failed test_calc.py::test_add\n    assert add(2, 3) == 5" in whole.text
    none = await tool("run_tests", tests=["none.py", "test_calc.py::test_none"])
    assert set(none.outcomes.values()) == {"not_run"}
    await tool("edit", path="test_new.py", search="", replace="def test_new():\n    assert 1\n")
    assert (await tool("run_tests", tests=["test_new.py"])).text == "1 of 1 tests passed."


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        ([], "There are no tests to run without a name"),
        (["-x"], "'-x' is no test"),
        ([" "], "' ' is no test"),
        ([1], "run_tests: `tests` must hold strings, not int."),
        ("test_calc.py", "run_tests: `tests` must be of type array, not str."),
    ],
)
async def test_names_that_are_none(tool: Tool, tests: Any, words: str) -> None:
    found = await tool("run_tests", tests=tests)
    assert found.kind == "tool_error"
    assert found.text.startswith(words)


async def test_a_broken_module_says_why(tool: Tool) -> None:
    await tool("edit", path="calc.py", search="a - b", replace="a - b)")
    found = await tool("run_tests")
    assert set(found.outcomes.values()) == {"error"}
    assert "SyntaxError" in found.text


async def test_the_limit_ends_a_run(pool: Pool, opened: Opened) -> None:
    async with opened(pool, tests_seconds=3) as environment:
        call = ToolCall(name="run_tests", arguments={"tests": ["test_slow.py"]})
        found = await environment.step(call)
    assert found.timed_out
    assert found.kind == "tests"
    assert "The run was stopped at its time limit." in found.text
    assert 3 <= found.seconds < 15


async def test_hidden_tests_are_neither_run_nor_named(
    pool: Pool, opened: Opened, ground: Any
) -> None:
    async with opened(pool, ground.hidden) as environment:
        found = await environment.step(ToolCall(name="run_tests"))
        assert found.outcomes == {"test_calc.py::test_zero": "passed"}
        assert found.text == "1 of 1 tests passed."
        look = "git log --all --format=%s; git tag; git fsck --lost-found; grep -r far_ . | wc -l"
        seen = await environment.step(ToolCall(name="bash", arguments={"command": look}))
        assert seen.text == "Start\n0\n[exit code 0]"
        opening = await environment.open()
    assert "far_" not in f"{opening}{environment.tools}"


async def test_two_runs_read_the_same(pool: Pool, opened: Opened) -> None:
    calls = [
        ToolCall(name="run_tests"),
        ToolCall(name="run_tests", arguments={"tests": ["none.py"]}),
        ToolCall(name="bash", arguments={"command": "ls -a; cd docs; git status; exit 5"}),
        ToolCall(name="bash", arguments={"command": "pwd; python3 -m pytest -q .. | head -3"}),
        ToolCall(name="view", arguments={"path": "."}),
        ToolCall(name="edit", arguments={"path": "calc.py", "search": "x", "replace": "y"}),
        ToolCall(name="submit"),
    ]
    told: list[list[str]] = []
    for _ in range(2):
        async with opened(pool) as environment:
            told.append([(await environment.step(call)).text for call in calls])
    assert told[0] == told[1]
    assert not re.search(r"\d+\.\d+ ?s\b|/tmp/patchgym|[0-9a-f]{12}", "\n".join(told[0]))


@pytest.mark.parametrize(
    ("text", "steady"),
    [
        ("3 of 3 tests passed (0.2 s). The run", "3 of 3 tests passed. The run"),
        ("=== 1 failed in 0.12s ===", "=== 1 failed in some time ==="),
        ("2 passed in 71.00s (0:01:11)", "2 passed in some time"),
        ("Ran 3 tests in 0.001s", "Ran 3 tests in some time"),
        ("at /tmp/patchgym-0a1b/report.xml", "at /tmp/patchgym/report.xml"),
        ("within 3 seconds in 2 steps", "within 3 seconds in 2 steps"),
    ],
)
def test_times_and_folders_of_ours_are_taken_out(text: str, steady: str) -> None:
    assert _steady(text) == steady
