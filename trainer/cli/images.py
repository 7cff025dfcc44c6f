"""`patchgym images`: build, list and prune sandbox images; fetch the quickstart's weights."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from patchgym.sandbox import (
    BakedImage,
    BuildAccess,
    ImageStore,
    StoredImage,
    ensure_base,
    mirror,
    read_files,
)
from patchgym.sandbox.images.store import GRACE, KEEP

from .image_file import ImageFile, load_image_file
from .main import parser

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def run(words: Sequence[str]) -> int:
    """Entry point."""
    known = _arguments().parse_args(words)
    if known.action == "weights":
        return _weights(as_json=known.json)
    if known.action == "build" and known.file is None:
        tag = anyio.run(ensure_base)
        print(json.dumps(tag) if known.json else tag)
        return 0
    if known.action == "build":
        baked = anyio.run(_build, load_image_file(known.file), known)
        _print_baked(baked, as_json=known.json)
    elif known.action == "ls":
        _print_images(anyio.run(_list, known.prefix), as_json=known.json)
    else:
        keep, grace = (0, 0.0) if known.all else (known.keep, GRACE)
        _print_gone(anyio.run(_prune, known.prefix, keep, grace), as_json=known.json)
    return 0


def _arguments() -> argparse.ArgumentParser:
    arguments = parser("images")
    actions = arguments.add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="the base image, or those that FILE describes")
    build.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="see examples/images.toml"
    )
    build.add_argument("--wheelhouse", type=Path, action="append", default=[], metavar="FOLDER")
    build.add_argument("--certificates", type=Path, metavar="FILE", help="a CA bundle")
    build.add_argument(
        "--no-host-pip", action="store_true", help="lend builds nothing of this machine's set-up"
    )
    build.add_argument("--jobs", type=_count, default=2, help="builds at once (default 2)")
    listing = actions.add_parser("ls", help="list our images")
    prune = actions.add_parser("prune", help="remove those that were not used for longest")
    which = prune.add_mutually_exclusive_group()
    which.add_argument(
        "--keep", type=_size, default=KEEP, metavar="BYTES", help="such as 20G (default 53.7G)"
    )
    which.add_argument("--all", action="store_true", help="all that no container stands on")
    weights = actions.add_parser("weights", help="fetch the quickstart's weights")
    for action in (build, listing, prune):
        action.add_argument("--prefix", default="patchgym", help="first part of the images' names")
    for action in (build, listing, prune, weights):
        action.add_argument("--json", action="store_true")
    return arguments


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip().upper())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size in bytes, such as 20G")
    return int(float(match[1]) * UNITS[match[2]])


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 up")
    return int(text)


def _weights(*, as_json: bool) -> int:
    from patchgym.datasets.cache import cache_dir
    from patchgym.trainer.model.weights import ensure_weights

    answer = str(ensure_weights(cache_dir()))
    print(json.dumps(answer) if as_json else answer)
    return 0


async def _build(file: ImageFile, known: argparse.Namespace) -> list[BakedImage]:
    access = BuildAccess()
    if not known.no_host_pip:
        access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    access = dataclasses.replace(
        access,
        wheelhouses=(*access.wheelhouses, *known.wheelhouse),
        certificates=known.certificates or access.certificates,
    )
    baked: list[BakedImage | None] = [None] * len(file.commits)
    places = anyio.CapacityLimiter(known.jobs)

    async def one(number: int, store: ImageStore) -> None:
        async with places:
            baked[number] = await _bake(store, file, file.commits[number], known.file.parent)

    async with (
        ImageStore(access=access, prefix=known.prefix, builds=known.jobs) as store,
        anyio.create_task_group() as tasks,
    ):
        for number in range(len(file.commits)):
            tasks.start_soon(one, number, store)
    return [image for image in baked if image is not None]


async def _bake(store: ImageStore, file: ImageFile, commit: str, beside: Path) -> BakedImage:
    repository = beside / file.repository
    if not await anyio.Path(repository).is_dir():
        full = re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", commit) is not None
        repository = await mirror(file.repository, commit=commit if full else None)
    files = await read_files(repository, commit, file.recipe.files) if file.recipe.files else {}
    recipe = file.recipe.with_files(files)
    return await store.bake(repository, commit, recipe, workdir=file.workdir)


async def _list(prefix: str) -> tuple[StoredImage, ...]:
    async with ImageStore(prefix=prefix) as store:
        return await store.images()


async def _prune(prefix: str, keep: int, grace: float) -> tuple[StoredImage, ...]:
    async with ImageStore(prefix=prefix) as store:
        return await store.prune(keep=keep, grace=grace)


def _print_baked(images: Sequence[BakedImage], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([dataclasses.asdict(image) for image in images], indent=2))
        return
    for image in images:
        print(f"{image.image}  {image.commit[:12]}  {'built' if image.built else 'was there'}")


def _print_images(images: Sequence[StoredImage], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([dataclasses.asdict(image) for image in images], indent=2))
        return
    for image in images:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(image.last_used))
        state = "in use" if image.in_use else "      "
        print(f"{image.tag:<64}  {image.size / 1e6:9.1f} MB  {used}  {state}  {image.commit[:12]}")
    total = sum(image.size for image in images)
    print(f"{len(images)} images, {total / 1e6:.1f} MB beside what they share")


def _print_gone(images: Sequence[StoredImage], *, as_json: bool) -> None:
    freed = sum(image.size for image in images)
    if as_json:
        record: dict[str, Any] = {"removed": [image.tag for image in images], "bytes": freed}
        print(json.dumps(record, indent=2))
    else:
        print(f"removed {len(images)} images, {freed / 1e6:.1f} MB")
