"""What `make aot` compiles and how it judges; the programs are lowered here without libtpu."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from tiny_model import TINY

from patchgym.trainer.aot import compiling
from patchgym.trainer.aot.attention_work import causal_visits, kernel_seconds
from patchgym.trainer.aot.cases import CASES, Case, case_of
from patchgym.trainer.aot.check import Report
from patchgym.trainer.aot.chips import CHIPS, GIB, chip_of
from patchgym.trainer.aot.memory import largest_buffers, total_bytes
from patchgym.trainer.aot.models import PRESETS, model_of
from patchgym.trainer.aot.page import page, read_page
from patchgym.trainer.aot.programs import Shapes, device_bytes, learner_shapes, lower_programs
from patchgym.trainer.aot.running import CaseFailed, Outcome, run_case
from patchgym.trainer.aot.table import Line, faults
from patchgym.trainer.attention import block_plan
from patchgym.trainer.attention.context import context_blocks
from patchgym.trainer.learner import Learner
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.model.decoder import init_params
from patchgym.trainer.model.execution import HERE, ON_TPU, Execution
from patchgym.trainer.parallel import MeshConfig
from patchgym.trainer.parallel.layout import Layout
from patchgym.trainer.row_programs import row_arrays
from patchgym.trainer.tree import empty_row

SMALL = replace(TINY, vocabulary=1024, width=256, head_dim=128, ffn=512)
LIBTPU = importlib.util.find_spec("libtpu") is not None


def small_case(lora_rank: int = 0, tokens: int = 4096) -> Case:
    """A case whose programs lower in a second."""
    return Case(
        name="small",
        topology="v5e:2x2",
        model="qwen2.5-coder-7b",
        mesh=MeshConfig(fsdp=2, context=2),
        keep="attention",
        lora_rank=lora_rank,
        tokens=tokens,
    )


def shapes_of(case: Case) -> tuple[LearnerConfig, Execution, Shapes]:
    """The settings and shapes of `case`, on devices that are nobody's."""
    config = case.learner()
    mesh = AbstractMesh((2, 2, 1), ("fsdp", "cp", "tp"))
    execution = replace(
        ON_TPU, compute="bfloat16", keep=case.keep, layout=Layout(mesh), lora=config.lora
    )
    return config, execution, learner_shapes(config, SMALL, execution, case.tokens)


@pytest.mark.parametrize("lora_rank", [0, 8])
def test_a_whole_step_lowers_for_tpus_with_our_kernels_in_it(lora_rank: int) -> None:
    config, execution, shapes = shapes_of(small_case(lora_rank))
    lowered = lower_programs(config, SMALL, execution, shapes)
    text = lowered["add_rows"].as_text()
    # Attention's outcome is kept: one kernel forward, two backward, in the loops over layers.
    for kernel in ("forward_kernel", "query_gradient_kernel", "key_gradient_kernel"):
        assert kernel in text
    assert "tpu_custom_call" not in lowered["update"].as_text()


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_shapes_are_those_of_a_real_learner(lora_rank: int) -> None:
    config, _, shapes = shapes_of(small_case(lora_rank, tokens=2048))
    real = Learner(
        replace(config, mesh=MeshConfig()),
        SMALL,
        init_params(SMALL, 0),
        execution=replace(HERE, block=8, lora=config.lora),
    )

    def plain(tree: Any) -> Any:
        return jax.tree.map(lambda one: (one.shape, str(one.dtype)), tree)

    assert plain(shapes.weights.trained) == plain(real.state.params)
    assert plain(shapes.optimizer) == plain(real.state.optimizer)
    rows = row_arrays([empty_row(2048)] * 2, HERE)
    assert plain(shapes.rows) == plain(rows)


def test_bytes_of_a_device_are_those_of_its_shards() -> None:
    # Four devices share every matrix; norms are whole on each. Counted weight by weight.
    _, _, shapes = shapes_of(small_case())
    whole = 2 * 2 * SMALL.width + SMALL.width
    split = SMALL.parameters - whole
    assert device_bytes(shapes.gradient) == 4 * (split // 4 + whole)


def test_shapes_need_a_mesh() -> None:
    with pytest.raises(ValueError, match="layout"):
        learner_shapes(LearnerConfig(), SMALL, ON_TPU, 1024)


def test_presets_have_as_many_weights_as_their_models() -> None:
    assert PRESETS["qwen2.5-coder-7b"].parameters == 7_615_616_512
    assert PRESETS["qwen2.5-coder-32b"].parameters == 32_763_876_352


def test_a_model_may_be_a_folder_and_anything_else_is_an_error(tmp_path: Path) -> None:
    values = {
        "model_type": "llama",
        "vocab_size": 100,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "rms_norm_eps": 1e-5,
    }
    (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    assert model_of(str(tmp_path)).ffn == 48
    with pytest.raises(ValueError, match="neither qwen2.5-coder-7b nor"):
        model_of(str(tmp_path / "nothing"))


def test_every_case_has_a_mesh_of_its_topology_and_comes_back_from_json() -> None:
    for case in CASES.values():
        shape = case.topology.partition(":")[2]
        assert case.mesh.devices == np.prod([int(size) for size in shape.split("x")])
        assert chip_of(case.topology) and model_of(case.model)
        assert case_of(json.loads(json.dumps(case.plain()))) == case


@pytest.mark.parametrize("topology", ["v5e:4x4", "v5e:big", "v7:2x2"])
def test_a_mesh_that_is_not_the_topologys_is_refused(topology: str) -> None:
    with pytest.raises(ValueError, match="topology|v5e:4x4 has 16"):
        replace(small_case(), topology=topology)


def test_useful_work_is_six_flops_a_weight_and_attention() -> None:
    case = replace(small_case(), tokens=1000)
    seen = 6 * SMALL.layers * SMALL.heads * SMALL.head_dim * 1000
    assert case.flops(SMALL) == 2 * 1000 * (6 * SMALL.parameters + seen)
    adapted = replace(case, lora_rank=4).flops(SMALL)
    assert adapted == 2 * 1000 * (4 * SMALL.parameters + seen)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_visits_are_those_of_the_plan_of_the_busiest_rank(ranks: int) -> None:
    tokens, block = 64, 8
    ends = np.full(tokens, tokens, np.int32)
    order = jnp.asarray(context_blocks(tokens, block, ranks)).reshape(ranks, -1)
    plans = [block_plan(jnp.asarray(ends), block, query_blocks=mine) for mine in order]
    most = max(int(plan.queries.starts[-1]) for plan in plans)
    assert causal_visits(tokens, block, ranks) == most


def test_kernels_take_their_products_at_a_share_of_the_peak() -> None:
    # 10 visits, 3 heads, products of 2 x 4 x 4 x 8 FLOPs, at 0.6 of 197e12 a second.
    found = kernel_seconds(CHIPS["v5e"], visits=10, block=4, heads=3, head_dim=8)
    product = 256 * 30 / (0.6 * 197e12)
    assert found["forward_kernel"] == pytest.approx(2 * product)
    assert found["query_gradient_kernel"] == pytest.approx(3 * product)
    assert found["key_gradient_kernel"] == pytest.approx(4 * product)


REPORT = """Memory Space: default (color=0)
Total bytes: 1744902656 (1.62GiB)
  cumulative_size;       size;       offset; used_by_n_values; shapes_list
  ------------------------------------------------------------
  512.00MiB( 57%);  512.00MiB;        49152;                5; 5×bf16[8,8192,4096]
  768.00MiB( 86%);  256.00MiB;    536920064;                7; bf16[8192,4096], pred[]
  The rest 520 values are less than 5% of the total size and not shown.

  cumulative_size;       size;       offset; used_by_n_values; shapes_list
  ------------------------------------------------------------
    1.00GiB(100%);    1.00GiB;            0;                1; f32[8]
"""


def test_the_compilers_memory_report_is_read() -> None:
    assert total_bytes(REPORT) == 1744902656
    assert largest_buffers(REPORT, 9) == [
        (512 * 2**20, "5×bf16[8,8192,4096]"),
        (256 * 2**20, "bf16[8192,4096], pred[]"),
    ]
    with pytest.raises(ValueError, match="no total"):
        total_bytes("Memory Space: smem (color=4)\nTotal bytes: 5")


def outcome(name: str, *, seconds: float = 5.0, share: float = 0.5) -> Outcome:
    """What a case's process would have said."""
    program = {
        "compute": 3.0,
        "kernels": 1.5,
        "waiting": 0.5,
        "traffic": {"all-gather": {"count": 3, "bytes": GIB}},
    }
    report = Report(
        name=name,
        seconds=seconds,
        mfu=0.5,
        memory=int(share * 16 * GIB),
        available=16 * GIB,
        peak="add_rows",
        programs={"add_rows": program},
    )
    return Outcome(report=asdict(report))


def test_a_case_passes_within_five_percent_of_the_committed_table() -> None:
    before = Line(gib=8.0, seconds=5.0)
    assert faults(outcome("x", seconds=5.24).report, [], before) == []
    (slow,) = faults(outcome("x", seconds=5.26).report, [], before)
    assert "5.260 s" in slow and "5.000 s" in slow


def test_a_case_fails_past_92_percent_of_memory_and_for_what_the_compiler_logs() -> None:
    assert faults(outcome("x", share=0.92).report, [], None) == []
    (large,) = faults(outcome("x", share=0.93).report, [], None)
    assert "14.88 of 16.00 GiB" in large
    log = ["W: Involuntary full rematerialization of dot"]
    assert faults(outcome("x").report, log, None) == log


def test_the_page_is_read_back_and_keeps_the_rows_that_were_not_run_again() -> None:
    first, second, third = list(CASES)[:3]
    versions = {"jax": "1", "libtpu": "2"}
    text = page("", {third: outcome(third), first: outcome(first)}, versions)
    assert list(read_page(text)) == [first, third]
    text = page(text, {second: outcome(second, seconds=7.0)}, versions)
    lines = read_page(text)
    assert list(lines) == [first, second, third]
    assert lines[second] == Line(gib=8.0, seconds=7.0)
    assert text.count(f"| {first} |") == 2  # of its step, and of what it exchanges
    assert "| 3, 1.00 |" in text


def test_the_committed_page_holds_cases_that_fit_in_their_order() -> None:
    committed = Path(__file__).parents[2] / "benchmarks" / "aot.md"
    lines = read_page(committed.read_text(encoding="utf-8"))
    assert list(lines) == [name for name in CASES if name in lines]
    assert "v5e-4x4-7b-full" in lines
    for name, line in lines.items():
        assert line.gib * GIB <= 0.92 * chip_of(CASES[name].topology).memory


@pytest.mark.skipif(LIBTPU, reason="libtpu is installed here")
def test_without_libtpu_a_clear_error_says_what_to_install() -> None:
    with pytest.raises(compiling.NoCompiler, match="make aot"):
        compiling.prepare()
    with pytest.raises(CaseFailed, match="libtpu is not installed"):
        run_case(small_case(), 60)


def test_a_case_that_takes_too_long_is_stopped_and_says_so() -> None:
    with pytest.raises(CaseFailed, match=r"not done after 0 s.*--deadline"):
        run_case(small_case(), 0.01)


def test_naming_cases_imports_no_jax() -> None:
    code = "import sys, patchgym.trainer.aot.page; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
