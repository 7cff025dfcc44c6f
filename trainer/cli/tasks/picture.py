"""Tasks in a terminal; piped, the same as plain text, with nothing cut or folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from patchgym.datasets.environment import Environment
from patchgym.datasets.task import Task

THEME = "ansi_dark"
GAP = 2  # columns between those of a table
LEAST = 16  # columns of a statement, below which there is no use in it
UNFOLDED = 1000  # columns where nobody looks at a screen
CONTROL = {
    code: None for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if chr(code) not in "\n\t"
}
"""What a row must not send to a terminal."""


def show_list(tasks: Sequence[Task]) -> None:
    """One line a task, with the begin of its statement where there is room."""
    console = _console()
    columns: dict[str, list[Text]] = {"id": [_plain(task.id) for task in tasks]}
    if any(task.repo for task in tasks):
        columns["repo"] = [_plain(task.repo or "-") for task in tasks]
    columns["F2P"] = [Text(str(len(task.fail_to_pass))) for task in tasks]
    columns["P2P"] = [Text(str(len(task.pass_to_pass))) for task in tasks]
    columns["patch"] = [_size(task.gold_patch) for task in tasks]
    if any(task.difficulty is not None for task in tasks):
        columns["difficulty"] = [_difficulty(task) for task in tasks]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for name in columns:
        names = name in ("id", "repo")
        table.add_column(
            name, overflow="fold", no_wrap=not names, justify="left" if names else "right"
        )
    room = console.width - sum(
        GAP + max(cell.cell_len for cell in (Text(name), *cells)) for name, cells in columns.items()
    )
    if room >= LEAST:
        columns["statement"] = [_plain(task.statement.strip().splitlines()[0]) for task in tasks]
        table.add_column("statement", style="dim", no_wrap=True, max_width=room)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    console.print(table)
    console.print(Text(f"{len(tasks)} tasks", style="dim"))


def show_task(task: Task, *, tests: int) -> None:
    """All of one task; `tests` is how many of each list are named."""
    console = _console()
    console.print(_head(task))
    console.print()
    console.print(_statement(task, console))
    _tests(console, "FAIL_TO_PASS", task.fail_to_pass, tests, task)
    _tests(console, "PASS_TO_PASS", task.pass_to_pass, tests, task)
    for path, text in (task.files or {}).items():
        _section(console, path, _code(text, _language(path), console))
    _section(console, "gold patch", _code(task.gold_patch, "diff", console), _size(task.gold_patch))
    if task.test_patch:
        patch = _code(task.test_patch, "diff", console)
        _section(console, "test patch", patch, _size(task.test_patch))
    _section(console, "environment", _pairs(_environment(task)))
    _section(console, "provenance", _pairs(task.provenance.items()))


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=UNFOLDED)


def _piped(console: Console) -> bool:
    return not console.is_terminal


def _head(task: Task) -> Text:
    """Id, repository and commit, split, difficulty; one line where the terminal is wide enough."""
    line = Text.assemble((_clean(task.id), "bold"), "  ")
    place = task.repo or (Path(task.repository).name if task.repository else "files of its own")
    line.append(f"{_clean(place)}@{task.base_commit[:12]}", style="cyan")
    line.append(f"  {_clean(task.split)}")
    if task.difficulty is not None:
        line.append("  difficulty ").append_text(_difficulty(task))
    return line


def _difficulty(task: Task) -> Text:
    """The share of attempts that fail."""
    if task.difficulty is None:
        return Text("-", style="dim")
    style = "green" if task.difficulty < 1 / 3 else "yellow" if task.difficulty < 2 / 3 else "red"
    return Text(f"{task.difficulty:.2f}", style=style)


def _statement(task: Task, console: Console) -> RenderableType:
    text = _clean(task.statement.strip())
    return Text(text) if _piped(console) else Markdown(_as_issue(text), code_theme=THEME)


def _as_issue(text: str) -> str:
    """Markdown as issues are shown: a line's end is one, and what looks like HTML is not lost."""
    lines, fenced = [], False
    for line in text.split("\n"):
        fence = re.match(r"\s*(```|~~~)", line)
        if not fence and not fenced and not re.match(r"    |\t", line):
            line = re.sub(r"(`+[^`]*`+)|<", lambda found: found[1] or "\\<", line) + "  "
        fenced = fenced != bool(fence)
        lines.append(line)
    return "\n".join(lines)


def _tests(console: Console, name: str, tests: Sequence[str], first: int, task: Task) -> None:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    for test in tests[:first]:
        rate = task.flaky.get(test)
        flaky = "" if rate is None else f"flaky, {rate:.0%} of runs don't pass"
        table.add_row(_plain(test), Text(flaky, style="yellow"))
    if len(tests) > first:
        table.add_row(Text(f"and {len(tests) - first} more", style="dim"), Text())
    _section(console, name, table, Text(str(len(tests))))


def _section(console: Console, name: str, body: RenderableType, note: Text | None = None) -> None:
    title = Text.assemble((_clean(name), "bold"))
    if note is not None and note.plain:
        title.append("  ").append_text(note)
    console.print()
    if _piped(console):
        console.print(title)
    else:
        console.rule(title, align="left", style="dim")
    console.print(body)


def _code(text: str, language: str, console: Console) -> RenderableType:
    cleaned = _clean(text).rstrip("\n")
    if _piped(console):
        return Text(cleaned, no_wrap=True, overflow="ignore", tab_size=8)
    return Syntax(cleaned, language, theme=THEME, word_wrap=True, background_color="default")


def _language(path: str) -> str:
    return Syntax.guess_lexer(path)


def _size(diff: str) -> Text:
    """Lines added and removed."""
    lines = [line for line in diff.split("\n") if not line.startswith(("+++ ", "--- "))]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return Text.assemble((f"+{added}", "green"), " ", (f"-{removed}", "red"))


def _environment(task: Task) -> Iterator[tuple[str, str]]:
    """What its tests run in; what is as ever is left out."""
    if task.image:
        yield "image", task.image
    place, usual = task.environment, Environment()
    if place is None:
        if not task.image:
            yield "image", "the run's own"
        return
    if place.base != task.image:
        yield "base", place.base
    for name in ("packages", "setup", "install"):
        for each in getattr(place, name):
            yield name, each
    yield "tests", place.test_command or "python3 -m pytest, by test ids"
    yield "report", place.report
    for name, value in place.variables.items():
        yield "variable", f"{name}={value.splitlines()[0] if value else ''}"
    if place.workdir != usual.workdir:
        yield "workdir", place.workdir
    yield "timeout", f"{place.timeout:g} s"


def _pairs(pairs: Iterable[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    last = ""
    for name, value in pairs:
        table.add_row(_plain("" if name == last else name), _plain(value))
        last = name
    return table


def _plain(text: str) -> Text:
    return Text(_clean(text))


def _clean(text: str) -> str:
    return text.translate(CONTROL)
