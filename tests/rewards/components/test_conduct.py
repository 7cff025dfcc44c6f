"""Turns, and answers in no known format."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from changes import NO_CHANGE, scene

from patchgym.rewards.component import Component, UnknownValue
from patchgym.rewards.components.conduct import FormatErrors, Turns
from patchgym.rewards.scene import Conduct


def value(component: Component, turns: int, **observations: int) -> float:
    conduct = Conduct(turns=turns, observations=Counter(observations))
    return component.measure(scene(NO_CHANGE, conduct=conduct)).value


def test_turns_are_free_up_to_a_number_and_cost_more_and_more_past_it() -> None:
    turns = Turns(free=5, scale=10)
    assert [value(turns, count) for count in (0, 1, 5)] == [0, 0, 0]
    assert value(turns, 15) == pytest.approx(1 - math.exp(-1))
    assert 0.99 < value(turns, 100) <= 1


def test_format_errors_are_a_share_of_the_turns() -> None:
    assert value(FormatErrors(), 8, format_error=2, output=6) == 0.25
    assert value(FormatErrors(), 2, format_error=3) == 1


def test_a_tool_that_was_called_in_vain_is_no_format_error() -> None:
    assert value(FormatErrors(), 4, tool_error=4) == 0


def test_a_rollout_without_turns_has_no_format_errors() -> None:
    assert value(FormatErrors(), 0) == 0


@pytest.mark.parametrize("component", [Turns(), FormatErrors()])
def test_without_a_rollout_nothing_is_known(component: Component) -> None:
    with pytest.raises(UnknownValue, match="no rollout"):
        component.measure(scene(NO_CHANGE))


def test_options_that_make_no_sense_are_named() -> None:
    with pytest.raises(ValueError, match="free is -1"):
        Turns(free=-1)
    with pytest.raises(ValueError, match="scale is 0"):
        Turns(scale=0)
