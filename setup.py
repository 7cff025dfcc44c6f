"""Builds the supervisor that goes into containers, for every machine that Docker images are for.

zig's C compiler makes static programs for other machines than this one; the package's build
requires it (see pyproject.toml), so building needs no other tool. An editable install builds for
this machine only, because that is all that a checkout's own Docker engine can run.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
SANDBOX = ROOT / "src" / "patchgym" / "sandbox"  # in a checkout a link, in an sdist the folder
SOURCE = SANDBOX / "native"
TARGET = SANDBOX / "bin"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Machines as Docker names them, and as compilers do."""


def compile_supervisor(docker_name: str, machine: str) -> None:
    """One static program, unless it is there and newer than its sources."""
    program = TARGET / f"supervisor-{docker_name}"
    sources = sorted(SOURCE.glob("*.c"))
    newest = max(path.stat().st_mtime for path in [*sources, *SOURCE.glob("*.h")])
    if program.exists() and program.stat().st_mtime > newest:
        return
    TARGET.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-musl"]
    command += ["-static", "-Os", "-s", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra"]
    command += ["-Werror", "-o", str(program), *map(str, sources)]
    subprocess.run(command, check=True)


class BuildWithSupervisor(build_py):
    """build_py, and before it the supervisor."""

    def run(self) -> None:
        """Compile, then go on."""
        for docker_name, machine in MACHINES.items():
            if not self.editable_mode or machine == platform.machine():
                compile_supervisor(docker_name, machine)
        super().run()


setup(cmdclass={"build_py": BuildWithSupervisor})
