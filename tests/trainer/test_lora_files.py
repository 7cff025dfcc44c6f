"""Adapters in PEFT's format: what is written, what is read back, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file, save_file
from tiny_model import TINY

from patchgym.trainer.lora import LoraConfig, adapter_count, adapter_shapes
from patchgym.trainer.lora.adapters import Adapters
from patchgym.trainer.lora.export import export_peft
from patchgym.trainer.lora.load import load_peft
from patchgym.trainer.model import ModelConfig, ModelError

Tensors = dict[str, npt.NDArray[Any]]

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
SOME = LoraConfig(rank=3, alpha=6.0, targets=("down", "query"))
QUERY = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
DOWN = "base_model.model.model.layers.{}.mlp.down_proj.lora_{}.weight"


def drawn(config: LoraConfig = SOME, model: ModelConfig = TINY, seed: int = 0) -> Adapters:
    """Random adapters, as NumPy arrays."""
    random = np.random.default_rng(seed)
    return {
        name: {"A": random.normal(size=a).astype("f"), "B": random.normal(size=b).astype("f")}
        for name, (a, b) in adapter_shapes(config, model).items()
    }


def assert_equal(found: Adapters, wanted: Adapters) -> None:
    """Names, types and every bit."""
    assert found.keys() == wanted.keys()
    for name, pair in wanted.items():
        for side, array in pair.items():
            assert found[name][side].dtype == np.float32
            np.testing.assert_array_equal(found[name][side], array)


def test_the_folder_has_the_names_shapes_and_settings_that_peft_expects(tmp_path: Path) -> None:
    adapters = drawn()
    export_peft(tmp_path / "new" / "one", SOME, adapters, TINY, "some/base")
    folder = tmp_path / "new" / "one"
    assert sorted(file.name for file in folder.iterdir()) == [CONFIG, TENSORS]
    tensors = load_file(folder / TENSORS)
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        **{QUERY.format(layer, "A"): (3, 32) for layer in (0, 1)},
        **{QUERY.format(layer, "B"): (32, 3) for layer in (0, 1)},
        **{DOWN.format(layer, "A"): (3, 48) for layer in (0, 1)},
        **{DOWN.format(layer, "B"): (32, 3) for layer in (0, 1)},
    }
    assert np.array_equal(tensors[DOWN.format(1, "A")], adapters["down"]["A"][1].T)
    assert json.loads((folder / CONFIG).read_text()) == {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "some/base",
        "inference_mode": True,
        "r": 3,
        "lora_alpha": 6,
        "lora_dropout": 0.0,
        "target_modules": ["q_proj", "down_proj"],
        "bias": "none",
        "use_rslora": False,
        "use_dora": False,
    }


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3"])
def test_adapters_come_back_bit_for_bit_with_their_settings(family: Any, tmp_path: Path) -> None:
    model = replace(TINY, family=family)
    config = LoraConfig(rank=2, alpha=2.5)
    adapters = drawn(config, model)
    export_peft(tmp_path, config, adapters, model, "base")
    found, read = load_peft(tmp_path, model)
    assert found == config
    assert_equal(read, adapters)


def test_a_file_holds_four_bytes_a_weight_or_two_in_bfloat16(tmp_path: Path) -> None:
    adapters, count = drawn(), adapter_count(SOME, TINY)
    export_peft(tmp_path / "wide", SOME, adapters, TINY, "base")
    export_peft(tmp_path / "narrow", SOME, adapters, TINY, "base", precision="bfloat16")
    for name, size in (("wide", 4), ("narrow", 2)):
        stored = load_file(tmp_path / name / TENSORS)
        assert sum(tensor.nbytes for tensor in stored.values()) == size * count
    _, read = load_peft(tmp_path / "narrow", TINY)
    rounded = {
        name: {side: array.astype(ml_dtypes.bfloat16).astype("f") for side, array in pair.items()}
        for name, pair in adapters.items()
    }
    assert_equal(read, rounded)


def test_tensors_of_half_and_double_precision_are_read_too(tmp_path: Path) -> None:
    adapters = drawn()
    export_peft(tmp_path, SOME, adapters, TINY, "base")
    tensors = load_file(tmp_path / TENSORS)
    for kind in (np.float16, np.float64):
        save_file({name: array.astype(kind) for name, array in tensors.items()}, tmp_path / TENSORS)
        _, read = load_peft(tmp_path, TINY)
        assert read["query"]["A"].dtype == np.float32
        np.testing.assert_allclose(read["query"]["A"], adapters["query"]["A"], rtol=1e-3)


def test_a_newer_adapter_takes_the_place_of_an_older_one_and_leaves_no_scratch_file(
    tmp_path: Path,
) -> None:
    export_peft(tmp_path, LoraConfig(rank=1), drawn(LoraConfig(rank=1)), TINY, "base")
    export_peft(tmp_path, SOME, drawn(seed=1), TINY, "base")
    assert sorted(file.name for file in tmp_path.iterdir()) == [CONFIG, TENSORS]
    found, read = load_peft(tmp_path, TINY)
    assert found.rank == 3
    assert_equal(read, drawn(seed=1))


def test_an_export_that_fails_midway_leaves_no_folder_that_looks_finished(tmp_path: Path) -> None:
    export_peft(tmp_path, SOME, drawn(), TINY, "base")
    (tmp_path / TENSORS).unlink()
    (tmp_path / TENSORS).mkdir()
    with pytest.raises(OSError):
        export_peft(tmp_path, SOME, drawn(seed=1), TINY, "base")
    assert [file.name for file in tmp_path.iterdir()] == [TENSORS]


@pytest.mark.parametrize(
    ("adapters", "words"),
    [
        (drawn(LoraConfig(rank=4, targets=SOME.targets)), r"query\.A has shape \(2, 32, 4\)"),
        (drawn(LoraConfig(rank=3, targets=("query",))), r"2 tensors are missing, down\.A among"),
        (drawn(LoraConfig(rank=3)), r"tensors are unknown to the model, gate\.A among"),
        (drawn(SOME, replace(TINY, layers=3)), r"query\.A has shape \(3, 32, 3\)"),
    ],
)
def test_adapters_of_another_shape_are_not_written(
    adapters: Adapters, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"not the adapters of the model: .*{words}"):
        export_peft(tmp_path / "folder", SOME, adapters, TINY, "base")
    assert not (tmp_path / "folder").exists()


def setting(key: str, value: object) -> Callable[[Path], None]:
    """Changes one setting of an adapter."""

    def change(folder: Path) -> None:
        settings = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps(settings | {key: value}))

    return change


def tensors(change: Callable[[Tensors], object]) -> Callable[[Path], None]:
    """Changes the tensors of an adapter, in place."""

    def changed(folder: Path) -> None:
        arrays = load_file(folder / TENSORS)
        change(arrays)
        save_file(arrays, folder / TENSORS)

    return changed


def new(name: str, *shape: int, kind: Any = np.float32) -> Callable[[Path], None]:
    """Adds a tensor, or puts another one in its place."""
    return tensors(lambda arrays: arrays.update({name: np.ones(shape, kind)}))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no settings": (
        lambda folder: (folder / CONFIG).unlink(),
        r"adapter_config\.json: no such file; give the folder of a PEFT adapter",
    ),
    "settings that are no JSON": (
        lambda folder: (folder / CONFIG).write_text("{"),
        r"adapter_config\.json: can't be read .*; save the adapter again",
    ),
    "settings that are a list": (
        lambda folder: (folder / CONFIG).write_text("[]"),
        r"adapter_config\.json: it holds no settings",
    ),
    "no tensors": (
        lambda folder: (folder / TENSORS).unlink(),
        r"adapter_model\.safetensors: no such file; .* as safetensors",
    ),
    "a damaged file": (
        lambda folder: (folder / TENSORS).write_bytes(b"x" * 100),
        r"adapter_model\.safetensors: damaged .*; save the adapter again",
    ),
    "a file cut short": (
        lambda folder: (folder / TENSORS).write_bytes((folder / TENSORS).read_bytes()[:-4]),
        r"adapter_model\.safetensors: damaged",
    ),
    "a file without tensors": (tensors(dict.clear), r"it holds no tensors"),
    "another method": (setting("peft_type", "IA3"), r"peft_type is 'IA3'; only LORA is read"),
    "DoRA": (setting("use_dora", True), r"use_dora is True, a kind of adapter that isn't trained"),
    "rsLoRA": (setting("use_rslora", True), r"use_rslora is True, a kind"),
    "biases": (setting("bias", "all"), r"bias is 'all', a kind"),
    "another start": (setting("init_lora_weights", "pissa"), r"init_lora_weights is 'pissa'"),
    "whole modules": (setting("modules_to_save", ["lm_head"]), r"modules_to_save is \['lm_head'\]"),
    "ranks of their own": (setting("rank_pattern", {"q_proj": 8}), r"rank_pattern is .* a kind"),
    "no rank": (setting("r", None), r"r is None: it must be 1 or more"),
    "a rank of zero": (setting("r", 0), r"r is 0: it must be 1 or more"),
    "no alpha": (setting("lora_alpha", "16"), r"lora_alpha is '16': it must be above 0"),
    "an infinite alpha": (setting("lora_alpha", float("inf")), r"lora_alpha is inf"),
    "a tensor missing": (
        tensors(lambda arrays: arrays.pop(DOWN.format(1, "B"))),
        r"1 tensors are missing, .*layers\.1\.mlp\.down_proj\.lora_B\.weight among them",
    ),
    "the settings' rank another": (
        setting("r", 4),
        r"lora_A\.weight has rank 3, adapter_config\.json says r = 4",
    ),
    "one tensor's rank another": (
        new(QUERY.format(0, "B"), 32, 5),
        r"layers\.0\.self_attn\.q_proj\.lora_B\.weight has rank 5, .* r = 3",
    ),
    "a tensor that is no matrix": (
        new(QUERY.format(0, "A"), 3),
        r"q_proj\.lora_A\.weight has shape \(3,\), no matrix",
    ),
    "a module that isn't trained": (
        new("base_model.model.lm_head.lora_A.weight", 3, 32),
        r"base_model\.model\.lm_head\.lora_A\.weight is of no target that is trained here"
        r" \(self_attn\.q_proj, .*\); give an adapter of these alone",
    ),
    "a matrix of another architecture": (
        new("base_model.model.model.layers.0.mlp.router.lora_A.weight", 3, 32),
        r"mlp\.router\.lora_A\.weight is of no target",
    ),
    "a layer too many": (
        new(QUERY.format(2, "A"), 3, 32),
        r"1 tensors are unknown to the model, .*layers\.2\..* \(a llama of 2 layers, width 32\)",
    ),
    "quantized tensors": (
        new(QUERY.format(0, "A"), 3, 32, kind=np.int8),
        r"q_proj\.lora_A\.weight is of type int8; save it unquantized",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_can_not_be_read_is_named_with_what_to_do(case: str, tmp_path: Path) -> None:
    export_peft(tmp_path, SOME, drawn(), TINY, "base")
    damage, words = BROKEN[case]
    damage(tmp_path)
    with pytest.raises(ModelError, match=words):
        load_peft(tmp_path, TINY)


def test_the_adapter_of_another_model_is_refused_with_both_shapes_and_its_name(
    tmp_path: Path,
) -> None:
    export_peft(tmp_path, SOME, drawn(), TINY, "small/base")
    words = (
        r"q_proj\.lora_A\.weight has shape \(3, 32\), the model's is \(3, 64\) \(a llama of 2"
        r" layers, width 64\); the adapter was made for small/base"
    )
    with pytest.raises(ModelError, match=words):
        load_peft(tmp_path, replace(TINY, width=64))


def test_settings_of_training_and_unset_extras_are_read_over(tmp_path: Path) -> None:
    export_peft(tmp_path, SOME, drawn(), TINY, "base")
    for key, value in (
        ("lora_dropout", 0.1),
        ("modules_to_save", None),
        ("rank_pattern", {}),
        ("init_lora_weights", "gaussian"),
        ("loftq_config", {}),
        ("peft_version", "0.21.2"),
    ):
        setting(key, value)(tmp_path)
    assert load_peft(tmp_path, TINY)[0] == replace(SOME, targets=("query", "down"))
