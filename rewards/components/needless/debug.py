"""Debug output and breakpoints that a change leaves behind."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from patchgym.rewards.scene import ChangedFile

from .base import Needless, needless, placed
from .places import is_docs, is_library, is_test
from .reading import NEWLINE, Reading, Token

_PRINTERS = frozenset({"print", "pprint", "pp", "ic"})
_DEBUGGERS = frozenset({"pdb", "ipdb", "pudb", "pdbpp", "web_pdb", "icecream"})
_BLOCKS = frozenset({"if", "elif", "else", "for", "while", "with", "try", "except", "finally"})
_TRACES = frozenset({"set_trace", "breakpoint", "post_mortem"})
_LINE = 2_000  # characters of a line that are looked at
# Quantifiers have bounds: the text is hostile, and the search must stay linear.
_PYTHON = re.compile(
    r"^\s{0,200}(print|pprint|breakpoint)\s?\(|\b(import|from)\s{1,9}i?pdb\b|\bset_trace\(\)"
)
_JAVASCRIPT = re.compile(r"\bconsole\.(log|debug|dir|trace)\(|^\s{0,200}debugger\b")
_OTHERS = {
    **dict.fromkeys(("js", "jsx", "ts", "tsx", "mjs", "cjs", "vue"), _JAVASCRIPT),
    "rb": re.compile(r"\bbinding\.(pry|irb)\b|\bbyebug\b"),
    "php": re.compile(r"\b(var_dump|dd|print_r)\("),
    "rs": re.compile(r"\bdbg!\("),
    "java": re.compile(r"\bSystem\.(out|err)\.print|\.printStackTrace\("),
    "go": re.compile(r"\b(fmt\.Print(ln|f)?|spew\.Dump)\("),
}  # fmt: skip


def debug_leftovers(
    file: ChangedFile, old: Reading | None, new: Reading | None, test_files: Collection[str]
) -> Iterator[Needless]:
    """Lines that a change adds and that nobody wants to keep."""
    if file.path.endswith(".py"):
        if new is not None:
            yield from _python(file, old, new, test_files)
        else:
            yield from _matching(file, _PYTHON, test_files)
    elif pattern := _OTHERS.get(file.path.rpartition(".")[2]):
        yield from _matching(file, pattern, test_files)


def _python(
    file: ChangedFile, old: Reading | None, new: Reading, test_files: Collection[str]
) -> Iterator[Needless]:
    library = is_library(file.path, test_files)
    prints = library and not _writes(old)
    for hunk, _ in placed(file):
        for line in hunk.added:
            for words in _simple_statements(new.code.get(line.number, [])):
                what = _debugger(words)
                if not what and prints and (what := _printer(words)) and _shown(line.number, new):
                    what = ""
                if what:
                    yield needless("debug", file, f"{what} left behind", line.number)
                    break


def _simple_statements(tokens: Sequence[Token]) -> Iterator[list[str]]:
    """The statements of a line, with or without an `if` before them."""
    words: list[str] = []
    for token in tokens:
        if token.text == NEWLINE or (token.text == ":" and words[:1] and words[0] in _BLOCKS):
            yield words
            words = []
        else:
            words.append(token.text)
    yield words


def _writes(reading: Reading | None) -> bool:
    """Whether the file wrote to its output before."""
    names = reading.names if reading is not None else {}
    return any(name in names for name in ("print", "pprint", "stdout", "stderr"))


def _debugger(words: list[str]) -> str:
    if words[:2] == ["breakpoint", "("]:
        return "breakpoint()"
    if words[:1] in (["import"], ["from"]) and len(words) > 1 and words[1] in _DEBUGGERS:
        return f"import of {words[1]}"
    called = len(words) > 3 and words[1] == "." and words[3] == "("
    return f"{words[0]}.{words[2]}()" if called and words[2] in _TRACES else ""


def _printer(words: list[str]) -> str:
    if len(words) > 1 and words[0] in _PRINTERS and words[1] == "(":
        return "" if _to_a_file(words) else f"{words[0]}()"
    if len(words) > 4 and words[0] == "sys" and words[2] in ("stdout", "stderr"):
        return f"sys.{words[2]}.write()" if words[4] == "write" else ""
    if words[:4] in (["pprint", ".", "pprint", "("], ["pprint", ".", "pp", "("]):
        return "pprint()"
    return ""


def _to_a_file(words: list[str]) -> bool:
    """`file=` something that is not the process's own output."""
    places = [n for n, (a, b) in enumerate(zip(words, words[1:], strict=False))
              if a == "file" and b == "="]  # fmt: skip
    return any(words[n + 2 : n + 3] != ["sys"] for n in places)


def _shown(line: int, reading: Reading) -> bool:
    """Whether the line stands in a function whose name says that it prints, or in none after
    `if __name__`."""
    index = reading.scope_at.get(line, -1)
    if index < 0:
        return any(at < line for at in reading.names.get("__name__", [])[:1])
    while index >= 0:
        head = [token.text for token in reading.code.get(reading.scopes[index].start, ())]
        name = next((word for word, is_def in _named(head) if is_def), "")
        if name == "main" or re.search(r"print|show|display|dump|usage|version|help|_main", name):
            return True
        index = reading.scopes[index].parent
    return False


def _named(head: list[str]) -> Iterator[tuple[str, bool]]:
    return (
        (word, before in ("def", "class")) for before, word in zip(head, head[1:], strict=False)
    )


def _matching(
    file: ChangedFile, pattern: re.Pattern[str], test_files: Collection[str]
) -> Iterator[Needless]:
    if is_test(file.path, test_files) or is_docs(file.path):
        return
    before = (file.before or b"").decode("utf-8", "surrogateescape")
    if any(pattern.search(line[:_LINE]) for line in before.split("\n")):
        return
    for hunk, _ in placed(file):
        for line in hunk.added:
            if match := pattern.search(line.text[:_LINE]):
                what = match[0].strip().rstrip("(")
                yield needless("debug", file, f"{what} left behind", line.number)
