"""What is known of every group, against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from patchgym.trainer.ledger import GroupState, group_name
from patchgym.trainer.ledger.known import KnownGroups

STATES: list[GroupState | None] = [None, "pending", "ready", "taken", "committed", "dropped"]
MOVES = st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.sampled_from(STATES)), max_size=60)


@given(MOVES)
def test_every_group_is_in_the_state_that_it_was_put_in(
    moves: list[tuple[int, bool, GroupState | None]],
) -> None:
    known, plain, names = KnownGroups(), dict[str, GroupState | None](), dict[int, str]()
    for number, usual, state in moves:
        name = names.setdefault(number, group_name(number) if usual else f"task{number}")
        known.put(name, number, state)
        plain[name] = state
        assert {each: known.state(each) for each in plain} == plain
        if state is not None:
            assert known.name(number) == name
    again = KnownGroups(
        (name, number, state) for number, name in names.items() if (state := plain[name])
    )
    assert {each: again.state(each) for each in plain} == plain


def test_names_that_are_no_numbers_are_unknown() -> None:
    known = KnownGroups([("g00003", 3, "committed")])
    for name in ("", "g", "g3", "g0003", "g00002", "g00004", "x00003", "g-0003"):
        assert known.state(name) is None
