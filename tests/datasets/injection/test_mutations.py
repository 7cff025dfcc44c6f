"""Mutations: each makes the change that it is named for, and nothing but that change."""

from pathlib import Path

import pytest

from patchgym.datasets.injection.mutations import MUTATIONS, places
from patchgym.datasets.injection.source import Edit, NotEditable, Source, apply, compiles

GOLDEN: list[tuple[str, str, str]] = [
    ("operator", "return (a +  b)  # sum", "return (a -  b)  # sum"),
    ("operator", "return a % b", "return a // b"),
    ("augmented", "total += a", "total = a"),
    ("augmented", "total += a", "total -= a"),
    ("boolean", "return a and b", "return a or b"),
    ("dropped-condition", "return a and (b or c)", "return (b or c)"),
    ("dropped-condition", "return a and (b or c)", "return a and (b)"),
    ("negated-condition", "return 1 if a else 2", "return 1 if not a else 2"),
    ("negated-condition", "while not a.done(): b()", "while a.done(): b()"),
    ("dropped-minus", "return -a", "return a"),
    ("comparison", "return a  ==  b", "return a  !=  b"),
    ("comparison", "return a not in b", "return a in b"),
    ("boundary", "return a < b <= c", "return a <= b <= c"),
    ("truthiness", "return a is None", "return not a"),
    ("truthiness", "return not (a is None)", "return not ((not a))"),
    ("truthiness", "return a is not None", "return a"),
    ("off-by-one", "return a[0]", "return a[1]"),
    ("off-by-one", "return (a + 1) * b", "return (a) * b"),
    ("constant", "return b(True, c)", "return b(False, c)"),
    ("constant", "return a == 'x' or a == 'y'", "return a == 'y' or a == 'y'"),
    ("constant", "return round(a, 2)", "return round(a, 3)"),
    ("slice", "return a[1:b]", "return a[:b]"),
    ("slice", "return a[1:b]", "return a[1:b - 1]"),
    ("slice", "return a[::-1]", "return a[::]"),
    ("variable", "return a.strip() + b.strip()", "return b.strip() + b.strip()"),
    ("attribute", "return self.x + self.y", "return self.y + self.y"),
    ("swapped-arguments", "return c((a, b), (b, a))", "return c((b, a), (a, b))"),
    ("swapped-arguments", "return c(a,  b)", "return c(b,  a)"),
    ("removed-return", "return c(a)", "c(a)"),
    ("swapped-branches", "return a if c else (b)", "return (b) if c else a"),
    ("exception-type", "raise ValueError(a)", "raise TypeError(a)"),
]
"""Kind, one line of a function's body, and one of the lines that it may become."""

BLOCKS: list[tuple[str, str, str]] = [
    (
        "dropped-guard",
        "def f(a):\n    x = 1\n    # none\n    if not a:\n        return 0\n    return x\n",
        "def f(a):\n    x = 1\n    return x\n",
    ),
    (
        "removed-else",
        "def f(a):\n    if a:\n        x = 1\n    else:\n        x = 2\n    return x\n",
        "def f(a):\n    if a:\n        x = 1\n    return x\n",
    ),
    (
        "removed-await",
        "async def f(a):\n    return await a()  # wait\n",
        "async def f(a):\n    return a()  # wait\n",
    ),
    (
        "dropped-statement",
        "def f(a):\n    a.sort()\n\n    return a\n",
        "def f(a):\n\n    return a\n",
    ),
    (
        "early-return",
        "def f(a):\n    t = 0\n    for x in a:\n        t += x\n    return t\n",
        "def f(a):\n    t = 0\n    for x in a:\n        t += x\n        return t\n",
    ),
    (
        "break-continue",
        "def f(a):\n    for x in a:\n        if x:\n            break\n",
        "def f(a):\n    for x in a:\n        if x:\n            continue\n",
    ),
    (
        "exception-type",
        "def f(a):\n    try:\n        a()\n    except (KeyError, OSError):\n        pass\n",
        "def f(a):\n    try:\n        a()\n    except OSError:\n        pass\n",
    ),
    (
        "default-value",
        "def f(a, deep=True):\n    return a(deep)\n",
        "def f(a, deep=False):\n    return a(deep)\n",
    ),
    (
        "mutable-default",
        "def f(a, seen=None):\n    if seen is None:\n        seen = []\n    return a(seen)\n",
        "def f(a, seen=[]):\n    return a(seen)\n",
    ),
]


def mutants(text: str, kind: str) -> list[str]:
    """All that a mutation makes of a text."""
    source = Source("m.py", text.encode())
    found = [apply(source.data, place.edits) for place in places(source, (kind,))]
    return [data.decode() for data in found if data is not None]


@pytest.mark.parametrize(("kind", "before", "after"), GOLDEN)
def test_a_line_becomes_that_line(kind: str, before: str, after: str) -> None:
    head = "def f(self, a, b, c, total=0):\n    # keep\n    "
    assert f"{head}{after}\n" in mutants(f"{head}{before}\n", kind)


@pytest.mark.parametrize(("kind", "before", "after"), BLOCKS)
def test_a_function_becomes_that_function(kind: str, before: str, after: str) -> None:
    assert after in mutants(before, kind)


def test_every_kind_has_a_golden_case() -> None:
    assert {kind for kind, _, _ in (*GOLDEN, *BLOCKS)} == set(MUTATIONS)


UNTOUCHED = [
    ("operator", "return 'a' + b"),
    ("operator", "return '%s' % a"),
    ("constant", "raise ValueError('short')"),
    ("variable", "return a.strip() + b.other()"),
    ("dropped-guard", "return a"),
]


@pytest.mark.parametrize(("kind", "line"), UNTOUCHED)
def test_what_would_be_plain_nonsense_is_left_alone(kind: str, line: str) -> None:
    assert not mutants(f"def f(a, b):\n    {line}\n", kind)


def test_only_bodies_of_functions_are_touched() -> None:
    text = "X = 1 + 2\nif X == 3:\n    X = 4\n\n\n@wraps(1 + 2)\ndef f(a: 'b' = None): pass\n"
    assert not list(places(Source("m.py", text.encode())))


def test_mutants_of_real_code_compile_and_come_in_the_same_order(root: Path) -> None:
    kinds: set[str] = set()
    for name in ("datasets/repository.py", "datasets/recipes.py", "sandbox/testing/run.py"):
        data = (root / name).read_bytes()
        source = Source(name, data)
        found = list(places(source))
        assert found == list(places(Source(name, data)))
        made = [apply(data, place.edits) for place in found]
        assert all(each is not None and each != data for each in made)
        good = sum(compiles(each) for each in made if each is not None)
        assert good >= 0.98 * len(found)
        kinds |= {place.kind for place in found}
    assert len(kinds) >= 18


def test_what_changes_is_nothing_but_the_place() -> None:
    text = 'def f(a,b):\n\n    """Ünï."""\n    x  =  [ a , b ] # two\n    return   x [ 0 ]  \n'
    for made in mutants(text, "off-by-one"):
        assert made.replace("[ 1 ]", "[ 0 ]") == text


def test_edits_in_each_others_way_are_refused() -> None:
    assert apply(b"abc", [Edit(start=0, end=2, text=b"x"), Edit(start=1, end=3, text=b"y")]) is None


@pytest.mark.parametrize(
    "data", [b"def f(:\n", b"\xff\xfe", "# coding: latin-1\nx = 'é'\n".encode("latin-1")]
)
def test_a_file_that_is_not_readable_is_named(data: bytes) -> None:
    with pytest.raises(NotEditable, match=r"m\.py: "):
        Source("m.py", data)
