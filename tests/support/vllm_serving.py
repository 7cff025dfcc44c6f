"""A vLLM server on CPU for tests: started on a folder, awaited, and ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

START_LIMIT = 600.0
WINDOW = 1024
"""Tokens of a context and its turn together."""


def vllm_environment() -> dict[str, str]:
    """Variables of a process with vLLM on CPU, beside which others work."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "OMP_NUM_THREADS": "1",
        "PYTHONSAFEPATH": "1",  # in the working tree, `datasets` would be a folder of ours
    }


@contextmanager
def serving(python: Path, folder: Path, log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Address and process of a server on `folder`, ended when left."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = vllm_environment() | {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    command = [
        *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(folder), "--served-model-name", "policy", "--dtype", "float32"),
        *("--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(WINDOW)),
        *("--enforce-eager", "--max-num-seqs", "16", "--block-size", "32"),
        *("--kv-cache-memory-bytes", str(256 << 20), "--generation-config", "vllm"),
        *("--logprobs-mode", "processed_logprobs", "--enable-scale-out"),
        *("--weight-transfer-config", '{"backend": "patchgym-file"}'),
        *("--worker-extension-cls", "patchgym.agent.policies.vllm_worker.WorkerExtension"),
        "--disable-uvicorn-access-log",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=log.parent, env=environment, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            _await_health(url, process, log)
            yield url, process
        finally:
            _end(process)


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    started = time.monotonic()
    while time.monotonic() - started < START_LIMIT:
        if process.poll() is not None:
            pytest.fail(f"vLLM ended with {process.returncode}: {log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    pytest.fail(f"vLLM did not start in {START_LIMIT} s: {log.read_text()[-3000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server and the engine's process, which are one session."""
    for sent, limit in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        try:
            os.killpg(process.pid, sent)
            process.wait(limit)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.wait(1)
