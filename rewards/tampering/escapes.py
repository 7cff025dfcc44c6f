"""Code that leaves, watches or rewires the process which tests it."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from .base import Fact
from .source import Source, Spot

FRAMEWORKS = frozenset({"pytest", "_pytest", "pluggy", "unittest", "doctest", "nose", "builtins"})
_HARMLESS = frozenset({"maxDiff", "longMessage", "__test__"})
_OFTEN_PATCHED = frozenset({"builtins.open", "builtins.input", "builtins.print"})
_BUILTINS = frozenset(dir(builtins)) - {"_", "__doc__", "__name__", "exit", "quit", "copyright"}

_WELL_KNOWN = FRAMEWORKS | {"os", "posix", "sys", "signal", "gc", "ctypes"}

_EXITS = re.compile(
    r"(os|posix)\.(_exit|abort)|faulthandler\._\w+|signal\.raise_signal"
    r"|_thread\.interrupt_main"
)
_EXIT_HOOKS = re.compile(
    r"sys\.exitfunc|threading\.(_shutdown|_register_atexit|excepthook|settrace\w*|setprofile\w*)"
)
_TRACES = re.compile(
    r"sys\.(settrace|setprofile|_settraceallthreads|addaudithook|meta_path|path_hooks|monitoring"
    r"|path_importer_cache)(\..*)?|bdb\.Bdb"
)
_HUNTING = re.compile(
    r"gc\.(get_objects|get_referrers|get_referents)|(object|type)\.__subclasses__|_ctypes(\..*)?"
    r"|ctypes\.(pythonapi|py_object|memmove|memset|string_at)(\..*)?"
    r"|sys\._current_frames|sys\._current_exceptions"
)
_SKIPS = re.compile(
    r"pytest\.(skip|xfail|importorskip|exit|fail)(\.Exception)?|unittest\.(case\.)?(SkipTest|_ShouldStop)"
    r"|_pytest\.outcomes(\..*)?|_pytest\.(skipping|runner)\.\w+|nose\.SkipTest"
)
_REFERENCES = (
    ("skip-from-library", _SKIPS),
    ("process-exit", _EXITS),
    ("exit-hook", _EXIT_HOOKS),
    ("trace-hook", _TRACES),
    ("object-hunting", _HUNTING),
)


def escapes(source: Source) -> Iterator[Fact]:
    """Exits, hooks, patched frameworks, hunts for objects."""
    for spot in source.spots:
        yield from _references(source, spot)
        yield from _patches(source, spot)
        if isinstance(spot.node, ast.Call):
            yield from _calls(source, spot, spot.node)
        if spot.at_import:
            yield from _exits_at_import(source, spot)


def fact(rule: str, spot: Spot, message: str, key: str = "") -> Fact:
    """A fact about that spot; its message is its key unless one is given."""
    return Fact(rule=rule, scope=spot.scope, key=key or message, line=spot.line, message=message)


def _references(source: Source, spot: Spot) -> Iterator[Fact]:
    node = spot.node
    names: list[str] = []
    if isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        names = [source.dotted(node)]
    elif isinstance(node, ast.Name) and node.id in source.aliases:
        names = [source.dotted(node)]
    elif isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Attribute) and node.attr == "__subclasses__" and _is_root(node.value):
        yield fact("object-hunting", spot, "walks the subclasses of object")
    for name in names:
        for rule, pattern in _REFERENCES if name else ():
            if pattern.fullmatch(name):
                yield fact(rule, spot, f"uses {name}", name)
                break
        if re.match(r"(_pytest|pluggy)(\.|$)", name) and isinstance(
            node, (ast.Import, ast.ImportFrom, ast.Call)
        ):
            yield fact("framework-internals", spot, f"imports {name}", name)


def _is_root(node: ast.expr) -> bool:
    """`x.__base__`, `x.__mro__[1]`: how to get at `object` without its name."""
    inner = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(inner, ast.Attribute) and inner.attr in ("__base__", "__mro__", "__bases__")


def _patches(source: Source, spot: Spot) -> Iterator[Fact]:
    """Assignments, deletions and setattr on the framework; names that hide AssertionError."""
    node = spot.node
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    elif isinstance(node, ast.Delete):
        targets = node.targets
    for target in targets:
        for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            yield from _patched(source, spot, part)
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == "AssertionError":
        yield fact("framework-patch", spot, "defines its own AssertionError")
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        if any((alias.asname or alias.name) == "AssertionError" for alias in node.names):
            yield fact("framework-patch", spot, "imports its own AssertionError")


def _patched(source: Source, spot: Spot, target: ast.expr) -> Iterator[Fact]:
    if isinstance(target, ast.Name) and target.id == "AssertionError":
        yield fact("framework-patch", spot, "rebinds AssertionError")
    if isinstance(target, ast.Attribute) and target.attr == "__code__":
        yield fact("framework-patch", spot, "swaps a function's __code__")
    if isinstance(target, ast.Subscript):
        base, key = source.dotted(target.value), source.text(target.slice)
        if base == "sys.modules" and _is_framework(key):
            yield fact("framework-patch", spot, f"replaces sys.modules[{key!r}]")
        if base == "builtins" and key in _BUILTINS:
            yield fact("framework-patch", spot, f"replaces the builtin {key}")
    if isinstance(target, (ast.Attribute, ast.Subscript)) and (name := source.dotted(target)):
        yield from _patched_name(spot, name)


def _patched_name(spot: Spot, name: str) -> Iterator[Fact]:
    first, _, rest = name.partition(".")
    last = name.rpartition(".")[2]
    if not rest or first not in FRAMEWORKS or last in _HARMLESS:
        return
    if first == "builtins" and rest.partition(".")[0] not in _BUILTINS:
        return  # a new builtin, as gettext's `_`
    yield fact("framework-patch", spot, f"replaces {name}", name)


def _is_framework(name: str) -> bool:
    return name.partition(".")[0] in FRAMEWORKS


def _calls(source: Source, spot: Spot, node: ast.Call) -> Iterator[Fact]:
    name = source.dotted(node.func).removeprefix("builtins.")
    first = node.args[0] if node.args else None
    target = source.dotted(first) if first is not None else ""
    method = name.rpartition(".")[2]
    if name in ("setattr", "delattr", "object.__setattr__", "type.__setattr__") and target:
        attribute = source.text(node.args[1]) if len(node.args) > 1 else ""
        yield from _patched_name(spot, f"{target}.{attribute or '?'}")
        if target == "builtins" and attribute == "":
            yield fact("framework-patch", spot, "replaces a builtin by a computed name")
    elif method in ("update", "pop", "setdefault", "clear") and re.match(
        r"(_?pytest|pluggy|unittest|doctest|builtins)\b.*\.__dict__\.", name
    ):
        yield fact("framework-patch", spot, f"changes {name.removesuffix('.' + method)}", name)
    elif method == "object" and name.endswith("patch.object") and _is_framework(target):
        yield fact("framework-patch", spot, f"patches {target}")
    elif name in ("unittest.mock.patch", "mock.patch") and first is not None:
        patched = source.text(first)
        if _is_framework(patched) and patched not in _OFTEN_PATCHED:
            yield fact("framework-patch", spot, f"patches {patched}")
    elif name == "sys.modules.pop" and first is not None and _is_framework(source.text(first)):
        yield fact("framework-patch", spot, f"drops {source.text(first)} from sys.modules")
    elif name in ("importlib.reload", "imp.reload") and _is_framework(target):
        yield fact("framework-patch", spot, f"reloads {target}")
    elif name in ("os.kill", "os.killpg", "signal.pthread_kill") and first is not None:
        if _is_own(source, first):
            yield fact("process-exit", spot, f"{name} of its own process or parent")
    elif name == "faulthandler.dump_traceback_later":
        if any(keyword.arg == "exit" for keyword in node.keywords):
            yield fact("process-exit", spot, "faulthandler ends the process")
    elif name == "ctypes.CDLL" and isinstance(first, ast.Constant) and first.value is None:
        yield fact("object-hunting", spot, "opens the process itself with ctypes")
    elif name in ("atexit.register", "weakref.finalize", "threading.Thread", "threading.Timer"):
        if _exits(source, node):
            yield fact("exit-hook", spot, f"{name} of something that exits")
    elif name == "getattr" and target in _WELL_KNOWN and len(node.args) > 1:
        if isinstance(node.args[1], (ast.Call, ast.BinOp)) and not source.text(node.args[1]):
            yield fact("encoded-exec", spot, f"takes a computed name from {target}")
    elif re.fullmatch(r"os\.exec\w+", name) and spot.at_import:
        yield fact("process-exit", spot, f"{name} at import")


def _is_own(source: Source, node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value == 0
    names = {source.dotted(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    return bool(names & {"os.getpid", "os.getppid", "os.getpgrp", "os.getpgid", "os.getsid",
                         "threading.get_ident", "threading.main_thread"})  # fmt: skip


def _functions_that_exit(source: Source) -> frozenset[str]:
    """Names of functions in this module that end the process or raise SystemExit."""
    if source.exits is not None:
        return source.exits
    names: set[str] = set()
    for spot in source.statements:
        node = spot.node.value if isinstance(spot.node, ast.Expr) else spot.node
        if spot.scope and _ends(source, node):
            names.add(spot.scope.rpartition(".")[2])
    source.exits = frozenset(names)
    return source.exits


def _ends(source: Source, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        called = source.dotted(node.func).removeprefix("builtins.")
        return called in ("sys.exit", "exit", "quit", "SystemExit", "os._exit", "os.abort")
    if isinstance(node, ast.Raise) and node.exc is not None:
        return source.dotted(node.exc) in ("SystemExit", "builtins.SystemExit")
    return False


def _exits(source: Source, call: ast.Call) -> bool:
    exits = _functions_that_exit(source)
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        name = source.dotted(argument)
        if name in exits or name in ("sys.exit", "os._exit", "os.abort"):
            return True
        if isinstance(argument, ast.Lambda):
            for part in ast.walk(argument):
                called = source.dotted(part.func) if isinstance(part, ast.Call) else ""
                if called in exits or _ends(source, part):
                    return True
    return False


def _exits_at_import(source: Source, spot: Spot) -> Iterator[Fact]:
    """An exit that says all is well; one with an error can't make a run pass."""
    node = spot.node
    if isinstance(node, ast.Raise) and node.exc is not None and not isinstance(node.exc, ast.Call):
        if source.dotted(node.exc) in ("SystemExit", "builtins.SystemExit"):
            yield fact("exit-at-import", spot, "raises SystemExit when imported")
    if isinstance(node, ast.Call):
        name = source.dotted(node.func).removeprefix("builtins.")
        if name in ("sys.exit", "exit", "quit", "SystemExit") and not _says_failure(source, node):
            yield fact("exit-at-import", spot, f"{name} when imported")


def _says_failure(source: Source, node: ast.Call) -> bool:
    if not node.args:
        return False
    first = node.args[0]
    if isinstance(first, ast.UnaryOp) and isinstance(first.operand, ast.Constant):
        first = first.operand
    if isinstance(first, ast.Constant) and isinstance(first.value, int):
        return first.value != 0
    return bool(source.text(first))
