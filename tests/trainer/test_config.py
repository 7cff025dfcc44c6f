"""The configuration: round trip, precedence, and errors that name the nearest key."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchgym.trainer.config import (
    RunConfig,
    changed_keys,
    config_from_mapping,
    config_to_toml,
    load_config,
)
from patchgym.trainer.errors import ConfigError


def test_the_defaults_survive_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(config_to_toml(RunConfig()))
    assert load_config(path) == RunConfig()


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[learner]\nlearning_rate = 1e-6\n[run]\nseed = 3\n")
    config = load_config(path, [("learner.learning-rate", "2e-6"), ("run.name", "first")])
    assert config.learner.learning_rate == 2e-6
    assert (config.run.seed, config.run.name) == (3, "first")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[learner]\nlearning_rat = 1e-6", "unknown key learner.learning_rat; did you mean "
         "learner.learning_rate?"),
        ("[learnr]\nx = 1", "unknown key learnr; did you mean learner?"),
        ("[group]\nzzz = 1", "unknown key group.zzz; known: size, per_step"),
        ("[group]\nsize = 1", "group.size is 1: it must be at least 2"),
        ("[group]\nsize = 'many'", "group.size: input should be a valid integer"),
        ("[group]\nmax_staleness = 9", "group.max_staleness is 9"),
        ("[reward]\ntests = -1.0", "reward.tests.weight is -1.0: it must be 0 to 1000"),
        ("[reward]\ntests = nan", "reward.tests.weight is nan: it must be a finite number"),
        ("[reward]\nsecurty = 0.1", "reward.securty: no such component; did you mean security?"),
        ("reward = 3", "reward is 3: it must be a section"),
        ("[scoring]\nprocesses = 0", "scoring.processes is 0: it must be at least 1"),
        ("[evaluation]\nsamples = 0\nevery = 5", "evaluation.every is 5: it must be 0 with"),
        ("[learner]\nlearning_rate = 0.0", "learning_rate can't be 0.0"),
        ("[run\n", "not TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_points_to_the_example(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: no such file; start from examples"):
        load_config(tmp_path / "nowhere.toml")


def test_a_value_where_a_section_belongs_is_refused() -> None:
    with pytest.raises(ConfigError, match="run"):
        config_from_mapping({"run": 3}, source="test")


def test_changes_are_listed_by_key() -> None:
    new = config_from_mapping({"run": {"steps": 20}, "group": {"size": 4}}, source="test")
    assert changed_keys(RunConfig(), new) == {
        "run.steps": (RunConfig().run.steps, 20),
        "group.size": (8, 4),
    }


REWARD = """
[reward]
regressions = 0.3
clip = [-0.5, 1.0]
normalize = "components"
[reward.patch_size]
weight = 0.2
scale = 20.0
gate_above = 0.5
"""


def test_a_reward_of_several_components_survives_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(REWARD)
    config = load_config(path, [("reward.tests", "2.0")])
    assert [(part.name, part.signed) for part in config.reward.parts] == [
        ("regressions", -0.3),
        ("patch_size", -0.2),
        ("tests", 2.0),
    ]
    assert config.reward.parts[1].options == {"scale": 20.0}
    path.write_text(config_to_toml(config))
    assert load_config(path) == config
    assert set(changed_keys(RunConfig(), config)) == {
        "reward.regressions",
        "reward.clip",
        "reward.normalize",
        "reward.patch_size.weight",
        "reward.patch_size.scale",
        "reward.patch_size.gate_above",
        "reward.tests.weight",
    }


def test_the_shipped_example_is_valid(root: Path) -> None:
    config = load_config(root / "examples" / "quickstart.toml")
    assert config.tasks.train == "bundled:train"
