"""Packages as they were at a date.

An index that says when each file was uploaded (PEP 700) can be asked for what there was before a
date: uv does, inside the build, so that the date alone is part of an image's name. Where an index
has no dates, a lock file or a folder of wheels has to do, or the packages are today's.
"""

from __future__ import annotations

import json
import shlex
import ssl
import urllib.request
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from patchgym.sandbox import BuildAccess

ASK_LIMIT = 15.0  # seconds for the index to answer
ASK_FOR = "setuptools"
"""A distribution that every index has."""
ACCEPT = "application/vnd.pypi.simple.v1+json"
LOCKED_LIMIT = 60_000  # characters of constraints that a command may carry
UV = 'pip install -q --target "$HOME/uv" uv && PATH="$HOME/uv/bin:$PATH"'
# uv does not read pip's settings, which are where the build's access is.
SETTINGS = (
    "index=$(pip config get global.index-url 2>/dev/null || true) && "
    "links=$(pip config get global.find-links 2>/dev/null | tr ' ' ',' || true) && "
    'if [ -n "$index" ]; then export UV_DEFAULT_INDEX="$index"; fi && '
    'if [ -n "$links" ]; then export UV_FIND_LINKS="$links"; fi'
)


def index_has_dates(access: BuildAccess) -> bool:
    """Whether the index that pip uses tells when files were uploaded; pip's default one does.

    Blocking: another index is asked. No answer is no.
    """
    address = access.settings.get("index-url", "").rstrip("/")
    if not address:
        return access.settings.get("no-index", "").lower() not in ("1", "true", "yes", "on")
    if not address.startswith(("https://", "http://")):
        return False
    request = urllib.request.Request(f"{address}/{ASK_FOR}/", headers={"Accept": ACCEPT})
    file = str(access.certificates) if access.certificates else None
    try:
        context = ssl.create_default_context(cafile=file)
        with urllib.request.urlopen(request, timeout=ASK_LIMIT, context=context) as answer:
            return dated(answer.read())
    except (OSError, ValueError):
        return False


def dated(answer: bytes) -> bool:
    """Whether an index's answer for one distribution has upload times."""
    try:
        files = json.loads(answer)["files"]
        return bool(files) and all("upload-time" in file for file in files)
    except (ValueError, KeyError, TypeError):
        return False


def sharing_date(commit: datetime, manifests: datetime) -> datetime:
    """The date to pin by, equal for neighbours in history: the start of the commit's quarter, or
    the end of the day on which the manifests last changed, whichever is later."""
    day, changed = commit.astimezone(UTC), manifests.astimezone(UTC)
    quarter = day.replace(month=day.month - (day.month - 1) % 3, day=1)
    later = max(quarter.date(), changed.date() + timedelta(days=1))
    return datetime(later.year, later.month, later.day, tzinfo=UTC)


def install_command(
    requirements: Iterable[str], *, before: datetime | None, locked: Mapping[str, str] | None = None
) -> str:
    """A command that installs requirements, in the newest versions before a date or of today."""
    words = " ".join(map(shlex.quote, requirements))
    given = "".join(f"{name}=={version}\n" for name, version in sorted((locked or {}).items()))
    constraints, option = "", ""
    if given and len(given) < LOCKED_LIMIT:
        constraints = f'printf %s {shlex.quote(given)} > "$HOME/locked.txt" && '
        option = '-c "$HOME/locked.txt" '
    if before is None:
        return f"{constraints}pip install --ignore-installed {option}{words}"
    return (
        f"{constraints}{UV} && {SETTINGS} && uv pip install --no-cache --system "
        f"--break-system-packages --link-mode copy --exclude-newer {before:%Y-%m-%dT%H:%M:%SZ} "
        f"{option}{words}"
    )
