"""What became of tests by the log that they printed: SWE-bench's own parsers.

They come with the `swebench` package, the extra of that name. What a log says can be forged by the
code under test: where there is any other report, that is the better one.
"""

from __future__ import annotations

import difflib
import importlib
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from patchgym.sandbox.errors import SandboxUsageError

from .report import Outcome

HARNESS = "swebench.harness"
STATES: Mapping[str, Outcome] = {
    "PASSED": "passed",
    "XFAIL": "passed",  # as swebench grades it
    "FAILED": "failed",
    "ERROR": "error",
    "SKIPPED": "skipped",
}
NEED_TASK = frozenset(
    {"parse_log_next", "parse_log_lighthouse", "parse_log_immutable_js", "parse_log_jekyll"}
)
"""Parsers that read a log in another way for each task; they are not offered here."""
_importing = threading.Lock()


def parse(name: str, text: str) -> Mapping[str, Outcome]:
    """Outcomes by test id, as the parser `name` (such as `parse_log_django`) reads a log.

    A log on which it breaks says nothing: no outcomes. Blocking, and as slow as that parser is on a
    hostile log: call it in a thread. Raises SandboxUsageError when there is no such parser, or the
    extra is not installed.
    """
    parser = _parser(name)
    try:
        states = parser(text, None)
    except Exception:  # whatever foreign code makes of text that a patch printed
        return {}
    return {str(test): STATES[state] for test, state in states.items() if state in STATES}


def check(name: str) -> None:
    """Raises as `parse`, before anything was run."""
    _parser(name)


def _parser(name: str) -> Callable[[str, Any], Mapping[str, str]]:
    known = _registry()
    if name in NEED_TASK:
        raise SandboxUsageError(f"log parser {name} needs to know the task: write a recipe")
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "see PARSER_REGISTRY of swebench"
        raise SandboxUsageError(f"no log parser {name!r} in swebench: {hint}")
    return known[name]


@cache
def _registry() -> Mapping[str, Callable[[str, Any], Mapping[str, str]]]:
    with _importing:
        try:
            module = _import_parsers()
        except ImportError as error:
            raise SandboxUsageError(
                f"logs are read by swebench's parsers, which are not there ({error}): "
                "pip install 'patchgym[swebench]'"
            ) from error
    registry: Mapping[str, Callable[[str, Any], Mapping[str, str]]] = module.PARSER_REGISTRY
    return registry


def _import_parsers() -> ModuleType:
    """`swebench.harness.log_parsers`, without what stands beside it.

    `swebench.harness` imports the whole harness, with modal and Hugging Face's datasets, for
    seconds; the parsers need none of it. An empty package stands in its place for that long.
    """
    parsers = f"{HARNESS}.log_parsers"
    if HARNESS in sys.modules or parsers in sys.modules:
        return importlib.import_module(parsers)
    package = importlib.import_module(HARNESS.partition(".")[0])
    stand_in = ModuleType(HARNESS)
    stand_in.__path__ = [f"{folder}/harness" for folder in package.__path__]
    stand_in.__spec__ = ModuleSpec(HARNESS, None, is_package=True)
    sys.modules[HARNESS] = stand_in
    try:
        if find_spec(parsers) is None:
            raise ImportError(f"{parsers} is not in it: swebench 5 has it")
        return importlib.import_module(parsers)
    finally:
        del sys.modules[HARNESS]
        package.__dict__.pop("harness", None)
