"""Importing policies is light: what is heavy is imported when a policy is opened."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("vllm", "torch", "httpx2", "numpy", "jax", "docker", "pydantic")


@pytest.mark.parametrize("module", ["policies", "policies.check", "policies.conformance_server"])
def test_nothing_heavy_is_imported(module: str) -> None:
    code = f"import sys, patchgym.agent.{module}\nprint([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_weights_import_neither_jax_nor_vllm() -> None:
    code = (
        "import sys, patchgym.trainer.weights\n"
        "print([m for m in ('vllm', 'torch', 'httpx2', 'jax', 'flax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_exports_exist() -> None:
    from patchgym.agent import policies
    from patchgym.trainer import weights

    for module in (policies, weights):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
        assert len(set(module.__all__)) == len(module.__all__)
