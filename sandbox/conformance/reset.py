"""Checks of the reset between leases: twenty ways to tamper, of which the next lease sees none.

Sixteen are in the lease's own folders (here); four are in the machine (`isolation.py`).
"""

from __future__ import annotations

from .contract import Backend, SandboxLike
from .expect import LEASE_LIMIT, demand_of_backend, expect, is_alive, printed, same
from .repositories import repository

LOOK = r"""
export GIT_OPTIONAL_LOCKS=0 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0=
cd "$HOME" && find . -printf 'home %p %y %m %l\n' | sort && cd - >/dev/null
find . ! -path './.git/index' -printf 'file %p %y %m %l\n' | sort
find . "$HOME" -type f ! -path './.git/index' -printf '%f ' -exec sha256sum {} \; |
    sed "s#$HOME#home#" | sort
git ls-files -v --stage
git for-each-ref
"""
"""Prints all that there is to see of a checkout and the home folder."""

WORK_TREE = {
    "a tracked edit": "echo x >>a.py",
    "a deletion": "rm b.py",
    "an untracked file": "echo x >new.py",
    "an ignored file": "echo x >junk",
    "a nested repository": "git init -q nested",
    "a mode change": "chmod 755 c.py",
}
GIT_FOLDER = {
    "assume-unchanged": "git update-index --assume-unchanged a.py",
    "skip-worktree and an edit": "git update-index --skip-worktree c.py && echo x >>c.py",
    "a moved tag": "git tag v1 && git commit -q --allow-empty -m x && git tag -f v1 >/dev/null",
    "a hook": "mkdir -p .git/hooks && echo '#!/bin/sh' >.git/hooks/post-checkout",
    "a stale lock": "touch .git/index.lock",
}
GIT_CONFIGURATION = {
    "an fsmonitor command": "git config core.fsmonitor 'touch /tmp/ran'",
    "a smudge filter": "git config filter.x.smudge 'sed s/1/2/' && mkdir -p .git/info && "
    "echo '*.py filter=x' >.git/info/attributes",
}
HOME = {
    "a shell's start-up file": 'echo exit >"$HOME/.bashrc"',
    "sitecustomize": 'mkdir -p "$HOME/.local/lib/python3" && '
    'echo 1/0 >"$HOME/.local/lib/python3/sitecustomize.py"',
}


async def _seen(sandbox: SandboxLike) -> list[str]:
    done = await sandbox.run(LOOK, timeout=60, output_limit=1 << 20)
    expect(done.ok, f"could not look: {done.stderr.text()}")
    return done.stdout.text().splitlines()


async def _survives(backend: Backend, tamperings: dict[str, str]) -> None:
    """Tamper, see that it took hold, and see nothing of it in the next lease's checkout."""
    files = {"a.py": "1\n", "b.py": "2\n", "c.py": "3\n", ".gitignore": "junk\n"}
    async with repository(files) as (root, commit):
        async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
            await sandbox.checkout(root, commit)
            clean = seen = await _seen(sandbox)
            for name, command in tamperings.items():
                await printed(sandbox, command)
                before, seen = seen, await _seen(sandbox)
                expect(seen != before, f"{name} had no effect, so nothing was checked")
        async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
            await sandbox.checkout(root, commit)
            after = await _seen(sandbox)
    same("what the next lease sees", sorted(set(after) ^ set(clean)), [])


@demand_of_backend("reset", "edits, deletions, new, ignored and nested files do not reach the next")
async def tampered_work_tree(backend: Backend) -> None:
    await _survives(backend, WORK_TREE)


@demand_of_backend("reset", "index flags, tags, hooks and stale locks do not reach the next lease")
async def tampered_git_folder(backend: Backend) -> None:
    await _survives(backend, GIT_FOLDER)


@demand_of_backend("reset", "commands in git's configuration do not reach the next lease")
async def tampered_git_configuration(backend: Backend) -> None:
    await _survives(backend, GIT_CONFIGURATION)


@demand_of_backend("reset", "start-up files in the home folder do not reach the next lease")
async def tampered_home(backend: Backend) -> None:
    await _survives(backend, HOME)


@demand_of_backend("reset", "background processes do not reach the next lease")
async def left_processes(backend: Backend) -> None:
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        await printed(sandbox, "sleep 7097 >/dev/null 2>&1 & setsid sleep 7098 >/dev/null 2>&1 &")
        await printed(sandbox, "(trap '' TERM HUP; setsid sleep 7099 >/dev/null 2>&1 &)")
        expect(await is_alive(sandbox, 7099), "it did not start, so nothing was checked")
    async with backend.lease(timeout=LEASE_LIMIT) as sandbox:
        for sleeper in (7097, 7098, 7099):
            expect(not await is_alive(sandbox, sleeper), f"sleep {sleeper} is alive")
