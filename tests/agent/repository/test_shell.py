"""`bash`: what a command prints, how it ends, and what lasts to the next."""

from __future__ import annotations

import resource
from collections.abc import Awaitable, Callable

import pytest

from patchgym.agent import Observation, ToolCall
from patchgym.agent.repository import RepositoryEnvironment
from patchgym.sandbox import Pool

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
Tool = Callable[..., Awaitable[Observation]]
Opened = Callable[..., RepositoryEnvironment]


async def test_output_and_exit_code_are_told(tool: Tool) -> None:
    found = await tool("bash", command="echo out; echo err >&2; exit 3")
    assert found.text == "out\nerr\n[exit code 3]"
    assert (found.kind, found.tool, found.done, found.timed_out) == ("output", "bash", False, False)
    assert found.seconds > 0
    assert found.dropped == 0
    assert (await tool("bash", command="true")).text == "[exit code 0]"


async def test_the_working_directory_and_exported_variables_last(tool: Tool) -> None:
    await tool("bash", command="export NAME='a\nb $x \"'; HERE=1; cd docs")
    found = await tool("bash", command='pwd; echo "$NAME"; echo "[$HERE]"; cd -')
    assert found.text == '/workspace/docs\na\nb $x "\n[]\n/workspace\n[exit code 0]'
    await tool("bash", command="cd /tmp; exit 7")
    assert (await tool("bash", command="pwd")).text.startswith("/tmp\n")


async def test_a_ruined_path_can_be_mended(tool: Tool) -> None:
    assert "[exit code 127]" in (await tool("bash", command="export PATH=/none; ls")).text
    assert "[exit code 127]" in (await tool("bash", command="ls")).text
    found = await tool("bash", command="export PATH=/usr/bin:/bin; ls calc.py")
    assert found.text == "calc.py\n[exit code 0]"


async def test_a_deleted_working_directory_is_told(tool: Tool) -> None:
    await tool("bash", command="mkdir -p a/b; cd a/b; rm -r ../../a")
    found = await tool("bash", command="pwd")
    assert found.text.startswith("[a/b is gone: this ran in the repository's root]\n/workspace\n")
    assert (await tool("bash", command="pwd")).text == "/workspace\n[exit code 0]"


async def test_scripts_with_quotes_heredocs_and_broken_syntax(tool: Tool) -> None:
    script = "cat <<'END'\nit's \"$HOME\" \\ é\nEND\nfor i in 1 2; do\n  echo $i\ndone\nnone_such\n"
    found = await tool("bash", command=script)
    assert found.text == (
        'it\'s "$HOME" \\ é\n1\n2\nbash: line 7: none_such: command not found\n[exit code 127]'
    )
    broken = await tool("bash", command="cd docs\nif [ 1")
    assert "syntax error" in broken.text
    assert "[exit code 0]" not in broken.text


async def test_a_long_command_is_no_problem(tool: Tool) -> None:
    text = "x" * (1 << 20)
    assert (await tool("bash", command=f"v={text}; echo ${{#v}}")).text.startswith("1048576\n")


async def test_a_hanging_command_ends_with_all_it_started(tool: Tool) -> None:
    first = await tool("bash", command="echo $PATCHGYM_COMMAND")  # the sandbox's mark
    assert (await tool("bash", command="echo $PATCHGYM_COMMAND")).text != first.text
    hang = (
        "cd docs; echo started; sleep 1000 & setsid sleep 1000 & "
        "setsid sh -c '(trap \"\" TERM; sleep 1000 >/dev/null 2>&1 <&- &)'; sleep 1000"
    )
    found = await tool("bash", command=f"timeout 0.1 true; {hang}")
    assert found.kind == "timeout"
    assert found.timed_out
    assert found.text == "started\n[stopped after 20 s, with every process that it started]"
    left = await tool("bash", command="cat /proc/[0-9]*/comm | grep -c sleep; pwd")
    assert left.text == "0\n/workspace\n[exit code 0]"


async def test_what_runs_in_the_background_lives_on(tool: Tool) -> None:
    started = await tool("bash", command="(sleep 300 >/dev/null 2>&1 &) ; echo here")
    assert started.text == "here\n[exit code 0]"
    assert started.seconds < 15
    assert (await tool("bash", command="cat /proc/[0-9]*/comm | grep -c sleep")).text[0] == "1"


async def test_a_gigabyte_of_output_costs_megabytes(tool: Tool) -> None:
    await tool("bash", command="true")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    command = "echo first; head -c 1G /dev/zero | tr '\\0' y; echo; echo last"
    found = await tool("bash", command=command)
    assert found.kind == "output"
    assert found.text.startswith("first\ny")
    assert found.text.endswith("y\nlast\n[exit code 0]")
    assert len(found.text) < 10_200
    assert found.dropped == (1 << 30) + len("first\n\nlast\n") - 10_000
    assert f"[... {found.dropped} characters left out ...]" in found.text
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 32 << 10  # KiB


async def test_bytes_that_are_no_text_come_through(tool: Tool) -> None:
    found = await tool("bash", command=r"printf 'a\377\0\033[1mé\r\nb\n'")
    assert found.text == "a\\xff\\x00\\x1b[1mé\nb\n[exit code 0]"


async def test_the_end_by_a_signal_and_by_want_of_memory_is_told(tool: Tool) -> None:
    assert (await tool("bash", command="kill -9 $$")).text == "[ended by signal 9]"
    hungry = "python3 -c 'b = bytearray(1 << 30)[::4096]; print(len(bytes(1 << 30)))'"
    found = await tool("bash", command=hungry)
    assert "[out of memory: a process was killed at the limit of 256 MiB]" in found.text
    assert "[exit code 137]" in found.text


async def test_nothing_can_be_typed_in(tool: Tool) -> None:
    assert (await tool("bash", command="read line; echo $?")).text == "1\n[exit code 0]"


async def test_a_command_in_place_of_the_shell_loses_no_state(tool: Tool) -> None:
    await tool("bash", command="cd docs")
    assert (await tool("bash", command="cd ..; exec echo x")).text == "x\n[exit code 0]"
    assert (await tool("bash", command="pwd")).text.startswith("/workspace/docs\n")


async def test_the_limit_is_the_configured_one(pool: Pool, opened: Opened) -> None:
    async with opened(pool, command_seconds=0.5, output_characters=200) as environment:
        call = ToolCall(name="bash", arguments={"command": "seq 1000; sleep 9"})
        found = await environment.step(call)
    assert "[stopped after 0.5 s, with every process that it started]" in found.text
    assert len(found.text) < 400
    assert "0.5 s" in environment.tools[0].description
