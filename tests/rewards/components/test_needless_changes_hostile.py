"""Changes that try to break or to stall the search for needless ones."""

from __future__ import annotations

import pytest
from changes import NO_CHANGE, scene

from patchgym.rewards.components.needless.reading import LINE_LIMIT, SIZE_LIMIT, read_python
from patchgym.rewards.components.needless_changes import NeedlessChanges
from patchgym.rewards.scene import Change, ChangedFile, Hunk, Line

HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "only a line end": b"\n",
    "no line end": b"x = 1",
    "no Python": b"class {\n",
    "an open bracket": b"x = (\n",
    "an open string": b'x = """\n',
    "null bytes": b"x = 1\0\n",
    "not UTF-8": b"x = '\xff\xfe'\n",
    "lone carriage returns": b"x = 1\ry = 2\r",
    "deep brackets": b"(" * 5_000,
    "deep blocks": b"".join(b" " * n + b"if x:\n" for n in range(400)),
    "bad dedent": b"if x:\n        y\n    z\n",
    "a long line": b"x = '" + b"\\'" * 50_000,
    "many quotes": b"'\n" * 20_000,
    "many bare strings": b"'a'\n" * 20_000,
    "one-line functions": b"def f(): pass\n" * 5_000,
    "only comments": b"# a\n" * 20_000,
    "a conflict": b"<<<<<<< ours\nx = 1\n=======\nx = 2\n>>>>>>> theirs\n",
    "semicolons": b"; ; ;\n",
    "a continued end": b"x = 1 + \\",
    "form feeds": b"\x0cx = 1\n\x0c\n",
    "a byte order mark": b"\xef\xbb\xbfx = 1\n",
}


def whole(before: bytes | None, after: bytes | None, path: str = "shop.py") -> Change:
    """Every line removed and every line added, as a lazy differ would have it."""

    def lines(data: bytes | None) -> tuple[Line, ...]:
        parts = (data or b"").decode("utf-8", "surrogateescape").split("\n")
        return tuple(Line(number=n, text=text) for n, text in enumerate(parts, 1))

    hunk = Hunk(removed=lines(before), added=lines(after))
    return Change(
        tree="x", files=(ChangedFile(path=path, before=before, after=after, hunks=(hunk,)),)
    )


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_any_content_gets_a_value(content: bytes) -> None:
    good = b"def f(x):\n    return x\n"
    for before, after in ((good, content), (content, good), (None, content), (content, content)):
        for path in ("shop.py", "shop.js", "Makefile"):
            found = NeedlessChanges().measure(scene(whole(before, after, path), NO_CHANGE))
            assert 0 <= found.value <= 1


def test_large_files_and_long_lines_are_not_read_as_tokens() -> None:
    assert read_python(b"x = 1\n" * 10) is not None
    assert read_python(b"x" * (LINE_LIMIT + 1)) is None
    assert read_python(b"x\n" * (SIZE_LIMIT // 2 + 1)) is None


def test_a_large_file_is_still_looked_at_by_lines() -> None:
    text = b"x = 1\n" * (SIZE_LIMIT // 6 + 100)
    number = text.count(b"\n") + 1
    hunk = Hunk(
        removed=(Line(number=number, text="y = 1"),), added=(Line(number=number, text="y  =  1"),)
    )
    file = ChangedFile(
        path="a.py", before=text + b"y = 1\n", after=text + b"y  =  1\n", hunks=(hunk,)
    )
    found = NeedlessChanges().measure(scene(Change(tree="x", files=(file,))))
    assert [fault.message for fault in found.faults] == ["whitespace: only blanks"]


def test_a_change_of_eight_mebibytes_and_of_many_hunks_is_measured() -> None:
    row = "value = compute(1, 2)  # why\n"
    text = row * ((4 << 20) // len(row))
    big = whole(text.encode(), text.replace("(1, 2)", "(1,2)").encode())
    assert NeedlessChanges().measure(scene(big)).value > 0.9
    hunks = tuple(
        Hunk(removed=(Line(number=n, text="a"),), added=(Line(number=n, text="a "),))
        for n in range(1, 200_000, 2)
    )
    file = ChangedFile(path="a.js", before=b"", after=b"", hunks=hunks)
    found = NeedlessChanges().measure(scene(Change(tree="x", files=(file,))))
    assert found.evidence["whitespace"] == len(hunks)
    assert len(found.faults) <= 200


def test_hunks_that_do_not_fit_their_file_are_no_error() -> None:
    hunk = Hunk(removed=(Line(number=10**9, text="x"),), added=())
    file = ChangedFile(path="a.py", before=b"x = 1\n", after=b"", hunks=(hunk, Hunk()))
    assert NeedlessChanges().measure(scene(Change(tree="x", files=(file,)))).value >= 0


def test_odd_paths_are_no_error() -> None:
    for path in (
        "a" * 4096,
        "/" * 50,
        "..",
        "a/\udcff.py",
        "x_" * 2000 + ".py",
        "-" * 4000 + ".md",
    ):
        file = ChangedFile(path=path, before=None, after=b"x = 1\n")
        assert NeedlessChanges().measure(scene(Change(tree="x", files=(file,)))).value >= 0
