"""Opens what a supervised run needs before there is a folder: model, data, plan, learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchgym.trainer.errors import ConfigError, UserError
from patchgym.trainer.policies import load_chat_tokenizer, model_path

from .config import SftConfig
from .dataset import Dataset, Gathered, Plan, split
from .gathering import gather
from .picture import data_record, plan_lines, rows_record

if TYPE_CHECKING:
    from patchgym.agent.chat import ChatTokenizer
    from patchgym.trainer.learner import Learner
    from patchgym.trainer.model.config import ModelConfig
    from patchgym.trainer.model.tokenizer import Tokenizer

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Opened:
    """Ready to train."""

    config: SftConfig
    model: ModelConfig
    tokenizer: Tokenizer
    learner: Learner
    dataset: Dataset
    gathered: Gathered
    plan: Plan

    def facts(self) -> dict[str, Any]:
        """What the ledger keeps of the data, JSON types only."""
        return {"steps": self.plan.steps, "data": data_record(self.gathered, self.dataset)}


def open_supervised_run(config: SftConfig, say: Say) -> Opened:
    """Load the model and the data of a (pinned) `config`. Blocking.

    Raises UserError or ModelError, in one line, for what can't be used.
    """
    from patchgym.trainer.learner import Learner
    from patchgym.trainer.model.load import load_model

    say(f"loading the model {config.model.path}")
    model, params, tokenizer = load_model(model_path(config.model.path))
    _check_export(config, model)
    if config.learner.row_tokens[-1] > model.context:
        raise ConfigError(
            f"learner.row_tokens goes up to {config.learner.row_tokens[-1]}, the model's context "
            f"is {model.context}: leave the longer ones out"
        )
    gathered, dataset, plan = _data(config, tokenizer, model.vocabulary, say)
    try:
        learner = Learner(config.learner, model, params, seed=config.run.seed)
    except ValueError as error:  # a mesh of other devices, or one that the model doesn't fit on
        raise ConfigError(str(error)) from None
    return Opened(
        config=config,
        model=model,
        tokenizer=tokenizer,
        learner=learner,
        dataset=dataset,
        gathered=gathered,
        plan=plan,
    )


def examine(config: SftConfig, say: Say) -> tuple[dict[str, Any], list[str]]:
    """A dry run of a (pinned) `config`: the picture in JSON types, and the plan in words.

    The tokenizer is loaded, the weights are not. Blocking.
    """
    tokenizer = load_chat_tokenizer(config.model.path)
    gathered, dataset, plan = _data(config, tokenizer, tokenizer.vocabulary, say)
    rows = rows_record(config, dataset, plan)
    record = {
        "data": data_record(gathered, dataset),
        "steps": plan.steps,
        "steps_per_epoch": plan.per_epoch,
        "packing": rows,
    }
    return record, plan_lines(config, plan, rows)


def _data(
    config: SftConfig, tokenizer: ChatTokenizer, vocabulary: int, say: Say
) -> tuple[Gathered, Dataset, Plan]:
    gathered = gather(
        config,
        tokenizer,
        vocabulary=vocabulary,
        on_source=lambda source: say(f"reading {source}"),
    )
    dataset = split(gathered.examples, config.data.heldout, config.run.seed)
    plan = Plan.of(
        len(dataset.train),
        batch=config.train.batch,
        epochs=config.train.epochs,
        steps=config.train.steps,
        seed=config.run.seed,
    )
    if config.learner.warmup_steps > plan.steps:
        raise ConfigError(
            f"learner.warmup_steps is {config.learner.warmup_steps}, the run has {plan.steps} "
            "steps: the rate would never reach its peak; lower it"
        )
    return gathered, dataset, plan


def _check_export(config: SftConfig, model: ModelConfig) -> None:
    """Say before the training, not after it, that the weights can't go there."""
    if not config.run.export:
        return
    from patchgym.trainer.model.hf_describe import describe_config

    folder = Path(config.run.export)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--export {folder}: a file lies there; name a folder")
    if folder.is_dir() and Path(config.model.path).resolve() == folder:
        raise UserError(f"--export {folder}: the model itself lies there; name another folder")
    try:
        describe_config(model)
        folder.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        raise UserError(f"--export: this model has no Hugging Face form: {error}") from None
    except OSError as error:
        raise UserError(f"--export {folder}: can't be made: {error.strerror}") from None
