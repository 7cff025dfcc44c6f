"""Rollouts found, filtered, sorted and paged, on a ledger that the real writer wrote."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from viewer_runs import Kept, judged, trajectory, turn, write_run

from patchgym.agent import StopReason
from patchgym.trainer.dashboard.trajectories import listing
from patchgym.trainer.dashboard.trajectories.filters import SORTS, FilterError, Filters
from patchgym.trainer.ledger import LedgerReader

STOPS: tuple[StopReason, ...] = ("submitted", "solved", "turn_limit", "sandbox_failed")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerReader]:
    """Of a run with 132 rollouts: 33 groups of 4, of 5 tasks, many of one value."""
    rng = random.Random(0)
    rollouts = []
    for group in range(33):
        for member in range(4):
            total = rng.choice([None, 0.0, 0.0, 0.5, 1.0])
            rollouts.append(
                Kept(
                    trajectory=trajectory(
                        f"g{group:05d}-m{member}",
                        [turn()] * rng.randint(1, 3),
                        task=f"task_{group % 5}",
                        stop=STOPS[rng.randrange(4)],
                    ),
                    reward=judged(total),
                    group=f"g{group:05d}",
                    member=member,
                    purpose="train" if group < 30 else "before",
                    file=False,
                )
            )
    folder = write_run(tmp_path_factory.mktemp("list") / "many", rollouts)
    with LedgerReader(folder / "run.sqlite") as found:
        yield found


def everything(reader: LedgerReader, filters: Filters, most: int = 10) -> list[str]:
    """Ids of all pages, from the first on."""
    names: list[str] = []
    after = ""
    while True:
        page = listing.page(reader, filters, after=after, most=most)
        names += [row["id"] for row in page.rows]
        if not page.after:
            return names
        after = page.after


@pytest.mark.parametrize("sort", [sign + name for name in SORTS for sign in ("", "-")])
def test_all_pages_together_have_every_rollout_once_and_in_order(
    reader: LedgerReader, sort: str
) -> None:
    filters = Filters(sort=sort)

    names = everything(reader, filters)

    order = "DESC" if filters.descending else "ASC"
    want = reader.rows(
        f"SELECT r.id FROM rollouts r ORDER BY {SORTS[filters.column]} {order}, r.id {order}"
    )
    assert names == [row["id"] for row in want]
    assert len(names) == 132


@pytest.mark.parametrize("sort", ["-finished", "reward", "-task"])
def test_going_back_shows_the_same_pages(reader: LedgerReader, sort: str) -> None:
    filters = Filters(sort=sort)
    forth = [listing.page(reader, filters, most=10)]
    while forth[-1].after:
        forth.append(listing.page(reader, filters, after=forth[-1].after, most=10))

    back = [forth[-1]]
    while back[-1].before:
        back.append(listing.page(reader, filters, before=back[-1].before, most=10))

    ids = [[row["id"] for row in page.rows] for page in forth]
    # The last page is a short one: going back, all others are full.
    assert [[row["id"] for row in page.rows] for page in reversed(back)] == ids
    assert (forth[0].before, forth[-1].after) == ("", "")


@pytest.mark.parametrize(
    ("query", "condition"),
    [
        ({"task": "task_3"}, "task_id = 'task_3'"),
        ({"task": "*_3"}, "task_id = 'task_3'"),
        ({"task": "task*"}, "1"),
        ({"task": "task%"}, "0"),
        ({"outcome": "turn_limit"}, "stop_reason = 'turn_limit'"),
        ({"verdict": "unresolved"}, "verdict = 'unresolved'"),
        ({"reward": "0.5..1"}, "reward >= 0.5"),
        ({"reward": "..0"}, "reward <= 0"),
        ({"reward": "0.5"}, "reward = 0.5"),
        ({"reward": "none"}, "reward IS NULL"),
        ({"tampering": "yes"}, "tampering > 0"),
        ({"tampering": "no"}, "tampering = 0"),
        ({"purpose": "before"}, "purpose = 'before'"),
        ({"group": "g00007"}, "group_id = 'g00007'"),
        ({"step": "3"}, "purpose = 'train'"),
        ({"step": "4"}, "0"),
        ({"q": "7-m1"}, "id LIKE '%7-m1'"),
        ({"q": "_"}, "0"),
        ({"verdict": "resolved", "task": "task_1"}, "verdict = 'resolved' AND task_id = 'task_1'"),
    ],
)
def test_a_filter_finds_what_it_asks_for_and_counts_it(
    reader: LedgerReader, query: dict[str, str], condition: str
) -> None:
    filters = Filters.of(query)
    want = {row["id"] for row in reader.rows(f"SELECT id FROM rollouts WHERE {condition}")}

    assert set(everything(reader, filters)) == want
    assert listing.counts(reader, filters).rollouts == len(want)
    assert filters.active


def test_totals_are_those_of_the_rollouts_asked_for(reader: LedgerReader) -> None:
    found = listing.counts(reader, Filters(purpose="train"))

    (row,) = reader.rows(
        "SELECT COUNT(*) AS n, AVG(reward) AS mean, SUM(verdict = 'resolved') AS resolved "
        "FROM rollouts WHERE purpose = 'train'"
    )
    assert (found.rollouts, found.resolved) == (row["n"], row["resolved"])
    assert found.mean_reward == pytest.approx(row["mean"])


def test_neighbours_follow_the_list_that_was_asked_for(reader: LedgerReader) -> None:
    filters = Filters(sort="-reward", task="task_2")
    names = everything(reader, filters)

    for place, name in enumerate(names):
        (row,) = reader.rows("SELECT * FROM rollouts WHERE id = ?", (name,))
        before, after = listing.neighbours(reader, filters, row)
        assert before == (names[place - 1] if place else None)
        assert after == (names[place + 1] if place + 1 < len(names) else None)


def test_rows_that_come_in_meanwhile_move_no_page(tmp_path: Path) -> None:
    def kept(number: int) -> Kept:
        name = f"g{number:05d}"
        return Kept(
            trajectory=trajectory(f"{name}-m0", [turn()]), reward=judged(), group=name, file=False
        )

    folder = write_run(tmp_path / "growing", [kept(number) for number in range(10)])
    with LedgerReader(folder / "run.sqlite") as reader:
        first = listing.page(reader, Filters(), most=4)
    more = write_run(tmp_path / "more", [kept(number) for number in range(10, 15)])
    _copy_rows(more / "run.sqlite", folder / "run.sqlite")

    with LedgerReader(folder / "run.sqlite") as reader:
        second = listing.page(reader, Filters(), after=first.after, most=4)
        back = listing.page(reader, Filters(), before=second.before, most=4)

    assert [row["id"] for row in second.rows] == [f"g0000{n}-m0" for n in (5, 4, 3, 2)]
    assert [row["id"] for row in back.rows] == [row["id"] for row in first.rows]


def _copy_rows(source: Path, target: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(target)
    with connection:
        connection.execute("ATTACH ? AS other", (str(source),))
        connection.execute("INSERT INTO rollouts SELECT * FROM other.rollouts")
    connection.close()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"verdict": "maybe"}, "verdict=maybe: it is one of resolved, unresolved, unknown"),
        ({"tampering": "1"}, "tampering=1: it is one of yes, no"),
        ({"sort": "id; DROP TABLE rollouts"}, "rows are sorted by one of"),
        ({"step": "-1"}, "step=-1: a step is a whole number, from 0"),
        ({"step": "9" * 30}, "a whole number"),
        ({"reward": "high"}, "reward=high: write LOW..HIGH"),
        ({"reward": "1..0"}, "reward=1..0: write LOW..HIGH"),
        ({"reward": "nan"}, "reward=nan: write LOW..HIGH"),
        ({"q": "x" * 501}, "q: longer than 500 characters"),
    ],
)
def test_a_query_that_makes_no_sense_is_named(query: dict[str, str], words: str) -> None:
    with pytest.raises(FilterError, match=words.replace("(", r"\(")):
        Filters.of(query)


@pytest.mark.parametrize("edge", ["x", "[]", '[{}, "a"]', "[1, 2]", "1", "null"])
def test_a_place_that_is_none_is_refused(reader: LedgerReader, edge: str) -> None:
    with pytest.raises(FilterError, match="begin anew"):
        listing.page(reader, Filters(), after=edge)


def test_a_query_says_again_what_was_asked_for() -> None:
    filters = Filters.of({"task": "a b&c", "sort": "-reward", "page": "3", "q": "  "})

    assert filters.query() == "task=a+b%26c&sort=-reward"
    assert filters.query(sort="-finished", task="") == ""
    assert not Filters(sort="reward").active
