"""A whole optimizer step of ours beside one of Tunix's GRPO trainer, on CPU, float32.

    python benchmarks/learner.py [--model tiny smollm2] [--groups N] [--steps N] [--seed N]
                                 [--sweep] [--only NAME ...] [--cores N ...]
                                 [--peer-python PATH] [--write]

Every side reads the same weights and the same trajectories from one folder: groups of eight with
a shared prompt, one to three turns, observations that are not trained on, lognormal lengths
(`learner_work/groups.py`). All have AdamW with the same settings and GRPO's clipped loss, averaged
by one constant, so that their losses must agree at every step; the differences are printed.

Each side is a process of its own, compiled and one step old before the first timed one; then they
make one step each, in turn, so that a busy machine slows all. Ratios are medians over the rounds.
Memory is the peak of a step by the compiled programs' own analysis: arguments, temporaries and
outputs without what is reused, and for ours also what is alive beside a program.

`--sweep` compares settings of both sides instead: Tunix's micro batches and rematerialization, and
our row lengths, attention blocks and what is kept. `--write` puts the result in
`benchmarks/learner.md`. `--peer-python` is the Python of an environment with `google-tunix==0.1.7`;
without one, it is made in `.bench/tunix` by pip (about 2 GB). `smollm2` takes 20 GiB of memory with
two groups, nearly all of it Tunix's; `--only` leaves contestants out. The last line is `RESULT` and
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from learner_work.groups import (
    Lengths,
    longest_completion,
    make_groups,
    prompt_length,
    write_groups,
)
from learner_work.models import SHAPES, write_model
from learner_work.ours import serve
from learner_work.report import HEADINGS, cells, goals, line_of, markdown, speedup
from learner_work.sides import TUNIX, Run, Side, Stepper, peer_environment
from learner_work.sweep import sweep_of
from rich.console import Console
from rich.table import Table

PAGE = Path(__file__).with_name("learner.md")
NOTES = """\
The same on all sides: weights, trajectories, the set of trained tokens, GRPO's clip at 0.2 of the
ratio to the sampler's stored log-probabilities, the average (one constant), clipping of the
gradient's norm at 1, AdamW.

What differs:

- Tunix pads every prompt to the longest prompt of the batch and every completion to its longest
  completion: the tightest that one compiled program allows. In a run both are fixed limits.
- Tunix's batch is padded and on the device before the clock starts; ours is laid out in rows inside
  every timed step.
- Tunix makes logits of all completion tokens at once, ours of at most 128 trained ones at a time.
- Tunix's step is one program a micro batch, optimizer included; ours a program a row, and one for
  the optimizer. Both hold the old weights beside the new ones at the end.
- Packed rows of Tunix are wrong for these trajectories as they come, in two ways that
  `benchmarks/peers/tunix_learner.py` mends and names; mended, their loss is the others'.
"""
OURS = "trees"
SIDES = (
    Side(name=OURS, note="the defaults", settings={}),
    Side(name="flat rows", note="ours, a padded row a sequence", settings={"flat": True}),
    Side(
        name="Tunix",
        note="micro batches of one group, the fewest that its learner takes",
        settings={"micro": 8},
        peer=True,
    ),
    Side(
        name="Tunix, frugal",
        note="its trainer alone: micro batches of one sequence, layers rematerialized",
        settings={"micro": 1, "remat": "DECODER"},
        peer=True,
    ),
    Side(
        name="Tunix, packed",
        note="rows of 1024 tokens, its packing mended",
        settings={"budget": 1024},
        peer=True,
    ),
)
"""Rematerialization costs Tunix time, and on CPU fewer sequences at once save it none."""


def main() -> None:
    """Measure what is asked for; print tables and the RESULT line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", nargs="+", choices=tuple(SHAPES), default=list(SHAPES))
    parser.add_argument("--groups", type=int, default=2, help="groups of eight sequences")
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each side")
    parser.add_argument("--seed", type=int, default=0, help="of the trajectories")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--only", nargs="+", default=[], help="names of contestants")
    parser.add_argument("--cores", nargs="+", type=int, default=[], help="processors to stay on")
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--inner", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        serve(Path(options.inner[0]), json.loads(options.inner[1]))
        return
    outcome: dict[str, Any] = {}
    sections = []
    for name in options.model:
        sides = sweep_of(name) if options.sweep else SIDES
        kept = [side for side in sides if not options.only or side.name in options.only]
        found, section = measure(name, kept, options)
        outcome[name] = found
        sections.append(section)
    outcome["versions"] = {
        "jax": version("jax"),
        "tunix": TUNIX,
        "python": platform.python_version(),
        "cores": len(options.cores) or os.cpu_count(),
        "load": [round(value, 1) for value in os.getloadavg()],
    }
    if options.write:
        write(sections, outcome["versions"], options)
    print("RESULT", json.dumps(outcome))


def measure(
    name: str, sides: Sequence[Side], options: argparse.Namespace
) -> tuple[dict[str, Any], str]:
    """All of `sides` with model `name`: what RESULT holds, and a section of the page."""
    python = options.peer_python
    if not python and any(side.peer for side in sides):
        python = str(peer_environment())
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        facts = prepare(name, folder, options)
        runs = alternate(sides, folder, python, options)
    lines = [line_of(run) for run in runs]
    table = Table(*HEADINGS, title=f"{name}: {facts}")
    for line in lines:
        table.add_row(*cells(line))
    Console(width=160).print(table)
    by_name = {run.side.name: run for run in runs}
    ours = by_name.pop(OURS, None)
    ratios = {} if ours is None else {key: speedup(ours, run) for key, run in by_name.items()}
    for line in goals(ratios):
        print(line)
    found = {
        "against": ratios,
        "tokens_per_s": {line.name: round(line.tokens_per_second, 1) for line in lines},
        "peak_mib": {line.name: round(line.peak_mib) for line in lines},
    }
    return found, markdown(f"{name}: {facts}", lines, ratios)


def prepare(name: str, folder: Path, options: argparse.Namespace) -> str:
    """Write the weights and the trajectories; say what they are."""
    model = write_model(name, folder)
    groups = make_groups(options.groups, model.vocabulary, Lengths(), options.seed)
    write_groups(groups, folder / "groups.npz")
    members = [sequence for group in groups for sequence in group]
    return (
        f"{model.parameters / 1e6:.1f}M weights, {len(members)} sequences of "
        f"{sum(len(s.tokens) for s in members):,} tokens, "
        f"{sum(int(s.loss_mask.sum()) for s in members):,} trained; prompts up to "
        f"{max(map(prompt_length, members))}, completions up to {longest_completion(groups)}"
    )


def alternate(
    sides: Sequence[Side], folder: Path, python: str, options: argparse.Namespace
) -> list[Run]:
    """Start one side after the other, then step each in turn."""
    with ExitStack() as stack:
        steppers = []
        for side in sides:
            stepper = stack.enter_context(Stepper(side, folder, python, options.cores))
            run = stepper.ready()
            steppers.append((stepper, run))
            print(f"{side.name} is warm: {json.dumps(run.ready)}", flush=True)
        for number in range(options.steps):
            for stepper, run in steppers:
                run.steps.append(stepper.step())
            times = ", ".join(f"{run.steps[-1]['seconds']:.2f}" for _, run in steppers)
            print(f"step {number}: {times} s; load {os.getloadavg()[0]:.1f}", flush=True)
        return [run for _, run in steppers]


def write(sections: Sequence[str], versions: dict[str, Any], options: argparse.Namespace) -> None:
    """The page: what was run, then the sections."""
    words = list(sys.argv[1:])
    if "--peer-python" in words:
        del words[(at := words.index("--peer-python")) : at + 2]
    command = shlex.join(["python", "benchmarks/learner.py", *words])
    title = "settings of both sides" if options.sweep else f"beside Tunix {TUNIX}"
    head = [
        f"# The learner's step, {title}, {date.today().isoformat()}",
        "",
        f"Command: `{command}`, {versions['cores']} cores, Python {versions['python']}, JAX "
        f"{versions['jax']}, float32, load {versions['load'][0]} at the end. What is compared, and "
        "how, is in the script's first lines.",
        "",
    ]
    page = PAGE.with_name("learner-settings.md") if options.sweep else PAGE
    notes = [] if options.sweep else [NOTES]
    page.write_text("\n".join([*head, *sections, *notes]))


if __name__ == "__main__":
    main()
