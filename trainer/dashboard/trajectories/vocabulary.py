"""What a run's token ids spell, where that can be known without fetching anything."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchgym.datasets.cache import cache_dir
from patchgym.trainer.agent_evaluation.folder import is_evaluation, open_evaluation
from patchgym.trainer.dashboard.inert import marked
from patchgym.trainer.errors import UserError
from patchgym.trainer.run_folder import RunFolder

from .known_config import known_config

if TYPE_CHECKING:
    from patchgym.agent.chat import ChatTokenizer


_LOADING = threading.Lock()  # once, not once for each turn of a page


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Token ids to text for people."""

    tokenizer: Any
    """None when there is none."""
    problem: str
    """Why there is none; empty otherwise."""
    made_up: bool = False
    """The policy answered in text: ids are its characters, log-probabilities are made up."""

    @property
    def note(self) -> str:
        """What a person should know of ids that it spells; empty when there is nothing."""
        if self.problem:
            return f"Ids only: {self.problem}"
        if self.made_up:
            return (
                "The policy answered in text: these ids are its characters, and the "
                "log-probabilities are made up."
            )
        return ""

    def spelled(self, token: int) -> str:
        """What `token` spells, hidden characters marked; empty when it is not known."""
        if self.tokenizer is None:
            return ""
        try:
            return marked(_text(self.tokenizer, token))
        except (ValueError, IndexError, OverflowError):
            return ""  # an id outside the vocabulary

    def text(self, tokens: Sequence[int]) -> str:
        """The text of many ids, control tokens spelled; empty when it is not known."""
        if self.tokenizer is None:
            return ""
        try:
            return str(self.tokenizer.decode(tokens, control=True))
        except (ValueError, IndexError, OverflowError):
            return "".join(self.spelled(token) or f"⟨{token}⟩" for token in tokens)


def vocabulary_of(folder: RunFolder) -> Vocabulary:
    """The vocabulary of a run's model. Blocks: reads the tokenizer's file on the first call."""
    try:
        with _LOADING:
            return _opened(*_named(folder))
    except ImportError as error:
        problem = f"{error.name} is not installed: pip install 'patchgym[train]'"
    except (UserError, OSError, ValueError, LookupError) as error:
        problem = str(error)
    return Vocabulary(tokenizer=None, problem=problem)


def _named(folder: RunFolder) -> tuple[str, float]:
    """The tokenizer's path, empty for a policy that answered in text; and when it was changed."""
    config = known_config(folder)
    if config is None:
        raise UserError("the run's settings can't be read, so that its model is not known")
    name = config.model.path
    if is_evaluation(folder):
        policy = open_evaluation(folder).policy
        if not policy.get("trainable", True):
            return "", 0.0
        name = str(policy.get("tokenizer") or name)
    path = _path(name, folder)
    return str(path), path.stat().st_mtime


def _path(name: str, folder: RunFolder) -> Path:
    """Where the model lies: as it was named, or seen from where the run was started."""
    from patchgym.trainer.model.weights import FILE_NAME
    from patchgym.trainer.policies.tokenizers import BUNDLED_MODEL

    if name.lower() == BUNDLED_MODEL:
        places = [cache_dir() / FILE_NAME]
    else:
        places = [Path(name), *(above / name for above in folder.path.parents[1:3])]
    for place in places:
        if place.exists():
            return place
    raise UserError(f"the model {name} is not on this machine, so that its ids can't be spelled")


@lru_cache(maxsize=4)
def _opened(path: str, changed: float) -> Vocabulary:
    del changed  # names the version of the file
    if not path:
        from patchgym.trainer.policies.text_policy import TextTokenizer

        return Vocabulary(tokenizer=TextTokenizer(), problem="", made_up=True)
    from patchgym.trainer.policies.tokenizers import load_chat_tokenizer

    return Vocabulary(tokenizer=load_chat_tokenizer(path), problem="")


def _text(tokenizer: ChatTokenizer, token: int) -> str:
    """The text of one id: control tokens spelled, bytes that are no character in hexadecimal."""
    read = getattr(tokenizer, "token_bytes", None)
    raw: bytes = read(token) if read else b""
    if not raw:
        return str(tokenizer.decode([token], control=True))
    return raw.decode("utf-8", "backslashreplace")
