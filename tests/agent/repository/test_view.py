"""`view`: files and folders a page at a time, nothing outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from patchgym.agent import Observation

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
Tool = Callable[..., Awaitable[Observation]]


async def test_a_file_with_line_numbers(tool: Tool) -> None:
    found = await tool("view", path="calc.py")
    assert found.text == (
        "calc.py, lines 1 to 6 of 6:\n"
        "     1\tdef add(a, b):\n     2\t    return a - b\n     3\t\n     4\t\n"
        "     5\tdef twice(a):\n     6\t    return add(a, a)"
    )
    assert (found.kind, found.tool, found.done, found.dropped) == ("output", "view", False, 0)


@pytest.mark.parametrize("path", ["./calc.py", "/workspace/calc.py", "docs/../calc.py", "link.py"])
async def test_other_ways_to_name_it(tool: Tool, path: str) -> None:
    assert "lines 2 to 3 of 6:\n     2\t" in (
        await tool("view", path=path, first=2, last=3)
    ).text  # fmt: skip


@pytest.mark.parametrize(
    "path", ["..", "../x", "/etc/passwd", "etc/passwd", "etc", "up", "up/x", "docs/../../x", "/"]
)
async def test_what_leads_out_is_refused_in_words(tool: Tool, path: str) -> None:
    found = await tool("view", path=path)
    assert found.kind == "tool_error"
    assert "leads out of the repository" in found.text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("none.py", "There is no none.py in the repository."),
        ("calc.py/x", "There is no calc.py/x in the repository."),
        ("docs/none/deep", "There is no docs/none/deep in the repository."),
    ],
)
async def test_what_is_not_there(tool: Tool, path: str, words: str) -> None:
    assert (await tool("view", path=path)).text == words


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (0, None, "`first` is 0: lines are counted from 1."),
        (7, None, "`first` is 7, and there are only 6 lines."),
        (3, 2, "`last` is 2: it must not be below `first`, 3."),
    ],
)
async def test_ranges_that_make_no_sense(
    tool: Tool, first: int, last: int | None, words: str
) -> None:
    found = await tool("view", path="calc.py", first=first, last=last)
    assert (found.kind, found.text) == ("tool_error", words)


async def test_a_folder_without_git_s_own(tool: Tool) -> None:
    found = await tool("view", path=".")
    lines = found.text.splitlines()
    assert lines[0] == f"The repository's root, entries 1 to {len(lines) - 1} of {len(lines) - 1}:"
    assert {"calc.py", "docs/", "etc", ".gitignore"} < set(lines)
    assert ".git/" not in lines
    assert (await tool("view", path="docs/")).text == "docs/, entries 1 to 1 of 1:\nindex.md"
    await tool("bash", command="mkdir void many; cd many; touch $(seq 1000 1999)")
    assert (await tool("view", path="void")).text == "void/ is empty."
    page = await tool("view", path="many", first=900)
    assert page.text.startswith("many/, entries 900 to 1000 of 1000:\n1899\n")
    page = await tool("view", path="many")
    assert page.text.endswith("\n1199\n[go on with first=201]")


async def test_line_ends_and_bytes(tool: Tool) -> None:
    crlf = await tool("view", path="windows.txt")
    assert crlf.text.startswith("windows.txt, lines 1 to 3 of 3 (CRLF line ends):\n     1\tone\n")
    assert "     1\tcaf\\xe9\n" in (await tool("view", path="latin.txt")).text
    assert (await tool("view", path="unended.txt")).text.endswith("of 2:\n     1\tone\n     2\ttwo")
    assert (await tool("view", path="empty.txt")).text == "empty.txt is an empty file."
    blob = await tool("view", path="blob.bin")
    assert blob.text == "blob.bin is a binary file of 256 bytes."


async def test_a_huge_file_is_shown_a_page_at_a_time(tool: Tool) -> None:
    await tool("bash", command="seq 20000000 > huge.txt; head -c 5M /dev/zero | tr '\\0' x > wide")
    page = await tool("view", path="huge.txt", first=19_000_000)
    assert page.text.startswith("huge.txt, lines 19000000 to 19000199 of 20000000:\n19000000\t1900")
    assert page.text.endswith("\n[go on with first=19000200]")
    wide = await tool("view", path="wide")
    assert wide.text.startswith("wide, lines 1 to 1 of 1:\n     1\txxx")
    assert wide.text.endswith("x [line cut here]")
    assert len(wide.text) < 2100


async def test_pipes_and_forbidden_files(tool: Tool) -> None:
    await tool("bash", command="mkfifo pipe; touch shut; chmod 0 shut; mkdir cage; chmod 0 cage")
    assert (await tool("view", path="pipe")).text == "pipe is neither a file nor a folder."
    assert "its permissions forbid it" in (await tool("view", path="shut")).text
    assert "its permissions forbid it" in (await tool("view", path="cage")).text


async def test_names_that_are_hard_for_a_shell(tool: Tool) -> None:
    await tool("bash", command="echo 1 > '-n'; echo 2 > 'a b$(x)'; echo 3 > '*'; echo 4 > é")
    for number, name in enumerate(("-n", "a b$(x)", "*", "é"), 1):
        assert (await tool("view", path=name)).text.endswith(f"\t{number}")
