"""Each place that telemetry can go to, with something real on the other side."""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from otlp_receiver import otlp_receiver
from prometheus_client.parser import text_string_to_metric_families

from patchgym.trainer.errors import ConfigError
from patchgym.trainer.telemetry import Gauges, TelemetryConfig, gauges, read_spans, signals
from patchgym.trainer.telemetry.config import check_installed
from patchgym.trainer.telemetry.metrics_file import FILE, OLD_FILE, MetricsFile, read_metrics
from patchgym.trainer.telemetry.opening import Telemetry, open_telemetry
from patchgym.trainer.telemetry.prometheus import SharedReader

GAUGES = Gauges(
    policy_version=3,
    queue_depth=5,
    queue_capacity=8,
    stages={"sampling": 2, "tool run_tests": 1},
    learner_seconds={"training": 6.0, "waiting": 4.0},
    sampled_tokens=1000,
    trained_groups=7,
    dropped_groups={"no_spread": 2},
)
ROW = {
    "reward": 0.25,
    "pass_rate": None,
    "applied": True,
    "staleness": {"0": 3, "1": 1},
    "idle": {"learner": {"training": 1.0, "tool run_tests": 2.5}, "sampler": {"generating": 3.0}},
    "queue": {"depth": 4, "seconds": {"p50": 1.5}},
    "path": [{"stage": "sampling"}],
    "loss_tokens": 40,
    "outcomes": {"solved": 4},
}
"""A step as it is in the ledger."""


def never(words: str) -> None:
    raise AssertionError(words)


def scrape(telemetry: Telemetry) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample that the endpoint gives, by its name and its labels' values, sorted."""
    assert telemetry.prometheus is not None
    host, port = telemetry.prometheus
    text = urllib.request.urlopen(f"http://{host}:{port}/metrics").read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_what_a_run_shows(tmp_path: Path) -> None:
    config = TelemetryConfig(prometheus="127.0.0.1:0")
    with open_telemetry(config, tmp_path, {}, never) as telemetry:
        gauges.show(GAUGES)
        before = scrape(telemetry)
        signals.step_applied(ROW)
        gauges.show_step(ROW)
        with signals.stage_span("publish"):
            pass
        found = scrape(telemetry)
    assert found["patchgym_queue_depth", ()] == 5
    assert found["patchgym_rollout_stages", ("tool run_tests",)] == 1
    assert found["patchgym_learner_time_seconds_total", ("waiting",)] == 4
    assert found["patchgym_groups_total", ("dropped", "no_spread")] == 2
    assert found["patchgym_step_reward", ()] == 0.25
    assert ("patchgym_step_pass_rate", ()) not in found

    def more(name: str, *labels: str) -> float:
        return found[name, labels] - before.get((name, labels), 0.0)

    assert more("patchgym_staleness_count") == 4
    assert more("patchgym_staleness_sum") == 1
    assert more("patchgym_learner_steps_total") == 1
    assert more("patchgym_learner_tokens_total") == 40
    assert more("patchgym_learner_idle_time_seconds_total", "tool run_tests") == 2.5
    assert ("patchgym_learner_idle_time_seconds_total", ("training",)) not in found
    assert more("patchgym_learner_stage_duration_seconds_count", "publish") == 1
    assert ("process_resident_memory_bytes", ()) in found


def test_prometheus_and_the_file_are_told_the_same_by_one_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[MetricReader] = []
    add = MeterProvider.add_metric_reader

    def counted(self: MeterProvider, reader: MetricReader) -> None:
        readers.append(reader)
        add(self, reader)

    monkeypatch.setattr(MeterProvider, "add_metric_reader", counted)
    with open_telemetry(TelemetryConfig(prometheus="127.0.0.1:0"), tmp_path, {}, never) as opened:
        gauges.show(GAUGES)
        signals.group_taken(0.25)
        [reader] = readers
        assert isinstance(reader, SharedReader)
        before = reader.take()  # as the file does: no scrape gets what was asked for here
        scraped = [scrape(opened) for _ in range(2)]
    assert before is not None
    [last] = read_metrics(tmp_path / "trace")
    by_name = {metric["name"]: metric["points"] for metric in last["metrics"]}
    assert scraped[0]["patchgym_queue_wait_seconds_count", ()] >= 1
    for found in scraped:
        assert found["patchgym_queue_depth", ()] == by_name["patchgym.queue.depth"][0]["value"] == 5
        waits = by_name["patchgym.queue.wait"][0]
        assert found["patchgym_queue_wait_seconds_count", ()] == waits["count"]


def test_a_run_that_is_over_answers_no_more_and_the_next_one_may_have_its_port(
    tmp_path: Path,
) -> None:
    with open_telemetry(TelemetryConfig(prometheus="127.0.0.1:0"), tmp_path, {}, never) as first:
        gauges.show(GAUGES)
        assert first.prometheus is not None
        address = f"{first.prometheus[0]}:{first.prometheus[1]}"
        assert ("patchgym_queue_depth", ()) in scrape(first)
    with pytest.raises(OSError):
        scrape(first)
    with open_telemetry(TelemetryConfig(prometheus=address), tmp_path, {}, never) as second:
        assert ("patchgym_queue_depth", ()) not in scrape(second)


def test_a_port_in_use_is_refused_by_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = TelemetryConfig(prometheus=address)
        with pytest.raises(ConfigError, match=f"telemetry.prometheus: can't listen at {address}"):
            with open_telemetry(config, tmp_path, {}, never):
                pass


def test_a_collector_gets_spans_and_metrics_by_otlp(tmp_path: Path) -> None:
    run = tmp_path / "first-run"
    run.mkdir()
    with otlp_receiver() as received:
        with open_telemetry(TelemetryConfig(otlp=received.url), run, {}, never):
            gauges.show(GAUGES)
            with signals.step_span(4), signals.stage_span("pack"):
                pass
        assert not received.problems
        by_name = {span.name: span for span in received.spans}
        assert by_name["pack"].parent_span_id == by_name["step"].span_id
        assert [(a.key, a.value.int_value) for a in by_name["step"].attributes] == [
            ("patchgym.step", 4)
        ]
        depth = received.metrics["patchgym.queue.depth"]
        assert (depth.unit, depth.gauge.data_points[0].as_int) == ("{group}", 5)
        assert received.resource["service.name"] == "patchgym"
    kept = [span.name for span in read_spans(run / "trace")]
    assert kept == ["step", "pack"]


def test_a_collector_that_is_not_there_is_told_of_and_harms_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    told: list[str] = []
    config = TelemetryConfig(otlp=f"http://127.0.0.1:{port}")
    with open_telemetry(config, tmp_path, {}, told.append):
        with signals.step_span(0):
            pass
    assert told
    assert all("telemetry: " in words and str(port) in words for words in told)
    assert [span.name for span in read_spans(tmp_path / "trace")] == ["step"]


def events(folder: Path) -> Iterator[tuple[int, str, float]]:
    """TensorBoard's records: a length, its checksum, an event, its checksum."""
    from tensorboardX.proto import event_pb2

    messages: Any = event_pb2
    [path] = folder.iterdir()
    data = path.read_bytes()
    while data:
        size = struct.unpack("<Q", data[:8])[0]
        event = messages.Event.FromString(data[12 : 12 + size])
        for value in event.summary.value:
            yield event.step, value.tag, value.simple_value
        data = data[16 + size :]


def test_tensorboard_files_hold_each_steps_numbers(tmp_path: Path) -> None:
    with open_telemetry(TelemetryConfig(tensorboard=True), tmp_path, {}, never) as telemetry:
        telemetry.step(0, ROW)
        telemetry.step(1, {**ROW, "reward": 0.5})
    found = list(events(tmp_path / "tensorboard"))
    assert [each for each in found if each[1] == "reward"] == [
        (1, "reward", 0.25),
        (2, "reward", 0.5),
    ]
    assert (1, "queue/seconds/p50", 1.5) in found
    assert not any(tag.startswith(("path", "pass_rate")) for _, tag, _ in found)


def test_mlflow_keeps_each_steps_numbers_in_a_folder_and_goes_on_with_a_run(
    tmp_path: Path,
) -> None:
    from mlflow import MlflowClient

    where = tmp_path / "mlflow"
    run = tmp_path / "run-7"
    run.mkdir()
    settings = {"run": {"seed": 5}, "learner": {"row_tokens": [1, 2]}}
    for step in (0, 1):
        config = TelemetryConfig(mlflow=str(where))
        with open_telemetry(config, run, settings, never) as telemetry:
            telemetry.step(step, {**ROW, "reward": 0.25 + step})
    client = MlflowClient(tracking_uri=where.as_uri())
    experiment = client.get_experiment_by_name("patchgym")
    assert experiment is not None
    [kept] = client.search_runs([experiment.experiment_id])
    assert kept.info.run_name == "run-7"
    assert kept.info.status == "FINISHED"
    assert kept.data.params == {"run.seed": "5", "learner.row_tokens": "[1, 2]"}
    history = client.get_metric_history(kept.info.run_id, "reward")
    assert [(each.step, each.value) for each in history] == [(1, 0.25), (2, 1.25)]


def test_a_place_that_mlflow_cannot_use_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = TelemetryConfig(mlflow=str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="telemetry.mlflow can't be opened: "):
        with open_telemetry(config, tmp_path, {}, never):
            pass


def test_wandb_without_a_login_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(ConfigError, match=r"telemetry.wandb: not logged in: .*WANDB_MODE=offline"):
        with open_telemetry(TelemetryConfig(wandb="project"), tmp_path, {}, never):
            pass


def test_a_tracker_that_fails_is_told_once_and_left_out(tmp_path: Path) -> None:
    where, told = tmp_path / "mlflow", list[str]()
    config = TelemetryConfig(mlflow=str(where), tensorboard=True)
    with open_telemetry(config, tmp_path, {}, told.append) as telemetry:
        shutil.rmtree(where)
        for step in range(3):
            telemetry.step(step, ROW)
    assert len(told) == 1
    assert told[0].startswith("MLflow is left out from step 1 on: ")
    steps = [step for step, tag, _ in events(tmp_path / "tensorboard") if tag == "reward"]
    assert steps == [1, 2, 3]


def test_nothing_is_recorded_while_nobody_listens(tmp_path: Path) -> None:
    with open_telemetry(TelemetryConfig(trace=False), tmp_path, {}, never):
        with signals.step_span(0):
            assert not trace.get_current_span().is_recording()
    assert not list(read_spans(tmp_path / "trace"))
    assert (tmp_path / "trace" / FILE).is_file()
    with open_telemetry(TelemetryConfig(), tmp_path, {}, never), signals.step_span(0):
        assert trace.get_current_span().is_recording()
    with signals.step_span(0):
        assert not trace.get_current_span().is_recording()


def test_metrics_are_kept_when_the_run_ends(tmp_path: Path) -> None:
    with open_telemetry(TelemetryConfig(), tmp_path, {}, never):
        gauges.show(GAUGES)
        with signals.stage_span("pack"):
            pass
    [last] = read_metrics(tmp_path / "trace")
    by_name = {metric["name"]: metric for metric in last["metrics"]}
    assert by_name["patchgym.queue.depth"] == {
        "name": "patchgym.queue.depth",
        "unit": "{group}",
        "points": [{"value": 5}],
    }
    points = by_name["patchgym.learner.stage.duration"]["points"]
    [pack] = [each for each in points if each["attributes"] == {"patchgym.stage": "pack"}]
    assert sum(pack["counts"]) == pack["count"] >= 1
    assert len(pack["counts"]) == len(pack["bounds"]) + 1


def test_the_metrics_file_stays_within_its_bound(tmp_path: Path) -> None:
    with open_telemetry(TelemetryConfig(), tmp_path, {}, never):
        gauges.show(GAUGES)
    line = (tmp_path / "trace" / FILE).read_bytes()
    most = 10 * len(line)
    file = MetricsFile(tmp_path / "again", never, most)
    for _ in range(23):
        file._append(line)
    sizes = [(tmp_path / "again" / name).stat().st_size for name in (OLD_FILE, FILE)]
    assert sizes == [5 * len(line), 3 * len(line)]
    assert len(list(read_metrics(tmp_path / "again"))) == 8


@pytest.mark.parametrize(
    ("module", "settings", "extra"),
    [
        ("tensorboardX", {"tensorboard": True}, "observe"),
        ("opentelemetry.exporter.prometheus", {"prometheus": "127.0.0.1:0"}, "observe"),
        ("opentelemetry.exporter.otlp", {"otlp": "http://127.0.0.1:1"}, "observe"),
        ("opentelemetry.sdk", {"trace": False}, "train"),
        ("wandb", {"wandb": "project"}, "wandb"),
        ("mlflow", {"mlflow": "folder"}, "mlflow"),
    ],
)
def test_an_option_whose_package_is_missing_is_refused_with_its_extra(
    module: str, settings: dict[str, object], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    config = TelemetryConfig(**settings)  # type: ignore[arg-type]
    words = f"telemetry.{next(iter(settings))} needs .*{re.escape(f'patchgym[{extra}]')}"
    with pytest.raises(ConfigError, match=words):
        check_installed(config)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prometheus": "9464"}, "must be HOST:PORT"),
        ({"prometheus": "localhost:http"}, "must be HOST:PORT"),
        ({"prometheus": "localhost:70000"}, "must be HOST:PORT"),
        ({"otlp": "localhost:4318"}, "must be http://HOST:PORT"),
        ({"trace_mib": 0}, "must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        TelemetryConfig(**settings)  # type: ignore[arg-type]
