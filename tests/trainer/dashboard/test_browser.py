"""The pages in a real browser, on a real run, while another one is being made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from coin_runs import PATCHGYM
from dashboard_runs import finished, serving
from playwright.sync_api import Page, expect

from patchgym.trainer.dashboard.app import create_app

Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def address(coins: Path) -> Iterator[str]:
    """A server over the runs of `coins`."""
    with serving(create_app(coins / "runs")) as address:
        yield address


_NAMELESS = """() => [...document.querySelectorAll('a, button, input, select, svg[role=img]')]
    .filter((e) => e.type !== 'hidden')
    .filter((e) => !(e.getAttribute('aria-label') || (e.labels && e.labels.length) ||
                     e.textContent.trim()))
    .map((e) => e.outerHTML)"""


def test_every_page_fits_has_names_and_complains_of_nothing(
    address: str, open_page: Opener
) -> None:
    page = open_page()
    of_the_run = [f"/runs/coins/{rest}" for rest in ("steps", "tasks", "events", "settings")]
    for path in ("/runs", "/compare", "/sandboxes", "/runs/coins", *of_the_run):
        page.goto(f"{address}{path}")
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        assert page.evaluate(_NAMELESS) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280, path


def test_the_plots_are_drawn_and_say_what_they_are(address: str, open_page: Opener) -> None:
    page = open_page()
    page.goto(f"{address}/runs/coins")
    plot = page.get_by_role("img", name="Reward and pass rate, by step: 3 steps")
    expect(plot.locator("path.js-line")).not_to_have_count(0)
    expect(page.get_by_role("img", name=re.compile("Learner: training"))).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_the_theme_is_switched_kept_and_follows_the_system(address: str, open_page: Opener) -> None:
    page = open_page("dark")
    page.goto(f"{address}/runs")

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    dark, button = background(), page.get_by_role("button", name="Theme")
    expect(button).to_have_text("Theme: system")
    button.click()
    expect(button).to_have_text("Theme: light")
    light = background()
    assert light != dark
    page.reload()
    assert background() == light
    button.click()
    expect(button).to_have_text("Theme: dark")
    assert background() == dark
    button.click()
    page.emulate_media(color_scheme="light")
    assert background() == light


def test_the_keyboard_reaches_the_content_and_the_pages(address: str, open_page: Opener) -> None:
    page = open_page()
    page.goto(f"{address}/runs")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.get_by_role("checkbox", name="Compare coins").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{address}/runs/coins")


def test_tables_are_sorted_by_their_headings(address: str, open_page: Opener) -> None:
    page = open_page()
    page.goto(f"{address}/runs/coins/steps")
    page.get_by_role("link", name="step", exact=True).click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("step")
    expect(page.locator("tbody td").first).to_have_text("1")


def test_ticked_runs_are_compared(tmp_path: Path, open_page: Opener) -> None:
    finished(tmp_path, "one", seed=1)
    finished(tmp_path, "two", seed=2)
    with serving(create_app(tmp_path)) as address:
        page = open_page()
        page.goto(f"{address}/runs")
        for name in ("one", "two"):
            page.get_by_role("checkbox", name=f"Compare {name}").check()
        page.get_by_role("button", name="Compare the ticked").click()
        expect(page.get_by_role("img", name="Reward, by step: 2 runs")).to_be_visible()
        expect(page.get_by_role("row", name="run.seed")).to_contain_text("2")


def test_a_run_is_watched_while_it_is_made_and_captured_by_a_button(
    coins: Path, tmp_path: Path, open_page: Opener
) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    for name in ("model", "coins.py", "run.toml"):
        (folder / name).symlink_to(coins / name)
    words = ["train", "--config", "run.toml", "--run.name", "made", "--run.steps", "500"]
    with (folder / "said").open("w") as said:
        training = subprocess.Popen(
            [PATCHGYM, *words], cwd=folder, env=dict(os.environ), stdout=said, stderr=said
        )
    try:
        with serving(create_app(folder / "runs")) as address:
            page = open_page()
            page.goto(f"{address}/runs")
            link = page.get_by_role("link", name="made", exact=True)
            while not link.count():
                assert training.poll() is None, (folder / "said").read_text()
                page.reload()
            link.click()
            expect(page.get_by_role("status").or_(page.locator("#part-state"))).to_contain_text(
                "running"
            )
            step = page.locator(".stat dd").first
            expect(step).to_have_text(re.compile(r"^[1-9]\d* / 500$"))
            before = step.text_content()
            expect(step).not_to_have_text(str(before))
            page.reload()
            page.get_by_role("spinbutton", name="Seconds").fill("1")
            page.get_by_role("button", name="Capture now").click()
            captures = page.locator("#captures")
            expect(captures).to_contain_text(re.compile("Capturing|it was asked for"))
            expect(captures).to_contain_text("it was asked for")
            assert list((folder / "runs" / "made" / "profile").glob("*/capture.json"))
            training.terminate()
            training.wait(60)
            expect(page.locator("#part-state")).to_have_text("stopped")
    finally:
        training.kill()
        training.wait()
        shutil.rmtree(folder / "runs", ignore_errors=True)
