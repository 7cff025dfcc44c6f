"""Builds the programs in C that come with the package, for every machine that it is for.

zig's C compiler makes programs for other machines than this one; the package's build requires it
(see pyproject.toml), so building needs no other tool. An editable install builds for this machine
only, because that is all that a checkout's own Docker engine, or Python, can run.

    supervisor   static; goes into containers
    attention    a shared library, loaded by the sampler on CPU; for amd64 three, by what the
                 processor has (see trainer/sampler/native_attention.py)
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PACKAGE = Path(__file__).parent / "src" / "patchgym"  # in a checkout links, in an sdist the folders
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Machines as Docker names them, and as compilers do."""
STRICT = ("-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")
SUPERVISOR = ("-static", "-Os", "-s", *STRICT)
ATTENTION = ("-shared", "-fPIC", "-O3", "-ffast-math", "-s", *STRICT)
LEVELS = {"x86_64": ("x86_64", "x86_64_v3", "x86_64_v4"), "aarch64": ("generic",)}


def compile_c(folder: Path, name: str, target: str, flags: Sequence[str]) -> None:
    """`folder`/bin/`name` of `folder`/native, unless it is there and newer than its sources."""
    program = folder / "bin" / name
    sources = sorted((folder / "native").glob("*.c"))
    headers = (folder / "native").glob("*.h")
    newest = max(path.stat().st_mtime for path in [*sources, *headers])
    if program.exists() and program.stat().st_mtime > newest:
        return
    program.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *flags]
    subprocess.run([*command, "-o", str(program), *map(str, sources), "-lm"], check=True)


class BuildWithPrograms(build_py):
    """build_py, and before it the programs in C."""

    def run(self) -> None:
        """Compile, then go on."""
        for name, machine in MACHINES.items():
            if not self.editable_mode or machine == platform.machine():
                compile_c(
                    PACKAGE / "sandbox", f"supervisor-{name}", f"{machine}-linux-musl", SUPERVISOR
                )
                for level in LEVELS[machine]:
                    compile_c(
                        PACKAGE / "trainer" / "sampler",
                        f"attention-{machine}-{level}.so",
                        f"{machine}-linux-gnu.2.28",
                        (*ATTENTION, f"-mcpu={level}"),
                    )
        super().run()


setup(cmdclass={"build_py": BuildWithPrograms})
