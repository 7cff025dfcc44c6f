"""One real browser for all tests of the pages, and a look at what it complains about."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from coin_runs import coin_run, patchgym
from docker_hosts import need
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

PATIENCE = 60_000
"""Milliseconds that tests grant a page: a busy machine is no failure."""
expect.set_options(timeout=PATIENCE)


@dataclass(slots=True)
class Complaints:
    """What went wrong in pages that a test opened."""

    console: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Requests that got no answer."""
    foreign: list[str] = field(default_factory=list)
    """Requests to other hosts."""


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address at which a running Chromium takes orders: Debian's, one for all tests."""
    program = need("chromium", "chromium")
    profile = tmp_path_factory.mktemp("chromium")
    # Whoever is root can't have Chromium's own sandbox, and what is opened here is ours.
    words = ["--no-sandbox"] if os.geteuid() == 0 else []
    words += ["--headless=new", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0"]
    with (profile / "said").open("w") as said:
        running = subprocess.Popen(
            [program, *words, f"--user-data-dir={profile}", "about:blank"],
            stdout=said, stderr=said,
        )  # fmt: skip
    try:
        port = profile / "DevToolsActivePort"
        while not (port.is_file() and port.read_text().count("\n")):
            assert running.poll() is None, (profile / "said").read_text()
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port.read_text().splitlines()[0]}"
    finally:
        running.terminate()
        running.wait(30)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """That Chromium. As long as this is open an event loop runs in the tests' thread, so that it
    is closed after each module: other tests have loops of their own."""
    with sync_playwright() as playwright:
        connected = playwright.chromium.connect_over_cdp(chromium, timeout=PATIENCE)
        yield connected
        connected.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages at 1280 by 900, each in a fresh profile; afterwards nothing may have gone wrong
    in any of them."""
    complaints = Complaints()
    contexts = []

    def opener(scheme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": 1280, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: _hear(complaints, message.type, message.text))
        page.on("pageerror", lambda error: complaints.console.append(str(error)))
        page.on("request", lambda request: _see(complaints, request.url))
        page.on("requestfailed", lambda request: _miss(complaints, request))
        return page

    yield opener
    heard = Complaints(complaints.console[:], complaints.failed[:], complaints.foreign[:])
    for context in contexts:
        context.close()
    assert heard == Complaints()


def _hear(complaints: Complaints, kind: str, words: str) -> None:
    if kind in ("error", "warning"):
        complaints.console.append(f"{kind}: {words}")


def _miss(complaints: Complaints, request: Request) -> None:
    if request.failure != "net::ERR_ABORTED":  # the page was left meanwhile
        complaints.failed.append(request.url)


def _see(complaints: Complaints, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("data", "blob", "about") and parts.hostname != "127.0.0.1":
        complaints.foreign.append(url)


@pytest.fixture(scope="session")
def coins(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a real run of three steps that finished; `runs/coins` below it is the run."""
    folder = tmp_path_factory.mktemp("coins")
    coin_run(root, folder, {"run": {"steps": 3}})
    done = patchgym(folder, dict(os.environ), "train", "--config", "run.toml")
    assert done.returncode == 0, done.stderr
    return folder
