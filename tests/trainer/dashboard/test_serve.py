"""`patchgym runs serve` as a process of its own."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from coin_runs import PATCHGYM
from coin_runs import patchgym as run_patchgym
from dashboard_runs import finished

TOKEN = "a-token-of-many-letters"


def test_it_says_where_it_is_serves_and_ends_by_ctrl_c(
    tmp_path: Path, clean_environment: Mapping[str, str]
) -> None:
    finished(tmp_path / "runs", "done")
    words = [PATCHGYM, "runs", "--folder", "runs", "serve", "--port", "0", "--token", TOKEN]
    server = subprocess.Popen(
        words, cwd=tmp_path, env=dict(clean_environment), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)  \(Ctrl-C ends it\)", line)
        assert found is not None, line
        assert found[2] == TOKEN
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]))
        connection.request("GET", "/runs/done", headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        assert answer.status == 200
        assert b"done" in answer.read()
        server.send_signal(signal.SIGINT)  # while a connection is open
        said = server.communicate(timeout=60)
        assert server.returncode == 130
        assert "Traceback" not in "".join(said)
        connection.close()
    finally:
        server.kill()
        server.communicate()


def test_without_a_token_others_are_not_served(
    tmp_path: Path, clean_environment: Mapping[str, str]
) -> None:
    done = run_patchgym(tmp_path, clean_environment, "runs", "serve", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "give a token" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_port_that_is_taken_is_named(
    tmp_path: Path, clean_environment: Mapping[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_patchgym(tmp_path, clean_environment, "runs", "serve", "--port", port)
    assert done.returncode == 2
    assert f"--port {port}: can't be listened on" in done.stderr
