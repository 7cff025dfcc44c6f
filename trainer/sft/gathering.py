"""From `data.sources` to a dataset: every source read, what can't be trained on named, the rest
split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from patchgym.agent.chat import ChatTokenizer
from patchgym.trainer.errors import ConfigError, UserError
from patchgym.trainer.formats import Reader
from patchgym.trainer.run_folder import RunFolder, find_run
from patchgym.trainer.task_sets import load_task_set

from .config import DataSection, SftConfig
from .dataset import Example, Gathered
from .files import read_files
from .gold import read_gold
from .stored import read_run

GOLD = "gold:"


def pinned(config: SftConfig) -> SftConfig:
    """`config` with whole paths, so that a resumed run finds the same sources from anywhere.

    Raises ConfigError, naming it, for a source that is nothing known.
    """
    data, root = config.data, Path(config.run.folder)
    if not data.sources:
        raise ConfigError(
            "data.sources is empty: give --data FILE|RUN, a file of conversations or a run"
        )
    sources = tuple(_whole(source, root) for source in data.sources)
    plain = DataSection()
    if not any(_as_run(source) for source in sources):
        for key in ("keep", "per_task", "min_reward"):
            if getattr(data, key) != getattr(plain, key):
                raise ConfigError(f"data.{key} has no effect: none of data.sources is a run")
    export = str(Path(config.run.export).resolve()) if config.run.export else ""
    return replace(
        config,
        run=replace(config.run, export=export),
        data=replace(data, sources=sources),
    )


def gather(
    config: SftConfig,
    tokenizer: ChatTokenizer,
    *,
    vocabulary: int,
    on_source: Callable[[str], None],
) -> Gathered:
    """All conversations of the (pinned) sources that fit the longest row.

    Raises UserError, naming the place, for what can't be read, for ids of another vocabulary and
    for data with nothing left in it. Ids run from 0 to `vocabulary`, exclusive. Blocking.
    """
    gathered = Gathered()
    reader = Reader.of(tokenizer)
    for source in config.data.sources:
        on_source(source)
        run = _as_run(source)
        if source.startswith(GOLD):
            read_gold(load_task_set(source.removeprefix(GOLD)), tokenizer, gathered)
        elif run is not None:
            read_run(run, config.data, reader.fingerprint, gathered)
        else:
            read_files(Path(source), reader, gathered)
    _check_ids(gathered.examples, vocabulary)
    _drop_long(gathered, config.learner.row_tokens[-1])
    if not gathered.examples:
        raise UserError(f"data: no conversation to train on{_because(gathered)}")
    return gathered


def _because(gathered: Gathered) -> str:
    if gathered.dropped:
        where, why = next(iter(gathered.dropped.items()))
        return f": all {len(gathered.dropped)} were dropped, the first ({where}) since {why}"
    if gathered.left_out:
        return (
            f": none of {gathered.left_out} rollouts is what data.keep, data.min_reward ask for; "
            "try --keep best"
        )
    return ": the sources are empty"


def _check_ids(examples: Sequence[Example], vocabulary: int) -> None:
    for each in examples:
        highest = max(max(sequence.tokens) for sequence in each.sequences)
        if highest >= vocabulary:
            raise UserError(
                f"{each.source}: token id {highest} is outside the model's vocabulary of "
                f"{vocabulary}: these ids are another model's"
            )


def _drop_long(gathered: Gathered, limit: int) -> None:
    fitting = []
    for each in gathered.examples:
        if each.longest <= limit:
            fitting.append(each)
        else:
            gathered.dropped[each.source] = (
                f"it has {each.longest} tokens, the longest row {limit}: raise learner.row_tokens"
            )
    gathered.examples = fitting


def _whole(source: str, root: Path) -> str:
    if source.startswith(GOLD):
        name = source.removeprefix(GOLD)
        return source if name.startswith("bundled:") else f"{GOLD}{Path(name).resolve()}"
    if Path(source).exists():
        return str(Path(source).resolve())
    if source == "latest" or (root / source / "run.toml").is_file():
        return str(find_run(source, root).path)
    raise ConfigError(
        f"data.sources: {source}: neither a file, nor a run in {root.resolve()}, nor gold:TASKS"
    )


def _as_run(source: str) -> RunFolder | None:
    """The run whose folder `source` is."""
    folder = RunFolder(Path(source))
    return folder if folder.config.is_file() else None
