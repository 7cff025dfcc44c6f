"""Starts what was asked for under the hooks of its kind."""

from __future__ import annotations

import gc
import os
import random
import runpy
import sys
import traceback
from typing import Any

from . import pytest_hooks, sympy_hooks, unittest_hooks
from .channel import Channel
from .guard import Guard

LOADED = 20_000  # files that are told


def main(request: dict[str, Any], here: str) -> None:
    """Run the tests, tell how it ended, and end the process with the same status."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    words, root = sys.argv[1:], os.getcwd() + os.sep
    channel = Channel(request["nonce"])
    guard = Guard(channel.tell, request["nonce"])
    request["nonce"] = ""
    if request["cpus"]:
        _pin(request["cpus"])
    os.environ.pop("PATCHGYM_PROBE", None)
    gc.freeze() if hasattr(gc, "freeze") else None
    guard.watch()
    _load(request["kind"])
    sys.path.insert(0, here)
    status = _status(request, channel, guard, words)
    guard.check()
    channel.tell(loaded=_loaded(root))
    channel.tell(done=status)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads that a test left behind must not hold the verdict up


def _loaded(root: str) -> list[str]:
    """The files below `root` that modules of this process came from, relative to it."""
    found = set()
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str):
            path = os.path.abspath(path)
            if path.startswith(root):
                found.add(path[len(root) :])
    return sorted(found)[:LOADED]


def _load(kind: str) -> None:
    """The framework, before the repository can put something else in its place."""
    if kind == "pytest":
        gc.disable()  # importing pytest makes much and drops little
        try:
            import _pytest.config  # noqa: F401
        except ImportError:  # it is only in the repository
            pass
    elif kind == "unittest":
        import unittest  # noqa: F401


def _pin(cpus: int) -> None:
    """The machine's number of cores must not decide how tests go; nor must chance."""
    os.cpu_count = lambda: cpus
    random.seed(0)


def _status(request: dict[str, Any], channel: Any, guard: Any, words: list[str]) -> int:
    kind = request["kind"]
    if kind == "pytest" and words[:2] in ([], ["-m", "pytest"]):
        return pytest_hooks.run(request, channel, guard, words[2:])
    if kind == "pytest":
        raise SystemExit("the test command is not pytest: " + " ".join(words))
    hooks: Any = sympy_hooks if kind == "sympy" else unittest_hooks
    status = 0
    try:
        hooks.install(request, channel, guard)
        _start(words)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if status == 1 and isinstance(end.code, str):
            sys.stderr.write(end.code + "\n")
    except Exception:
        traceback.print_exc()
        status = 1
    if kind == "unittest":
        unittest_hooks.finish(guard)
    return status


def _start(words: list[str]) -> None:
    """What `python3 WORDS` would run, in this process."""
    if words[0] == "-m":
        sys.path[0:1] = [os.getcwd()]
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path[0:1] = [os.path.dirname(os.path.abspath(words[0]))]
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
