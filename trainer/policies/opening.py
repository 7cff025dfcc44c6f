"""Opens a policy by name: the policy itself, its tokenizer, and what is known of it."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from patchgym.agent import Policy
from patchgym.agent.chat import ChatTokenizer
from patchgym.trainer.errors import RunError, UserError
from patchgym.trainer.run_folder import RunFolder, find_run, list_runs

from .spec import PolicySpec, parse_policy
from .text_policy import TextAdapter, TextTokenizer, TokenUse
from .tokenizers import load_chat_tokenizer, model_path

if TYPE_CHECKING:
    from patchgym.trainer.model import ModelConfig, Tokenizer
    from patchgym.trainer.model.decoder import Params


NO_CLUSTER = "--policy {policy}: which cluster? give --ray HOST:PORT, or --ray auto"
"""What is said where servers are to be found, and nobody said in which cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """How a policy is opened."""

    tokenizer: str = ""
    """For servers: a Hugging Face folder or a GGUF file with the served model's tokenizer."""
    context_tokens: int = 1024
    """Longest context and turn together, in tokens."""
    slots: int = 8
    """Turns that an embedded sampler works on at once."""
    api_key_variable: str | None = None
    """Environment variable with the key for servers; none is sent without it."""
    runs: Path = Path("runs")
    """Where runs are looked for by name."""
    ray: str = ""
    """Address of the Ray cluster that `vllm:ray` looks for servers in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedPolicy:
    """Open for the length of `open_policy`."""

    policy: Policy
    tokenizer: ChatTokenizer
    model: str
    """A name for people and for `model_name_or_path`."""
    version: int
    """policy_version when it was opened."""
    tokenizer_source: str
    """What `load_chat_tokenizer` finds the tokenizer by; empty for text."""
    trainable: bool
    """False for text: what it says is never trained on."""
    window: int | None = None
    """Most tokens of a context and its turn together, where it is known."""
    use: Callable[[str], TokenUse] | None = None
    """What an endpoint counted, by rollout; None where trajectories tell it themselves."""


@asynccontextmanager
async def open_policy(
    spec: PolicySpec | str, options: PolicyOptions | None = None
) -> AsyncIterator[OpenedPolicy]:
    """The policy, loaded or connected to; closed with the block.

    UserError, or another error of one line, says what is missing and how to get it.
    """
    known = parse_policy(spec) if isinstance(spec, str) else spec
    chosen = options or PolicyOptions()
    if chosen.tokenizer and not known.served:
        raise UserError(f"--tokenizer is for servers that take ids; {known.text} needs none")
    if chosen.api_key_variable and known.kind in ("run", "model", "engine"):
        raise UserError(f"--api-key-variable is for servers; {known.text} needs none")
    async with AsyncExitStack() as stack:
        open_it = _OPENERS[known.kind]
        opened = await open_it(known, chosen, stack)
        if opened.window is not None and opened.window < chosen.context_tokens:
            raise UserError(
                f"--context-tokens {chosen.context_tokens}: the window of {known.text} is "
                f"{opened.window}; give no more"
            )
        yield opened


async def _open_model(
    spec: PolicySpec, options: PolicyOptions, stack: AsyncExitStack
) -> OpenedPolicy:
    name = spec.where[0]
    loaded = await anyio.to_thread.run_sync(_load_model, name)
    return await _embed(loaded, 0, Path(name).stem, name, options, stack)


async def _open_run(
    spec: PolicySpec, options: PolicyOptions, stack: AsyncExitStack
) -> OpenedPolicy:
    folder = await anyio.to_thread.run_sync(_trained_run, spec.where[0], options.runs)
    config = folder.load_config()
    from patchgym.trainer.trained import load_trained

    loaded, version = await anyio.to_thread.run_sync(load_trained, folder, spec.checkpoint)
    name = f"{folder.path.name}-step{version}"
    return await _embed(loaded, version, name, config.model.path, options, stack)


async def _embed(
    loaded: tuple[ModelConfig, Params, Tokenizer],
    version: int,
    name: str,
    source: str,
    options: PolicyOptions,
    stack: AsyncExitStack,
) -> OpenedPolicy:
    from patchgym.trainer.sampler import JaxSampler
    from patchgym.trainer.sampler_config import SamplerConfig

    model, params, tokenizer = loaded
    config = SamplerConfig(slots=options.slots, context=options.context_tokens)
    sampler = JaxSampler(config, model, params, tokenizer, version=version)
    return OpenedPolicy(
        policy=await stack.enter_async_context(sampler),
        tokenizer=tokenizer,
        model=name,
        version=version,
        tokenizer_source=source,
        trainable=True,
        window=model.context,
    )


async def _open_engine(
    spec: PolicySpec, options: PolicyOptions, stack: AsyncExitStack
) -> OpenedPolicy:
    from patchgym.agent.policies import VllmEngine

    folder = spec.where[0]
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            f"--policy {spec.text}: vllm isn't installed here: run pip install 'patchgym[vllm]', "
            "or start a vLLM server and name it as vllm:http://HOST:PORT"
        )
    if not await anyio.Path(folder).is_dir():
        raise UserError(f"--policy {spec.text}: no such folder; give a Hugging Face folder")
    tokenizer = await anyio.to_thread.run_sync(load_chat_tokenizer, folder)
    engine = await stack.enter_async_context(
        VllmEngine(
            folder,
            end_ids=sorted(tokenizer.end_ids),
            options={"max_model_len": options.context_tokens},
        )
    )
    return OpenedPolicy(
        policy=engine,
        tokenizer=tokenizer,
        model=Path(folder).name,
        version=engine.version,
        tokenizer_source=folder,
        trainable=True,
        window=engine.window,
    )


async def _open_served(
    spec: PolicySpec, options: PolicyOptions, stack: AsyncExitStack
) -> OpenedPolicy:
    from patchgym.agent.policies import PolicyRouter, SglangServer, VllmServer

    if not options.tokenizer:
        raise UserError(
            f"--policy {spec.text}: ids are made here: give --tokenizer, the folder or GGUF file "
            "of the served model"
        )
    tokenizer = await anyio.to_thread.run_sync(load_chat_tokenizer, options.tokenizer)
    kind = VllmServer if spec.kind == "vllm" else SglangServer
    ends = sorted(tokenizer.end_ids)
    servers: dict[str, VllmServer | SglangServer] = {}
    for url in spec.where or await _ray_servers(spec, options, stack):
        server = kind(url, end_ids=ends, api_key_variable=options.api_key_variable)
        servers[url] = await stack.enter_async_context(server)
    windows = [server.window for server in servers.values() if server.window is not None]
    policy: Policy = next(iter(servers.values()))
    if len(servers) > 1:
        policy = await stack.enter_async_context(PolicyRouter(servers))
    return OpenedPolicy(
        policy=policy,
        tokenizer=tokenizer,
        model=f"{spec.kind}:{Path(options.tokenizer).stem}",
        version=policy.version,
        tokenizer_source=options.tokenizer,
        trainable=True,
        window=min(windows, default=None),
    )


async def _ray_servers(
    spec: PolicySpec, options: PolicyOptions, stack: AsyncExitStack
) -> Sequence[str]:
    from patchgym.trainer.ray.servers import ray_servers

    if not options.ray:
        raise UserError(NO_CLUSTER.format(policy=spec.text))
    return await stack.enter_async_context(ray_servers(spec.text, options.ray))


async def _open_endpoint(
    spec: PolicySpec, options: PolicyOptions, stack: AsyncExitStack
) -> OpenedPolicy:
    from patchgym.agent.policies import OpenAIEndpoint

    url = spec.where[0]
    model = spec.model or await _only_model(url, options.api_key_variable)
    endpoint = await stack.enter_async_context(
        OpenAIEndpoint(url, model, api_key_variable=options.api_key_variable)
    )
    tokenizer = TextTokenizer()
    adapter = TextAdapter(endpoint, tokenizer)
    return OpenedPolicy(
        policy=adapter,
        tokenizer=tokenizer,
        model=model,
        version=adapter.version,
        tokenizer_source="",
        trainable=False,
        use=adapter.use,
    )


_OPENERS = {
    "model": _open_model,
    "run": _open_run,
    "engine": _open_engine,
    "vllm": _open_served,
    "sglang": _open_served,
    "openai": _open_endpoint,
}


async def _only_model(url: str, variable: str | None) -> str:
    """The one model that an endpoint serves; UserError that names them when there are several."""
    from patchgym.agent.policies.calls import JsonCalls
    from patchgym.agent.policies.served import CALL_LIMIT, authorization

    calls = JsonCalls(url, headers=authorization(variable), proxies=True)
    await calls.open()
    try:
        answer: Any = await calls.get("/models", limit=CALL_LIMIT)
    finally:
        await calls.close()
    data = answer.get("data") if isinstance(answer, dict) else None
    entries: Sequence[Any] = data if isinstance(data, list) else ()
    names = [str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry]
    if len(names) != 1:
        found = f"serves {', '.join(names[:8])}" if names else "names no model"
        raise UserError(f"--policy openai:{url}: it {found}; write openai:{url}#MODEL")
    return names[0]


def _load_model(name: str) -> tuple[ModelConfig, Params, Tokenizer]:
    from patchgym.trainer.model.load import load_model

    return load_model(model_path(name))


def _trained_run(name: str, root: Path) -> RunFolder:
    """The run that `name` means; `latest` is the newest that has a checkpoint."""
    if name != "latest":
        folder = find_run(name, root)
        if not has_checkpoint(folder):
            raise RunError(f"--policy run:{name}: {folder.path} has no checkpoint")
        return folder
    trained = [folder for folder in list_runs(root) if has_checkpoint(folder)]
    if not trained:
        raise RunError(f"--policy run:latest: no run in {root.resolve()} has a checkpoint")
    return trained[-1]


def has_checkpoint(folder: RunFolder) -> bool:
    """Whether a whole checkpoint lies in the run's folder."""
    if not folder.checkpoints.is_dir():
        return False
    return any(entry.name.isdigit() for entry in folder.checkpoints.iterdir())
