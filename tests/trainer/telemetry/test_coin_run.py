"""A whole training with every sink open: what the layers tell, and how it hangs together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from coin_runs import coin_run, patchgym
from otlp_receiver import Received, otlp_receiver
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from patchgym.trainer.cli import main
from patchgym.trainer.telemetry import SpanRecord, read_spans
from patchgym.trainer.telemetry.metrics_file import read_metrics


@dataclass(frozen=True)
class Trained:
    """What a run left."""

    folder: Path
    """Where the command was run."""
    done: subprocess.CompletedProcess[str]
    received: Received

    @property
    def run(self) -> Path:
        return self.folder / "runs" / "coins"

    @property
    def spans(self) -> list[SpanRecord]:
        return list(read_spans(self.run / "trace"))[::-1]

    def named(self, name: str) -> list[SpanRecord]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Trained:
    """Two steps with a checkpoint between them and a held-out evaluation."""
    folder = tmp_path_factory.mktemp("coins")
    with otlp_receiver() as received:
        telemetry = {
            "prometheus": "127.0.0.1:0",
            "otlp": received.url,
            "tensorboard": True,
            "wandb": "patchgym-tests",
            "mlflow": "mlflow",
        }
        changes: dict[str, Mapping[str, object]] = {
            "telemetry": telemetry,
            "checkpoint": {"every": 1},
            "evaluation": {"samples": 1},
        }
        coin_run(root, folder, changes)
        environment = {**os.environ, "WANDB_MODE": "offline"}
        done = patchgym(folder, environment, "train", "--config", "run.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    return Trained(folder, done, received)


def test_a_rollout_and_its_scoring_are_one_trace(trained: Trained) -> None:
    by_id = {span.span_id: span for span in trained.spans}
    rollouts = trained.named("rollout")
    assert len(rollouts) >= 8
    for rollout in rollouts:
        assert rollout.parent_id == ""
        parts = [span for span in trained.spans if span.trace_id == rollout.trace_id]
        names = Counter(span.name for span in parts)
        assert names["turn"] == names["text_completion model"] == names["scoring"] == 1
        for span in parts:
            if span == rollout:
                continue
            above = by_id[span.parent_id]
            wanted = {"text_completion model": "turn", "execute_tool answer": "turn"}
            assert above.name == wanted.get(span.name, "rollout"), (span.name, above.name)
        [scoring] = [span for span in parts if span.name == "scoring"]
        assert scoring.start >= rollout.end
        assert (
            scoring.attributes["patchgym.rollout.id"] == rollout.attributes["patchgym.rollout.id"]
        )


def test_spans_say_what_conventions_ask_for(trained: Trained) -> None:
    for sample in trained.named("text_completion model"):
        found = sample.attributes
        assert found["gen_ai.operation.name"] == "text_completion"
        assert found["gen_ai.request.model"] == "model"
        assert found["gen_ai.request.max_tokens"] == 2
        assert found["gen_ai.usage.output_tokens"] in (1, 2)
        input_tokens = found["gen_ai.usage.input_tokens"]
        assert isinstance(input_tokens, int) and input_tokens > 0
    for rollout in trained.named("rollout"):
        assert rollout.attributes["patchgym.stop_reason"] == "submitted"
        assert isinstance(rollout.attributes["patchgym.slot"], int)
        assert rollout.attributes["patchgym.task.id"]


def test_a_step_holds_its_stages_in_their_order(trained: Trained) -> None:
    steps = trained.named("step")
    assert [step.attributes["patchgym.step"] for step in steps] == [0, 1]
    for step in steps:
        parts = [span for span in trained.spans if span.trace_id == step.trace_id]
        assert all(span.parent_id == step.span_id for span in parts if span != step)
        names = [span.name for span in sorted(parts, key=lambda span: span.start)]
        stages = ["step", "wait for groups", "pack", "gradient", "update", "publish"]
        # The last step's checkpoint is written when the run ends.
        assert names == stages + ["checkpoint"] * (step == steps[0])
    assert len(trained.named("evaluation")) == 2


def test_no_span_is_lost_between_the_file_and_the_collector(trained: Trained) -> None:
    assert not trained.received.problems
    sent = Counter(span.name for span in trained.received.spans)
    assert sent == Counter(span.name for span in trained.spans)


def test_the_metrics_add_up_to_what_was_done(trained: Trained) -> None:
    last = list(read_metrics(trained.run / "trace"))[-1]
    points = {metric["name"]: metric["points"] for metric in last["metrics"]}
    rollouts = len(trained.named("rollout"))
    delivered = len(trained.named("scoring"))
    assert sum(point["count"] for point in points["patchgym.rollout.duration"]) == rollouts
    assert sum(point["value"] for point in points["patchgym.rollout.outcomes"]) <= delivered
    assert points["patchgym.learner.steps"] == [{"value": 2}]
    tokens = sum(
        int(str(span.attributes["gen_ai.usage.output_tokens"]))
        for span in trained.named("text_completion model")
    )
    usage = {
        point["attributes"]["gen_ai.token.type"]: point["sum"]
        for point in points["gen_ai.client.token.usage"]
    }
    assert usage["output"] == tokens
    stages = {
        point["attributes"]["patchgym.stage"]: point["count"]
        for point in points["patchgym.learner.stage.duration"]
    }
    assert stages == {
        "wait": 2, "pack": 2, "gradient": 2, "update": 2, "publish": 2, "checkpoint": 2,
    }  # fmt: skip
    assert sum(point["sum"] for point in points["patchgym.staleness"]) <= 2
    assert set(points) <= set(trained.received.metrics)


def test_every_tracker_has_the_steps(trained: Trained) -> None:
    assert list((trained.run / "tensorboard").glob("events.*"))
    [kept] = (trained.run / "wandb").glob("offline-run-*-coins/run-coins.wandb")
    assert kept.stat().st_size > 1000
    rewards = list((trained.folder / "mlflow").glob("*/*/metrics/reward"))
    assert len(rewards) == 1
    assert "telemetry" not in trained.done.stdout


def slices(trace: Trace) -> dict[str, list[tuple[str, int, int]]]:
    """Each track's slices, `(name, start, end)` in nanoseconds, checked for balance."""
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet
              if p.HasField("track_descriptor")}  # fmt: skip
    found: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    open_slices: dict[int, list[tuple[str, int]]] = defaultdict(list)
    last: dict[int, int] = {}
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert event.track_uuid in tracks, "an event of a track that was not described before it"
        assert packet.timestamp >= last.get(event.track_uuid, 0), "a track goes back in time"
        last[event.track_uuid] = packet.timestamp
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append((event.name, packet.timestamp))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            name, start = open_slices[event.track_uuid].pop()
            track = tracks[event.track_uuid]
            group = tracks[track.parent_uuid].name
            found[f"{group}/{track.name}"].append((name, start, packet.timestamp))
    assert not any(open_slices.values()), "a slice without an end"
    return found


def export(trained: Trained, *words: str) -> Trace:
    out = trained.folder / "out.perfetto-trace"
    command = ["runs", "export", str(trained.run), "--format", "perfetto", "--out", str(out)]
    assert main([*command, *words]) == 0
    return Trace.FromString(out.read_bytes())


def test_the_perfetto_trace_has_every_span_on_a_track_of_its_kind(trained: Trained) -> None:
    trace = export(trained)
    tracks = slices(trace)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for track, each in tracks.items():
        kinds[track.partition("/")[0]].update(name for name, _, _ in each)
    spans = Counter(span.name for span in trained.spans)
    assert kinds["Learner"]["step"] == 2
    assert kinds["Rollouts"]["rollout"] == spans["rollout"]
    assert kinds["Scoring"]["scoring"] == spans["scoring"]
    assert kinds["Sampler"] == {"text_completion model": spans["text_completion model"]}
    assert sum(sum(k.values()) for k in kinds.values()) == (
        sum(spans.values()) + spans["text_completion model"]
    )
    slots = {str(span.attributes["patchgym.slot"]) for span in trained.named("rollout")}
    assert {f"Rollouts/slot {slot}" for slot in slots} <= set(tracks)


def test_the_perfetto_trace_counts_what_is_under_way(trained: Trained) -> None:
    trace = export(trained, "--last", "1h")
    names = {
        packet.track_descriptor.uuid: packet.track_descriptor.name
        for packet in trace.packet
        if packet.HasField("track_descriptor") and packet.track_descriptor.HasField("counter")
    }
    curves: dict[str, list[float]] = defaultdict(list)
    for packet in trace.packet:
        if packet.HasField("track_event") and packet.track_event.type == TrackEvent.TYPE_COUNTER:
            curves[names[packet.track_event.track_uuid]].append(
                packet.track_event.double_counter_value
            )
    assert curves["rollouts under way"][-1] == 0
    assert 1 <= max(curves["rollouts under way"]) <= 32
    assert "groups in the queue" in curves


def test_a_short_window_has_the_end_alone(trained: Trained) -> None:
    whole = slices(export(trained))
    ends = sorted(end for each in whole.values() for _, _, end in each)
    seconds = (ends[-1] - ends[len(ends) // 2]) / 1e9
    part = slices(export(trained, "--last", f"{seconds}s"))
    kept = [end for each in part.values() for _, _, end in each]
    assert 0 < len(kept) < len(ends)
    assert min(kept) >= ends[len(ends) // 2] - 1000


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--format", "perfetto", "--last", "10x"), "--last 10x: a time such as 90s, 10m"),
        (("--format", "perfetto", "--last=-5m"), "--last -5m: a time such as"),
        (("--format", "atif", "--last", "10m"), "--last is for a trace"),
        (("--format", "perfetto", "--tokens"), "are for trajectories"),
        (("--format", "perfetto", "--checkpoint", "best"), "use --format hf"),
        (("--format", "perfetto", "--out", "no/such/folder/x"), "can't be written"),
    ],
)
def test_what_makes_no_sense_of_an_export_is_refused(
    trained: Trained, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], complaint: str
) -> None:
    assert main(["runs", "export", str(trained.run), *words]) == 2
    assert complaint in capsys.readouterr().err
    assert not list(trained.run.glob("*.part"))


def test_a_run_without_spans_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").touch()
    assert main(["runs", "export", str(tmp_path), "--format", "perfetto"]) == 2
    assert "it has no spans" in capsys.readouterr().err


def test_the_settings_are_in_the_runs_configuration(trained: Trained) -> None:
    kept = tomllib.loads((trained.run / "run.toml").read_text())["telemetry"]
    assert (kept["trace"], kept["tensorboard"]) == (True, True)


MISSING = """
import sys
sys.modules[sys.argv[1]] = None
from patchgym.trainer.cli import main
raise SystemExit(main(["train", "--config", "run.toml", "--run.name", "other", *sys.argv[2:]]))
"""


def test_a_missing_package_is_told_before_anything_starts(trained: Trained) -> None:
    words = ["--telemetry.mlflow=", "--telemetry.otlp=", "--telemetry.prometheus="]
    done = subprocess.run(
        [sys.executable, "-c", MISSING, "wandb", *words],
        cwd=trained.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "telemetry.wandb needs wandb" in done.stderr
    assert not (trained.folder / "runs" / "other").exists()


def test_the_summary_of_an_export_is_a_document(
    trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    out = trained.folder / "other.perfetto-trace"
    words = ["--format", "perfetto", "--out", str(out), "--json"]
    assert main(["runs", "export", str(trained.run), *words]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["out"] == str(out)
    assert record["spans"] > len(trained.spans)
    assert record["damaged"] == 0
