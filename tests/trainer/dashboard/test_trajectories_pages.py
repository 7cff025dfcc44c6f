"""The viewer's pages as the server gives them, on runs written by the real ledger and store."""

from __future__ import annotations

import html
import html.parser
import json
import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from viewer_runs import PATCH, Kept, hostile, judged, trajectory, turn, write_run

from patchgym.sandbox import Flake
from patchgym.trainer.dashboard.app import create_app
from patchgym.trainer.trajectory_store import TrajectoryStore

NAME = "g00000-m0"


def opened(root: Path) -> TestClient:
    return TestClient(create_app(root), base_url="http://localhost")


def page(client: TestClient, path: str, status: int = 200) -> str:
    """A page's HTML."""
    answer = client.get(path)
    assert answer.status_code == status, answer.text[:2000]
    return answer.text


def words(page: str) -> str:
    """What a person reads of it."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Of one run with one group of three: solved, the same patch failing, and an infra failure."""
    root = tmp_path_factory.mktemp("runs")
    turns = [
        turn("I look first", "a" * 30_000 + "END", dropped=1234, outcomes={"test_half": "failed"}),
        turn(
            "then I mend it",
            diff=PATCH,
            outcomes={"test_half": "passed"},
            arguments={"old": "return x * 2", "new": "import os\nreturn x / 2", "all": True},
        ),
    ]
    log = "\n".join(f"line {number}" for number in range(5_000))
    first = judged(
        outcomes={"test_half": "passed", "test_rest": "failed"},
        messages={"test_rest": "assert half(9) == 4.5"},
        flaky={"test_half": Flake(runs=5, failures=2)},
        log=log,
    )
    write_run(
        root / "some",
        [
            Kept(trajectory=trajectory(NAME, turns), reward=first),
            Kept(
                trajectory=trajectory("g00000-m1", [turn()]),
                reward=judged(0.0, outcomes={"test_half": "failed", "test_rest": "failed"}),
                member=1,
            ),
            Kept(
                trajectory=trajectory(
                    "g00000-m2", [], stop="sandbox_failed", outcome=b"", error="the engine is gone"
                ),
                reward=judged(None, detail="the engine is gone"),
                member=2,
            ),
        ],
    )
    with opened(root) as found:
        yield found


def test_the_list_has_every_rollout_with_a_link_that_keeps_the_filter(client: TestClient) -> None:
    shown = page(client, "/runs/some/trajectories?sort=-reward&task=repair/*")

    assert f'href="/runs/some/trajectories/{NAME}?task=repair%2F%2A&amp;sort=-reward"' in shown
    assert "g00000-m1" in shown
    assert "sandbox failed" in words(shown)


def test_a_filter_that_finds_nothing_says_so(client: TestClient) -> None:
    assert "No rollout is like that." in words(page(client, "/runs/some/trajectories?q=zzz"))


def test_a_filter_that_makes_no_sense_is_a_page_that_names_it(client: TestClient) -> None:
    shown = words(page(client, "/runs/some/trajectories?reward=high", 422))

    assert "reward=high: write LOW..HIGH" in shown


def test_a_rollout_shows_turns_calls_observations_and_what_was_cut(client: TestClient) -> None:
    shown = words(page(client, f"/runs/some/trajectories/{NAME}"))

    assert "I look first" in shown
    assert "Called edit path half.py" in shown
    assert "then I mend it" in shown
    assert "all true" in shown
    assert "1,234 characters of output were cut before the policy read it" in shown
    assert "14,003 of 30,003 characters not shown All of it as plain text" in shown
    assert "aEND" in shown
    assert "log-probability -0.375 in the mean, -0.50 at least" in shown


def test_a_part_that_was_cut_is_whole_as_plain_text(client: TestClient) -> None:
    answer = client.get(f"/runs/some/trajectories/{NAME}/text?part=observation-1-0")

    assert answer.text == "a" * 30_000 + "END"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_patch_is_coloured_and_has_the_lines_at_fault(client: TestClient) -> None:
    shown = page(client, f"/runs/some/trajectories/{NAME}")

    assert '<tr class="added at-fault" id="diff-0-2">' in shown
    assert "lint: an import inside of a function" in words(shown)
    assert 'href="#diff-0-2"' in shown
    assert client.get(f"/runs/some/trajectories/{NAME}/text?part=patch").content == PATCH


def test_tests_have_their_history(client: TestClient) -> None:
    shown = page(client, f"/runs/some/trajectories/{NAME}")

    assert "failed 2 of 5 runs (12% to 77%)" in words(shown)
    assert "1 came out both ways with this patch" in words(shown)
    assert 'title="turn 1: failed"' in shown
    assert 'title="g00000-m1: failed"' in shown
    assert 'aria-label="In the turns: 1 failed, 1 passed"' in shown
    assert "assert half(9) == 4.5" in html.unescape(shown)


def test_a_reward_has_every_component_with_what_it_rests_on(client: TestClient) -> None:
    shown = words(page(client, f"/runs/some/trajectories/{NAME}"))

    assert "tests version 1 1.000 +1 +1.000 measured fail_to_pass 1" in shown
    assert "lint 0.250 0 – measured not counted rules PLC0415 half.py:2" in shown


def test_a_rollout_says_whether_it_was_trained_on_and_why(client: TestClient) -> None:
    first = words(page(client, f"/runs/some/trajectories/{NAME}"))
    failed = words(page(client, "/runs/some/trajectories/g00000-m2"))

    assert "in the loss trained at step 3 with the advantage +1.000" in first
    assert "not in the loss it stopped by sandbox failed: left out of the loss" in failed


def test_an_infrastructure_failure_is_not_shown_as_the_policys(client: TestClient) -> None:
    shown = words(page(client, "/runs/some/trajectories/g00000-m2"))

    assert "The infrastructure failed, not the policy" in shown
    assert "There is no score" in shown
    assert "the engine is gone" in shown
    assert "It ended before its first turn." in shown


def test_the_commands_of_a_page_do_what_they_say(client: TestClient, tmp_path: Path) -> None:
    shown = page(client, f"/runs/some/trajectories/{NAME}")
    commands = [html.unescape(found) for found in re.findall(r'data-copy="([^"]*)"', shown)]

    show = next(each for each in commands if "runs show" in each)
    import shlex
    import subprocess

    program = Path(sys.executable).with_name("patchgym")
    said = subprocess.run(
        [program, *shlex.split(show)[1:]], capture_output=True, text=True, check=True
    )
    assert "then I mend it" in said.stdout
    assert any(each.startswith("patchgym score --task ") for each in commands)


def test_siblings_are_side_by_side_and_each_patch_is_there_once(client: TestClient) -> None:
    shown = page(client, "/runs/some/groups/g00000")

    assert "trained at step 3" in words(shown)
    assert shown.count('id="patch-A"') == 1
    assert "different patches 2" in words(shown)
    assert "m0 m1" in words(shown)


def test_tokens_have_ids_logprobs_versions_and_say_what_was_sampled(client: TestClient) -> None:
    found = client.get(f"/runs/some/trajectories/{NAME}/tokens?turn=1").json()

    assert (found["start"], found["context"], found["total"]) == (0, 3, 5)
    rows = [(token, logprob, version) for token, _, logprob, version in found["tokens"]]
    assert rows == [
        (1, None, None),
        (2, None, None),
        (3, None, None),
        (50, -0.25, 4),
        (51, -0.5, 4),
    ]


def test_tokens_come_a_window_at_a_time(client: TestClient) -> None:
    address = f"/runs/some/trajectories/{NAME}/tokens?turn=1"

    found = client.get(f"{address}&start=2&most=2").json()

    assert [row[0] for row in found["tokens"]] == [3, 50]
    assert client.get(f"{address}&start=x").status_code == 422
    assert client.get(f"{address}&start=99").json()["tokens"] == []


def test_ids_of_a_real_run_spell_what_the_model_wrote(coins: Path) -> None:
    with opened(coins / "runs") as client:
        listed = page(client, "/runs/coins/trajectories?purpose=train")
        address = html.unescape(re.findall(r'class="opens" href="([^"]*)"', listed)[0])
        base = address.partition("?")[0]
        found = client.get(f"{base}/tokens?turn=1").json()
        wrote = client.get(f"{base}/text?part=turn-1").text
        read = client.get(f"{base}/text?part=context-1").text

    assert found["note"] == ""
    rows = found["tokens"]
    spelled = [text for _, text, logprob, _ in rows if logprob is not None]
    tokens = [token for token, _, logprob, _ in rows if logprob is not None]
    store = TrajectoryStore(coins / "runs" / "coins" / "trajectories")
    stored = store.read(base.rpartition("/")[2]).trajectory.turns[0]
    assert tuple(tokens) == stored.completion.tokens
    assert wrote == stored.text
    assert len(rows) == len(stored.context) + len(tokens)
    assert "".join(text for _, text, logprob, _ in rows if logprob is None) == read
    assert all(spelled)


@pytest.mark.parametrize(
    ("path", "words_of_it"),
    [
        ("trajectories/nope", "there is no finished rollout 'nope' in some"),
        ("groups/nope", "there is no group 'nope' in some"),
        (f"trajectories/{NAME}/tokens?turn=3", "has turns 1 to 2"),
        (f"trajectories/{NAME}/tokens?turn=0", "has turns 1 to 2"),
        (f"trajectories/{NAME}/tokens", "has turns 1 to 2"),
        (f"trajectories/{NAME}/text?part=nope", "has no part 'nope'"),
        (f"trajectories/{NAME}/text?part=context-9", ""),
        ("trajectories/..%2f..%2frun.toml", "there is no finished rollout"),
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(
    client: TestClient, path: str, words_of_it: str
) -> None:
    assert words_of_it in words(page(client, f"/runs/some/{path}", 404))


def test_rollouts_of_an_evaluation_may_have_slashes_in_their_names(tmp_path: Path) -> None:
    name = "repair/half-0a-s0"
    kept = Kept(
        trajectory=trajectory(name, [turn()]),
        reward=judged(),
        group="repair/half-0a",
        purpose="policy",
    )
    write_run(tmp_path / "some", [kept])

    with opened(tmp_path) as client:
        listed = page(client, "/runs/some/trajectories")
        (address,) = re.findall(r'class="opens" href="([^"]*)"', listed)
        shown = page(client, address)
        (tokens,) = re.findall(r'data-tokens="([^"]*)"', shown)
        assert "a sample of an evaluation" in words(shown)
        assert len(client.get(f"{tokens}?turn=1").json()["tokens"]) == 5
        (group,) = re.findall(r'id="to-group" class="mono"|href="([^"]*)" id="to-group"', shown)
        assert name in page(client, group)


def test_a_missing_file_leaves_what_the_ledger_keeps(tmp_path: Path) -> None:
    kept = Kept(trajectory=trajectory(NAME, [turn(), turn()]), reward=judged(0.5), file=False)
    write_run(tmp_path / "some", [kept])

    with opened(tmp_path) as client:
        shown = words(page(client, f"/runs/some/trajectories/{NAME}"))
        assert "The trajectory's file can't be read." in shown
        assert f"no trajectory {NAME} in" in shown
        assert "Turns, as the ledger has them" in shown
        assert "Reward, as the ledger has it" in shown
        tokens = client.get(f"/runs/some/trajectories/{NAME}/tokens?turn=1")
        assert tokens.status_code == 404
        assert "can't be read" in words(page(client, "/runs/some/groups/g00000"))


def test_a_damaged_file_is_named_with_what_is_wrong_in_it(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "some", [Kept(trajectory=trajectory(NAME, [turn()]), reward=judged())]
    )
    file = TrajectoryStore(folder / "trajectories").path(NAME)
    data = bytearray(file.read_bytes())
    data[-3] ^= 0xFF
    file.write_bytes(data)

    with opened(tmp_path) as client:
        shown = words(page(client, f"/runs/some/trajectories/{NAME}"))

    assert "damaged trajectory: the checksum of its logprobs is wrong" in shown
    assert "Turns, as the ledger has them" in shown


def test_a_rollout_that_was_never_scored_says_so(tmp_path: Path) -> None:
    kept = Kept(trajectory=trajectory(NAME, [turn()]), reward=judged(None), scored=False)
    write_run(tmp_path / "some", [kept])

    with opened(tmp_path) as client:
        shown = words(page(client, f"/runs/some/trajectories/{NAME}"))

    assert "It was never scored." in shown


def test_a_run_of_the_first_version_is_shown_with_what_it_kept(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "some", [Kept(trajectory=trajectory(NAME, [turn()]), reward=judged())]
    )
    _back_to_version_1(folder / "run.sqlite")

    with opened(tmp_path) as client:
        listed = words(page(client, "/runs/some/trajectories?sort=-tokens"))
        shown = words(page(client, f"/runs/some/trajectories/{NAME}"))
        none = words(page(client, "/runs/some/trajectories?tampering=yes"))

    assert "This run was written by an older version" in listed
    assert NAME in listed
    assert "mend it" in shown
    assert "trained at step 3" in shown
    assert "No rollout is like that." in none


def _back_to_version_1(path: Path) -> None:
    """What version 2 added is taken away."""
    from patchgym.trainer.ledger.schema import ADDED

    connection = sqlite3.connect(path)
    for table in ("turns", "scores", "tasks"):
        connection.execute(f"DROP TABLE {table}")
    for table, added in ADDED.items():
        for name, _ in added:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
    connection.execute("PRAGMA user_version = 0")
    connection.commit()
    connection.close()


def test_a_run_whose_settings_can_not_be_read_is_shown_all_the_same(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "some", [Kept(trajectory=trajectory(NAME, [turn()]), reward=judged())]
    )
    (folder / "run.toml").write_text("[of_another_version]\nkey = 1\n")

    with opened(tmp_path) as client:
        shown = words(page(client, f"/runs/some/trajectories/{NAME}"))
        tokens = client.get(f"/runs/some/trajectories/{NAME}/tokens?turn=1").json()

    assert "mend it" in shown
    assert "settings can't be read" in tokens["note"]


def test_nothing_of_a_hostile_rollout_becomes_markup(tmp_path: Path) -> None:
    write_run(tmp_path / "some", [hostile()])

    with opened(tmp_path) as client:
        pages = {
            path: page(client, f"/runs/some/{path}")
            for path in ("trajectories", f"trajectories/{NAME}", "groups/g00000")
        }

    for path, shown in pages.items():
        seen = Elements()
        seen.feed(shown)
        assert not {"img", "iframe", "object", "base", "style"} & seen.tags, path
        assert not [name for name, _ in seen.attributes if name.startswith("on")], path
        scripts = [value for name, value in seen.attributes if name == "src"]
        assert all(value.startswith("/static/") for value in scripts), path
        links = [value for name, value in seen.attributes if name in ("href", "action")]
        assert not [value for value in links if not value.startswith(("/", "#"))], path
        assert not set("\u202e\u2066\u200b\u2028\x1b\x07\x00") & set(shown), path
    assert "{{ 7 * 7 }}" in pages[f"trajectories/{NAME}"]


class Elements(html.parser.HTMLParser):
    """The elements of a page, as a browser would take it apart."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def test_a_huge_observation_makes_a_small_page(tmp_path: Path) -> None:
    huge = "x" * 50_000_000
    kept = Kept(trajectory=trajectory(NAME, [turn(observation=huge)]), reward=judged())
    write_run(tmp_path / "some", [kept])

    with opened(tmp_path) as client:
        shown = page(client, f"/runs/some/trajectories/{NAME}")
        whole = client.get(f"/runs/some/trajectories/{NAME}/text?part=observation-1-0")

    assert len(shown) < 100_000
    assert "49,984,000 of 50,000,000 characters not shown" in shown
    assert len(whole.content) == 50_000_000
    assert whole.headers["content-disposition"].startswith("attachment")


def test_the_record_of_a_rollout_is_what_the_terminal_prints(client: TestClient) -> None:
    answer = client.get(f"/runs/some/trajectories/{NAME}/text?part=record")

    assert json.loads(answer.text)["trajectory"]["rollout_id"] == NAME
