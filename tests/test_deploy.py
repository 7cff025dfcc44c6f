"""What `deploy/` ships: read by the tools that will read it, and of metrics that the code makes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from docker_hosts import need
from instruments import prometheus_names

_NAME = re.compile(r"\b(?:patchgym|gen_ai)_[a-z0-9_]+")


@pytest.fixture
def deploy(root: Path) -> Path:
    return root / "deploy"


@pytest.fixture
def dashboard(deploy: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((deploy / "grafana/dashboards/patchgym.json").read_text())
    return found


def run(*words: str, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def series_in(expression: str) -> set[str]:
    """Names of series in a PromQL expression: what is no label, and no grouping by one."""
    bare = re.sub(r"\{[^}]*\}", "{}", expression)
    bare = re.sub(r"\b(?:by|on|without)\s*\([^)]*\)", "", bare)
    return set(_NAME.findall(bare))


def labels_in(expression: str) -> set[str]:
    grouped = re.findall(r"\bby\s*\(([^)]*)\)", expression)
    matched = re.findall(r"\{([^}]*)\}", expression)
    names = {name for inner in matched for name in re.findall(r"(\w+)\s*=", inner)}
    return names | set(_NAME.findall(" ".join(grouped)))


def panels(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


def expressions(deploy: Path, dashboard: Mapping[str, Any]) -> list[str]:
    rules = (deploy / "prometheus/alerts.yml").read_text()
    found = re.findall(r"expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)", rules)
    shown = [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]
    return [*("".join(each) for each in found), *shown]


def test_prometheus_takes_its_configuration_and_the_alerts(deploy: Path) -> None:
    promtool = need("promtool", "prometheus")
    said = run(promtool, "check", "config", "prometheus.yml", cwd=deploy / "prometheus")
    assert "1 rule files found" in said
    assert "10 rules found" in said


TIME = "patchgym_learner_time_seconds_total"
CASES: dict[str, dict[str, str]] = {
    "PatchgymLearnerIdle": {
        f'{TIME}{{instance="a",patchgym_learner_state="training"}}': "0+10x90",
        f'{TIME}{{instance="a",patchgym_learner_state="waiting"}}': "0+50x90",
    },
    "PatchgymQueueEmpty": {
        'patchgym_queue_depth{instance="a"}': "0x90",
        f'{TIME}{{instance="a",patchgym_learner_state="waiting"}}': "0+50x90",
    },
    "PatchgymRewardSlow": {
        'patchgym_reward_duration_seconds_bucket{instance="a",le="300"}': "0x90",
        'patchgym_reward_duration_seconds_bucket{instance="a",le="600"}': "0+3x90",
        'patchgym_reward_duration_seconds_bucket{instance="a",le="+Inf"}': "0+3x90",
    },
    "PatchgymToolSlow": {
        'patchgym_tool_duration_seconds_bucket{instance="a",le="120"}': "0x90",
        'patchgym_tool_duration_seconds_bucket{instance="a",le="300"}': "0+3x90",
        'patchgym_tool_duration_seconds_bucket{instance="a",le="+Inf"}': "0+3x90",
    },
    "PatchgymSandboxFailures": {
        'patchgym_sandbox_failures_total{instance="a",error_type="SandboxLost"}': "0+3x90"
    },
    "PatchgymFlakyTests": {
        'patchgym_test_outcomes_total{instance="a",patchgym_test_outcome="flaky"}': "0+1x90",
        'patchgym_test_outcomes_total{instance="a",patchgym_test_outcome="passed"}': "0+9x90",
    },
    "PatchgymStale": {
        'patchgym_groups_total{instance="a",patchgym_group_reason="stale"}': "0+1x90",
        'patchgym_groups_total{instance="a",patchgym_group_state="committed"}': "0+1x90",
    },
    "PatchgymNoProgress": {
        'patchgym_learner_steps_total{instance="a",job="patchgym"}': "7x90",
        'up{instance="a",job="patchgym"}': "1x90",
    },
    "PatchgymSamplerMismatch": {'patchgym_step_mismatch{instance="a"}': "0.2x90"},
    "PatchgymAlarm": {'patchgym_alarms_total{instance="a",patchgym_alarm="identical"}': "0+1x90"},
}
"""For each alert, series that it must fire for, with what they gain a minute."""

HEALTHY = {
    f'{TIME}{{instance="a",patchgym_learner_state="training"}}': "0+50x90",
    f'{TIME}{{instance="a",patchgym_learner_state="waiting"}}': "0+10x90",
    'patchgym_queue_depth{instance="a"}': "0 3 0 2x87",
    'patchgym_learner_steps_total{instance="a",job="patchgym"}': "0+1x90",
    'up{instance="a",job="patchgym"}': "1x90",
    'patchgym_step_mismatch{instance="a"}': "0.001x90",
    'patchgym_alarms_total{instance="a",patchgym_alarm="identical"}': "1x90",
    'patchgym_reward_duration_seconds_bucket{instance="a",le="300"}': "0+3x90",
    'patchgym_reward_duration_seconds_bucket{instance="a",le="+Inf"}': "0+3x90",
}


@pytest.mark.parametrize("sick", [True, False])
def test_each_alert_fires_for_what_it_is_about_and_not_for_a_healthy_run(
    deploy: Path, tmp_path: Path, sick: bool
) -> None:
    shutil.copy(deploy / "prometheus/alerts.yml", tmp_path)
    lines = ["rule_files: [alerts.yml]", "evaluation_interval: 1m", "tests:"]
    for alert, series in CASES.items():
        lines += ["- interval: 1m", "  input_series:"]
        for name, values in (series if sick else HEALTHY).items():
            lines += [f"  - series: {json.dumps(name)}", f"    values: {json.dumps(values)}"]
        firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
        lines += ["  promql_expr_test:", f"  - expr: {firing}", "    eval_time: 85m"]
        lines += ["    exp_samples: [{value: 1, labels: '{}'}]"] if sick else []
    (tmp_path / "tests.yml").write_text("\n".join(lines) + "\n")
    promtool = need("promtool", "prometheus")
    assert "SUCCESS" in run(promtool, "test", "rules", "tests.yml", cwd=tmp_path)


def test_there_is_a_case_for_every_alert(deploy: Path) -> None:
    names = re.findall(r"alert: (\w+)", (deploy / "prometheus/alerts.yml").read_text())
    assert set(names) == set(CASES)


def test_every_metric_in_dashboard_and_alerts_is_one_that_the_code_makes(
    deploy: Path, dashboard: dict[str, Any]
) -> None:
    known = prometheus_names()
    found = expressions(deploy, dashboard)
    assert len(found) > 60
    used = {name for expression in found for name in series_in(expression)}
    assert used - known == set()
    # And nothing that the code makes is left out of the dashboard.
    shown = [target["expr"] for each in panels(dashboard) for target in each["targets"]]
    ending = re.compile(r"_(bucket|sum|count|created)$")
    families = {ending.sub("", name) for name in known} - {"target_info"}
    assert families - {ending.sub("", n) for each in shown for n in series_in(each)} == set()


def test_every_label_in_them_is_one_that_the_code_sets(
    root: Path, deploy: Path, dashboard: dict[str, Any]
) -> None:
    parts = ("sandbox", "agent", "rewards", "trainer/telemetry")
    files = [path for part in parts for path in (root / part).glob("*.py")]
    code = "\n".join(path.read_text() for path in files)
    set_in_code = {
        name.replace(".", "_") for name in re.findall(r'"([a-z_]+(?:\.[a-z_]+)+)"', code)
    }
    used = {label for e in expressions(deploy, dashboard) for label in labels_in(e)}
    assert used - set_in_code - {"instance", "job", "le"} == set()


def test_grafana_knows_every_key_of_the_dashboard(dashboard: dict[str, Any]) -> None:
    from grafana_foundation_sdk.cog import plugins
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    plugins.register_default_plugins()
    back = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    assert list(unlike(dashboard, back)) == []


def unlike(given: object, back: object, path: str = "") -> Iterator[str]:
    """Where `back` lacks something that is in `given`."""
    if isinstance(given, dict) and isinstance(back, dict):
        for key, value in given.items():
            yield from unlike(value, back.get(key), f"{path}.{key}")
    elif isinstance(given, list) and isinstance(back, list) and len(given) == len(back):
        for number, (one, other) in enumerate(zip(given, back, strict=True)):
            yield from unlike(one, other, f"{path}[{number}]")
    elif given != back:
        yield f"{path}: {given!r} came back as {back!r}"


def test_the_dashboards_panels_lie_side_by_side(dashboard: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], str] = {}
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies over {taken[x, y]}"
                taken[x, y] = panel["title"]


def test_compose_takes_the_file_and_mounts_what_is_there(deploy: Path) -> None:
    compose = need("docker-compose", "docker-compose")
    said = run(compose, "-f", "compose.yaml", "config", cwd=deploy)
    mounted = re.findall(rf"{re.escape(str(deploy))}\S*?(?=:/|$)", said, re.MULTILINE)
    assert len(mounted) == 3
    for place in mounted:
        assert Path(place).is_dir(), place
    listens = re.findall(r"(?:listen-address=|HTTP_ADDR: )(\S+)", said)
    assert [each.partition(":")[0] for each in listens] == ["127.0.0.1"] * 2
