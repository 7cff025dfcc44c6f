"""Failing tests run again in the same clean state, and how often they fail is kept."""

from __future__ import annotations

import pytest

from patchgym.sandbox import Sandbox, TestReport, run_tests
from patchgym.sandbox.testing import describe

pytestmark = pytest.mark.docker

RATES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
EACH = 10
FLAKY = f"""
import os
import pytest

def chance():
    return int.from_bytes(os.urandom(4), "big") / 2**32

@pytest.mark.parametrize("n", range({EACH}))
@pytest.mark.parametrize("rate", {RATES})
def test_flaky(rate, n):
    assert chance() >= rate

@pytest.mark.parametrize("n", range({EACH}))
def test_bad(n):
    assert n < 0

@pytest.mark.parametrize("n", range({EACH}))
def test_good(n):
    pass
""".encode()
STATEFUL = b"""
import os, pathlib

def test_dirty():
    home = pathlib.Path.home()
    for place in (pathlib.Path("left.txt"), pathlib.Path("/tmp/left"), home / "left"):
        assert not place.exists(), place
        place.write_text("x")
    tracked = pathlib.Path("tracked.txt")
    assert tracked.read_text() == "as it was"
    tracked.write_text("changed")
    assert False, "always"
"""


def ids(name: str, *parameters: object) -> str:
    return f"test_f.py::{name}[{'-'.join(map(str, parameters))}]"


@pytest.mark.slow
async def test_known_rates_are_found_and_stable_failures_stay_failures(sandbox: Sandbox) -> None:
    await sandbox.write("test_f.py", FLAKY)
    flaky = {ids("test_flaky", rate, n): rate for rate in RATES for n in range(EACH)}
    bad = [ids("test_bad", n) for n in range(EACH)]
    good = [ids("test_good", n) for n in range(EACH)]
    found: set[str] = set()
    for _ in range(10):
        report = await run_tests(sandbox, test_ids=[*flaky, *bad, *good], timeout=120, reruns=3)
        assert {report.outcomes[test] for test in bad} == {"failed"}
        assert {report.outcomes[test] for test in good} == {"passed"}
        found |= report.flakes.keys()
    often = [test for test, rate in flaky.items() if rate >= 0.2]
    assert found <= flaky.keys()
    # 96% are expected; fewer than 85% would be a chance of one in ten thousand.
    assert len(found & set(often)) >= 0.85 * len(often)


async def test_each_rerun_begins_in_the_same_state(sandbox: Sandbox) -> None:
    await sandbox.run(
        "git init -q . && printf 'as it was' > tracked.txt && git add tracked.txt"
        " && git -c user.name=a -c user.email=b commit -qm x",
        timeout=30,
    )
    await sandbox.write("test_s.py", STATEFUL)
    report = await run_tests(sandbox, test_ids=["test_s.py::test_dirty"], timeout=60, reruns=3)
    runs = report.runs["test_s.py::test_dirty"]
    assert [run.outcome for run in runs] == ["failed"] * 4
    assert all("always" in run.message for run in runs), runs


async def test_a_run_that_can_not_be_believed_makes_nothing_flaky(sandbox: Sandbox) -> None:
    code = b"""
import os, pathlib
mark = pathlib.Path("/dev/shm/second")
if mark.exists():
    import atexit, sys
    def test_a(): pass
    def test_z(): os._exit(0)
else:
    mark.write_text("")
    def test_a(): assert False
    def test_z(): assert False
"""
    await sandbox.write("test_x.py", code)
    asked = ["test_x.py::test_a", "test_x.py::test_z"]
    report = await run_tests(sandbox, test_ids=asked, timeout=60, reruns=1)
    assert report.outcomes["test_x.py::test_a"] == "error"


async def test_words_say_what_matters(sandbox: Sandbox) -> None:
    code = b"""
import os, pathlib, time
def test_wrong():
    print("noise")
    assert sorted([2, 1]) == [2, 1]
def test_slow(): time.sleep(60)
def test_flaky():
    mark = pathlib.Path("/dev/shm/again")
    if not mark.exists():
        mark.write_text("")
        assert False, "first time"
def test_good(): pass
"""
    await sandbox.write("test_x.py", code)
    names = ("wrong", "slow", "flaky", "good", "gone")
    asked = [f"test_x.py::test_{name}" for name in names]
    report = await run_tests(sandbox, test_ids=asked, timeout=60, per_test_timeout=1, reruns=1)
    words = describe(report)
    assert words.splitlines()[0].startswith("1 of 5 tests passed (")
    assert "assert sorted([2, 1]) == [2, 1]\n    got [1, 2]" in words
    assert "failed test_x.py::test_wrong (in each of 2 runs)" in words
    assert "timeout test_x.py::test_slow" in words
    assert "flaky test_x.py::test_flaky: did not pass in 1 of 2 runs (95% interval" in words
    assert "not_run test_x.py::test_gone" in words
    assert "test_good" not in words


def test_words_are_cut_aloud() -> None:
    report = TestReport(
        outcomes={f"t.py::test_{n}": "failed" for n in range(100)},
        messages={f"t.py::test_{n}": "assert 1 == 2" for n in range(100)},
        exit_code=None, timed_out=True, duration=60.0, cpu_seconds=1.0, consistent=False, killed=7,
        problem="the run's time was up", output="\n".join(f"line {n}" for n in range(40)),
    )  # fmt: skip
    words = describe(report, limit=1000)
    assert len(words) < 1200
    assert "stopped at its time limit, 7 processes killed" in words
    assert "more tests not shown]" in words
    assert words.endswith("line 39")
    assert "Last lines printed (28 before them cut):" in words
