"""Rollouts on disk: what is read is what was written, and what is damaged is named."""

from __future__ import annotations

import base64
import gzip
import json
import math
import os
import struct
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.agent import Completion, Observation, ToolCall, Trajectory, Turn
from patchgym.agent.policy import VersionSpan
from patchgym.rewards import Reward, Score, Verdict
from patchgym.trainer.errors import RunError
from patchgym.trainer.rollout_file import decode, encode
from patchgym.trainer.trajectory_store import StoredRollout, TrajectoryStore


def turn(context: tuple[int, ...], tokens: tuple[int, ...], logprobs: tuple[float, ...]) -> Turn:
    completion = Completion(
        tokens=tokens,
        logprobs=logprobs,
        policy_version=3,
        finish="eos",
        spans=(VersionSpan(policy_version=3, tokens=1), VersionSpan(policy_version=4, tokens=2)),
    )
    return Turn(
        context=context,
        completion=completion,
        text="naïve \u2028 text",
        calls=(ToolCall(name="edit", arguments={"path": "a.py", "lines": [1, 2]}),),
        observations=(
            Observation(kind="tests", text="1 failed", done=False, diff=b"\xff\x00 not utf-8"),
        ),
        sample_seconds=0.1,
    )


def rollout(*turns: Turn, name: str = "g00003-m5") -> StoredRollout:
    trajectory = Trajectory(
        rollout_id=name,
        task_id="t",
        seed=7,
        turns=turns,
        stop_reason="submitted",
        outcome=b"diff --git \x00\xff",
    )
    verdict = Verdict(status="resolved", evidence="report", outcomes={"test_a": "passed"})
    reward = Reward(
        total=1.0, scores=(Score(name="tests", value=1.0, weight=1.0),), verdict=verdict
    )
    return StoredRollout(trajectory=trajectory, reward=reward)


TYPICAL = rollout(
    turn((1, 2, 3), (4, 49151, 6), (-0.5, -1.25, 0.0)),
    turn((), (7, 8, 9), (-0.125, -2.0, -3.5)),
)


@pytest.mark.parametrize(
    "stored",
    [
        TYPICAL,
        rollout(),
        replace(TYPICAL, reward=None),
        # Neither 32-bit ids nor 32-bit floats hold these.
        rollout(turn((1 << 40, -5), (3,), (-0.1, -1e-300, -1e300))),
        rollout(turn((5,), (1,), (-math.inf, -0.0, -5e-324))),
    ],
)
def test_what_is_read_is_what_was_written(tmp_path: Path, stored: StoredRollout) -> None:
    store = TrajectoryStore(tmp_path)
    assert store.write(stored) == store.path("g00003-m5")
    read = store.read("g00003-m5")
    assert read == stored
    for before, after in zip(stored.trajectory.turns, read.trajectory.turns, strict=True):
        bits = [struct.pack("d", value) for value in before.completion.logprobs]
        assert [struct.pack("d", value) for value in after.completion.logprobs] == bits
        assert all(type(token) is int for token in (*after.context, *after.completion.tokens))


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(-(1 << 62), 1 << 62)),
            st.lists(st.integers(0, 1 << 17), min_size=1),
            st.lists(st.floats(allow_nan=False) | st.floats(width=32, allow_nan=False)),
        ),
        max_size=4,
    )
)
@settings(deadline=None, max_examples=100)
def test_any_ids_and_any_numbers_come_back(
    rows: list[tuple[list[int], list[int], list[float]]],
) -> None:
    stored = rollout(*(turn(tuple(a), tuple(b), tuple(c)) for a, b, c in rows))
    assert decode(encode(stored), "g00003-m5") == stored


def test_log_probabilities_of_32_bits_take_32_bits() -> None:
    exact = struct.unpack("1000f", struct.pack("1000f", *(-1 / (n + 3) for n in range(1000))))
    rough = tuple(-1 / (n + 3) for n in range(1000))
    sizes = [len(encode(rollout(turn((1,), (1,) * 1000, values)))) for values in (exact, rough)]
    assert sizes[0] < 0.7 * sizes[1]


def test_the_text_is_read_without_the_arrays(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    store.write(TYPICAL)
    read = store.read_text("g00003-m5")
    assert [each.text for each in read.trajectory.turns] == ["naïve \u2028 text"] * 2
    assert read.reward == TYPICAL.reward
    assert read.trajectory.sampled_tokens == 0
    assert not any(each.context or each.completion.logprobs for each in read.trajectory.turns)


def test_a_file_of_the_first_version_is_read(tmp_path: Path) -> None:
    record = asdict(replace(TYPICAL, trajectory=replace(TYPICAL.trajectory, rollout_id="a/b")))
    record["trajectory"]["outcome"] = base64.b64encode(TYPICAL.trajectory.outcome).decode()
    for each in record["trajectory"]["turns"]:
        for observation in each["observations"]:
            observation["diff"] = base64.b64encode(observation["diff"]).decode()
    (tmp_path / "a.b.json.gz").write_bytes(gzip.compress(json.dumps(record).encode()))
    store = TrajectoryStore(tmp_path)
    assert store.read("a/b").trajectory.turns == TYPICAL.trajectory.turns
    assert store.read_text("a/b").trajectory.sampled_tokens == 0
    newer = replace(TYPICAL, trajectory=replace(TYPICAL.trajectory, rollout_id="a/b", seed=8))
    store.write(newer)
    assert store.read("a/b") == newer, "what was written last counts"


def test_names_never_meet_and_never_leave_the_folder(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path / "trajectories")
    names = ["a/b", "a.b", "a%2Fb", "../../up", "..", "A/B", "é"]
    for seed, name in enumerate(names):
        trajectory = replace(TYPICAL.trajectory, rollout_id=name, seed=seed)
        store.write(replace(TYPICAL, trajectory=trajectory))
    assert [store.read(name).trajectory.seed for name in names] == list(range(len(names)))
    assert [path.name for path in tmp_path.iterdir()] == ["trajectories"]


def test_many_rollouts_are_spread_over_folders(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    counts: dict[Path, int] = {}
    for group in range(1000):
        for member in range(8):
            folder = store.path(f"g{group:05d}-m{member}").parent
            counts[folder] = counts.get(folder, 0) + 1
    assert len(counts) == 256
    assert max(counts.values()) < 2 * 8000 / 256


@pytest.mark.parametrize("place", range(0, 100, 3))
def test_any_byte_that_changes_is_found(tmp_path: Path, place: int) -> None:
    store = TrajectoryStore(tmp_path)
    path = store.write(TYPICAL)
    data = bytearray(path.read_bytes())
    data[len(data) * place // 100] ^= 0x10
    path.write_bytes(bytes(data))
    try:
        read = store.read("g00003-m5")
    except RunError as error:
        assert str(error).startswith(f"{path}: damaged trajectory: ")
    else:
        assert read == TYPICAL, "only names in the header, which nothing rests on"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_file_that_was_cut_off_is_named(tmp_path: Path, share: float) -> None:
    store = TrajectoryStore(tmp_path)
    path = store.write(TYPICAL)
    os.truncate(path, int(share * path.stat().st_size))
    with pytest.raises(RunError, match=r"g00003-m5\.rollout: damaged trajectory: "):
        store.read("g00003-m5")


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    path = store.write(TYPICAL)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + b"abc")
    with pytest.raises(RunError, match="the checksum of its logprobs is wrong"):
        store.read("g00003-m5")
    path.write_bytes(whole + b"x")
    with pytest.raises(RunError, match=r"tells of \d+ bytes, and there are \d+"):
        store.read("g00003-m5")
    path.write_bytes(whole.replace(b'"version": 2', b'"version": 3', 1))
    with pytest.raises(RunError, match="of version 3, newer than 2: update patchgym"):
        store.read("g00003-m5")
    path.write_bytes(encode(rollout(name="g00009-m1")))
    with pytest.raises(RunError, match="it is of the rollout 'g00009-m1'"):
        store.read("g00003-m5")
    path.unlink()
    with pytest.raises(RunError, match="no trajectory g00003-m5 in"):
        store.read("g00003-m5")


def test_a_sweep_takes_away_what_a_killed_writer_left(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    path = store.write(TYPICAL)
    path.with_name(f"{path.name}.partial").write_bytes(b"half")
    (tmp_path / "old.json.partial").write_bytes(b"half")
    assert store.sweep() == 2
    assert store.read("g00003-m5") == TYPICAL
    assert [each.name for each in tmp_path.rglob("*.*")] == ["g00003-m5.rollout"]
