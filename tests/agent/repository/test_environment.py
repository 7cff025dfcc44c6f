"""The environment as a whole: leases, arguments, what is handed in, the sandbox's own failures."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from own_images import own_images

from patchgym.agent import Environment, Observation, ToolCall
from patchgym.agent.repository import RepositoryConfig, RepositoryEnvironment, lease_repository
from patchgym.datasets.environment import Environment as ImageEnvironment
from patchgym.datasets.images import TaskImages, pool_spec
from patchgym.datasets.trial import Trial, TrialConfig
from patchgym.sandbox import (
    ImageStore,
    LeaseTimeout,
    LocalPool,
    Pool,
    Sandbox,
    SandboxError,
    SandboxLost,
    SandboxSpec,
)

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
Tool = Callable[..., Awaitable[Observation]]
Opened = Callable[..., RepositoryEnvironment]


async def test_the_opening_says_where_and_how(environment: RepositoryEnvironment) -> None:
    as_protocol: Environment = environment
    opening = await as_protocol.open()
    assert opening.text == (
        "add() takes away.\n\nThe repository is in /workspace, where commands start. "
        "Its tests are run with `python3 -m pytest`."
    )
    assert opening.facts == {
        "statement": "add() takes away.",
        "repository": "/workspace",
        "tests": "python3 -m pytest",
    }
    assert [spec.name for spec in environment.tools] == [
        "bash", "view", "edit", "run_tests", "submit"
    ]  # fmt: skip
    assert not environment.answers


async def test_what_needs_no_sandbox_takes_none(pool: Pool, opened: Opened) -> None:
    leases = pool.statistics().leases
    async with opened(pool) as environment:
        await environment.open()
        assert (await environment.step(ToolCall(name="fly"))).kind == "tool_error"
        assert (await environment.step(ToolCall(name="bash"))).kind == "tool_error"
        assert await environment.outcome() == b""
        found = await environment.step(ToolCall(name="submit"))
        assert (found.kind, found.done, found.tool) == ("submitted", True, "submit")
        assert await environment.outcome() == b""
    assert pool.statistics().leases == leases


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("fly", {}, "There is no tool `fly`; the tools are bash, view, edit, run_tests, submit."),
        ("bash", {}, "bash needs the argument `command`; its arguments are: command."),
        ("bash", {"command": None}, "bash: `command` must be of type string, not NoneType."),
        ("bash", {"command": "a\0b"}, "bash: `command` holds a zero character."),
        ("bash", {"command": "\ud800"}, "bash: `command` holds half a surrogate pair"),
        ("view", {"path": "x", "first": True}, "view: `first` must be of type integer, not bool."),
        ("view", {"file": "x"}, "view needs the argument `path`"),
        ("edit", {"path": "x", "search": "y"}, "edit needs the argument `replace`"),
        ("submit", {"now": 1}, "submit has no argument `now`; its arguments are: none."),
    ],
)
async def test_calls_that_make_no_sense_are_answered(
    environment: RepositoryEnvironment, name: str, arguments: dict[str, Any], words: str
) -> None:
    found = await environment.step(ToolCall(name=name, arguments=arguments))
    assert (found.kind, found.done) == ("tool_error", False)
    assert found.text.startswith(words)


async def test_the_outcome_has_every_kind_of_change(
    environment: RepositoryEnvironment, tool: Tool
) -> None:
    script = """
        echo new > new.txt; mkdir -p sub; echo deep > 'sub/a b.txt'
        rm twins.txt; git mv docs/index.md docs/start.md; chmod 755 tabs.py
        echo junk > out.log; mkdir -p __pycache__; echo x > __pycache__/a.pyc
        printf '\\000\\001' > blob.bin; git add -A; git commit -qm mine; echo more >> new.txt
    """
    await tool("bash", command=script)
    diff = (await environment.outcome()).decode()
    headers = {line for line in diff.splitlines() if line.startswith("diff --git ")}
    paths = ("blob.bin", "new.txt", "sub/a b.txt", "tabs.py", "twins.txt")
    assert headers == {
        *(f"diff --git a/{path} b/{path}" for path in paths),
        "diff --git a/docs/index.md b/docs/start.md",
    }
    for words in ("deleted file mode", "rename to docs/start.md", "new mode 100755", "+more"):
        assert words in diff
    assert "GIT binary patch" in diff


async def test_what_is_submitted_is_what_was_there_then(
    environment: RepositoryEnvironment, tool: Tool
) -> None:
    await tool("bash", command="echo 1 > one.txt; (sleep 1; echo 2 > two.txt) >/dev/null 2>&1 &")
    found = await tool("submit")
    assert (found.text, found.kind, found.done) == ("Handed in.", "submitted", True)
    await tool("bash", command="sleep 1.5; ls two.txt")
    assert b"two.txt" not in await environment.outcome()


async def test_a_diff_that_is_too_large_is_not_taken(
    environment: RepositoryEnvironment, tool: Tool
) -> None:
    await tool("bash", command="head -c 9M /dev/urandom > noise")
    found = await tool("submit")
    assert (found.kind, found.done) == ("tool_error", False)
    assert found.text.startswith("Your changes can't be handed in: the diff is over 8 MiB.")
    assert await environment.outcome() == b""
    await tool("bash", command="rm noise; echo 1 > one")
    assert (await tool("submit")).done
    assert b"+1" in await environment.outcome()


async def test_a_ruined_git_folder_is_the_policy_s_doing(
    environment: RepositoryEnvironment, tool: Tool
) -> None:
    await tool("bash", command="rm -rf .git")
    assert (await tool("submit")).text.startswith("Your changes can't be handed in: git can't")
    assert await environment.outcome() == b""


async def test_a_sandbox_that_dies_is_an_error(pool: Pool, opened: Opened, ground: Any) -> None:
    kept: list[Sandbox] = []
    lease = lease_repository(ground.plain, pool, timeout=60)

    @asynccontextmanager
    async def watched() -> AsyncIterator[Sandbox]:
        async with lease() as sandbox:
            kept.append(sandbox)
            yield sandbox

    async with RepositoryEnvironment(ground.plain, watched) as environment:
        await environment.step(ToolCall(name="bash", arguments={"command": "true"}))
        await pool.engines[0].remove(kept[0].name)
        for call in (
            ToolCall(name="bash", arguments={"command": "true"}),
            ToolCall(name="view", arguments={"path": "calc.py"}),
            ToolCall(name="edit", arguments={"path": "calc.py", "search": "a", "replace": "b"}),
            ToolCall(name="run_tests"),
            ToolCall(name="submit"),
        ):
            with pytest.raises(SandboxLost):
                await environment.step(call)
        with pytest.raises(SandboxError):
            await environment.outcome()


async def test_no_free_sandbox_is_an_error(local: LocalPool, ground: Any) -> None:
    async with LocalPool(local.spec, size=1) as small, small.lease(timeout=5):
        lease = lease_repository(ground.plain, small, timeout=0.1)
        async with RepositoryEnvironment(ground.plain, lease) as environment:
            with pytest.raises(LeaseTimeout):
                await environment.step(ToolCall(name="view", arguments={"path": "."}))


async def test_the_way_to_a_sandbox_is_told_stage_by_stage(local: LocalPool, ground: Any) -> None:
    told: list[str] = []
    lease = lease_repository(ground.plain, local, timeout=60, on_stage=told.append)
    async with RepositoryEnvironment(ground.plain, lease) as environment:
        assert told == [], "no sandbox is taken before one is needed"
        await environment.step(ToolCall(name="view", arguments={"path": "."}))
    assert told == ["image", "lease wait", "checkout"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("command_seconds", 0.0),
        ("tests_seconds", -1.0),
        ("output_characters", 10),
        ("view_lines", 0),
    ],
)
def test_limits_that_can_not_work_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name.split("_")[0]):
        RepositoryConfig(**{name: value})


async def test_it_works_without_docker(local: LocalPool, opened: Opened) -> None:
    async with opened(local, command_seconds=1) as environment:

        async def tell(name: str, **arguments: object) -> str:
            call = ToolCall(name=name, arguments=arguments)
            return (await environment.step(call)).text

        assert await tell("bash", command="export A=1; cd docs; ls") == "index.md\n[exit code 0]"
        assert await tell("bash", command="echo $A; ls; cd ..") == "1\nindex.md\n[exit code 0]"
        assert "[stopped after 1 s" in await tell("bash", command="sleep 9 & setsid sleep 9 & wait")
        for path in ("../x", "etc/passwd", "/etc"):
            assert "leads out" in await tell("view", path=path)
        assert "lines 1 to 6 of 6" in await tell("view", path="/workspace/calc.py")
        assert "Edited" in await tell("edit", path="calc.py", search="a - b", replace="a + b")
        assert await tell("run_tests") == "3 of 3 tests passed."
        assert await tell("submit") == "Handed in."
        assert b"+    return a + b\n" in await environment.outcome()


async def test_an_image_without_bash_will_do(tmp_path: Path, opened: Opened) -> None:
    for tool in ("sh", "cat", "ls", "tar", "git", "rm", "cp", "sleep"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "/none")
    spec = SandboxSpec(image="none", environment={"PATH": str(tmp_path)})
    async with LocalPool(spec) as pool, opened(pool) as environment:

        async def tell(command: str) -> str:
            call = ToolCall(name="bash", arguments={"command": command})
            return (await environment.step(call)).text

        assert await tell("export A='1 2'; cd docs; echo $BASH_VERSION") == "[exit code 0]"
        told = await tell('ls; echo "$A"; cd -')
        assert told.startswith("index.md\n1 2\n/")
        assert "[exit code 2]" in await tell("if")


async def test_what_hinders_a_look_is_told(environment: RepositoryEnvironment, tool: Tool) -> None:
    fill = "while sleep 300 & do :; done 2>/dev/null"
    await tool("bash", command=f"({fill}) >/dev/null 2>&1 & sleep 3")
    found = await tool("view", path="calc.py")
    assert found.kind in ("tool_error", "output")
    assert "neither a file" not in found.text


@pytest.mark.slow
async def test_a_task_with_an_image_of_its_own(
    docker_image: str, ground: Any, tmp_path: Path
) -> None:
    environment = ImageEnvironment(
        install=("echo built > /opt/built", "touch made.log"), workdir="/testbed"
    )
    task = replace(ground.plain, environment=environment)
    with own_images() as prefix:
        async with (
            ImageStore(prefix=prefix, folder=tmp_path / "store") as store,
            Pool(pool_spec([task], docker_image), size=1) as pool,
        ):
            images = TaskImages(store)
            lease = lease_repository(task, pool, images=images, timeout=120)
            async with RepositoryEnvironment(task, lease) as work:
                assert "/testbed" in (await work.open()).text

                async def tell(name: str, **arguments: object) -> str:
                    return (await work.step(ToolCall(name=name, arguments=arguments))).text

                seen = await tell("bash", command="pwd; ls made.log; git log --all --format=%s")
                assert seen == "/testbed\nmade.log\nStart\n[exit code 0]"
                assert "lines 1 to" in await tell("view", path="/testbed/calc.py")
                await tell("edit", path="calc.py", search="a - b", replace="a + b")
                assert await tell("run_tests") == "3 of 3 tests passed."
                diff = await work.outcome()
            trial = await Trial.of(task, pool, TrialConfig(images=images))
            async with trial.prepared(diff) as prepared:
                assert (await prepared.run()).all_passed(task.tests)
