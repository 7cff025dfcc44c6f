"""`edit`: exactly one match, or words that help; files keep what was not asked to change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from patchgym.agent import Observation

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
Tool = Callable[..., Awaitable[Observation]]


async def content(tool: Tool, path: str) -> str:
    """A file's bytes as Python writes them."""
    script = f"import sys; print(repr(open({path!r}, 'rb').read()))"
    found = await tool("bash", command=f'python3 -c "{script}"')
    return found.text.splitlines()[0]


async def test_one_match_is_replaced_and_shown(tool: Tool) -> None:
    found = await tool("edit", path="calc.py", search="a - b", replace="a + b")
    assert found.text == (
        "Edited calc.py, line 2:\n"
        "     1\tdef add(a, b):\n     2\t    return a + b\n     3\t\n     4\t\n"
        "     5\tdef twice(a):"
    )
    assert (found.kind, found.tool, found.done, found.diff) == ("output", "edit", False, b"")
    found = await tool("edit", path="calc.py", search="\n\ndef twice(a):", replace="")
    assert found.text.startswith("Edited calc.py, line 3:\n")


async def test_no_match_names_the_nearest(tool: Tool) -> None:
    found = await tool("edit", path="calc.py", search="    retrun a - b\n", replace="x")
    assert found.kind == "patch_refused"
    assert found.text == (
        "`search` is not in calc.py: nothing has changed. Most like it: line 2.\n"
        "From yours (-) to the file's (+):\n-    retrun a - b\n+    return a - b"
    )
    tabs = await tool("edit", path="tabs.py", search="    if True:", replace="x")
    assert tabs.text.startswith(
        "`search` is not in tabs.py: nothing has changed. Only blanks differ from line 2: "
        "line 2 is indented by 1 tab, yours by 4 spaces.\n"
    )
    other = await tool("edit", path="calc.py", search="zzz", replace="x")
    assert other.text.endswith("Nothing there is like it.")
    assert "- b" in await content(tool, "calc.py")


async def test_two_matches_are_told_with_their_places(tool: Tool) -> None:
    found = await tool("edit", path="twins.txt", search="same", replace="other")
    assert found.kind == "patch_refused"
    assert found.text == (
        "`search` is in twins.txt 2 times, at lines 2, 4: nothing has changed. "
        "Give more of the text around the one that is meant."
    )
    assert (await tool("edit", path="twins.txt", search="b\nsame", replace="b")).kind == "output"
    assert await content(tool, "twins.txt") == r"b'a\nsame\nb\n'"


async def test_line_ends_missing_ones_and_odd_bytes_are_kept(tool: Tool) -> None:
    await tool("edit", path="windows.txt", search="one\ntwo", replace="1\n2\n")
    assert await content(tool, "windows.txt") == r"b'1\r\n2\r\n\r\nthree\r\n'"
    await tool("edit", path="unended.txt", search="two", replace="2")
    assert await content(tool, "unended.txt") == r"b'one\n2'"
    await tool("edit", path="latin.txt", search="plain", replace="é")
    assert await content(tool, "latin.txt") == r"b'caf\xe9\n\xc3\xa9\n'"


async def test_the_mode_and_links_are_kept(tool: Tool) -> None:
    await tool("bash", command="chmod 755 calc.py")
    await tool("edit", path="link.py", search="a - b", replace="a + b")
    found = await tool("bash", command="stat -c %a calc.py; readlink link.py; grep + calc.py")
    assert found.text == "755\ncalc.py\n    return a + b\n[exit code 0]"


async def test_an_empty_search_makes_a_new_file(tool: Tool) -> None:
    found = await tool("edit", path="new/deep/one.py", search="", replace="x = 1\ny = 2\n")
    assert found.text == "Made new/deep/one.py: 2 lines."
    assert await content(tool, "new/deep/one.py") == r"b'x = 1\ny = 2\n'"
    again = await tool("edit", path="new/deep/one.py", search="", replace="")
    assert (again.kind, again.text) == (
        "tool_error",
        "new/deep/one.py exists: give the text to replace in `search`.",
    )
    assert (await tool("edit", path="nil", search="", replace="")).text == "Made nil: 0 lines."


@pytest.mark.parametrize(
    ("path", "search", "words"),
    [
        ("none.py", "x", "There is no none.py; to make it, leave `search` empty."),
        ("docs", "x", "docs is a folder."),
        ("docs", "", "docs is a folder."),
        (".git/config", "core", "Files of git's own, in .git, are not for editing."),
        ("../x", "", "../x leads out of the repository: use paths inside it."),
        ("etc/x", "", "etc/x leads out of the repository: use paths inside it."),
        ("hole", "", "hole leads out of the repository: use paths inside it."),
        ("calc.py/x", "", "Can't write calc.py/x"),
    ],
)
async def test_what_can_not_be_edited(tool: Tool, path: str, search: str, words: str) -> None:
    found = await tool("edit", path=path, search=search, replace="y")
    assert found.kind == "tool_error"
    assert found.text.startswith(words)


async def test_no_change_is_said_to_be_none(tool: Tool) -> None:
    assert (await tool("edit", path="calc.py", search="a", replace="a")).kind == "no_change"
    found = await tool("edit", path="windows.txt", search="one\ntwo", replace="one\r\ntwo")
    assert found.kind == "no_change"


async def test_python_that_no_longer_parses_is_reported_and_stays(tool: Tool) -> None:
    found = await tool("edit", path="calc.py", search="a - b", replace="a - b)")
    assert found.kind == "output"
    assert "\nNow calc.py does not parse as Python: unmatched ')' (line 2). The edit stays." in (
        found.text
    )
    assert "a - b)" in await content(tool, "calc.py")
    # It was broken before: nothing new to tell.
    more = await tool("edit", path="calc.py", search="twice", replace="thrice")
    assert "does not parse" not in more.text
    new = await tool("edit", path="new.py", search="", replace="def f(:\n")
    assert "Now new.py does not parse as Python" in new.text


async def test_a_file_that_can_not_be_written_stays_as_it_was(tool: Tool) -> None:
    await tool("bash", command="chmod 444 calc.py")
    found = await tool("edit", path="calc.py", search="a - b", replace="a + b")
    words = "Can't write calc.py: Permission denied. Nothing has changed."
    assert (found.kind, found.text) == ("tool_error", words)
    await tool("bash", command="chmod 644 calc.py; head -c 1G /dev/zero > fill.log")
    full = await tool("edit", path="calc.py", search="a - b", replace="a + b" * 100_000)
    assert full.kind == "tool_error"
    assert "Nothing has changed" in full.text
    assert "return a - b" in await content(tool, "calc.py")


async def test_a_file_that_is_too_large_is_left_to_the_shell(tool: Tool) -> None:
    await tool("bash", command="head -c 9M /dev/zero | tr '\\0' x > big.txt")
    found = await tool("edit", path="big.txt", search="x", replace="y")
    assert "over 8 MiB, use bash" in found.text
