"""The learner's benchmark: its trajectories, that both sides get the same ones, its ratios."""

from __future__ import annotations

import importlib.util
import sys
from itertools import groupby
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from patchgym.trainer.batching import flat_rows, pack


def _load(root: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of benchmarks/, which is in no package."""
    path = root / "benchmarks" / f"{place}.py"
    spec = importlib.util.spec_from_file_location(f"bench_learner_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def trajectories(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/learner_work/groups.py."""
    return _load(root, "learner_work/groups", monkeypatch)


@pytest.fixture
def padding(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/peers/tunix_padding.py."""
    return _load(root, "peers/tunix_padding", monkeypatch)


@pytest.fixture
def report(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/learner_work/report.py."""
    return _load(root, "learner_work/report", monkeypatch)


def test_groups_share_a_prompt_and_have_turns_between_which_nothing_is_trained(
    trajectories: ModuleType,
) -> None:
    groups = trajectories.make_groups(4, 100, trajectories.Lengths(), 3)
    turns = set()
    for group in groups:
        assert len(group) == 8
        size = trajectories.prompt_length(group[0])
        prompts = {tuple(sequence.tokens[:size].tolist()) for sequence in group}
        assert len(prompts) == 1
        assert abs(sum(sequence.advantage for sequence in group)) < 1e-9
        for sequence in group:
            assert trajectories.prompt_length(sequence) == size
            assert 1 <= sequence.tokens.min() and sequence.tokens.max() < 100
            parts = [key for key, _ in groupby(sequence.loss_mask.tolist())]
            assert parts[0] is False and parts[-1] is True
            turns.add(sum(parts))
    assert turns == {1, 2, 3}


def test_a_seed_says_which_groups(trajectories: ModuleType) -> None:
    first, same, other = (
        trajectories.make_groups(2, 100, trajectories.Lengths(), seed) for seed in (0, 0, 1)
    )
    for one, two in zip(sum(first, []), sum(same, []), strict=True):
        assert one.tokens.tolist() == two.tokens.tolist()
        assert (one.sampler_logprobs == two.sampler_logprobs).all()
        assert one.advantage == two.advantage
    assert first[0][0].tokens.tolist() != other[0][0].tokens.tolist()


def test_lengths_are_cut_at_four_medians(trajectories: ModuleType) -> None:
    lengths = trajectories.Lengths(prompt=10, turn=6, observation=6, sigma=3.0)
    groups = trajectories.make_groups(6, 100, lengths, 0)
    assert max(trajectories.prompt_length(s) for group in groups for s in group) == 40
    assert max(len(s.tokens) for group in groups for s in group) <= 40 + 5 * 24


def test_both_sides_train_on_the_same_tokens(
    trajectories: ModuleType, padding: ModuleType, tmp_path: Path
) -> None:
    groups = trajectories.make_groups(3, 1000, trajectories.Lengths(), 5)
    trajectories.write_groups(groups, tmp_path / "groups.npz")
    ours = trajectories.read_groups(tmp_path / "groups.npz")
    with np.load(tmp_path / "groups.npz") as stored:
        held = {name: stored[name] for name in stored.files}
    theirs = padding.padded_arrays(held)
    rows = 0
    for written, read in zip(groups, ours, strict=True):
        for before, sequence in zip(written, read, strict=True):
            assert sequence.tokens.tolist() == before.tokens.tolist()
            assert sequence.advantage == pytest.approx(before.advantage, rel=1e-6)
            prompt, completion = theirs["prompt_ids"][rows], theirs["completion_ids"][rows]
            cut = trajectories.prompt_length(before)
            size = len(before.tokens) - cut
            assert prompt.tolist() == [0] * (len(prompt) - cut) + before.tokens[:cut].tolist()
            assert completion[:size].tolist() == before.tokens[cut:].tolist()
            assert not completion[size:].any()
            mask = theirs["completion_mask"][rows]
            assert mask[:size].tolist() == before.loss_mask[cut:].tolist()
            assert not mask[size:].any()
            assert (theirs["logprobs"][rows][:size] == before.sampler_logprobs[cut:]).all()
            rows += 1
    assert theirs["completion_ids"].shape == (rows, trajectories.longest_completion(groups))
    trained = int(theirs["completion_mask"].sum())
    longest = max(len(s.tokens) for group in ours for s in group)
    assert pack(ours, row_tokens=(1024,)).loss_tokens == trained
    assert flat_rows(ours, length=longest).loss_tokens == trained


def _run(trained: int, steps: list[tuple[float, float, float]], peak: int) -> SimpleNamespace:
    """What a contestant said; steps are seconds, processor seconds and loss."""
    return SimpleNamespace(
        side=SimpleNamespace(name=f"of {trained}", note=""),
        ready={"trained_tokens": trained, "computed_tokens": 2 * trained, "peak_bytes": peak},
        steps=[
            {"seconds": wall, "cpu_seconds": cpu, "loss": loss, "resident_bytes": 2 * peak}
            for wall, cpu, loss in steps
        ],
    )


def test_a_ratio_is_the_median_of_the_rounds(report: ModuleType) -> None:
    ours = _run(100, [(1.0, 2.0, 0.5), (2.0, 2.0, 0.4), (4.0, 2.0, 0.3)], 1 << 20)
    theirs = _run(100, [(3.0, 5.0, 0.5), (4.0, 6.0, 0.4), (20.0, 9.0, 0.25)], 3 << 20)
    assert report.speedup(ours, theirs) == {
        "ratio": 3.0,
        "spread": [2.0, 5.0],
        "cpu": 3.0,
        "memory": 3.0,
        "loss_difference": pytest.approx(0.05),
    }
    line = report.line_of(theirs)
    assert (line.tokens_per_second, line.peak_mib, line.resident_mib) == (25.0, 3.0, 6.0)
    text = report.markdown("tiny", [line], {"Tunix": report.speedup(ours, theirs)})
    assert "| of 100 |  | 25.0 | 4.00 | 6.00 | 200 | 3 | 6 |" in text.splitlines()
    assert "- to Tunix: **3.0** times as fast (2.0 to 5.0 by round; 3.0 by processor time)" in text


def test_a_goal_is_met_at_its_limit_and_missed_below(report: ModuleType) -> None:
    ratios = {"Tunix": {"ratio": 2.0, "memory": 1.99}, "packed": {"ratio": 9.0, "memory": 9.0}}
    assert [line.split(":")[0] for line in report.goals(ratios)] == ["met", "MISSED"]
    assert report.goals({"flat rows": {"ratio": 1.6, "memory": 0.5}})[0].startswith("met: 1.6 ")


def test_sides_that_trained_different_tokens_are_not_compared(report: ModuleType) -> None:
    with pytest.raises(ValueError, match="of 100 trained 100 tokens a step, of 99 99: they did"):
        report.speedup(_run(100, [(1.0, 1.0, 0.0)], 1), _run(99, [(1.0, 1.0, 0.0)], 1))
