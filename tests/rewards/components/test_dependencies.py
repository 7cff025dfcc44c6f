"""Which packages a diff newly depends on, and what pip-audit is told to say of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from changes import NO_CHANGE, change

from patchgym.rewards.components.audit import audit, read_audit
from patchgym.rewards.components.dependencies import Dependency, new_dependencies

PYPROJECT = """[build-system]
requires = ["setuptools>=77"]
[project]
name = "shop"
dependencies = ["attrs"]
"""

CONDA = """name: x
dependencies:
  - python=3.11
  - conda-forge::yarl=1.2
  - pip:
    - attrs==1
"""


def named(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Names that the change brings."""
    return [each.name for each in new_dependencies(change(before, after), NO_CHANGE).found]


@pytest.mark.parametrize(
    ("path", "before", "after", "names"),
    [
        ("requirements.txt", "attrs\n", "attrs\nRequests[socks]>=2 # why\n", ["requests"]),
        ("requirements/dev.in", "", "-r base.in\n--hash=x\nblack==26 --hash=sha256:0\n", ["black"]),
        ("dev-requirements.txt", "", "a \\\n  ; python_version > '3'\n-e .\n./local\n", ["a"]),
        ("requirements.txt", "", "git+https://x.invalid/y.git#egg=Left_Pad\n", ["left-pad"]),
        ("requirements.txt", "", "leftpad @ https://x.invalid/leftpad.whl\n", ["leftpad"]),
        (
            "pyproject.toml",
            PYPROJECT,
            PYPROJECT.replace('"attrs"', '"attrs", "httpx>=1"'),
            ["httpx"],
        ),
        (
            "pyproject.toml",
            PYPROJECT,
            PYPROJECT + '[project.optional-dependencies]\nx = ["yarl"]\n',
            ["yarl"],
        ),
        (
            "pyproject.toml",
            PYPROJECT,
            PYPROJECT + '[dependency-groups]\nx = ["yarl", {include-group = "y"}]\n',
            ["yarl"],
        ),
        (
            "pyproject.toml",
            PYPROJECT,
            PYPROJECT + '[project.optional-dependencies]\nall = ["shop[x]"]\n',
            [],
        ),
        (
            "pyproject.toml",
            "[tool.poetry]\n",
            "[tool.poetry.dependencies]\npython = '^3.11'\nyarl = '^1'\n",
            ["yarl"],
        ),
        (
            "pyproject.toml",
            "",
            "[tool.poetry.group.dev.dependencies]\nyarl = {version = '1.2'}\n",
            ["yarl"],
        ),
        ("pyproject.toml", "", "[tool.hatch.envs.test]\nextra-dependencies = ['yarl']\n", ["yarl"]),
        (
            "setup.cfg",
            "",
            "[options]\ninstall_requires =\n  attrs\n  yarl>1; os_name == 'nt'\n",
            ["attrs", "yarl"],
        ),
        ("setup.cfg", "", "[options.extras_require]\nx =\n  yarl\n", ["yarl"]),
        (
            "setup.py",
            "",
            "setup(install_requires=['yarl'] + EXTRA, name='x')\nEXTRA = ['attrs']\n",
            ["attrs", "yarl"],
        ),
        ("setup.py", "", "X = {}\nX['dev'] = ['yarl']\nsetup(extras_require=X)\n", ["yarl"]),
        ("setup.py", "", "setup(extras_require={'dev': ['yarl']}, keywords=['attrs'])\n", ["yarl"]),
        (
            "Pipfile",
            "",
            "[packages]\nyarl = '*'\n[dev-packages]\nattrs = '==1'\n",
            ["attrs", "yarl"],
        ),
        ("environment.yml", "", CONDA, ["attrs", "yarl"]),
        (
            "web/package.json",
            '{"dependencies": {"a": "1"}}',
            '{"dependencies": {"a": "2"}, "devDependencies": {"@b/c": ""}}',
            ["@b/c"],
        ),
        ("notes.txt", "", "yarl\n", []),
        ("constraints.txt", "", "yarl==1\n", []),
    ],
)
def test_each_kind_of_manifest_tells_what_it_newly_names(
    path: str, before: str, after: str, names: list[str]
) -> None:
    assert named({path: before}, {path: after}) == names


def test_other_versions_and_moved_requirements_are_not_new() -> None:
    assert (
        named({"requirements.txt": "a==1\n"}, {"requirements.txt": "A ==2 ; os_name=='nt'\n"}) == []
    )
    moved = {"requirements.txt": "", "pyproject.toml": "[project]\ndependencies = ['a']\n"}
    assert named({"requirements.txt": "a\n", "pyproject.toml": ""}, moved) == []
    assert named({"old.py": "", "requirements.txt": "a\n"}, {"requirements.txt": "a\n"}) == []


def test_what_the_tasks_own_solution_adds_is_not_counted() -> None:
    mine = change({"requirements.txt": ""}, {"requirements.txt": "a\nb\n"})
    gold = change({"setup.cfg": ""}, {"setup.cfg": "[options]\ninstall_requires = a>=1\n"})
    assert [each.name for each in new_dependencies(mine, gold).found] == ["b"]


def test_a_dependency_has_its_line_and_its_pin() -> None:
    made = change({}, {"requirements.txt": "# a list\na>=1\nb==2.0.1\nc==1.*\n"})
    found = {
        each.name: (each.line, each.pinned) for each in new_dependencies(made, NO_CHANGE).found
    }
    assert found == {"a": (2, ""), "b": (3, "2.0.1"), "c": (4, "")}


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("pyproject.toml", "[project\n", "no TOML"),
        ("pyproject.toml", "x = " + "[" * 5000, "no TOML"),
        ("Pipfile", b"\xff\xfe\0", "no TOML"),
        ("setup.py", "def (:\n", "no Python that can be parsed: SyntaxError"),
        ("setup.py", "x = " + "(" * 5000, "no Python that can be parsed"),
        ("setup.py", "x\0", "no Python that can be parsed"),
        ("setup.py", "x = 1\n" * 30_000, "more than 100000 nodes"),
        ("setup.cfg", "no section\n", "no section headers"),
        ("package.json", "{", "no JSON"),
        ("package.json", "[" * 100_000, "no JSON"),
        ("requirements.txt", "a" * 300_000, "over 256 KiB"),
        ("requirements.txt", "".join(f"a{n}\n" for n in range(3000)), "more than 2000"),
    ],
)
def test_a_manifest_that_can_not_be_read_is_named(
    path: str, content: str | bytes, reason: str
) -> None:
    found = new_dependencies(change({}, {path: content}), NO_CHANGE)
    assert found.found == ()
    (told,) = found.unread
    assert told.startswith(f"{path}: ") and reason.lower() in told.lower()


def test_odd_shapes_and_endless_names_are_read_as_far_as_they_go() -> None:
    odd = {
        "pyproject.toml": "project = 3\n[tool]\npoetry = ['x']\n",
        "package.json": '{"dependencies": ["a"], "devDependencies": null}',
        "setup.cfg": "[options]\ninstall_requires = %(x)s\n  ;;;\n  file: a.txt\n",
        "requirements.txt": "a" * 5000 + "\n" + "b; " + "(" * 900 + "\n@@@\n\udcff\n",
        "setup.py": "A = [A, B]\nB = A + A\nsetup(install_requires=[A, *B, f'{x}', 3])\n",
    }
    found = new_dependencies(change({}, odd), NO_CHANGE)
    assert [each.name for each in found.found if each.path != "requirements.txt"] == []
    assert "b" in {each.name for each in found.found} and found.unread == ()


PINNED = (Dependency(ecosystem="python", name="yarl", pinned="1.2"),)


def test_pip_audits_answer_is_read() -> None:
    told = {
        "dependencies": [
            {"name": "yarl", "version": "1.2", "vulns": [{"id": "PYSEC-1"}, {"id": "CVE-2"}]},
            {"name": "attrs", "version": "1", "vulns": []},
            {"name": "own", "skip_reason": "not found"},
        ]
    }
    found = read_audit(json.dumps(told).encode())
    assert found.vulnerable == {"yarl": ("PYSEC-1", "CVE-2")}
    assert found.problem == "pip-audit knows nothing of own"


@pytest.mark.parametrize(
    "output", [b"", b"\xff", b"[]", b"{", b'{"dependencies": 3}', b"[" * 100_000]
)
def test_an_answer_that_makes_no_sense_is_a_problem_and_no_error(output: bytes) -> None:
    found = read_audit(output, b"Traceback\nConnectionError: no route\n")
    assert found.vulnerable == {} and found.problem.startswith("pip-audit")
    odd = b'{"dependencies": [3, {"name": "a", "vulns": [3, {"id": 4}]}, {"vulns": {}}]}'
    assert read_audit(odd).vulnerable == {}


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """A program in place of pip-audit."""
    (folder / "pip_audit.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_pip_audit_is_asked_for_pinned_packages_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import json, sys\n"
        "told = open(sys.argv[sys.argv.index('-r') + 1]).read().strip().replace('==', ' ')\n"
        "assert '--disable-pip' in sys.argv\n"
        "packages = [{'name': told, 'vulns': [{'id': 'X'}]}]\n"
        "print(json.dumps({'dependencies': packages}))\n"
    )
    stand_in(tmp_path, monkeypatch, source)
    others = (
        Dependency(ecosystem="npm", name="left-pad", pinned="1"),
        Dependency(ecosystem="python", name="attrs"),
        Dependency(ecosystem="python", name="odd", pinned="1\n--index-url x"),
    )
    assert audit([*PINNED, *others], 60.0).vulnerable == {"yarl 1.2": ("X",)}
    assert audit(others, 60.0).problem == ""


def test_an_audit_that_hangs_or_crashes_is_a_problem_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "import time\ntime.sleep(600)\n")
    assert audit(PINNED, 0.5).problem == "pip-audit: no answer within 0.5 s"
    stand_in(tmp_path, monkeypatch, "raise SystemExit('no index answers')\n")
    assert audit(PINNED, 60.0).problem == "pip-audit gave no answer: no index answers"
    stand_in(tmp_path, monkeypatch, "raise ModuleNotFoundError('No module named pip_audit')\n")
    assert "add the extra `audit`" in audit(PINNED, 60.0).problem
