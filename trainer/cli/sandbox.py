"""`patchgym sandbox`: run one command in a sandbox; list and reap containers."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence

import anyio

from patchgym.sandbox import (
    CommandResult,
    ContainerInfo,
    Engine,
    Pool,
    SandboxSpec,
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
    runs.add_argument("--image", default="auto")
    runs.add_argument("--timeout", type=float, default=60.0, help="seconds (default 60)")
    runs.add_argument("--network", action="store_true", help="let it reach the network")
    runs.add_argument("--json", action="store_true")
    runs.add_argument("command", nargs="+", metavar="CMD")
    for name, text in (("ls", "list our containers"), ("reap", "remove those whose owner is gone")):
        action = actions.add_parser(name, help=text)
        action.add_argument("--json", action="store_true")
    known = arguments.parse_args(words)
    if known.action == "run":
        result = anyio.run(_run, known.image, known.command, known.timeout, known.network)
        return _answer(result, as_json=known.json)
    return _containers(known.action, as_json=known.json)


async def _run(image: str, command: list[str], timeout: float, network: bool) -> CommandResult:
    tag = await ensure_base() if image == "auto" else image
    async with Pool(
        SandboxSpec(image=tag, network="bridge" if network else "none"), size=1
    ) as pool:
        async with pool.lease(timeout=120) as sandbox:
            return await sandbox.run(command, timeout=timeout)


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
