"""Looks through a change: what a file had before is no news, nor what moved between files."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from .base import Fact, FileChange, TamperFinding, finding
from .configuration import Settings, configuration_findings, settings_lost
from .deceptions import deceptions
from .deletions import Module, deleted_tests
from .escapes import escapes
from .hooks import hidden_bindings, hooks
from .lexical import lexical_findings, skipped_elsewhere
from .paths import path_findings
from .roles import Role, Scene, set_scene
from .skips import scopes, skips
from .source import Source, Spot, UnreadableError, focus, read
from .suites import read_suite, weakened

_PER_RULE = 10  # findings of one rule in one file that are told
_INNER_CODE = 100_000  # characters of text given to exec that are looked through

# Rules that only make sense in code which tests import: scripts may exit, print and run git.
_LIBRARY_ONLY = frozenset(
    {"exit-at-import", "printed-results", "reads-history", "test-files-from-code",
     "test-name-in-library", "framework-internals", "skip-from-library", "pytest-hook"}
)  # fmt: skip
_NOT_FOR: dict[Role, frozenset[str]] = {
    "script": _LIBRARY_ONLY,
    "support": frozenset(
        {"skip-from-library", "test-name-in-library", "test-files-from-code", "framework-internals",
         "reads-history", "test-detection"}
    ),
    "conftest": frozenset(
        {"skip-from-library", "test-name-in-library", "test-files-from-code", "framework-internals",
         "test-detection"}
    ),
}  # fmt: skip
_ONLY_FOR: dict[Role, frozenset[str]] = {
    "test": frozenset({"framework-patch", "skip-added", "assertions-weakened"}),
    "framework": frozenset({"report-channel", "encoded-exec", "equals-everything"}),
}


def inspect_changes(
    changes: Sequence[FileChange],
    *,
    test_files: Collection[str],
    tests: Collection[str] = (),
) -> tuple[TamperFinding, ...]:
    """What a change does to its judges, in order of path and line.

    `test_files` are the task's trusted test paths, `tests` its test ids. Pure, and it never
    raises: what can't be looked through is a finding of its own.
    """
    scene = set_scene(changes, test_files, tests)
    moved = settings_lost(changes)
    found = [each for change in changes for each in _file_findings(change, scene, moved)]
    modules: list[Module] = []
    for change in changes:
        module, problems = _load(change, scene)
        modules.append(module)
        found += problems
    found += _guarded(modules, scene)
    return _in_order(found)


def _in_order(found: Iterable[TamperFinding]) -> tuple[TamperFinding, ...]:
    told: Counter[tuple[str, str]] = Counter()
    kept: list[TamperFinding] = []
    lines: set[tuple[str, str, int | None]] = set()
    for each in sorted(set(found), key=lambda f: (f.path, f.line or 0, f.rule, f.message)):
        place = (each.path, each.rule, each.line)
        if each.line is not None and place in lines:
            continue
        lines.add(place)
        told[each.path, each.rule] += 1
        if told[each.path, each.rule] <= _PER_RULE:
            kept.append(each)
    return tuple(kept)


def _file_findings(change: FileChange, scene: Scene, moved: Settings) -> Iterator[TamperFinding]:
    """What needs no Python."""
    yield from path_findings(change, scene)
    yield from configuration_findings(change, moved)
    if change.before is None or change.before == change.after and not change.old_path:
        return
    role = scene.role_of(change.old_path or change.path)
    if role == "test" and change.after is not None:
        yield finding("test-file-edited", change.path, "an existing test file is changed")
    elif role == "conftest":
        yield finding("conftest-edited", change.path, "an existing conftest.py is changed")
    elif role == "framework":
        yield finding("framework-edited", change.path, "the project's own test framework")
    if role == "test" and change.after is not None:
        yield from skipped_elsewhere(change)


def _load(change: FileChange, scene: Scene) -> tuple[Module, list[TamperFinding]]:
    """Parse both versions of a Python file, where it is one."""
    module = Module(change)
    problems: list[TamperFinding] = []
    known: TamperFinding | None = None
    if change.mode in ("120000", "160000"):
        return module, problems
    old_role = scene.role_of(change.old_path or change.path)
    if _is_python(change.old_path or change.path, change.before):
        module.before, known = _parse(change, change.before)
    if _is_python(change.path, change.after) and change.before != change.after:
        module.after, problem = _parse(change, change.after)
        if problem is not None:
            problems += lexical_findings(change)
            problems += [problem] if known is None or known.rule != problem.rule else []
    elif change.before == change.after:
        module.after = module.before
    if module.after and module.after is not module.before:
        focus(module.after, module.before)
    if module.before and old_role == "test":
        module.suite_before = read_suite(module.before)
    if module.after and scene.role(change) == "test":
        module.suite_after = read_suite(module.after)
    return module, problems


def _is_python(path: str, content: bytes | None) -> bool:
    if content is None:
        return False
    name = path.rpartition("/")[2]
    if "." in name:
        return name.endswith((".py", ".pyw"))
    return bool(re.match(rb"#![^\n]*\bpython", content))


def _parse(change: FileChange, content: bytes | None) -> tuple[Source | None, TamperFinding | None]:
    """The module, or why it can't be looked through."""
    if content is None:
        return None, None
    try:
        return read(content), None
    except UnreadableError as error:
        return None, finding("unreadable-python", change.path, str(error))
    except SyntaxError as error:
        return None, finding("not-python", change.path, f"{error.msg}", error.lineno or None)


def _guarded(modules: Sequence[Module], scene: Scene) -> list[TamperFinding]:
    """The rules on code; a file that is nested too deep for one of them is a finding."""
    try:
        return [*_new_facts(modules, scene), *deleted_tests(modules, scene)]
    except RecursionError:
        path = next((m.change.path for m in modules if m.after), modules[0].change.path)
        return [finding("unreadable-python", path, "nested too deep to be looked through")]


def _new_facts(modules: Sequence[Module], scene: Scene) -> Iterator[TamperFinding]:
    """Facts of the new versions that the old ones don't have, here or elsewhere in the change."""
    new = [
        (module, fact)
        for module in modules
        if module.change.before != module.change.after
        for fact in _facts(module, module.after, scene)
    ]
    if not new:
        return
    for module in modules:
        if module.before:
            focus(module.before, module.after)
    everywhere: Counter[tuple[str, str, str]] = Counter()
    here: Counter[tuple[str, str, str]] = Counter()
    for module in modules:
        for fact in _facts(module, module.before, scene):
            everywhere[fact.rule, fact.scope, fact.key] += 1
            here[module.change.path, fact.rule, fact.key] += 1
    for module, fact in new:
        place = (fact.rule, fact.scope, fact.key)
        own = (module.change.path, fact.rule, fact.key)
        if everywhere[place] > 0:
            everywhere[place] -= 1
            here[own] -= 1
        elif here[own] > 0:
            here[own] -= 1
        else:
            yield finding(fact.rule, module.change.path, fact.message, fact.line)


def _facts(module: Module, source: Source | None, scene: Scene) -> Iterator[Fact]:
    if source is None:
        return
    role = scene.role(module.change)
    allowed, refused = _ONLY_FOR.get(role), _NOT_FOR.get(role, frozenset())
    for fact in _all_facts(module, source, role, scene):
        if fact.rule in refused or (allowed is not None and fact.rule not in allowed):
            continue
        if role == "test" and fact.rule == "framework-patch" and fact.scope:
            continue  # inside a test, which may patch what it likes until it ends
        yield fact


def _all_facts(module: Module, source: Source, role: Role, scene: Scene) -> Iterator[Fact]:
    yield from escapes(source)
    if role != "test":
        yield from deceptions(source, scene)
        yield from hooks(source)
        if role == "conftest":
            yield from hidden_bindings(source)
        for inner in _inner_sources(source):
            yield from escapes(inner)
            yield from deceptions(inner, scene)
    elif module.suite_before and module.suite_after and module.before:
        yield from skips(source, scopes(module.before))
        if source is module.after:
            yield from weakened(module.suite_before, module.suite_after)


def _inner_sources(source: Source) -> Iterator[Source]:
    """Python in constant text that exec, eval or compile is given, one level deep."""
    for spot in source.spots:
        node = spot.node
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = source.dotted(node.func).removeprefix("builtins.")
        if called not in ("exec", "eval", "compile"):
            continue
        text = source.text(node.args[0])[:_INNER_CODE]
        try:
            inner = read(text.encode("utf-8", "surrogatepass"))
        except (SyntaxError, UnreadableError):
            continue
        focus(inner, None)
        inner.spots = [Spot(s.node, spot.scope, spot.at_import, spot.line) for s in inner.spots]
        yield inner
