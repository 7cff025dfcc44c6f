"""The pool without an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from patchgym.sandbox import (
    BlockingPool,
    CommandResult,
    ImageError,
    LeaseTimeout,
    SandboxSpec,
    SandboxUsageError,
)

WAIT = 120.0


@pytest.mark.docker
def test_a_script_without_an_event_loop(
    spec: SandboxSpec, repository: Callable[..., tuple[Path, str]], tmp_path: Path
) -> None:
    root, commit = repository({"a.txt": "one\n"})
    with BlockingPool(spec, size=1) as pool:
        with pool.lease(timeout=WAIT) as sandbox:
            sandbox.checkout(root, commit)
            patch = b"--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
            assert sandbox.apply_patch(patch).paths == ("a.txt",)
            assert b"+two" in sandbox.diff() and sandbox.read("a.txt") == b"two\n"
            sandbox.write("bin/tool", b"#!/bin/sh\necho tool\n", mode=0o755)
            assert sandbox.run("bin/tool", timeout=20).stdout.head == b"tool\n"
            sandbox.upload(root / "a.txt")
            sandbox.download("bin", tmp_path / "got")
            assert (tmp_path / "got" / "tool").read_bytes().startswith(b"#!")
            before = sandbox.snapshot()
            with pytest.raises(LeaseTimeout, match="1 leased"):
                with pool.lease(timeout=0):
                    pass
        with pytest.raises(SandboxUsageError, match="lease of .* has ended"):
            sandbox.run("true", timeout=5)
        with pool.lease(timeout=WAIT, snapshot=before) as sandbox:
            assert sandbox.read("a.txt") == b"one\n" and b"tool" in sandbox.diff()
        assert pool.statistics().leases == 2


@pytest.mark.docker
def test_leases_in_threads(spec: SandboxSpec) -> None:
    done: list[CommandResult] = []

    def one(pool: BlockingPool) -> None:
        with pool.lease(timeout=WAIT) as sandbox:
            done.append(sandbox.run("echo $((6 * 7))", timeout=20))

    with BlockingPool(spec, size=2) as pool:
        threads = [threading.Thread(target=one, args=(pool,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [each.stdout.head for each in done] == [b"42\n"] * 4


@pytest.mark.docker
def test_errors_come_through() -> None:
    with pytest.raises(ImageError, match="no local image patchgym/none:none"):
        with BlockingPool(SandboxSpec(image="patchgym/none:none"), size=1):
            pass
