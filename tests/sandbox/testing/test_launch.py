"""Where the probe goes into real projects' test commands."""

from __future__ import annotations

import pytest

from patchgym.sandbox import SandboxUsageError, TestCommand
from patchgym.sandbox.testing.launch import dotted, fill, with_probe

PROBE = '-c "$PATCHGYM_PROBE"'
WHICH = '"$(command -v python || command -v python3)"'


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python3 bin/test -C a.py", f"python3 {PROBE} bin/test -C a.py"),
        ("python -W ignore -m pytest -q a.py", f"python -W ignore {PROBE} -m pytest -q a.py"),
        ("python -Wignore -B run.py", f"python -Wignore -B {PROBE} run.py"),
        ("/opt/env/bin/python3.9 -m unittest", f"/opt/env/bin/python3.9 {PROBE} -m unittest"),
        ("pytest -rA a.py", f"{WHICH} {PROBE} -m pytest -rA a.py"),
        ("/v/bin/pytest a.py", f"/v/bin/python {PROBE} -m pytest a.py"),
        ("./tests/runtests.py -v 2 x", f"python3 {PROBE} ./tests/runtests.py -v 2 x"),
        ("cd tests && A=1 env B=2 python t.py", f"cd tests && A=1 env B=2 python {PROBE} t.py"),
        (". env/bin/activate; pytest", f". env/bin/activate; {WHICH} {PROBE} -m pytest"),
    ],
)  # fmt: skip
def test_the_probe_is_what_python_runs(command: str, expected: str) -> None:
    assert with_probe(command) == expected


@pytest.mark.parametrize("command", ["make test", "tox -e py39", "npm test", "A=1", "python3"])
def test_a_command_without_a_place_is_refused_with_advice(command: str) -> None:
    with pytest.raises(SandboxUsageError, match="report = junit"):
        with_probe(command)


def test_placeholders_are_quoted_words() -> None:
    template = "run {test_files} -- {test_modules} {test_ids} > {report}"
    made = fill(template, files=["tests/a b.py"], ids=["x[1 2]", "y"], report="/tmp/r.xml")
    assert made == "run 'tests/a b.py' -- 'a b' 'x[1 2]' y > /tmp/r.xml"


def test_modules_are_named_as_django_names_them() -> None:
    assert dotted("tests/forms_tests/widget_tests/test_x.py") == "forms_tests.widget_tests.test_x"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "tap"}, "pytest, unittest, sympy, junit or log:NAME"),
        ({"command": "run {files}"}, "no placeholder {files}"),
        ({"kind": "junit"}, "needs a test command"),
    ],
)
def test_commands_that_can_not_work_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(SandboxUsageError, match=message):
        TestCommand(kind=values.get("kind", "pytest"), command=values.get("command", ""))
