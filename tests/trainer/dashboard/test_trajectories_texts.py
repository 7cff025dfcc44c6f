"""Foreign text and foreign diffs on a page: all of it seen, none of it able to do anything."""

from __future__ import annotations

import html
import re
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from viewer_runs import ATTACK, PATCH

from patchgym.trainer.dashboard.inert import inert, marked, one_line
from patchgym.trainer.dashboard.trajectories.diff_lines import DiffFile, DiffLine, diff_view
from patchgym.trainer.dashboard.trajectories.excerpt import excerpt

OURS = re.compile(r'<span class="hidden-mark" title="[^"<>&]*">|</span>')
WORDS = st.characters(
    categories=("L", "N", "P", "S", "Zs"), exclude_characters="\u115f\u1160\u3164\uffa0"
)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)


@settings(deadline=None)
@given(ANY_TEXT)
def test_whatever_a_text_holds_no_markup_but_ours_comes_of_it(text: str) -> None:
    left = OURS.sub("", str(inert(text)))

    assert not set("<>\"'") & set(left)


@settings(deadline=None)
@given(ANY_TEXT)
def test_nothing_that_is_hidden_or_turns_the_direction_stays_in_a_text(text: str) -> None:
    for shown in (html.unescape(str(inert(text))), marked(text)):
        kinds = {unicodedata.category(each) for each in shown} - {"Co", "Cn"}
        assert not kinds & {"Cs", "Zl", "Zp"}
        assert not [each for each in shown if each < " " and each not in "\t\n"]
        assert not set(shown) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200b\u200f\ufeff")
        shown.encode()


@settings(deadline=None)
@given(
    st.text(
        st.characters(
            categories=("L", "N", "P", "S", "Zs"), exclude_characters="\u115f\u1160\u3164\uffa0"
        ),
        max_size=200,
    )
)
def test_words_come_through_as_they_are(text: str) -> None:
    assert html.unescape(str(inert(text))) == text


def test_a_terminal_escape_is_one_mark_with_its_words_in_sight() -> None:
    shown = str(inert("\x1b[1;31mred\x1b[0m"))

    assert shown == (
        '<span class="hidden-mark" title="terminal escape">^[[1;31m</span>red'
        '<span class="hidden-mark" title="terminal escape">^[[0m</span>'
    )


def test_a_link_for_terminals_shows_where_it_would_have_led() -> None:
    shown = str(inert("\x1b]8;;https://evil.example/\x07words\x1b]8;;\x07"))

    assert "https://evil.example/" in shown
    assert "href" not in shown
    assert "words" in shown


def test_towers_of_accents_are_cut_down_and_an_accent_is_not() -> None:
    assert str(inert("e\u0301")) == "e\u0301"
    assert len(inert("e" + "\u0301" * 500)) == 3


def test_a_title_is_one_short_line() -> None:
    assert one_line("a\nb\x1b[31m\u202ec") == "a b^[[31m⟨U+202E⟩c"
    assert one_line("x" * 500, 10) == "x" * 10 + "…"


def test_a_short_text_is_shown_whole() -> None:
    found = excerpt("one\ntwo\n")

    assert (found.head, found.tail, found.left_out, found.words) == ("one\ntwo\n", "", 0, "")


def test_of_a_long_text_both_ends_are_shown_and_the_rest_is_counted() -> None:
    text = "".join(f"line {number}\n" for number in range(100_000))

    found = excerpt(text, lines=10, last_lines=5)

    assert found.head.splitlines() == [f"line {number}" for number in range(10)]
    assert found.tail.splitlines() == [f"line {number}" for number in range(99_995, 100_000)]
    assert len(found.head) + len(found.tail) + found.left_out == len(text) == found.length


def test_one_endless_line_is_cut_too() -> None:
    found = excerpt("x" * 50_000_000)

    assert len(found.head) + len(found.tail) == 16_000
    assert found.words == "49,984,000 of 50,000,000 characters not shown"


@settings(deadline=None)
@given(st.text("ab\n", max_size=400), st.integers(1, 60), st.integers(1, 60))
def test_head_rest_and_tail_are_the_whole_text(text: str, characters: int, lines: int) -> None:
    found = excerpt(text, head=characters, tail=characters, lines=lines, last_lines=lines)

    assert text.startswith(str(found.head))
    assert text.endswith(str(found.tail))
    assert len(found.head) + len(found.tail) + found.left_out == len(text)


def test_a_diff_has_files_with_numbered_lines() -> None:
    (file,) = diff_view(PATCH).files

    assert (file.path, file.added, file.removed) == ("half.py", 2, 1)
    assert [(line.kind, line.old, line.new) for line in file.lines] == [
        ("hunk", None, None),
        ("same", 1, 1),
        ("removed", 2, None),
        ("added", None, 2),
        ("added", None, 3),
    ]


def test_words_that_changed_in_a_line_are_marked() -> None:
    diff = b"--- a/f.py\n+++ b/f.py\n@@ -1 +1 @@\n-return b % a == 0\n+return a % b == 0\n"

    lines = [line.text for line in diff_view(diff).files[0].lines if line.kind != "hunk"]

    assert lines == [
        "return <b>b</b> % <b>a</b> == 0",
        "return <b>a</b> % <b>b</b> == 0",
    ]


def test_lines_that_look_like_headers_inside_of_a_hunk_are_its_lines() -> None:
    diff = b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n--- a/g\n+++ b/g\n same\n"

    (file,) = diff_view(diff).files

    assert [(line.kind, line.text.striptags()) for line in file.lines[1:]] == [
        ("removed", "-- a/g"),
        ("added", "++ b/g"),
        ("same", "same"),
    ]


def test_a_diff_of_two_files_names_both_and_what_became_of_them() -> None:
    diff = (
        b"diff --git a/old.py b/old.py\ndeleted file mode 100644\n--- a/old.py\n+++ /dev/null\n"
        b"@@ -1 +0,0 @@\n-gone\n"
        b"diff --git a/new.bin b/new.bin\nnew file mode 100644\nGIT binary patch\nliteral 3\nKcmZ\n"
    )

    view = diff_view(diff)

    assert [file.path for file in view.files] == ["old.py", "new.bin"]
    assert view.words == "2 files, +0 \N{MINUS SIGN}1"
    assert "GIT binary patch" in [str(line.text) for line in view.files[1].lines]


def test_what_is_no_diff_is_shown_as_it_is() -> None:
    view = diff_view(b"I could not do it.\n\xff\xfe")

    assert view.words == "21 bytes that are no diff"
    assert [str(line.text) for line in view.files[0].lines] == ["I could not do it.", r"\xff\xfe"]


def test_a_diff_is_as_inert_as_any_text() -> None:
    hostile = ATTACK.encode("utf-8", "surrogatepass").replace(b"\n", b"")
    diff = b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-" + hostile + b"\n+" + hostile + b"!\n"

    shown = "".join(str(line.text) for file in diff_view(diff).files for line in file.lines)

    assert not set("<>") & set(re.sub(r"</?b>", "", OURS.sub("", shown)))
    assert "\u202e" not in shown


def test_a_huge_diff_is_cut_and_says_how_much_of_it_is_left_out() -> None:
    body = b"".join(b"+line %d\n" % number for number in range(200_000))
    diff = b"--- a/f\n+++ b/f\n@@ -0,0 +1,200000 @@\n" + body

    view = diff_view(diff, most=100)

    assert len(view.files[0].lines) == 100
    assert view.left_out == 200_001 - 100


def test_an_empty_diff_is_no_change() -> None:
    assert diff_view(b"").words == "no change"


def test_rows_of_a_diff_have_numbers_places_and_what_is_said_of_them() -> None:
    (file,) = diff_view(PATCH).files
    kept = next(line for line in file.lines if line.kind == "added")
    assert kept.new is not None
    rows = file.rows(2, "diff", {(file.path, kept.new): [Markup("<i>slow</i>")]})
    assert rows.count("<tr ") == len(file.lines) + 1
    [row] = [row for row in rows.splitlines() if f'id="diff-2-{kept.new}"' in row]
    assert row.startswith('<tr class="added at-fault"')
    assert f'data-n="{kept.new}"' in row
    assert row.endswith(f'<td class="t">{kept.text}</td></tr>')
    below = rows.splitlines()[rows.splitlines().index(row) + 1]
    assert below.startswith('<tr class="fault">')
    assert "<i>slow</i>" in below
    assert "id=" not in file.rows(2)


def test_rows_escape_whatever_is_no_markup() -> None:
    file = DiffFile(
        path="a", lines=(DiffLine(kind="added", text="<b>", new=1),), added=1, removed=0  # type: ignore[arg-type]
    )  # fmt: skip
    assert "&lt;b&gt;" in file.rows(0)
    assert "&lt;i&gt;" in file.rows(0, "d", {("a", 1): ["<i>"]})  # type: ignore[list-item]
