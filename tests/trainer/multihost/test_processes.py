"""Which process this one is, from its flags."""

from __future__ import annotations

import pytest

from patchgym.trainer.errors import ConfigError
from patchgym.trainer.multihost import Processes, processes_of


def test_one_process_is_a_training_as_ever() -> None:
    assert processes_of("1", None, "") is None
    assert processes_of("1", 0, "") is None


def test_several_are_told_apart() -> None:
    found = processes_of("4", 3, "[fd00::1]:1234")
    assert found == Processes(count=4, index=3, coordinator="[fd00::1]:1234")
    assert processes_of("auto", None, "") == Processes()


@pytest.mark.parametrize(
    ("count", "index", "coordinator", "words"),
    [
        ("0", None, "", "a number from 1 or auto, not '0'"),
        ("many", None, "", "a number from 1 or auto, not 'many'"),
        ("auto", 1, "", "leave them out"),
        ("1", 1, "", "are of several --processes"),
        ("2", None, "a:1", "--processes 2 wants --process, from 0 to 1"),
        ("2", 2, "a:1", "--processes 2 wants --process, from 0 to 1"),
        ("2", 0, "", "wants --coordinator HOST:PORT"),
        ("2", 0, "a:b", "not 'a:b'"),
    ],
)
def test_flags_that_do_not_go_together(
    count: str, index: int | None, coordinator: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        processes_of(count, index, coordinator)
