"""The unit of a sandbox host, by systemd's own reader."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from docker_hosts import need

UNIT = "patchgym-sandbox-host.service"
MOST_EXPOSED = 4.0
"""Of 10, by `systemd-analyze security`: what it calls OK ends at 5."""


@pytest.fixture
def unit(root: Path, tmp_path: Path) -> Path:
    """The unit with this environment's programs, and a Docker unit beside it."""
    text = (root / "deploy/systemd" / UNIT).read_text()
    here = Path(sys.executable).parent
    (tmp_path / UNIT).write_text(text.replace("/opt/patchgym/bin", str(here)))
    docker = "[Unit]\nDescription=Docker\n[Service]\nExecStart=/bin/true\n"
    (tmp_path / "docker.service").write_text(docker)
    return tmp_path / UNIT


def verify(unit: Path) -> subprocess.CompletedProcess[str]:
    analyze = need("systemd-analyze", "systemd")
    words = [analyze, "verify", "--man=no", str(unit)]
    return subprocess.run(words, capture_output=True, text=True, cwd=unit.parent)


def test_systemd_takes_the_unit(unit: Path) -> None:
    done = verify(unit)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("NoNewPrivileges=yes", "NoNewPrivilege=yes", "'NoNewPrivilege'"),
        ("Restart=always", "Restart=ever", "Failed to parse"),
        ("Requires=docker.service", "Requires=docked.service", "docked.service"),
    ],
)
def test_systemd_refuses_a_mistake(unit: Path, right: str, wrong: str, words: str) -> None:
    unit.write_text(unit.read_text().replace(right, wrong))
    done = verify(unit)
    assert words in done.stderr


def test_the_service_is_confined(unit: Path) -> None:
    analyze = need("systemd-analyze", "systemd")
    words = [analyze, "security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}"]
    done = subprocess.run([*words, str(unit)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-200:]


def test_it_starts_ray_as_ray_wants_it_and_reaps_by_a_command_that_is_there(unit: Path) -> None:
    from ray.scripts.scripts import cli

    text = unit.read_text().replace("\\\n", " ")
    (start,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    _, name, *words = shlex.split(start.replace("${RAY_HEAD}", "10.0.0.1:6379"))
    found = cli.commands[name].make_context(name, words).params
    assert found["address"] == "10.0.0.1:6379"
    assert found["block"] is True
    assert found["resources"] == '{"sandbox_host": 1, "reward_host": 1}'
    (reap,) = re.findall(r"^ExecStopPost=(.*)$", text, re.MULTILINE)
    done = subprocess.run([*shlex.split(reap), "--help"], capture_output=True, text=True)
    assert done.returncode == 0
