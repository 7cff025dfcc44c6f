"""The wheel holds the folders and nothing else, and lives beside Hugging Face's `datasets`."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import anyio
import pytest
from anyio.streams.stapled import StapledByteStream
from docker_hosts import need

from patchgym.sandbox import CommandResult
from patchgym.sandbox.link import Link
from patchgym.sandbox.protocol import result_of, run_fields

UV = Path(sys.executable).with_name("uv")
PROGRAMS = {"supervisor-amd64": 0x3E, "supervisor-arm64": 0xB7}
"""Names of the supervisor's programs, and the machine that each one's ELF header names."""
KERNELS = {
    "attention-x86_64-x86_64.so": 0x3E,
    "attention-x86_64-x86_64_v3.so": 0x3E,
    "attention-x86_64-x86_64_v4.so": 0x3E,
    "attention-aarch64-generic.so": 0xB7,
}
"""The same of the sampler's kernel."""
PARTS = ("sandbox", "datasets", "agent", "rewards", "trainer")


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it, from tracked files alone."""
    source = tmp_path_factory.mktemp("source")
    archive = source / "tree.tar"
    run("git", "ls-files", cwd=root)
    # The index rather than HEAD: what is about to be committed is what is packed.
    tree = run("git", "write-tree", cwd=root).strip()
    run("git", "archive", "-o", archive, tree, cwd=root)
    with tarfile.open(archive) as tar:
        tar.extractall(source / "tree", filter="fully_trusted")
    out = tmp_path_factory.mktemp("out")
    # in an environment of its own: the build needs a C compiler for two machines
    run(UV, "build", "-q", "--out-dir", out, ".", cwd=source / "tree")
    return out


def wheel_of(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def test_the_wheel_holds_the_folders_and_nothing_else(built: Path, root: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    tracked = run("git", "ls-files", "--", *PARTS, cwd=root).split()
    wanted = {f"patchgym/{name}" for name in tracked}
    wanted |= {f"patchgym/sandbox/bin/{name}" for name in PROGRAMS}
    wanted |= {f"patchgym/trainer/sampler/bin/{name}" for name in KERNELS}
    assert names == wanted | {"patchgym/__init__.py", "patchgym/py.typed"}


def test_the_supervisor_is_static_small_and_for_both_machines(built: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        for name, machine in PROGRAMS.items():
            program = wheel.read(f"patchgym/sandbox/bin/{name}")
            assert program[:4] == b"\x7fELF" and int.from_bytes(program[18:20], "little") == machine
            assert len(program) < 1 << 20 and b"ld-" not in program  # no dynamic loader


def test_the_kernel_is_there_for_every_machine_and_asks_for_an_old_c_library(built: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        for name, machine in KERNELS.items():
            library = wheel.read(f"patchgym/trainer/sampler/bin/{name}")
            assert library[:4] == b"\x7fELF" and int.from_bytes(library[18:20], "little") == machine
            assert b"patchgym_attend" in library and len(library) < 1 << 20
            asked = {
                tuple(map(int, v.split(b"."))) for v in re.findall(rb"GLIBC_([\d.]+)", library)
            }
            assert max(asked) <= (2, 28)


async def test_the_supervisor_for_arm64_works(built: Path, tmp_path: Path) -> None:
    """Under qemu, outside a container: frames, a command, a timeout, a file."""
    program = tmp_path / "supervisor"
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        program.write_bytes(wheel.read("patchgym/sandbox/bin/supervisor-arm64"))
    program.chmod(0o755)
    emulator = need("qemu-aarch64-static", "qemu-user-static")
    async with await anyio.open_process([emulator, str(program)], stderr=None) as process:
        assert process.stdin is not None and process.stdout is not None
        link = Link("arm64", StapledByteStream(process.stdin, process.stdout), plain=True)
        await link.greet()
        assert link.kind == "static"

        async def run(command: str, timeout: float) -> CommandResult:
            fields = run_fields(
                command, timeout=timeout, cwd="/", environment=(), stdin=b"in", output_limit=99
            )
            return result_of(await link.command(fields, 60))

        done = await run("cat; exit 3", 30)
        assert (done.exit_code, done.stdout.head) == (3, b"in")
        late = await run("sleep 71 & setsid sleep 72 & sleep 73", 0.5)
        assert late.timed_out and late.killed >= 3
        put = [(b"f", str(tmp_path / "a" / "b").encode()), (b"b", b"data")]
        await link.ask(b"P", put, b"K")
        get = [put[0], (b"o", b"1"), (b"l", b"9")]
        assert (await link.ask(b"G", get, b"F")).fields[b"b"] == b"ata"
        await link.aclose()


def test_the_base_install_asks_for_no_heavy_package(built: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        (name,) = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(wheel.read(name).decode())
    base = [r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert {r.split(">")[0] for r in base} == {
        "anyio",
        "defusedxml",
        "docker",
        "gitpython",
        "opentelemetry-api",
        "packaging",
        "pydantic",
        "rich",
        "tomli-w",
        "unidiff",
    }
    assert metadata["License-Expression"] == "Apache-2.0"


@pytest.mark.slow
def test_it_lives_beside_hugging_face_datasets(built: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    install = ("uv", "pip", "install", "-q", "--link-mode", "copy", "--python", python)
    run(UV, *install[1:], wheel_of(built), "datasets>=3", cwd=tmp_path)
    script = (
        "import datasets, importlib.util as u; from patchgym.datasets.task import bundled_tasks;"
        "print(datasets.Dataset.__name__, len(bundled_tasks('heldout')) > 39,"
        "'site-packages/datasets' in datasets.__file__, u.find_spec('jax'), u.find_spec('torch'))"
    )
    assert (
        run(python, "-c", script, cwd=tmp_path).split()
        == ["Dataset", "True", "True"] + ["None"] * 2
    )
    help_text = run(tmp_path / "venv" / "bin" / "patchgym", "--help", cwd=tmp_path)
    assert "usage: patchgym COMMAND" in help_text
    needs_extra = subprocess.run(
        [tmp_path / "venv" / "bin" / "patchgym", "train"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert needs_extra.returncode == 2
    assert needs_extra.stderr.startswith("patchgym: training needs jax, flax")
    assert "pip install 'patchgym[train]'" in needs_extra.stderr


def test_the_source_folder_does_not_shadow_hugging_face_datasets(root: Path) -> None:
    script = "import importlib.util as u; s = u.find_spec('datasets'); print(s.origin)"
    # From the repository's root, `datasets/` is at most a namespace: any installed package wins.
    assert run(sys.executable, "-c", script, cwd=root).strip() == "None"
