"""Which host gets what: by hand, and held to its promises over random histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from patchgym.sandbox.ray import Asking, Placement
from patchgym.sandbox.ray.demand import wanted
from patchgym.sandbox.ray.placement import SAME_BONUS, WARM_BONUS


def placed(asking: Asking) -> str | None:
    return asking.place.name if asking.place else None


def hosts(capped: bool, **sizes: int) -> Placement:
    placement = Placement(capped=capped)
    for name, size in sizes.items():
        placement.up(name, size)
    return placement


def test_the_least_loaded_host_and_sizes_count() -> None:
    placement = hosts(True, small=2, large=6)
    got = [placed(placement.ask(f"image {n}")) for n in range(8)]
    assert got.count("small") == 2 and got.count("large") == 6
    assert got[:4].count("large") >= 2


def test_a_warm_host_is_preferred_until_it_is_too_full() -> None:
    placement = hosts(True, a=8, b=8)
    first = placed(placement.ask("numpy"))
    again = [placed(placement.ask("numpy")) for _ in range(3)]
    assert again[:2] == [first, first]
    assert 3 / 8 > WARM_BONUS and again[2] != first


def test_the_same_work_goes_where_it_was_done_while_that_is_not_far_behind() -> None:
    placement = hosts(False, a=1, b=1, c=1)
    first = placed(placement.ask("image", work="a patch"))
    others = {placed(placement.ask("image", work=f"patch {n}")) for n in range(2)}
    assert first not in others
    again = [placed(placement.ask("image", work="a patch")) for _ in range(5)]
    assert again[:4] == [first] * 4  # behind what it has in hand: its answer will do for these, too
    assert 5 > SAME_BONUS and again[4] == first  # the others hold one each
    assert placed(placement.ask("image", work="a patch")) != first
    placement.down(str(first))
    assert placed(placement.ask("image", work="a patch")) in others


def test_who_waits_is_served_in_order_and_withdrawing_costs_nothing() -> None:
    placement = hosts(True, a=1)
    held = placement.ask("x")
    second, third = placement.ask("x"), placement.ask("x")
    placement.withdraw(second)
    assert held.place is not None and third.place is None
    placement.release(held.place)
    assert placed(third) == "a" and second.place is None
    assert placement.places["a"].held == 1


def test_drained_and_lost_hosts_get_nothing() -> None:
    placement = hosts(True, a=2, b=2)
    placement.drain("a")
    assert {placed(placement.ask("x")) for _ in range(2)} == {"b"}
    waiting = placement.ask("x")
    placement.down("b")
    assert waiting.place is None
    placement.up("c", 1)
    assert placed(waiting) == "c"


def test_a_host_that_failed_is_shunned_until_it_comes_up_anew() -> None:
    placement = hosts(False, a=4, b=4)
    first = placement.ask("x").place
    assert first is not None
    placement.shun(first)
    placement.release(first)  # and so has nothing to do at all
    other = "b" if first.name == "a" else "a"
    assert {placed(placement.ask("x")) for _ in range(3)} == {other}
    placement.up(first.name, 4)
    assert placed(placement.ask("y")) == first.name


def test_what_was_left_on_a_host_is_asked_of_that_host() -> None:
    placement = hosts(True, a=1, b=1)
    asked = placement.ask("snapshot", only="b")
    assert placed(asked) == "b"
    assert placement.ask("snapshot", only="b").place is None  # though `a` is free


def test_expected_images_are_spread_and_draw_their_leases() -> None:
    placement = hosts(True, a=4, b=4)
    spread = placement.expect(["numpy", "scipy", "flask", "click"])
    assert sorted(map(len, spread.values())) == [2, 2]
    for name, images in spread.items():
        for image in images:
            assert placed(placement.ask(image)) == name


@given(st.lists(st.tuples(st.sampled_from("ard"), st.integers(0, 3)), max_size=60))
def test_no_history_breaks_the_cap_or_loses_a_waiter(history: list[tuple[str, int]]) -> None:
    placement = hosts(True, a=2, b=3)
    asked: list[Asking] = []
    for what, number in history:
        if what == "a":
            asked.append(placement.ask(f"image {number}"))
        elif asked:
            one = asked.pop(number % len(asked))
            placement.withdraw(one)  # of one that was served it is a release
        served = [each for each in asked if each.place is not None]
        assert {n: p.held for n, p in placement.places.items()} == {
            name: sum(placed(each) == name for each in served) for name in ("a", "b")
        }
        assert all(p.held <= p.size for p in placement.places.values())
        waiting = [each for each in asked if each.place is None]
        assert waiting == list(placement.waiting)
        assert not waiting or len(served) == 5


def test_demand_is_what_the_work_would_fill() -> None:
    placement = hosts(True, a=4)
    assert wanted(placement, 0, 8) == 1
    for _ in range(9):
        placement.ask("x")
    assert len(placement.waiting) == 5
    assert wanted(placement, 5, 8) == 3
    assert wanted(placement, 5, 2) == 2
    crowded = hosts(False, a=4)
    for _ in range(9):
        crowded.ask("x")
    assert wanted(crowded, 0, 8) == 1  # rollouts that need no sandbox yet need no host
