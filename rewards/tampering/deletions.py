"""Tests that a change takes away: neither moved, nor renamed, merged, nor gone with their code."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .base import FileChange, TamperFinding, finding
from .roles import Scene, is_test_path
from .skips import SKIP
from .source import Source
from .suites import Suite, bare

_OTHER_CODE = re.compile(r"\.([cm]?[jt]sx?|go|java|kt|rb|rs|php|cs|scala|exs|c|cc|cpp)$")


@dataclass(slots=True)
class Module:
    """A changed file, both versions as far as they are Python that can be read."""

    change: FileChange
    before: Source | None = None
    after: Source | None = None
    suite_before: Suite | None = None
    """Its tests, where the old path is one of tests."""
    suite_after: Suite | None = None
    """Its tests, where the new path is one of tests."""


@dataclass(frozen=True, slots=True)
class _Lost:
    module: Module
    suite: Suite
    name: str


def deleted_tests(modules: Sequence[Module], scene: Scene) -> Iterator[TamperFinding]:
    """One finding a file for the tests that it lost."""
    lost, gained = _balance(modules)
    if lost:
        lost = _without_merged(lost, modules)
    if lost:
        gone = _names_gone(modules)
        files = _modules_gone(modules)
        with_code = [
            each
            for each in lost
            if _was_parked(each) or _tests_any(each, gone) or _goes_with_any(each, files)
        ]
        lost = [each for each in lost if each not in with_code]
        yield from _report("tests-gone-with-code", with_code)
    if len(lost) > gained:
        yield from _report("tests-deleted", lost)
    yield from _deleted_files(modules, scene)


def _balance(modules: Sequence[Module]) -> tuple[list[_Lost], int]:
    """Tests that are nowhere any more by name, and how many new ones there are."""
    lost: list[_Lost] = []
    gained: Counter[str] = Counter()
    for module in modules:
        had = module.suite_before.tests if module.suite_before else {}
        has = module.suite_after.tests if module.suite_after else {}
        gained.update(bare(name) for name in has if name not in had)
        if module.suite_before:
            still = _names_in_text(module)
            gone = [name for name in had if name not in has and bare(name) not in still]
            lost += [_Lost(module, module.suite_before, name) for name in gone]
    unmoved: list[_Lost] = []
    for each in lost:
        if gained[bare(each.name)] > 0:
            gained[bare(each.name)] -= 1
        else:
            unmoved.append(each)
    return unmoved, sum(gained.values())


def _names_in_text(module: Module) -> set[str]:
    """Tests in a new version that does not parse: broken is not deleted."""
    after = module.change.after
    if module.after is not None or after is None or module.change.old_path:
        return set()
    return {name.decode() for name in re.findall(rb"(?m)^[ \t]*def (test\w*)\(", after)}


def _without_merged(lost: list[_Lost], modules: Sequence[Module]) -> list[_Lost]:
    """Without tests of whose statements at least half live on in some test of the change."""
    alive: set[str] = set()
    for module in modules:
        for node in module.suite_after.tests.values() if module.suite_after else ():
            alive.update(_statements(node))
    kept: list[_Lost] = []
    for each in lost:
        own = _statements(each.suite.tests[each.name])
        if not own or 2 * len(own & alive) < len(own):
            kept.append(each)
    return kept


def _statements(function: ast.AST) -> set[str]:
    simple = (ast.Assert, ast.Expr, ast.Assign)
    return {
        ast.dump(node)
        for node in ast.walk(function)
        if isinstance(node, simple)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    }


def _names_gone(modules: Sequence[Module]) -> frozenset[str]:
    """What library code of the change named, and none of it names any more."""
    had: set[str] = set()
    has: set[str] = set()
    for module in modules:
        if module.before and not module.suite_before:
            had |= _vocabulary(module.before)
        if module.after and not module.suite_after:
            has |= _vocabulary(module.after)
    return frozenset(name for name in had - has if len(name) > 3 and not name.startswith("__"))


def _modules_gone(modules: Sequence[Module]) -> frozenset[str]:
    """Dotted names of the library modules that the change deletes."""
    paths = [m.change.path for m in modules if m.change.after is None and not m.suite_before]
    return frozenset(path[:-3].replace("/", ".") for path in paths if path.endswith(".py"))


def _goes_with_any(each: _Lost, files: frozenset[str]) -> bool:
    """A whole test file is deleted together with a module that it imports."""
    if each.module.change.after is not None or not files:
        return False
    for spot in each.suite.source.statements:
        node = spot.node
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        if any(file == name or file.endswith(f".{name}") for name in names for file in files):
            return True
    return False


def _vocabulary(source: Source) -> set[str]:
    """Names that others can use: of definitions, attributes, parameters, settings; no variables."""
    names: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, (ast.arg, ast.keyword)) and node.arg:
            names.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.isidentifier():
                names.add(node.value)
    for node in source.tree.body:
        if isinstance(node, ast.Assign):
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return names


def _was_parked(each: _Lost) -> bool:
    """It was skipped or expected to fail, so that it judged nothing."""
    decorators = each.suite.tests[each.name].decorator_list
    called = [d.func if isinstance(d, ast.Call) else d for d in decorators]
    return any(SKIP.fullmatch(each.suite.source.dotted(decorator)) for decorator in called)


def _tests_any(each: _Lost, gone: frozenset[str]) -> bool:
    test = each.suite.tests[each.name]
    if not gone:
        return False
    parts = {bare(each.name).removeprefix("test_"), *each.name.split(".")}
    for node in ast.walk(test):
        if isinstance(node, ast.Name):
            parts.add(node.id)
        elif isinstance(node, ast.Attribute):
            parts.add(node.attr)
        elif isinstance(node, ast.alias):
            parts.add(node.name.rpartition(".")[2])
        elif isinstance(node, ast.keyword) and node.arg:
            parts.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts.add(node.value)
    return bool(parts & gone)


def _report(rule: str, lost: Sequence[_Lost]) -> Iterator[TamperFinding]:
    by_file: dict[str, list[str]] = defaultdict(list)
    for each in lost:
        by_file[each.module.change.path].append(each.name)
    for path, names in by_file.items():
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        yield finding(rule, path, f"no longer there: {', '.join(names[:5])}{more}")


def _deleted_files(modules: Sequence[Module], scene: Scene) -> Iterator[TamperFinding]:
    """Test files in other languages, and trusted files without a test of their own."""
    names = {_name(m.change.path) for m in modules if m.change.after is not None}
    for module in modules:
        change = module.change
        origin = change.old_path or change.path
        if module.suite_before is not None and module.suite_before.tests or not change.before:
            continue
        if scene.role_of(origin) != "test" or not _is_away(change, scene):
            continue
        moved = change.after is None and _name(origin) in names
        if not moved and (origin in scene.test_files or _OTHER_CODE.search(origin)):
            yield finding("tests-deleted", change.path, f"the test file {origin} is gone")


def _is_away(change: FileChange, scene: Scene) -> bool:
    """Deleted, or renamed to where no test is looked for."""
    if change.after is None:
        return True
    if change.old_path is None:
        return False
    if _OTHER_CODE.search(change.old_path):
        return scene.role_of(change.path) != "test"
    return not is_test_path(change.path)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
