"""What a policy is called: `KIND:WHERE`, checked before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from patchgym.trainer.errors import UserError
from patchgym.trainer.ray import server_port

PolicyKind = Literal["run", "model", "engine", "vllm", "sglang", "openai"]
"""`run` and `model` are embedded, `engine` is vLLM in this process, the others are servers."""

FORMS = (
    "run:RUN[@best|@STEP], model:PATH, vllm:FOLDER, vllm:http://HOST:PORT[,http://...], "
    "vllm:ray[:PORT], "
    "sglang:http://HOST:PORT, openai:URL[#MODEL]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """A policy by name."""

    text: str
    """As it was written."""
    kind: PolicyKind
    where: tuple[str, ...]
    """A run, a path, or the URLs of the servers; none where a Ray cluster knows them."""
    checkpoint: str = "latest"
    """Of a run: `latest`, `best`, or a step."""
    model: str = ""
    """The endpoint's name of the model; empty asks the endpoint."""

    @property
    def served(self) -> bool:
        """Servers that take token ids: the tokenizer is needed on our side."""
        return self.kind in ("vllm", "sglang")

    @property
    def trainable(self) -> bool:
        """Answers are token ids with their log-probabilities; a chat endpoint's are text."""
        return self.kind != "openai"


def parse_policy(text: str) -> PolicySpec:
    """The policy that `text` names; UserError, in one line, for what is none."""
    name, _, rest = text.partition(":")
    if name not in ("run", "model", "vllm", "sglang", "openai") or not rest:
        raise UserError(f"--policy {text}: no such policy; write one of {FORMS}")
    if name == "run":
        run, _, which = rest.rpartition("@")
        if run and (which in ("latest", "best") or which.isdecimal()):
            return PolicySpec(text=text, kind="run", where=(run,), checkpoint=which)
        return PolicySpec(text=text, kind="run", where=(rest,))
    if name == "model":
        return PolicySpec(text=text, kind="model", where=(rest,))
    if server_port(text) is not None:
        return PolicySpec(text=text, kind="vllm", where=())
    if name == "vllm" and "://" not in rest:
        return PolicySpec(text=text, kind="engine", where=(rest,))
    rest, _, model = rest.partition("#") if name == "openai" else (rest, "", "")
    urls = tuple(url.strip().rstrip("/") for url in rest.split(","))
    for url in urls:
        _check_url(text, url)
    if len(urls) > 1 and name != "vllm":
        raise UserError(f"--policy {text}: several servers are for vllm: only; name one")
    if len(set(urls)) < len(urls):
        raise UserError(f"--policy {text}: a server is named twice")
    kind: PolicyKind = {"vllm": "vllm", "sglang": "sglang"}.get(name, "openai")  # type: ignore[assignment]
    return PolicySpec(text=text, kind=kind, where=urls, model=model)


def _check_url(text: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise UserError(f"--policy {text}: {url or 'nothing'} is no http:// or https:// address")
