"""What this machine lends to image builds: pip's settings, certificates, wheels, and pip itself.

All of it lies in a folder in memory that is mounted below /dev, which no image can hold, and in the
environment of single commands. The code that a build runs can read it; the image can't keep it,
unless a command copies it elsewhere.
"""

from __future__ import annotations

import ast
import ensurepip
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from patchgym.sandbox.errors import ImageError

PLACE = "/dev/patchgym-build"
"""The folder inside."""
WHEELS_LIMIT = 1 << 30  # bytes of lent wheels: they lie in memory
ASK_LIMIT = 30.0  # seconds for pip to print its settings
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
CERTIFICATE_NAMES = (
    "PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
)  # fmt: skip
SETTINGS = (
    "index-url", "extra-index-url", "trusted-host", "no-index", "timeout", "default-timeout",
    "retries", "proxy", "prefer-binary", "only-binary", "no-binary",
)  # fmt: skip
"""Those of pip's settings that mean the same in another place."""
PIP = f'#!/bin/sh\nexec python3 {PLACE}/pip.whl/pip "$@"\n'
APT = f'Acquire::https::CaInfo "{PLACE}/certificates.pem";\n'
STANDING = {
    "HOME": f"{PLACE}/home",
    "LANG": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",  # the image is the environment
}
"""Environment of every command of every build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildAccess:
    """Lent for the length of a build; no part of an image's key. By itself it lends nothing."""

    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """pip's, by long option name. May hold credentials: they never are in an error or an image."""
    wheelhouses: tuple[Path, ...] = ()
    """Folders of wheels and source archives for pip's `--find-links`; 1 GiB in all."""
    constraints: tuple[Path, ...] = ()
    """Files for pip's `--constraint`."""
    certificates: Path | None = None
    """A CA bundle (PEM) for pip, git, curl and apt."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More environment of the commands, such as proxies."""

    @classmethod
    def of_this_machine(cls) -> Self:
        """As pip is set up here, by files and environment, and this machine's proxies.

        Blocking: it asks pip. Left out is what has no meaning inside: indexes at file:// addresses
        and wheelhouses that are over the limit.
        """
        found = _pip_settings()
        certificates = found.get("cert") or os.environ.get("SSL_CERT_FILE")
        indexes = found.get("extra-index-url", "").split()
        found["extra-index-url"] = " ".join(url for url in indexes if not _local(url))
        if _local(found.get("index-url", "")):
            del found["index-url"]
        links = found.get("find-links", "").split()
        folders = [Path(link) for link in links if "://" not in link and Path(link).is_dir()]
        remote = " ".join(link for link in links if "://" in link and not _local(link))
        settings = {name: found[name] for name in SETTINGS if found.get(name)}
        return cls(
            settings=settings | ({"find-links": remote} if remote else {}),
            wheelhouses=tuple(folder for folder in folders if _size(folder) <= WHEELS_LIMIT),
            constraints=tuple(
                Path(name) for name in found.get("constraint", "").split() if Path(name).is_file()
            ),
            certificates=Path(certificates) if certificates else None,
            environment={name: os.environ[name] for name in PROXIES if os.environ.get(name)},
        )

    def contents(self) -> Iterator[tuple[str, bytes | Path, int]]:
        """Path inside, content or file to copy, mode. Blocking; raises ImageError."""
        yield "home/.keep", b"", 0o644
        yield "pip.conf", self._configuration().encode(), 0o644
        for number, file in enumerate(self.constraints):
            yield f"constraints-{number}.txt", _there(file), 0o644
        if self.certificates is not None:
            yield "certificates.pem", _there(self.certificates), 0o644
            yield "apt.conf", APT.encode(), 0o644
        own = _own_pip()
        if own is not None:
            yield "pip.whl", own, 0o644
            for name in ("pip", "pip3"):
                yield f"bin/{name}", PIP.encode(), 0o755
        size = 0
        for number, folder in enumerate(self.wheelhouses):
            for file in sorted(_there(folder).iterdir()):
                if file.is_file():
                    size += file.stat().st_size
                    yield f"wheels-{number}/{file.name}", file, 0o644
            if size > WHEELS_LIMIT:
                raise ImageError(f"over 1 GiB of wheels up to {folder}: lend a folder with fewer")

    def variables(self) -> dict[str, str]:
        """Environment of the commands."""
        variables = {**STANDING, "PIP_CONFIG_FILE": f"{PLACE}/pip.conf", **self.environment}
        if self.certificates is not None:
            variables |= dict.fromkeys(CERTIFICATE_NAMES, f"{PLACE}/certificates.pem")
            variables["APT_CONFIG"] = f"{PLACE}/apt.conf"
        return variables

    def _configuration(self) -> str:
        settings = dict(self.settings)
        links = [f"{PLACE}/wheels-{number}" for number in range(len(self.wheelhouses))]
        settings["find-links"] = " ".join([*settings.get("find-links", "").split(), *links])
        files = [f"{PLACE}/constraints-{number}.txt" for number in range(len(self.constraints))]
        settings["constraint"] = " ".join(files)
        lines = [f"{name} = {value}\n" for name, value in settings.items() if value]
        return "[global]\n" + "".join(lines)


def _pip_settings() -> dict[str, str]:
    """What `pip config list` says, the environment over the user's file over the machine's."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ASK_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, str] = {}
    lines = [line.partition("=") for line in done.stdout.splitlines()]
    for where in ("global", "install", ":env:"):
        for name, _, value in lines:
            if name.startswith(f"{where}."):
                found[name.removeprefix(f"{where}.").lstrip(".")] = str(ast.literal_eval(value))
    return found


def _own_pip() -> Path | None:
    """The wheel that this machine's Python brings along for `python -m ensurepip`."""
    folders = (Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels"))
    wheels = [wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))]
    return wheels[0] if wheels else None


def _there(path: Path) -> Path:
    if not path.exists():
        raise ImageError(f"{path} was to be lent to a build, but it is not there")
    return path


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def _local(address: str) -> bool:
    return address.startswith("file:")
