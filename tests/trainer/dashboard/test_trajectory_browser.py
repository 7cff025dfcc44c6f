"""The viewer in a real Chromium: hostile text does nothing, keys and links lead where they say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Literal

import pytest
import uvicorn
from playwright.sync_api import Browser, ConsoleMessage, Page, expect
from viewer_runs import PATCH, Kept, hostile, judged, trajectory, turn, write_run

from patchgym.trainer.dashboard.app import create_app

pytestmark = pytest.mark.slow

HUGE = "wall of text \u202e<b>x</b> " * 2_300_000  # some 50 MB


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server with a run that is plain, one that is hostile and one that is huge."""
    root = tmp_path_factory.mktemp("runs")
    turns = [
        turn("look first", "nothing here", outcomes={"test_half": "failed"}),
        turn("mend it", diff=PATCH, tokens=range(60, 100), outcomes={"test_half": "passed"}),
    ]
    members = [
        Kept(
            trajectory=trajectory(f"g00000-m{member}", turns),
            reward=judged(float(member % 2)),
            member=member,
        )
        for member in range(4)
    ]
    write_run(root / "plain", members)
    write_run(root / "hostile", [hostile()])
    huge = trajectory("g00000-m0", [turn(observation=HUGE)])
    write_run(root / "huge", [Kept(trajectory=huge, reward=judged())])
    server = uvicorn.Server(
        uvicorn.Config(create_app(root), host="127.0.0.1", port=0, log_level="warning")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def tab(browser: Browser, address: str) -> Iterator[Page]:
    """A page of 1280 px that fails the test for errors, dialogs and requests that leave us."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, base_url=address)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("console", lambda line: said.append(line.text) if _counts(line) else None)
    page.on("request", lambda asked: said.append(asked.url) if address not in asked.url else None)
    # A dialog that somebody listens for stays open: the test can't go on, and fails for that too.
    page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
    page.on("popup", lambda popup: said.append("popup"))
    yield page
    context.close()
    assert said == []


def _counts(line: ConsoleMessage) -> bool:
    # Where there is only text a browser asks for an icon by itself.
    return not line.location["url"].endswith("/favicon.ico")


def fits(page: Page) -> bool:
    """Nothing makes the page wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_hostile_text_is_shown_and_does_nothing(tab: Page) -> None:
    for path in ("trajectories", "trajectories/g00000-m0", "groups/g00000"):
        tab.goto(f"/runs/hostile/{path}")
        assert "patchgym" in tab.title()
        assert "owned" not in tab.title()
        made = "main :is(script, img, iframe, object, embed, style, base, meta, form[action])"
        assert tab.locator(made).count() == 0
        assert tab.locator('main a[href^="javascript" i]').count() == 0
        assert fits(tab)
    tab.goto("/runs/hostile/trajectories/g00000-m0")
    wrote = tab.get_by_role("region", name="What the model wrote")
    expect(wrote).to_contain_text("<script>document.title = 'owned'</script>")
    expect(wrote).to_contain_text("^[]8;;https://evil.example/^Glink^[]8;;^G")
    expect(wrote).to_contain_text("user⟨U+202E⟩resu⟨U+2066⟩ zero⟨U+200B⟩width ^@^G^H ⟨U+D800⟩")
    expect(wrote.locator("a, b, img, svg")).to_have_count(0)
    # Every handler that the text names would have run by now, or runs on these.
    for each in tab.locator("pre.foreign, .foreign-line").all():
        each.dispatch_event("focus")
    tab.mouse.move(640, 400)
    assert "owned" not in tab.title()


def test_accents_and_overrides_stay_in_their_box(tab: Page) -> None:
    tab.goto("/runs/hostile/trajectories/g00000-m0")
    boxes = tab.evaluate(
        """[...document.querySelectorAll("pre.foreign")].filter((each) => each.offsetParent).map(
        (each) => [getComputedStyle(each).unicodeBidi, getComputedStyle(each).direction,
                   getComputedStyle(each).contain, each.scrollWidth <= each.clientWidth + 1])"""
    )

    assert boxes
    assert {tuple(box) for box in boxes} == {("isolate", "ltr", "content", True)}


def test_plain_text_of_a_part_stays_text(tab: Page) -> None:
    answer = tab.goto("/runs/hostile/trajectories/g00000-m0/text?part=turn-1")

    assert answer is not None
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert tab.evaluate("document.contentType") == "text/plain"
    assert tab.evaluate("document.querySelectorAll('script, img').length") == 0


def test_hostile_tokens_and_contexts_are_text_too(tab: Page) -> None:
    tab.route(
        "**/tokens?*",
        lambda route: route.fulfill(
            json={
                "start": 0,
                "context": 1,
                "total": 2,
                "tokens": [
                    [1, "<img src=x onerror=alert(1)>", None, None],
                    [2, "<script>alert(1)</script>", -0.5, 0],
                ],
                "note": "<b>bold</b>",
            }
        ),
    )
    tab.goto("/runs/hostile/trajectories/g00000-m0")
    tab.keyboard.press("t")

    expect(tab.locator(".tok.sampled").first).to_have_text("<script>alert(1)</script>")
    tab.locator(".tok.sampled").first.hover()
    expect(tab.locator("#token-facts")).to_contain_text("<script>alert(1)</script>")
    expect(tab.locator(".as-tokens :is(img, script, b)")).to_have_count(0)


def test_a_huge_observation_neither_fills_nor_freezes_the_page(tab: Page) -> None:
    tab.goto("/runs/huge/trajectories/g00000-m0")

    expect(tab.get_by_text("characters not shown")).to_be_visible()
    assert tab.evaluate("document.documentElement.outerHTML.length") < 200_000
    assert fits(tab)
    tab.keyboard.press("?")
    expect(tab.get_by_role("dialog", name="Keys")).to_be_visible()


def test_keys_choose_rows_open_them_and_walk_through_the_list(tab: Page) -> None:
    tab.goto("/runs/plain/trajectories?sort=id")
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    expect(tab.locator("tr.chosen")).to_contain_text("g00000-m1")
    tab.keyboard.press("Enter")
    expect(tab).to_have_url(f"{tab_root(tab)}/trajectories/g00000-m1?sort=id")
    tab.keyboard.press("j")
    expect(tab).to_have_url(f"{tab_root(tab)}/trajectories/g00000-m2?sort=id")
    tab.keyboard.press("ArrowLeft")
    expect(tab).to_have_url(f"{tab_root(tab)}/trajectories/g00000-m1?sort=id")
    tab.keyboard.press("g")
    expect(tab).to_have_url(f"{tab_root(tab)}/groups/g00000")
    expect(tab.get_by_role("table").get_by_role("link", name="g00000-m3")).to_be_visible()
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    expect(tab).to_have_url(f"{tab_root(tab)}/trajectories/g00000-m0")
    tab.goto(f"{tab_root(tab)}/trajectories/g00000-m1?sort=id")
    tab.keyboard.press("u")
    expect(tab).to_have_url(f"{tab_root(tab)}/trajectories?sort=id")
    tab.keyboard.press("/")
    expect(tab.get_by_role("searchbox", name="Id")).to_be_focused()
    tab.keyboard.type("m3j")
    expect(tab.locator("tr.chosen")).to_have_count(0)


def tab_root(page: Page) -> str:
    """The address of the run."""
    return f"{page.url.split('/runs/')[0]}/runs/{page.url.split('/runs/')[1].split('/')[0]}"


def test_a_turn_has_a_link_and_keys_go_from_turn_to_turn(tab: Page) -> None:
    tab.goto("/runs/plain/trajectories/g00000-m1#turn-2")
    expect(tab.locator("#turn-2")).to_be_in_viewport()
    tab.keyboard.press("p")
    expect(tab).to_have_url(f"{tab_root(tab)}/trajectories/g00000-m1#turn-1")
    tab.keyboard.press("n")
    expect(tab.locator("#turn-2")).to_be_focused()
    tab.keyboard.press("e")
    expect(tab).to_have_url(f"{tab_root(tab)}/trajectories/g00000-m1#tests")


def test_a_link_to_a_token_shows_it_with_its_facts(tab: Page) -> None:
    tab.goto("/runs/plain/trajectories/g00000-m1#turn-2-token-5")

    token = tab.locator("#turn-2-token-5")
    expect(token).to_be_focused()
    expect(token).to_be_in_viewport()
    facts = tab.get_by_role("status")
    expect(facts).to_contain_text("id 62")
    expect(facts).to_contain_text("log-probability -0.7500")
    expect(facts).to_contain_text("probability 47.2%")
    expect(facts).to_contain_text("policy version 4")
    expect(facts).to_contain_text("in the loss")
    tab.keyboard.press("ArrowRight")
    expect(tab.locator("#turn-2-token-6")).to_be_focused()
    expect(facts).to_contain_text("id 63")
    tab.keyboard.press("Home")
    expect(facts).to_contain_text("read, not in the loss")
    tab.keyboard.press("t")
    expect(token).to_be_hidden()
    expect(tab.get_by_role("button", name="Text")).to_have_attribute("aria-pressed", "true")


def test_tokens_are_shaded_by_probability_and_mask(tab: Page) -> None:
    tab.goto("/runs/plain/trajectories/g00000-m1#turn-2-token-3")
    expect(tab.locator("#turn-2-token-3")).to_be_focused()

    classes = tab.evaluate(
        "[2, 3, 4, 5, 9, 15, 30].map((at) => "
        "document.getElementById(`turn-2-token-${at}`).className.replace(' at', ''))"
    )

    # The log-probability of place 3 is -0.25, and 0.25 less at each place that follows.
    assert classes == ["tok read", *(f"tok sampled p{n}" for n in (1, 1, 2, 3, 4, 5))]


def test_a_command_is_copied(tab: Page) -> None:
    tab.goto("/runs/plain/trajectories/g00000-m1")
    tab.get_by_role("button", name="Copy").first.click()

    expect(tab.get_by_role("button", name="Copied")).to_be_visible()
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert copied.endswith("/plain --trajectory g00000-m1")


def test_filters_sorting_and_rows_have_names_for_everybody(tab: Page) -> None:
    tab.goto("/runs/plain/trajectories")
    form = tab.get_by_role("search", name="Filter trajectories")
    form.get_by_label("Verdict").select_option("resolved")
    form.get_by_role("button", name="Filter").click()
    expect(tab.get_by_role("row")).to_have_count(3)
    tab.get_by_role("columnheader", name="Reward").get_by_role("link").click()
    header = tab.get_by_role("columnheader", name="Reward")
    expect(header).to_have_attribute("aria-sort", "descending")
    header.get_by_role("link").click()
    expect(header).to_have_attribute("aria-sort", "ascending")
    expect(tab.get_by_role("row")).to_have_count(3)
    nameless = tab.evaluate(
        """[...document.querySelectorAll("main :is(a, button, input, select)")].filter(
        (each) => !(each.textContent.trim() || each.getAttribute("aria-label")
                    || each.labels?.length || each.type === "hidden")).length"""
    )
    assert nameless == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_themes(
    browser: Browser, address: str, scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    faint: dict[str, list[str]] = {}
    for path in ("plain/trajectories", "plain/groups/g00000", "hostile/trajectories/g00000-m0"):
        page.goto(f"{address}/runs/{path}")
        page.keyboard.press("j")
        faint[path] = page.evaluate(CONTRASTS)
    page.goto(f"{address}/runs/plain/trajectories/g00000-m1#turn-2-token-20")
    expect(page.locator("#turn-2-token-20")).to_be_focused()
    faint["tokens"] = page.evaluate(CONTRASTS)
    context.close()

    assert faint == dict.fromkeys(faint, [])


CONTRASTS = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found[3] > 250) return found;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("main *")) {
    const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
    if (!own || !node.checkVisibility() || node.closest(".off, .hidden-label")) continue;
    const [one, other] = [light(rgb(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const text = node.textContent.trim().slice(0, 30);
    if (ratio < 4.5) found.push(`${node.className}: ${text}: ${ratio.toFixed(2)}`);
  }
  return [...new Set(found)];
})()
"""
"""Texts whose contrast with the ground behind them is below what WCAG's level AA asks for."""
