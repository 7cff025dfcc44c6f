"""Networks: none, and an allow-list through the owner's proxy."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest

from patchgym.sandbox import Pool, Sandbox, SandboxSpec, SandboxUsageError
from patchgym.sandbox.proxy import allows, parse

WAIT = 120.0
FETCH = """
import sys, urllib.request, urllib.error
for url in sys.argv[1:]:
    try:
        print(len(urllib.request.urlopen(url, timeout=20).read()))
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip())
    except OSError as error:
        print(error)
"""


class Handler(BaseHTTPRequestHandler):
    """Answers with as many bytes as the path says, and keeps what was asked."""

    def do_GET(self) -> None:
        """GET /SIZE."""
        size = int(self.path.strip("/") or 0)
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(b"x" * size)

    def log_message(self, format: str, *words: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a web server of this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
async def listed(spec: SandboxSpec, server: int) -> AsyncIterator[Sandbox]:
    """A sandbox that may reach that server by one of its names."""
    async with Pool(replace(spec, network=(f"localhost:{server}",)), size=1) as pool:
        async with pool.lease(timeout=WAIT) as sandbox:
            yield sandbox


async def fetch(sandbox: Sandbox, *urls: str) -> list[str]:
    """What a sandbox gets of each URL: a size, or why not."""
    done = await sandbox.run(["python3", "-c", FETCH, *urls], timeout=60)
    assert done.ok, done
    return done.stdout.text().splitlines()


@pytest.mark.docker
async def test_the_listed_is_reached_and_nothing_else(listed: Sandbox, server: int) -> None:
    big = 3_000_000  # several windows
    got = await fetch(
        listed,
        f"http://localhost:{server}/10",
        f"http://localhost:{server}/{big}",
        f"http://127.0.0.1:{server}/10",
        "http://example.org/",
        "https://example.org/",
        f"http://localhost:{server + 1}/",
    )
    assert got[:2] == ["10", str(big)]
    assert got[2] == f"403 patchgym: 127.0.0.1:{server} is not among what this sandbox may reach"
    assert "example.org:80 is not among" in got[3] and "403" in got[4]
    assert f"localhost:{server + 1} is not among" in got[5]
    facts = await listed.run("tail -n +3 /proc/net/dev | cut -d: -f1", timeout=20)
    assert facts.stdout.text().split() == ["lo"]  # no way around the proxy


@pytest.mark.docker
async def test_connections_side_by_side_and_after_each_other(listed: Sandbox, server: int) -> None:
    got: list[str] = []

    async def one(size: int) -> None:
        got.extend(await fetch(listed, f"http://localhost:{server}/{size}"))

    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            for size in range(1, 9):
                tasks.start_soon(one, size * 100_000)
    assert sorted(map(int, got)) == sorted([n * 100_000 for n in range(1, 9)] * 2)
    # one that is killed in the middle harms nobody
    loop = f"while True: urllib.request.urlopen('http://localhost:{server}/9000000').read(1)"
    await listed.run(["python3", "-c", f"import urllib.request\n{loop}"], timeout=1)
    assert await fetch(listed, f"http://localhost:{server}/7") == ["7"]


@pytest.mark.docker
async def test_an_allow_list_needs_the_static_supervisor(spec: SandboxSpec) -> None:
    with pytest.raises(SandboxUsageError, match="allow-list needs the static supervisor"):
        async with Pool(replace(spec, network=("a.org",), supervisor="python"), size=1):
            pass
    with pytest.raises(SandboxUsageError, match="network is none, bridge or a tuple"):
        replace(spec, network="host")  # type: ignore[arg-type]


def test_patterns() -> None:
    assert allows(["a.org"], "A.org.", 443) and allows(["a.org"], "a.org", 80)
    assert not allows(["a.org"], "b.a.org", 443) and not allows(["a.org"], "a.org", 22)
    assert allows(["*.a.org"], "b.a.org", 443) and not allows(["*.a.org"], "xa.org", 443)
    assert not allows(["*.a.org"], "a.org", 443)
    assert allows(["a.org:8080"], "a.org", 8080) and not allows(["a.org:8080"], "a.org", 80)
    assert not allows([], "a.org", 80)


def test_requests() -> None:
    connect = parse(b"CONNECT a.org:443 HTTP/1.1\r\n\r\n")
    assert connect and (connect.host, connect.port, connect.connect) == ("a.org", 443, True)
    get = parse(b"GET http://a.org:81/x?y=1 HTTP/1.1\r\nConnection: keep-alive\r\nA: b\r\n\r\nbody")
    assert get and (get.host, get.port, get.connect) == ("a.org", 81, False)
    assert get.forward == b"GET /x?y=1 HTTP/1.1\r\nA: b\r\nConnection: close\r\n\r\nbody"
    for wrong in (b"GET /x HTTP/1.1\r\n\r\n", b"junk\r\n\r\n", b"GET http://[x HTTP/1.1\r\n\r\n"):
        assert parse(wrong) is None
