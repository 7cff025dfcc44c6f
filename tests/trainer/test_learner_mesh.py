"""A learner on a mesh trains as on one device, and each device holds its share of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from learner_inputs import tiny_learner

from patchgym.trainer.parallel import MeshConfig

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "mesh_learner.py"
# The programs are tiny: their compilation is what takes time.
FLAGS = (
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true"
)
SHARDS, VOCABULARY = ["fsdp", "cp"], ["cp", "tp"]
COLUMNS, ROWS = [[], SHARDS, ["tp"]], [[], ["tp", *SHARDS], []]
LIES: dict[str, list[list[str]]] = {
    **dict.fromkeys(("query", "key", "value", "gate", "up"), COLUMNS),
    **dict.fromkeys(("output", "down"), ROWS),
    **dict.fromkeys(("query_bias", "key_bias", "value_bias"), [[], ["tp"]]),
    "embed": [VOCABULARY, ["fsdp"]],
    "head": [["fsdp"], VOCABULARY],
    "A": [[], SHARDS, []],
    "B": [[], [], SHARDS],
}
"""For each weight, what splits each of its dimensions; others are whole everywhere."""


@pytest.fixture(scope="module")
def found() -> Any:
    """What the script printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "XLA_FLAGS": FLAGS,
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(params=range(3))
def outcome(found: Any, request: pytest.FixtureRequest) -> Any:
    """One learner: full or LoRA, tied or not, biases, windows, a reference."""
    assert len(found["outcomes"]) == 3
    return found["outcomes"][request.param]


def test_gradients_and_steps_over_a_mesh_equal_those_of_one_device(outcome: Any) -> None:
    """Measured: 2.5e-6 at most."""
    assert outcome["gradient"] < 1e-5
    assert outcome["moments"] < 1e-5
    assert outcome["moved"] < 1e-4
    first, _, last = outcome["losses"]
    assert first[1] != pytest.approx(last[1], abs=1e-3), "the first step changed nothing"
    for loss, want in outcome["losses"]:
        assert loss == pytest.approx(want, rel=1e-5)


def test_weights_gradients_and_moments_are_split_as_the_layout_says(outcome: Any) -> None:
    sizes: dict[str, int] = dict(zip(("fsdp", "cp", "tp"), outcome["case"]["mesh"], strict=True))
    uneven = outcome["case"]["model"] == "windowed"
    for place, split in outcome["split"].items():
        wanted = LIES.get(place.rsplit("/", 1)[-1], [[] for _ in split])
        real = [[axis for axis in axes if sizes[axis] > 1] for axes in wanted]
        if uneven and place.endswith("embed"):
            assert real[0] == ["cp"]
            real[0] = []  # 261 ids can't be shared by two
        assert split == real, place


def test_a_device_holds_its_share_of_the_bytes(outcome: Any) -> None:
    _, _, tensor = outcome["case"]["mesh"]
    for kind, share in outcome["shares"].items():
        adapters = outcome["case"]["rank"] and kind != "frozen"
        least = (tensor if adapters else 1) / 8  # adapters are not split over `tensor`
        uneven = outcome["case"]["model"] == "windowed"
        # Norms are whole everywhere, which only a tiny model can tell.
        assert least <= share < least * (2 if uneven else 1.1), kind


def test_rows_that_the_context_cannot_share_are_refused(found: Any) -> None:
    assert found["refusals"][0].startswith(
        "learner.row_tokens has 72: a row of 72 tokens can't be shared evenly by 4 ranks in "
        "blocks of 4: pad it to 96"
    )


def test_key_heads_that_tensor_parallelism_cannot_share_are_refused(found: Any) -> None:
    assert found["refusals"][1].startswith(
        "learner.mesh.tensor is 4, which does not divide the model's 2 key heads: give"
    )


def test_a_mesh_of_another_number_of_devices_is_refused(found: Any) -> None:
    words = r"learner.mesh is 2 x 2 x 1 \(fsdp, context, tensor\), which are 4 devices; there are "
    with pytest.raises(ValueError, match=words + "1: change its sizes"):
        tiny_learner(mesh=MeshConfig(fsdp=2, context=2))
    assert found["refusals"][2].endswith("there are 8: change its sizes")
