"""Checks of files: in, out, and refused."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

import anyio.to_thread

from patchgym.sandbox import SandboxUsageError

from .contract import SandboxLike
from .expect import STEP, demand, expect, printed, refusal, same

BLOB = bytes(range(256)) * 36_000  # nine megabytes: more than any one piece


@demand("files", "what is written is read again byte for byte, long or empty")
async def write_and_read(sandbox: SandboxLike) -> None:
    for name, data in (("blob", BLOB), ("empty", b""), ("a/b/new", b"\x00\xff\r\n")):
        await sandbox.write(name, data)
        same(f"read({name!r})", await sandbox.read(name), data)
        same(f"wc -c {name}", (await printed(sandbox, f"wc -c <{name}")).strip(), str(len(data)))


@demand("files", "commands and requests see the same files, by relative and by absolute paths")
async def one_tree(sandbox: SandboxLike) -> None:
    workdir = (await printed(sandbox, "mkdir d; echo made >d/f; pwd")).strip()
    same("relative", await sandbox.read("d/f"), b"made\n")
    same("absolute", await sandbox.read(f"{workdir}/d/f"), b"made\n")
    await sandbox.write(f"{workdir}/g", b"x")
    await printed(sandbox, "test -f g")


@demand("files", "writing replaces a longer file as a whole")
async def overwrite(sandbox: SandboxLike) -> None:
    await sandbox.write("f", BLOB)
    await sandbox.write("f", b"short")
    same("read()", await sandbox.read("f"), b"short")


@demand("files", "a mode that was asked for is set")
async def modes(sandbox: SandboxLike) -> None:
    await sandbox.write("tool", b"#!/bin/sh\necho ran\n", mode=0o755)
    same("./tool", await printed(sandbox, "./tool"), "ran\n")
    await sandbox.write("secret", b"x", mode=0o600)
    same("stat", await printed(sandbox, "stat -c %a secret"), "600\n")


@demand("files", "names with blanks, newlines and other alphabets work")
async def odd_names(sandbox: SandboxLike) -> None:
    for name in ("späte ☃.txt", "-rf", "a\nb", "$(touch x)", "'q\""):
        await sandbox.write(name, name.encode())
        same(f"read({name!r})", await sandbox.read(name), name.encode())
    same("entries", await printed(sandbox, "ls -A | wc -l"), "6\n")


@demand("files", "reading what is missing, a folder, a pipe or a device raises SandboxUsageError")
async def only_regular_files(sandbox: SandboxLike) -> None:
    await printed(sandbox, "mkdir d; mkfifo p; ln -s /dev/zero z; ln -s nowhere dangling")
    for path in ("missing", "d", "p", "/dev/zero", "z", "dangling", "missing/x"):
        with anyio.fail_after(STEP):
            with refusal(f"read({path!r})"):
                await sandbox.read(path)
    for path in ("d", "p"):
        with anyio.fail_after(STEP):
            with refusal(f"write({path!r})"):
                await sandbox.write(path, b"x")
    same("afterwards", await printed(sandbox, "echo fine"), "fine\n")


@demand("files", "a folder is uploaded with its modes, links and sub-folders")
async def upload_a_folder(sandbox: SandboxLike) -> None:
    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        (source / "in" / "ner").mkdir(parents=True)
        (source / "in" / "ner" / "run.sh").write_text("#!/bin/sh\necho ran\n")
        (source / "in" / "ner" / "run.sh").chmod(0o755)
        os.symlink("in/ner/run.sh", source / "link")
        (source / "empty").mkdir()
        await sandbox.upload(source)
        await printed(sandbox, "mkdir there")
        await sandbox.upload(source / "in", "there")
    same("./link", await printed(sandbox, "test -d empty && ./link"), "ran\n")
    await printed(sandbox, "test -x there/ner/run.sh")


@demand("files", "an archive is unpacked; what is none is refused")
async def upload_an_archive(sandbox: SandboxLike) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("x/y")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"abc"))
    await sandbox.upload(buffer.getvalue())
    same("read()", await sandbox.read("x/y"), b"abc")
    with refusal("upload of junk"):
        await sandbox.upload(b"this is no archive" * 100)
    with refusal("upload into a missing folder"):
        await sandbox.upload(buffer.getvalue(), "missing")


@demand("files", "folders and single files are downloaded")
async def download(sandbox: SandboxLike) -> None:
    await sandbox.write("d/e/blob", BLOB)
    await sandbox.write("d/run.sh", b"#!/bin/sh\n", mode=0o755)
    with tempfile.TemporaryDirectory() as name:
        target = Path(name)
        await sandbox.download("d", target / "folder")
        same("file", (target / "folder" / "e" / "blob").read_bytes(), BLOB)
        expect((target / "folder" / "run.sh").stat().st_mode & 0o100, "run.sh is not executable")
        await sandbox.download("d/run.sh", target / "single")
        same("entries", [each.name for each in (target / "single").iterdir()], ["run.sh"])
        with refusal("download of what is missing"):
            await sandbox.download("missing", target)


@demand("files", "a download puts nothing outside of its target, and no link that leads out")
async def hostile_download(sandbox: SandboxLike) -> None:
    await printed(sandbox, "mkdir d; ln -s /etc/passwd d/a; ln -s ../../../../../etc d/b")
    with tempfile.TemporaryDirectory() as name:
        target = Path(name, "target")
        with suppress(SandboxUsageError):  # refusing the whole is as good as leaving links out
            await sandbox.download("d", target)
        same("links that lead out", await anyio.to_thread.run_sync(_leading_out, target), [])
        same("beside the target", set(os.listdir(name)) - {"target"}, set())


def _leading_out(folder: Path) -> list[str]:
    found = folder.rglob("*") if folder.exists() else []
    return [each.name for each in found if not each.resolve().is_relative_to(folder.resolve())]


@demand("files", "a path with a zero byte is the caller's mistake")
async def zero_bytes(sandbox: SandboxLike) -> None:
    with refusal("read()"):
        await sandbox.read("a\0b")
    with refusal("write()"):
        await sandbox.write("a\0b", b"x")
