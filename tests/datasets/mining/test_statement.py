"""What a policy is told, and that the fix is never among it."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from patchgym.datasets.mining.statement import (
    fix_lines,
    issue_numbers,
    quoted,
    squeezed,
    statement,
    steady,
)

GOLD = """diff --git a/price.py b/price.py
--- a/price.py
+++ b/price.py
@@ -1,3 +1,4 @@
 def discount(price, percent):
-    return price - percent / 100
+    share = price * percent / 100
+    return price - share
"""


def told(message: str, *merged: str, issues: dict[str, str] | None = None, **how: str) -> str:
    return statement(
        messages=(message, *merged), issues=issues or {}, failures=how, gold_patch=GOLD
    )


def test_message_issue_and_failures() -> None:
    text = told(
        "Discount is wrong for percentages (#12)\n\nIt takes off cents.\n\nFixes #12\n"
        "---------\n\nSigned-off-by: A <a@localhost>",
        issues={"12": "discount(80, 25) gives 79.75"},
        test_quarter="assert 79.75 == 60",
    )
    assert text == (
        "Discount is wrong for percentages\n\nIt takes off cents.\n\n"
        "Issue #12:\n\ndiscount(80, 25) gives 79.75\n\n"
        "Tests that fail now and have to pass:\n\n- test_quarter: assert 79.75 == 60"
    )


def test_a_bare_merge_takes_the_messages_of_what_it_merged() -> None:
    merge = "Merge pull request #3 from a/b"
    assert told(merge, "Round prices", "Round prices", "Test it").startswith(
        "Round prices\n\nTest it"
    )
    assert told(f"{merge}\n\nPrices are not rounded", "wip").startswith("Prices are not rounded")


def test_lines_of_the_fix_go_wherever_they_stand() -> None:
    text = told(
        "Discount\n\nNow it is\n    share = price*percent / 100\nand more",
        issues={"1": "I use `return price   - share` here.\nIt helps."},
        test_a="E  share = price *\n  percent / 100",
    )
    assert not quoted(text, fix_lines(GOLD))
    assert "and more" in text
    assert "It helps." in text


def test_a_quote_over_several_lines_goes_too() -> None:
    text = told("Discount\n\nshare = price *\npercent / 100\n\nThe end")
    assert not quoted(text, fix_lines(GOLD))
    assert "The end" in text


def test_a_message_that_is_the_fix_leaves_something_to_say() -> None:
    text = told("return price - share", test_a="assert 1 == 2")
    assert text.startswith("Something is broken in this repository")
    assert "test_a: assert 1 == 2" in text


def test_what_was_there_before_is_no_secret() -> None:
    moved = GOLD + " # a known line of the file\n-# moved about in it\n+# moved about in it\n"
    assert fix_lines(moved) == {"share=price*percent/100", "returnprice-share"}


def test_issue_numbers() -> None:
    said = ["Fix #12 and gh-3 (see #12)", "closes 40; a&#39;b x#7 resolves #8"]
    assert issue_numbers(said) == ("12", "3", "40", "8")


def test_what_differs_from_run_to_run_goes() -> None:
    assert steady("<A at 0x7f12ab34cd> in /tmp/pytest-1/x0") == "<A at 0x...> in /tmp/..."


TEXT = st.text(alphabet="ab c\n=*", max_size=60)


@given(message=TEXT, issue=TEXT, failure=TEXT, lines=st.lists(TEXT, max_size=4))
def test_nothing_of_the_fix_is_ever_quoted(
    message: str, issue: str, failure: str, lines: list[str]
) -> None:
    added = [line for text in lines for line in text.split("\n")]
    gold = "diff --git a/a b/a\n" + "".join(f"+{line}\n" for line in added)
    text = statement(
        messages=(message,), issues={"1": issue}, failures={"t": failure}, gold_patch=gold
    )
    said = re.sub(r"\s", "", text)
    assert not [one for one in added if len(squeezed(one)) >= 12 and squeezed(one) in said]
