"""The instruments that the code makes, as they are made, and what Prometheus calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

LISTING = """
import importlib, json
from opentelemetry import metrics

found = []

class Meter(metrics.NoOpMeter):
    def __getattribute__(self, name):
        if not name.startswith("create_"):
            return super().__getattribute__(name)
        make = super().__getattribute__(name)
        def noted(*words, **more):
            names = ["name", "callbacks", "unit", "description"]
            if "observable" not in name:
                names.remove("callbacks")
            told = dict(zip(names, words)) | more
            kind = name.removeprefix("create_").removeprefix("observable_")
            found.append([kind, told["name"], told.get("unit", ""), told.get("description", "")])
            return make(*words, **more)
        return noted

class Provider(metrics.NoOpMeterProvider):
    def get_meter(self, name, *more, **others):
        return Meter(name)

metrics.set_meter_provider(Provider())
for layer in ("sandbox", "agent", "rewards", "trainer"):
    importlib.import_module(f"patchgym.{layer}.telemetry")
importlib.import_module("patchgym.trainer.training")
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An instrument."""

    kind: str
    """histogram, counter, up_down_counter or gauge."""
    name: str
    unit: str
    description: str


@cache
def instruments() -> tuple[Made, ...]:
    """All that the layers make when they are imported."""
    done = subprocess.run(
        [sys.executable, "-c", LISTING], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    return tuple(Made(kind=k, name=n, unit=u, description=d) for k, n, u, d in found)


@cache
def prometheus_names() -> frozenset[str]:
    """The series that Prometheus gets of them, by the exporter's own rules."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from prometheus_client import CollectorRegistry

    def one(options: CallbackOptions) -> list[Observation]:
        return [Observation(1)]

    registry = CollectorRegistry()
    reader = PrometheusMetricReader(scope_info_enabled=False, registry=registry)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    meter = provider.get_meter("all")
    for made in instruments():
        if made.kind == "histogram":
            meter.create_histogram(made.name, made.unit).record(1)
        elif made.kind == "counter":
            meter.create_counter(made.name, made.unit).add(1)
        elif made.kind == "up_down_counter":
            meter.create_up_down_counter(made.name, made.unit).add(1)
        else:
            meter.create_observable_gauge(made.name, [one], made.unit)
    names = frozenset(sample.name for family in registry.collect() for sample in family.samples)
    provider.shutdown()
    return names
