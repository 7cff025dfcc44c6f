"""Makes tasks.jsonl: one seeded mutant of each bundled function, split by function.

`python -m patchgym.datasets.bundled.generate --seed 0 --out FILE` writes the same bytes each time.
"""

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path

from patchgym.datasets.repository import commit_files, own_git, write_files
from patchgym.datasets.task import Focus, Split, Task, dump_tasks

from .arithmetic import ARITHMETIC
from .functions import Function, evaluate
from .lists import LISTS
from .logic import LOGIC
from .mutate import RULES, Mutant, mutants
from .text import TEXT

VERSION = "1"
"""Raised when the same seed makes other tasks than before."""
FUNCTIONS = (*ARITHMETIC, *LOGIC, *TEXT, *LISTS)
HELDOUT = 40


def generate(seed: int) -> Iterator[Task]:
    """All bundled tasks, training first, each split in the seed's order; made as they are read."""
    order = list(FUNCTIONS)
    rng = random.Random(seed)
    rng.shuffle(order)
    used: Counter[str] = Counter()
    for function in order[HELDOUT:]:
        yield _next_task(function, "train", RULES.keys(), used, rng, seed)
    # A held-out function is new to the policy; its kind of mistake must not be.
    learnt = frozenset(used)
    used = Counter()
    for function in order[:HELDOUT]:
        yield _next_task(function, "heldout", learnt, used, rng, seed)


def _next_task(
    function: Function,
    split: Split,
    kinds: Set[str],
    used: Counter[str],
    rng: random.Random,
    seed: int,
) -> Task:
    mutant = _choose(function, kinds, used, rng)
    used[mutant.kind] += 1
    return _task(function, mutant, split, seed)


def _choose(function: Function, kinds: Set[str], used: Counter[str], rng: random.Random) -> Mutant:
    """A mutant of one of these kinds: if possible one that passes a test, then the rarest kind."""
    candidates = [mutant for mutant in mutants(function) if mutant.kind in kinds]
    if not candidates:
        raise LookupError(f"{function.name} has no usable mutant: add a call, or drop it")
    partial = [mutant for mutant in candidates if len(mutant.failing) < len(function.calls)]
    partial = partial or candidates
    rarest = min(used[mutant.kind] for mutant in partial)
    return rng.choice([mutant for mutant in partial if used[mutant.kind] == rarest])


def _task(function: Function, mutant: Mutant, split: Split, seed: int) -> Task:
    source_path, test_path = f"{function.name}.py", f"test_{function.name}.py"
    expected = evaluate(function.source, function.calls)
    asserts = [
        f"assert {call} == {value!r}" for call, value in zip(function.calls, expected, strict=True)
    ]
    files = {source_path: mutant.source, test_path: _tests(function.name, asserts)}
    base_commit, gold_patch = _commit_and_diff(files, {source_path: function.source})
    ids = [f"{test_path}::test_{number}" for number in range(1, len(asserts) + 1)]
    task = Task(
        id=f"repair/{function.name}",
        statement=(
            f"`{function.name}` in {source_path} returns a wrong result.\n"
            f"This test fails: `{asserts[mutant.failing[0]]}`"
        ),
        files=files,
        base_commit=base_commit,
        gold_patch=gold_patch,
        fail_to_pass=tuple(ids[i] for i in mutant.failing),
        pass_to_pass=tuple(test for i, test in enumerate(ids) if i not in mutant.failing),
        test_files=(test_path,),
        focus=Focus(path=source_path, function=function.name),
        split=split,
        provenance={
            "function": function.name,
            "mutation": mutant.kind,
            "seed": str(seed),
            "generator": f"patchgym.datasets.bundled {VERSION}",
        },
    )
    return replace(task, id=f"{task.id}-{task.content[:8]}")


def _tests(name: str, asserts: Sequence[str]) -> str:
    tests = "".join(
        f"\n\ndef test_{number}():\n    {line}\n" for number, line in enumerate(asserts, 1)
    )
    return f"from {name} import {name}\n{tests}"


def _commit_and_diff(files: dict[str, str], mended: dict[str, str]) -> tuple[str, str]:
    """The commit id of the broken files, and git's own diff from them to the mended ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with commit_files(files, folder) as repo:
            write_files(mended, folder)
            repo.index.add(sorted(mended))
            diff: str = repo.git.diff(
                repo.head.commit.hexsha,
                repo.index.write_tree().hexsha,
                "--full-index",
                "--no-color",
                "--no-ext-diff",
                "--src-prefix=a/",
                "--dst-prefix=b/",
                strip_newline_in_stdout=False,
                env=own_git(folder),
            )
            return repo.head.commit.hexsha, diff


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tasks of a seed to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    dump_tasks(generate(options.seed), options.out)


if __name__ == "__main__":
    main()
