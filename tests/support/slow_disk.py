"""A disk whose syncs take as long as a file says: fsync and fdatasync, preloaded into a process."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_as_told(void) {
    const char *place = getenv("SLOW_DISK");
    FILE *file = place ? fopen(place, "re") : NULL;
    int milliseconds = 0;
    if (file && fscanf(file, "%d", &milliseconds) != 1) milliseconds = 0;
    if (file) fclose(file);
    while (milliseconds > 0) {
        int part = milliseconds < 500 ? milliseconds : 500;
        usleep(1000 * part);
        milliseconds -= part;
    }
}

int fsync(int descriptor) {
    wait_as_told();
    return ((int (*)(int)) dlsym(RTLD_NEXT, "fsync"))(descriptor);
}

int fdatasync(int descriptor) {
    wait_as_told();
    return ((int (*)(int)) dlsym(RTLD_NEXT, "fdatasync"))(descriptor);
}
"""


class SlowDisk:
    """The library, and the file that says how slow it is."""

    def __init__(self, folder: Path) -> None:
        """Compile it into `folder`; skips the test without a compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler: apt-get install gcc")
        source, self._library = folder / "slow_disk.c", folder / "slow_disk.so"
        source.write_text(SOURCE)
        command = [compiler, "-shared", "-fPIC", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(command, check=True)
        self._file = folder / "slow_disk.milliseconds"
        self.takes(0.0)

    def takes(self, seconds: float) -> None:
        """Each sync that begins from now on."""
        self._file.write_text(str(round(1000 * seconds)))

    def environment(self) -> dict[str, str]:
        """What a process needs to have it."""
        return {"LD_PRELOAD": str(self._library), "SLOW_DISK": str(self._file)}
