"""Settings, the held-out split, the order of updates, and the dry run."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchgym.trainer.errors import ConfigError
from patchgym.trainer.formats import SftSequence
from patchgym.trainer.sft import (
    Example,
    Gathered,
    Plan,
    SftConfig,
    load_sft_config,
    pinned,
    sft_to_toml,
    split,
)
from patchgym.trainer.sft.config import as_run_config, changed_settings
from patchgym.trainer.sft.dataset import to_groups
from patchgym.trainer.sft.picture import data_lines, data_record, plan_lines, rows_record


def example(task: str, size: int = 6, number: int = 0) -> Example:
    sequence = SftSequence(
        tokens=(*range(3, 3 + size - 1), number), loss_mask=(False, *(True,) * (size - 1))
    )
    return Example(sequences=(sequence,), source=f"{task}-{number}", task=task, exact=True)


def test_a_task_is_held_out_whole_and_never_all_of_them_are() -> None:
    pool = [example(f"t{n % 10}", number=n) for n in range(30)]
    data = split(pool, 0.2, seed=0)
    sides = [{each.task for each in part} for part in (data.train, data.heldout)]
    assert (len(sides[0]), len(sides[1]), sides[0] & sides[1]) == (8, 2, set())
    assert len(data.train) + len(data.heldout) == 30
    again = split(pool[::-1], 0.2, seed=0)
    assert {each.task for each in again.heldout} == sides[1]
    others = {frozenset(e.task for e in split(pool, 0.2, seed=s).heldout) for s in range(5)}
    assert len(others) > 1
    assert not split(pool, 0.0, seed=0).heldout
    assert len({e.task for e in split(pool, 0.001, seed=0).heldout}) == 1
    assert not split([example("only")], 0.5, seed=0).heldout
    assert len(split([example("a"), example("b")], 0.99, seed=0).train) == 1


def test_every_epoch_trains_on_each_conversation_once_in_an_order_of_its_own() -> None:
    plan = Plan.of(10, batch=4, epochs=3, steps=0, seed=5)
    assert (plan.steps, plan.per_epoch, plan.epochs) == (9, 3, 3)
    epochs = [[place for step in range(3 * e, 3 * e + 3) for place in plan.members(step)]
              for e in range(3)]  # fmt: skip
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert [len(plan.members(step)) for step in range(3)] == [4, 4, 2]
    assert [step for step in range(10) if plan.ends_epoch(step)] == [0, 3, 6, 9]
    short = Plan.of(10, batch=4, epochs=3, steps=5, seed=5)
    assert (short.steps, short.epochs, short.ends_epoch(5)) == (5, 2, True)
    assert short.members(4) == plan.members(4)


def test_conversations_of_one_task_share_a_group() -> None:
    groups = to_groups([example("a", number=1), example("b", number=1), example("a", number=2)])
    assert [len(group) for group in groups] == [2, 1]
    assert all(each.advantage == 1.0 for group in groups for each in group)


def test_the_dry_run_counts_tokens_and_rows() -> None:
    pool = [example("a", 40, 1), example("a", 40, 2), example("b", 50, 1), example("c", 60, 1)]
    data = split(pool, 0.0, seed=0)
    config = load_sft_config(
        None, [("learner.row_tokens", "[64, 128]"), ("train.batch", "4"), ("train.epochs", "2")]
    )
    plan = Plan.of(len(data.train), batch=4, epochs=2, steps=0, seed=0)
    rows = rows_record(config, data, plan)
    # Two sequences of "a" share all but their last token: 41. 41 + 50 and 60 fill two rows.
    assert (rows["flat_tokens"], rows["tree_tokens"], rows["updates"]) == (190, 151, 1)
    assert rows["padded_tokens"] == sum(int(size) * n for size, n in rows["rows"].items())
    found = Gathered(examples=pool, dropped={"x:3": "why"}, left_out=2)
    record = data_record(found, data)
    assert (record["train"]["tokens"], record["train"]["learned"]) == (190, 186)
    text = "\n".join([*data_lines(record), *plan_lines(config, plan, rows)])
    for words in ("4 conversations about 3 tasks", "dropped x:3: why", "2 rollouts of runs"):
        assert words in text
    assert "held out: nothing" in text
    assert "2 updates of 4 conversations, 1 an epoch" in text


def test_settings_are_written_and_read_back(tmp_path: Path) -> None:
    pairs = [("data.sources", '["a", "b"]'), ("data.min_reward", "0.5"), ("learner.beta2", "0.9")]
    config = load_sft_config(None, pairs)
    (tmp_path / "sft.toml").write_text(sft_to_toml(config))
    assert load_sft_config(tmp_path / "sft.toml", []) == config
    assert (config.learner.loss, config.learner.aggregation) == ("nll", "token_mean")
    changes = changed_settings(config, load_sft_config(None, [*pairs, ("train.epochs", "9")]))
    assert changes == {"train.epochs": (3, 9)}
    described = as_run_config(config, 7)
    assert (described.run.steps, described.learner.beta2, described.learner.loss) == (
        7, 0.9, "clipped",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("train.epoch", "2", "did you mean train.epochs"),
        ("train.batch", "0", "train.batch is 0: it must be at least 1"),
        ("data.heldout", "1.0", "data.heldout is 1.0"),
        ("data.keep", "good", "data.keep"),
        ("learner.loss", "ppo", "learner.loss is 'ppo': supervised training has it at 'nll'"),
        ("learner.skip_budget", "9", "learner.skip_budget is 9"),
        ("learner.kl_coefficient", "0.1", "learner.kl_coefficient is 0.1"),
    ],
)
def test_a_setting_that_cant_work_is_named(key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_sft_config(None, [(key, value)])


def test_best_of_a_task_needs_a_number_and_choices_need_a_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"say how many of a task"):
        load_sft_config(None, [("data.keep", "best"), ("data.per_task", "0")])
    (tmp_path / "chat.jsonl").touch()
    config = load_sft_config(
        None, [("data.sources", f'["{tmp_path}/chat.jsonl"]'), ("data.keep", "best")]
    )
    with pytest.raises(ConfigError, match=r"data\.keep has no effect: none of data\.sources"):
        pinned(config)


def test_defaults_are_a_whole_configuration() -> None:
    config = SftConfig()
    assert config.learner.learning_rate == 2e-5
    assert load_sft_config(None, []) == config
