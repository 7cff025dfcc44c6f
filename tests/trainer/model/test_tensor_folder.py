"""Folders of several files, read whole or by slices: only the bytes that are asked for are read."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_model import byte_tokenizer

from patchgym.trainer.model import ModelError, load_model
from patchgym.trainer.model.decoder import Params
from patchgym.trainer.model.tensor_folder import INDEX, TensorFolder
from patchgym.trainer.weights import export_folder
from patchgym.trainer.weights.shards import plan_shards

from .family_cases import CASES, random_params

CONFIG = CASES["qwen2"].config
SHARD = 20_000


def _folder(scratch: Path, **options: Any) -> tuple[Path, Params]:
    params = random_params(CONFIG, 4)
    export_folder(CONFIG, params, byte_tokenizer(), scratch / "model", **options)
    return scratch / "model", params


def _data_bytes(file: Path) -> range:
    with file.open("rb") as stream:
        start = 8 + int.from_bytes(stream.read(8), "little")
    return range(start, file.stat().st_size)


@pytest.mark.parametrize("name", CASES)
def test_what_is_exported_in_shards_comes_back_bit_for_bit(tmp_path: Path, name: str) -> None:
    config = CASES[name].config
    params = random_params(config, 4)
    export_folder(config, params, byte_tokenizer(), tmp_path, shard_bytes=SHARD)
    files = list(tmp_path.glob("model-*.safetensors"))
    assert len(files) > 1 and not (tmp_path / "model.safetensors").exists()
    found, read, _ = load_model(tmp_path)
    assert found == config
    jax.tree.map(np.testing.assert_array_equal, read, params)
    index = json.loads((tmp_path / INDEX).read_text())
    stored = {tensor: file.name for file in files for tensor in load_file(file)}
    assert index["weight_map"] == stored
    assert index["metadata"]["total_size"] == 4 * config.parameters


def test_another_export_leaves_nothing_of_the_one_before(tmp_path: Path) -> None:
    folder, params = _folder(tmp_path, shard_bytes=SHARD)
    (folder / "notes.safetensors.txt").touch()
    export_folder(CONFIG, params, byte_tokenizer(), folder)
    names = {file.name for file in folder.iterdir() if "safetensors" in file.name}
    assert names == {"model.safetensors", "notes.safetensors.txt"}
    export_folder(CONFIG, params, byte_tokenizer(), folder, shard_bytes=SHARD)
    assert not (folder / "model.safetensors").exists()
    jax.tree.map(np.testing.assert_array_equal, load_model(folder)[1], params)


def test_weights_of_another_shape_are_not_exported_in_shards(tmp_path: Path) -> None:
    wider = replace(CONFIG, ffn=16)
    with pytest.raises(ValueError, match="not the weights of the model"):
        export_folder(wider, random_params(CONFIG, 4), byte_tokenizer(), tmp_path, shard_bytes=9000)
    assert not list(tmp_path.iterdir())


def test_shards_are_filled_in_order_and_a_large_tensor_stands_alone() -> None:
    shapes = {"a": (2, 3), "b": (4,), "large": (50,), "c": (1,), "d": (9,)}
    assert plan_shards(shapes, 4, 40) == [["a", "b"], ["large"], ["c", "d"]]


@pytest.mark.parametrize("kind", [np.float16, jnp.bfloat16])
def test_narrow_types_on_disk_are_widened_exactly(tmp_path: Path, kind: Any) -> None:
    folder, params = _folder(tmp_path)
    file = folder / "model.safetensors"
    save_file({name: array.astype(kind) for name, array in load_file(file).items()}, file)
    narrow = jax.tree.map(lambda array: array.astype(kind).astype(jnp.float32), params)
    jax.tree.map(np.testing.assert_array_equal, load_model(folder)[1], narrow)


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((40,), (slice(7, 19),)),
        ((12, 10), (slice(3, 5), slice(None))),
        ((12, 10), (slice(2, 11), slice(4, 7))),
        ((12, 10), (slice(0, 12), slice(9, 10))),
    ],
)
def test_a_part_reads_its_own_bytes_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], index: Any
) -> None:
    array = np.random.default_rng(0).normal(size=shape).astype(np.float16)
    file = tmp_path / "model.safetensors"
    save_file({"before": np.zeros(3, np.float32), "weight": array}, file)
    folder, real, read = TensorFolder(tmp_path), os.preadv, list[int]()

    def recorded(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        count = real(descriptor, buffers, offset)
        read.extend(range(offset, offset + count))
        return count

    monkeypatch.setattr(os, "preadv", recorded)
    np.testing.assert_array_equal(folder.read("weight", index), array[index])
    places = np.arange(array.size).reshape(shape)[index].ravel()
    start = file.read_bytes().index(array.tobytes())
    wanted = [start + 2 * place + half for place in places.tolist() for half in (0, 1)]
    assert sorted(read) == sorted(wanted)


def test_eight_devices_read_each_byte_once_and_hold_their_slices(tmp_path: Path) -> None:
    folder, params = _folder(tmp_path, shard_bytes=SHARD)
    script = Path(__file__).parent / "sharded_reads.py"
    done = subprocess.run(
        [sys.executable, script, folder], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    flat = {
        "/".join(str(part.key) for part in path): np.asarray(array)
        for path, array in jax.tree_util.tree_flatten_with_path(params)[0]
    }
    assert told["weights"].keys() == flat.keys()
    for name, shards in told["weights"].items():
        assert len(shards) == 8
        for shard in shards:
            part = flat[name][tuple(slice(*pair) for pair in shard["index"])]
            assert hashlib.sha256(part.tobytes()).hexdigest() == shard["digest"], name
    assert len({str(shard["index"]) for shard in told["weights"]["layers/query"]}) == 8
    read: dict[str, list[int]] = {}
    for file, offset, count in told["reads"]:
        read.setdefault(file, []).extend(range(offset, offset + count))
    for file in folder.glob("model-*.safetensors"):
        assert sorted(read[file.name]) == list(_data_bytes(file))


def test_a_missing_shard_is_named_with_and_without_the_index(tmp_path: Path) -> None:
    folder, _ = _folder(tmp_path, shard_bytes=SHARD)
    lost = sorted(folder.glob("model-*.safetensors"))[1]
    lost.unlink()
    for _ in range(2):
        with pytest.raises(ModelError, match=f"shard {lost.name} is missing") as caught:
            load_model(folder)
        assert "\n" not in str(caught.value)
        (folder / INDEX).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("{", "damaged index"),
        ('{"weight_map": []}', "damaged index"),
        ('{"weight_map": {"a": "../b.safetensors"}}', "names no file of the folder"),
    ],
)
def test_a_damaged_index_is_named(tmp_path: Path, index: str, said: str) -> None:
    folder, _ = _folder(tmp_path)
    (folder / INDEX).write_text(index)
    with pytest.raises(ModelError, match=said):
        load_model(folder)


def test_an_index_that_puts_a_tensor_in_the_wrong_file_is_named(tmp_path: Path) -> None:
    folder, _ = _folder(tmp_path, shard_bytes=SHARD)
    values = json.loads((folder / INDEX).read_text())
    values["weight_map"]["lm_head.bias"] = values["weight_map"]["lm_head.weight"]
    (folder / INDEX).write_text(json.dumps(values))
    with pytest.raises(ModelError, match=r"tensor lm_head\.bias of model.* is not in it"):
        load_model(folder)


def test_quantized_tensors_are_refused_by_their_type(tmp_path: Path) -> None:
    save_file({"weight": np.zeros((2, 2), np.int8)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="tensors of type I8 are not supported"):
        TensorFolder(tmp_path)
