"""Whole weights from four simulated devices, which need a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from patchgym.trainer.multihost import gather

gather.PIECE_BYTES = 5 * 4 * 8
mesh = Mesh(np.asarray(jax.devices()).reshape(2, 2), ("a", "b"))
cases = {"split": ((12, 8), P("a", "b")), "along": ((7, 4, 8), P(None, ("a", "b"))),
         "same": ((3,), P()), "wide": ((2, 400), P(None, "b"))}
random = np.random.default_rng(0)
values = {name: random.normal(size=shape).astype("f4") for name, (shape, _) in cases.items()}
held = {name: jax.device_put(value, NamedSharding(mesh, cases[name][1]))
        for name, value in values.items()}
found = gather.whole(held, keep=True)
for name, value in values.items():
    np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert isinstance(found[name], np.ndarray)
assert jax.tree.leaves(gather.whole(held, keep=False)) == []
print("pieces", gather._piece.cache_info().currsize)
"""


def test_an_array_is_put_together_of_pieces_that_need_not_divide_it() -> None:
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # 12 rows by 5 and a rest of 2, 7 by 1, 2 by 1.
    assert done.stdout == "pieces 3\n"
