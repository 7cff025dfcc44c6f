"""The reward section of a run: what it means, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from patchgym.rewards import RewardConfig
from patchgym.rewards.registry import BUILT_IN, component_names, make_component, source_of

OWN = """
from dataclasses import dataclass
from patchgym.rewards import Component, Measurement

@dataclass(frozen=True, kw_only=True)
class Todos(Component):
    limit: int = 3
    names: tuple[str, ...] = ()

    def __post_init__(self):
        if self.limit < 1:
            raise ValueError(f"limit is {self.limit}: it must be >= 1")
        if self.limit == 99:
            raise KeyError("ninety-nine")

    def measure(self, scene):
        return Measurement(value=0.0)

@dataclass(frozen=True, kw_only=True)
class Unfinished(Component):
    limit: int = 3

class NoDataclass(Component):
    def measure(self, scene):
        return Measurement(value=0.0)

nothing = 3
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def test_by_default_tests_count_and_size_costs_a_little() -> None:
    config = RewardConfig.of()
    assert {part.name: part.signed for part in config.parts} == {"tests": 1.0, "patch_size": -0.05}
    tests, size = config.part("tests"), config.part("patch_size")
    assert tests is not None and (tests.gate, tests.required) == ("", True)
    assert size is not None and (size.gate, size.required) == ("tests", False)
    assert config.bounds == (-0.05, 1.0)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_component_can_be_named(name: str) -> None:
    config = RewardConfig.of({name: 0.5})
    part = config.part(name)
    assert part is not None and part.weight == 0.5
    assert name in component_names()


def test_a_section_says_weights_options_and_places(own: str) -> None:
    config = RewardConfig.of({
        "tests": 2,
        "patch_size": {"weight": 0.1, "scale": 20.0, "deadline": 5},
        "todos": {"use": f"{own}:Todos", "weight": 0, "limit": 2, "gate": "patch_size",
                  "gate_above": 0.5, "required": True, "names": ["a"]},
        "clip": [-1, 1],
        "normalize": "components",
    })  # fmt: skip
    size, todos = config.part("patch_size"), config.part("todos")
    assert size is not None and todos is not None
    assert (size.options, size.deadline) == ({"scale": 20.0}, 5)
    assert (todos.gate, todos.gate_above, todos.required) == ("patch_size", 0.5, True)
    assert vars(todos.component) == {"limit": 2, "names": ("a",)}
    assert (config.clip, config.normalize, config.combine) == ((-1.0, 1.0), "components", "sum")
    assert config.bounds == (-0.1, 1.0)


def test_a_rubric_keeps_the_readers_order() -> None:
    config = RewardConfig.of({"combine": "rubric", "patch_size": 0.25, "tests": 1.0})
    assert [part.name for part in config.parts] == ["patch_size", "tests"]
    assert config.bounds == (0.0, 1.25)


def test_a_configuration_is_written_as_it_is_read(own: str) -> None:
    config = RewardConfig.of({
        "todos": {"use": f"{own}:Todos", "weight": 0.5, "limit": 2, "gate": "", "deadline": 9},
        "tests": {"weight": 2.0, "required": False},
        "clip": [0, 1],
        "combine": "rubric",
    })  # fmt: skip
    section = json.loads(json.dumps(config.as_mapping()))
    again = RewardConfig.of(section)
    assert again.as_mapping() == section
    assert [replace_component(part) for part in again.parts] == [
        replace_component(part) for part in config.parts
    ]


def replace_component(part: Any) -> Any:
    """Classes of a file are others each time it is loaded."""
    return replace(part, component=None)


WRONG: list[tuple[Mapping[str, Any], str]] = [
    ({"tests": -1}, r"tests\.weight is -1: it must be 0 to 1000$"),
    (
        {"patch_size": -1},
        r"patch_size\.weight is -1: .*\(a penalty's weight is taken off by itself",
    ),
    ({"tests": float("nan")}, r"tests\.weight is nan: it must be a finite number"),
    ({"tests": float("inf")}, r"tests\.weight is inf: it must be a finite number"),
    ({"tests": 5000}, r"tests\.weight is 5000: it must be 0 to 1000"),
    ({"tests": "1.0"}, r"tests\.weight is '1\.0': it must be a finite number"),
    ({"tests": True}, r"tests\.weight is True: it must be a finite number"),
    ({"tests": None}, r"tests\.weight is None: it must be a finite number"),
    ({"tests": 0}, "no component that earns anything has a weight: set tests = 1.0"),
    ({"test": 1}, r"test: no such component; did you mean tests\?"),
    ({"xyzzy": 1}, "xyzzy: no such component; known: tests, .* needs `use`"),
    ({"tests": {}}, "tests has no weight"),
    ({"tests": {"weight": 1, "deadline": 0}}, r"tests\.deadline is 0: it must be above 0 seconds"),
    ({"tests": {"weight": 1, "gate_above": 1}}, r"tests\.gate_above is 1: it must be 0 to below 1"),
    ({"tests": {"weight": 1, "required": "no"}}, r"tests\.required is 'no': .* true or false"),
    ({"tests": {"weight": 1, "gate": "nobody"}}, r"tests\.gate is 'nobody', which is no component"),
    ({"tests": {"weight": 1, "gate": 5}}, r"tests\.gate is 5, which is no component"),
    ({"tests": {"weight": 1, "gate": "tests"}}, r"tests\.gate leads back to tests"),
    ({"tests": {"weight": 1, "gate": "patch_size"}}, r"gate leads back to"),
    (
        {"patch_size": {"weight": 1, "scal": 2}},
        r"patch_size: unknown option scal; did you mean scale",
    ),
    ({"patch_size": {"weight": 1, "scale": "x"}}, "patch_size: scale: .* valid number"),
    ({"patch_size": {"weight": 1, "scale": float("nan")}}, "patch_size: scale is nan"),
    ({"patch_size": {"weight": 1, "scale": -1}}, "patch_size: scale is -1.0: it must be above 0"),
    ({"clip": [1, 0]}, r"clip is \[1\.0, 0\.0\]: it must be two numbers, the lower first"),
    ({"clip": [0, float("nan")]}, r"clip is \[0\.0, nan\]"),
    ({"clip": 3}, "clip is 3: it must be two numbers"),
    ({"clip": ["a", "b"]}, "clip is .*: it must be two numbers"),
    ({"combine": "product"}, "combine is 'product': it must be sum or rubric"),
    ({"normalize": "none"}, "normalize is 'none': it must be total or components"),
    ({"combine": "rubric", "normalize": "components"}, "has no meaning for combine = 'rubric'"),
]


@pytest.mark.parametrize(("section", "problem"), WRONG, ids=lambda value: str(value)[:50])
def test_what_can_not_work_is_refused_by_its_key(section: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RewardConfig.of(section)


def test_a_name_is_given_once() -> None:
    (tests, _) = RewardConfig.of().parts
    with pytest.raises(ValueError, match="tests is there twice"):
        RewardConfig(parts=(tests, tests))
    with pytest.raises(ValueError, match="no component that earns anything"):
        RewardConfig()


BROKEN = {
    ":": "':' is not of the form",
    "own.py": "is not of the form module:name or file.py:name",
    "/nowhere/own.py:Todos": "no such file: /nowhere/own.py",
    "no_such_module:Todos": "no_such_module can't be imported: ModuleNotFoundError",
    "OWN:Todo": "has no 'Todo'",
    "OWN:nothing": "is no Component that is a dataclass",
    "OWN:NoDataclass": "is no Component that is a dataclass",
    "OWN:Unfinished": "can't be made: TypeError: .*measure",
    "json:JSONDecoder": "is no Component that is a dataclass",
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_source_that_is_broken_is_named(source: str, own: str) -> None:
    with pytest.raises(ValueError, match=f"todos: .*{BROKEN[source]}"):
        use = source.replace("OWN", own)
        RewardConfig.of({"todos": {"use": use, "weight": 1}})


@pytest.mark.parametrize("code", ["1 / 0", "def", "raise SystemError", "import no_such_module"])
def test_a_file_that_can_not_be_loaded_is_named(tmp_path: Path, code: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(code)
    with pytest.raises(ValueError, match=r"broken\.py can't be imported: \w+Error"):
        make_component(f"{path}:Todos", {})


def test_options_are_checked_by_their_types_and_by_the_component(own: str) -> None:
    for options, problem in (
        ({"limit": "many"}, "limit: .* valid integer"),
        ({"limit": 0}, "limit is 0: it must be >= 1"),
        ({"limit": 99}, "can't be made: KeyError: 'ninety-nine'"),
        ({"limits": 1}, r"unknown option limits; did you mean limit\?"),
    ):
        with pytest.raises(ValueError, match=problem):
            make_component(f"{own}:Todos", options)


def test_a_component_called_tests_is_not_gated_by_itself(own: str) -> None:
    config = RewardConfig.of({"tests": {"use": f"{own}:Todos", "weight": 1}})
    assert [part.gate for part in config.parts] == ["", "tests"]


def test_use_comes_before_names() -> None:
    assert source_of("tests", "a:B") == "a:B"
    assert source_of("tests") == "patchgym.rewards.components.tests:Tests"
