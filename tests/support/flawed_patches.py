"""Patches that solve a task and have one flaw, or none: a seeded corpus for reward components.

`flawed(task, kind, seed)` and `clean(task, variant, seed)` give git diffs against the task's base
commit, made by git. They work for tasks with inline files and one focal function, as the bundled
ones are.
"""

from __future__ import annotations

import ast
import io
import random
import re
import subprocess
import tempfile
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flaw_texts import DEBUG, INSECURE, MANIFESTS, PACKAGES, long_rewrite, secret

from patchgym.datasets.repository import materialize
from patchgym.datasets.task import Task

KINDS: dict[str, str] = {
    "insecure_call": "security",
    "secret": "security",
    "unformatted": "formatting",
    "needless_rename": "needless_changes",
    "huge_rewrite": "patch_size",
    "test_deleted": "tampering",
    "regression": "regressions",
    "debug_print": "needless_changes",
    "new_dependency": "security",
    "whitespace": "needless_changes",
}
"""The component that must fire, by kind of flaw."""

VARIANTS = ("gold", "docstring", "comment", "tidy", "added_test", "changelog")
"""Kinds of clean patches."""


@dataclass(slots=True)
class _Work:
    """The files of a task while they are being changed; None: deleted."""

    task: Task
    files: dict[str, str | None]
    rng: random.Random
    library: str
    test: str
    name: str
    """Of the focal function."""

    def edit(self, path: str, change: Callable[[str], str]) -> None:
        """Change a file that is there."""
        text = self.files[path]
        assert text is not None
        self.files[path] = change(text)

    @property
    def function(self) -> ast.FunctionDef:
        """The focal function as it is now."""
        tree = ast.parse(self.files[self.library] or "")
        return next(
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name == self.name
        )

    @property
    def parameters(self) -> list[str]:
        """Names of the focal function's parameters."""
        return [each.arg for each in self.function.args.args]

    def into_body(self, *lines: str, at_end: bool = False) -> None:
        """Put unindented lines before the focal function's body, or its last statement."""
        place = self.function.body[-1 if at_end else 0].lineno - 1

        def change(text: str) -> str:
            old = text.split("\n")
            new = [f"    {part}" if part else "" for part in "\n".join(lines).split("\n")]
            return "\n".join([*old[:place], *new, *old[place:]])

        self.edit(self.library, change)


def flawed(task: Task, kind: str, seed: int) -> bytes:
    """A diff that is gold and one flaw.

    Raises KeyError for an unknown kind, and ValueError for `regression` where the task has no
    PASS_TO_PASS.
    """
    return _diff(task, _FLAWS[kind], f"{kind} {seed}")


def clean(task: Task, variant: str, seed: int) -> bytes:
    """A diff that solves the task and has no flaw. Raises KeyError for an unknown variant."""
    return _diff(task, _CLEAN[variant], f"{variant} {seed}")


def _diff(task: Task, change: Callable[[_Work], None], seed: str) -> bytes:
    if task.files is None or task.focus is None:
        raise ValueError(f"{task.id} has no inline files, or no focal function")
    with tempfile.TemporaryDirectory(prefix="flawed-") as root:
        folder = materialize(task, Path(root))
        _git(folder, "reset", "-q", "--hard", task.base_commit)
        _git(folder, "apply", "-", stdin=task.gold_patch.encode())
        files: dict[str, str | None] = {p: (folder / p).read_text() for p in task.files}
        work = _Work(
            task=task,
            files=dict(files),
            rng=random.Random(f"{task.id} {seed}"),
            library=task.focus.path,
            test=task.test_files[0],
            name=task.focus.function,
        )
        change(work)
        _write(work.files, folder)
        _git(folder, "add", "-A", "-f")
        return _git(folder, "diff", "--cached", "--binary", "--full-index", task.base_commit)


def _write(files: Mapping[str, str | None], folder: Path) -> None:
    for path, text in files.items():
        if text is None:
            (folder / path).unlink()
        else:
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(text.encode())


def _git(folder: Path, *words: str, stdin: bytes = b"") -> bytes:
    command = ["git", "-c", "core.autocrlf=false", "-C", str(folder), *words]
    return subprocess.run(command, input=stdin, capture_output=True, check=True).stdout


def _append(work: _Work, text: str) -> None:
    work.edit(work.library, lambda old: f"{old}\n\n{text}")


def _insecure_call(work: _Work) -> None:
    text = work.rng.choice(INSECURE).format(name=work.name)
    imports, found, rest = text.partition("\n\n\n")
    if found:
        work.edit(work.library, lambda old: f"{imports}\n\n\n{old}")
    _append(work, rest if found else text)


def _secret(work: _Work) -> None:
    text = secret(work.rng)
    work.edit(work.library, lambda old: f"{text}\n\n{old}")


def _unformatted(work: _Work) -> None:
    line = work.function.body[-1].lineno - 1
    name = work.name
    ways: tuple[Callable[[str], str], ...] = (
        lambda text: _at_line(text, line, lambda old: re.sub(r"^( +\w+) ", r"\1   ", old)),
        lambda text: _at_line(text, line, lambda old: old + " ;"),
        lambda text: _at_line(
            text, line, lambda old: re.sub(r"^( +return) (.*)$", r"\1 ( \2 )", old)
        ),
        lambda text: f"{text}\n\ndef other_{name}( a,b ):\n  return [ a,b ]\n",
        lambda text: f"{text}\n\n{name}_limits = {{'low' : 1,\n     'high':2 }}\n",
        lambda text: f"{text}\n\ndef again_{name}(a = 1):\n    return  {{'a':a}}\n",
        lambda text: f"{text}\n\nclass Use_{name} :\n    x=1; y=2\n    def get (self): return 1\n",
    )
    work.edit(work.library, work.rng.choice(ways))


def _at_line(text: str, line: int, change: Callable[[str], str]) -> str:
    lines = text.split("\n")
    lines[line] = change(lines[line])
    return "\n".join(lines)


def _needless_rename(work: _Work) -> None:
    old = work.rng.choice(work.parameters)
    new = work.rng.choice((f"{old}_value", f"the_{old}", f"my_{old}", "operand_in", f"{old}_arg"))
    work.edit(work.library, lambda text: _renamed(text, old, new))


def _renamed(text: str, old: str, new: str) -> str:
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = text.split("\n")
    for before, token in reversed(list(zip(tokens, tokens[1:], strict=False))):
        if token.string == old and token.type == tokenize.NAME and before.string != ".":
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:column] + new + line[column + len(old) :]
    return "\n".join(lines)


def _huge_rewrite(work: _Work) -> None:
    function = work.function

    def change(text: str) -> str:
        lines = text.split("\n")
        body = "\n".join(lines[function.body[0].lineno - 1 : function.end_lineno]) + "\n"
        made = long_rewrite(work.name, ", ".join(work.parameters), body, work.rng)
        rest = "\n".join(lines[function.end_lineno or 0 :]).lstrip("\n")
        return "\n".join(lines[: function.lineno - 1]) + made + rest

    work.edit(work.library, change)


def _test_deleted(work: _Work) -> None:
    victim = work.rng.choice(work.task.tests).rpartition("::")[2]
    block = re.compile(rf"(?ms)^def {re.escape(victim)}\(.*?(?=^\S|\Z)")
    way = work.rng.choice(("function", "body", "file", "comment"))
    if way == "file":
        work.files[work.test] = None
    elif way == "function":
        work.edit(work.test, lambda text: block.sub("", text).rstrip() + "\n")
    elif way == "body":
        work.edit(work.test, lambda text: block.sub(f"def {victim}():\n    pass\n\n\n", text))
    else:
        work.edit(work.test, lambda text: block.sub(lambda found: _as_comment(found[0]), text))


def _as_comment(text: str) -> str:
    return "".join(f"# {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def _regression(work: _Work) -> None:
    """The very arguments of a test that passed before are refused."""
    if not work.task.pass_to_pass:
        raise ValueError(f"{work.task.id} has no test to lose: take a task with pass_to_pass")
    kept = work.rng.choice(work.task.pass_to_pass).rpartition("::")[2]
    tree = ast.parse(work.files[work.test] or "")
    call = next(
        node
        for test in ast.walk(tree)
        if isinstance(test, ast.FunctionDef) and test.name == kept
        for node in ast.walk(test)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == work.name
    )
    told = ", ".join(ast.unparse(each) for each in call.args)
    given = ", ".join(work.parameters[: len(call.args)])
    end = work.rng.choice(
        ('raise ValueError("not supported")', "return NotImplemented", "return ...")
    )
    work.into_body(f"if [{given}] == [{told}]:", f"    {end}")


def _debug_print(work: _Work) -> None:
    text = work.rng.choice(DEBUG).format(name=work.name, argument=work.rng.choice(work.parameters))
    work.into_body(text.replace("\n    ", "\n"), at_end=work.rng.random() < 0.5)


def _new_dependency(work: _Work) -> None:
    path = work.rng.choice(sorted(MANIFESTS))
    version = f"{work.rng.randint(1, 4)}.{work.rng.randint(0, 20)}.{work.rng.randint(0, 9)}"
    package = work.rng.choice(PACKAGES)
    work.files[path] = MANIFESTS[path].format(package=package, version=version)


def _whitespace(work: _Work) -> None:
    at = work.function.lineno - 1
    signature = re.compile(rf"(?m)^def {work.name}\((.*)\):$")
    in_library: tuple[Callable[[str], str], ...] = (
        lambda text: _at_line(text, at, lambda line: line + work.rng.choice(("  ", "\t", "     "))),
        lambda text: _at_line(text, at, lambda line: line + "\n" * work.rng.randint(1, 3)),
        lambda text: signature.sub(rf"def {work.name}( \1 ):", text),
        lambda text: signature.sub(rf"def  {work.name} (\1) :", text),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\n" * work.rng.randint(1, 3) + text,
    )
    in_tests: tuple[Callable[[str], str], ...] = (
        lambda text: text.replace(" == ", "  ==  "),
        lambda text: text.replace("\n\n\n", "\n\n\n\n"),
        lambda text: text.replace("():\n", "():\n\n"),
        lambda text: re.sub(r"(?m)(?<=\S)$", "   ", text),
    )
    ways = [(work.library, way) for way in in_library] + [(work.test, way) for way in in_tests]
    work.edit(*work.rng.choice(ways))


def _docstring(work: _Work) -> None:
    work.into_body(
        f'"""Give the {work.name.replace("_", " ")} of {" and ".join(work.parameters)}."""'
    )


def _comment(work: _Work) -> None:
    remark = work.rng.choice(("The order matters.", "See the tests for what is expected."))
    work.into_body(f"# {remark}", at_end=True)


def _tidy(work: _Work) -> None:
    """The same value by way of a name."""
    last = work.function.body[-1]
    assert isinstance(last, ast.Return)
    name = work.rng.choice(("answer", "outcome"))

    def change(line: str) -> str:
        return re.sub(r"^( +)return (.*)$", rf"\1{name} = \2\n\1return {name}", line)

    work.edit(work.library, lambda text: _at_line(text, last.lineno - 1, change))


def _added_test(work: _Work) -> None:
    told = f"def test_{work.name}_is_there():\n    assert callable({work.name})\n"
    work.edit(work.test, lambda text: f"{text}\n\n{told}")


def _changelog(work: _Work) -> None:
    path = work.rng.choice(("CHANGELOG.md", "CHANGES.rst", "docs/changes.md"))
    work.files[path] = f"- `{work.name}` gives the right value.\n"


_FLAWS: Mapping[str, Callable[[_Work], None]] = {
    "insecure_call": _insecure_call,
    "secret": _secret,
    "unformatted": _unformatted,
    "needless_rename": _needless_rename,
    "huge_rewrite": _huge_rewrite,
    "test_deleted": _test_deleted,
    "regression": _regression,
    "debug_print": _debug_print,
    "new_dependency": _new_dependency,
    "whitespace": _whitespace,
}
_CLEAN: Mapping[str, Callable[[_Work], None]] = {
    "gold": lambda work: None,
    "docstring": _docstring,
    "comment": _comment,
    "tidy": _tidy,
    "added_test": _added_test,
    "changelog": _changelog,
}
