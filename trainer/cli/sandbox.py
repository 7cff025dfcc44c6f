"""`patchgym sandbox`: run one command in a sandbox; list and reap containers."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Literal

import anyio

from patchgym.sandbox import (
    CommandResult,
    ContainerInfo,
    Engine,
    Pool,
    SandboxSpec,
    SandboxUsageError,
    ensure_base,
    sweep,
)
from patchgym.sandbox.reaper import KIT, KIT_NAME

from .main import parser


def run(words: Sequence[str]) -> int:
    """Entry point; `run` ends with the command's exit code (124 after a timeout)."""
    arguments = parser("sandbox")
    actions = arguments.add_subparsers(dest="action", required=True)
    runs = actions.add_parser("run", help="run a command: patchgym sandbox run -- python3 -V")
    _add_spec(runs)
    runs.add_argument("--timeout", type=float, default=60.0, help="seconds (default 60)")
    runs.add_argument("--json", action="store_true")
    runs.add_argument("command", nargs="+", metavar="CMD")
    shells = actions.add_parser("shell", help="an interactive shell in a fresh sandbox")
    _add_spec(shells)
    for name, text in (("ls", "list our containers"), ("reap", "remove those whose owner is gone")):
        action = actions.add_parser(name, help=text)
        action.add_argument("--json", action="store_true")
    known = arguments.parse_args(words)
    if known.action == "run":
        result = anyio.run(_run, known, known.command, known.timeout)
        return _answer(result, as_json=known.json)
    if known.action == "shell":
        return anyio.run(_shell, known)
    return _containers(known.action, as_json=known.json)


def _add_spec(action: argparse.ArgumentParser) -> None:
    action.add_argument("--image", default="auto", help="default: the base image")
    action.add_argument("--memory", type=int, default=512, metavar="MIB", help="default 512")
    action.add_argument(
        "--network",
        nargs="?",
        const="bridge",
        default="none",
        metavar="HOST,...",
        help="let it reach the network, or these hosts alone",
    )


async def _spec(known: argparse.Namespace) -> SandboxSpec:
    image = await ensure_base() if known.image == "auto" else known.image
    network: Literal["none", "bridge"] | tuple[str, ...]
    if known.network in ("none", "bridge"):
        network = known.network
    else:
        network = tuple(known.network.split(","))
    return SandboxSpec(image=image, memory_mib=known.memory, network=network)


async def _run(known: argparse.Namespace, command: list[str], timeout: float) -> CommandResult:
    async with Pool(await _spec(known), size=1) as pool:
        async with pool.lease(timeout=120) as sandbox:
            return await sandbox.run(command, timeout=timeout)


async def _shell(known: argparse.Namespace) -> int:
    """Docker's own client brings the terminal; the sandbox ends with the shell."""
    spec = await _spec(known)
    async with Pool(spec, size=1) as pool, pool.lease(timeout=120) as sandbox:
        words = ["docker", "--host", pool.engines[0].url, "exec", "-i"]
        words += ["-t"] if sys.stdin.isatty() else []
        words += ["-w", spec.workdir, sandbox.name]
        words += ["sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"]
        try:
            process = await anyio.open_process(words, stdin=None, stdout=None, stderr=None)
        except FileNotFoundError:
            raise SandboxUsageError("a shell needs the docker command: install it") from None
        async with process:
            return await process.wait()


def _answer(result: CommandResult, *, as_json: bool) -> int:
    if as_json:
        record = dataclasses.asdict(result)
        print(json.dumps(record, indent=2, default=lambda b: b.decode("utf-8", "backslashreplace")))
    else:
        sys.stdout.write(result.stdout.text())
        sys.stderr.write(result.stderr.text())
    if result.timed_out:
        return 124
    return result.exit_code if result.exit_code is not None else 128 + (result.signal or 0)


def _containers(action: str, *, as_json: bool) -> int:
    if action == "reap":
        removed = anyio.run(_reap)
        print(json.dumps(removed) if as_json else f"removed {len(removed)} containers")
        return 0
    found = anyio.run(_list)
    if as_json:
        records = [{"name": c.name, "state": c.state, "labels": dict(c.labels)} for c in found]
        print(json.dumps(records, indent=2))
    for container in found if not as_json else ():
        print(f"{container.name}  {container.state}")
    return 0


async def _reap() -> list[str]:
    engine = Engine()
    try:
        return list(await sweep(engine))
    finally:
        engine.close()


async def _list() -> tuple[ContainerInfo, ...]:
    engine = Engine()
    try:
        return await engine.containers({KIT: KIT_NAME})
    finally:
        engine.close()
