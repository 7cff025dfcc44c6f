"""One case: compile what a step of the learner runs, and say what it takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.execution import ON_TPU, Execution
from patchgym.trainer.parallel.layout import CONTEXT, TENSOR, make_layout

from .attention_work import causal_visits, kernel_seconds
from .cases import Case
from .chips import MEMORY_SHARE, Chip, chip_of
from .compiling import Compiled, compile_program, topology_devices
from .estimate import Assumptions, Estimate, estimate
from .hlo import parse_module
from .memory import MemoryUse
from .models import model_of
from .programs import Shapes, device_bytes, learner_shapes, lower_programs


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a case takes; a static estimate."""

    name: str
    """The case's."""
    seconds: float
    """Of a step: one stack of rows, and the update."""
    mfu: float
    """Useful FLOPs of that step over the chips' peak."""
    memory: int
    """Bytes a device needs at the peak."""
    available: int
    """Bytes it has."""
    peak: str
    """The program at the peak."""
    programs: dict[str, dict[str, Any]]
    """By name: bytes, seconds and what these consist of, exchanges, the largest buffers."""

    @property
    def share(self) -> float:
        """Memory needed over memory there."""
        return self.memory / self.available

    @property
    def fits(self) -> bool:
        """Whether enough is left over."""
        return self.share <= MEMORY_SHARE


def check_case(case: Case) -> Report:
    """Compile `case` and look at it; minutes. Raises ValueError for a case that can't be, such as
    rows that the mesh can't share."""
    chip, model, config = chip_of(case.topology), model_of(case.model), case.learner()
    layout = make_layout(config.mesh, topology_devices(case.topology))
    execution = replace(
        ON_TPU, compute=config.compute, keep=case.keep, layout=layout, lora=config.lora
    )
    shapes = learner_shapes(config, model, execution, case.tokens)
    lowered = lower_programs(config, model, execution, shapes)
    given = assumptions(case, model, execution, chip)
    programs, uses, seconds = {}, [], 0.0
    for name, one in lowered.items():
        compiled = compile_program(one)
        found = estimate(parse_module(compiled.text), given)
        uses.append(_memory(name, compiled, shapes))
        programs[name] = _plain(compiled, uses[-1], found)
        seconds += found.seconds
    peak = max(uses, key=lambda use: use.bytes)
    return Report(
        name=case.name,
        seconds=seconds,
        mfu=case.flops(model) / (config.mesh.devices * chip.peak * seconds),
        memory=peak.bytes,
        available=int(chip.memory),
        peak=peak.program,
        programs=programs,
    )


def assumptions(case: Case, model: ModelConfig, execution: Execution, chip: Chip) -> Assumptions:
    """What the estimate of `case` takes for granted: rows are full, causal, and read throughout."""
    if execution.layout is None:
        raise ValueError("an estimate is made for a mesh: give the execution a layout")
    ranks, parts = execution.layout.size(CONTEXT), execution.layout.size(TENSOR)
    return Assumptions(
        chip=chip,
        kernels=kernel_seconds(
            chip,
            visits=causal_visits(case.tokens, execution.block, ranks),
            block=execution.block,
            heads=model.heads // parts,
            head_dim=model.head_dim,
        ),
        trips=-(-case.tokens // execution.head_chunk),
    )


def _memory(name: str, compiled: Compiled, shapes: Shapes) -> MemoryUse:
    """During `add_rows` the optimizer's state waits; during `update` a model under adapters."""
    waiting = {"add_rows": shapes.optimizer, "update": shapes.weights.frozen}[name]
    return MemoryUse(program=name, own=compiled.own, beside=device_bytes(waiting))


def _plain(compiled: Compiled, use: MemoryUse, found: Estimate) -> dict[str, Any]:
    slowest = sorted(found.parts, reverse=True)[:12]
    return {
        **asdict(use),
        "bytes": use.bytes,
        "compile_seconds": compiled.seconds,
        "seconds": found.seconds,
        "compute": found.compute,
        "kernels": found.kernels,
        "waiting": found.waiting,
        "traffic": {kind: asdict(one) for kind, one in sorted(found.traffic.items())},
        "largest": compiled.largest,
        "slowest": slowest,
    }
