"""Bare mirrors of remote repositories, made on the host with the host's own credentials.

Sandboxes get snapshots of single commits out of a mirror (see `checkout`), never the mirror. It
does not even know where it came from: the address is not written into it.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from patchgym.sandbox.errors import CheckoutError, SandboxUsageError

from .cache import cache_folder
from .lock import locked

if TYPE_CHECKING:
    from git import Repo

SCHEMES = ("https", "http", "ssh", "git", "file")
USER = re.compile("(?<=://)[^/@\\s]+@")
"""User and password in an address."""


async def mirror(
    source: str,
    *,
    commit: str | None = None,
    folder: Path | None = None,
    timeout: float = 1800.0,
) -> Path:
    """A bare repository with all branches and tags of `source`, brought up to date.

    `source` is an address that git knows (https, ssh, file, `user@host:path`, an absolute path).
    When the mirror has the full id `commit` already, nothing is fetched. git finds credentials
    where it always does (credential helpers, ssh agent, `~/.netrc`) and never asks for them. Raises
    CheckoutError when the repository can't be reached or lacks `commit`, within `timeout` seconds.
    """
    _check(source, commit)
    name = USER.sub("", source).rstrip("/").removesuffix(".git")
    slug = re.sub("[^A-Za-z0-9]+", "-", name.rpartition("/")[2])[-40:]
    place = (folder or cache_folder("mirrors")) / (
        f"{slug}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.git"
    )
    lock = place.with_name(f"{place.name}.fetch")
    async with locked(lock, within=timeout, purpose=f"fetch {USER.sub('', source)}"):
        await anyio.to_thread.run_sync(_bring_up_to_date, source, place, commit, timeout)
    return place


def _check(source: str, commit: str | None) -> None:
    if commit is not None and not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", commit):
        raise SandboxUsageError(f"a commit is named by its full id, not by {commit!r}")
    scheme, marker, _ = source.partition("://")
    good = scheme in SCHEMES if marker else re.match(r"/|[\w.-]+@[\w.-]+:(?!:)", source)
    if not good or "\0" in source:
        shown = USER.sub("", source)
        raise SandboxUsageError(f"not the address of a git repository: {shown!r}")


def _bring_up_to_date(source: str, place: Path, commit: str | None, timeout: float) -> None:
    from git import Repo
    from git.exc import GitError

    try:
        if not (place / "HEAD").is_file():
            # no template: the user's hooks have no say (GitPython counts the option as unsafe)
            Repo.init(place, bare=True, template="", allow_unsafe_options=True).close()
        with Repo(place) as repo:
            if commit is not None and _has(repo, commit):
                return
            _fetch(repo, source, timeout, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
            if commit is not None and not _has(repo, commit):  # it may be on no branch
                _fetch(repo, source, timeout, f"+{commit}:refs/commits/{commit}")
    except (GitError, OSError) as problem:
        shown = USER.sub("", source)
        raise CheckoutError(f"can't mirror {shown}: {_reason(problem)}") from None


def _fetch(repo: Repo, source: str, timeout: float, *references: str) -> None:
    ssh = os.environ.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    with repo.git.custom_environment(GIT_TERMINAL_PROMPT="0", GIT_SSH_COMMAND=ssh):
        repo.git.fetch(
            "--prune", "--force", "--no-tags", "--no-write-fetch-head", "--quiet",
            "--end-of-options", source, *references, kill_after_timeout=timeout,
        )  # fmt: skip


def _has(repo: Repo, commit: str) -> bool:
    from git.exc import GitCommandError

    try:
        repo.git.cat_file("-e", f"{commit}^{{commit}}")
    except GitCommandError:
        return False
    return True


def _reason(problem: Exception) -> str:
    text = USER.sub("", str(getattr(problem, "stderr", None) or problem))
    lines = [line.strip(" '\"") for line in text.splitlines()]
    lines = [line.removeprefix("stderr: ").strip("'\" ") for line in lines if line]
    told = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "ERROR"))]
    return (told or lines or ["no reason given"])[0][:300]
