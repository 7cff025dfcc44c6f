"""The policy that a run trains: the embedded sampler, or vLLM in this process or behind addresses.

    policy.use = "embedded"                      the JAX sampler, on the learner's own weights
    policy.use = "vllm"                          vLLM's engine in this process
    policy.use = "vllm:http://a:8000,http://b:8000"   servers, turns routed over them
    policy.use = "vllm:ray"                      servers on the Ray cluster's nodes

Whatever it is, the learner's weights are published to it before the first turn, so that no rollout
is ever sampled from what a server happened to be started with.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from patchgym.agent import Completion, Policy, PolicyLoad, SampleRequest

from .config import RunConfig
from .errors import ConfigError
from .ray import server_port
from .resources import Trainee
from .weights import EngineWeights, ServerWeights, WeightSink, export_folder

if TYPE_CHECKING:
    from patchgym.agent.policies import VllmServer

    # By their full names: pyright reaches these also as `trainer.*`, and takes them for others.
    from patchgym.trainer.model.config import ModelConfig
    from patchgym.trainer.model.decoder import Params
    from patchgym.trainer.model.tokenizer import Tokenizer


@dataclass(slots=True)
class SampledTokens:
    """Counts since the start."""

    sampled_tokens: int = 0


class PublishedPolicy:
    """A policy and the sink that its weights go to, as one `Trainee`."""

    def __init__(self, policy: Policy, sink: WeightSink) -> None:
        self._policy, self._sink = policy, sink
        self._counts = SampledTokens()
        self._version = -1

    @property
    def version(self) -> int:
        """The newest version that was published."""
        return self._version

    async def sample(self, request: SampleRequest) -> Completion:
        """See `agent.Policy`."""
        completion = await self._policy.sample(request)
        self._counts.sampled_tokens += len(completion.tokens)
        return completion

    async def publish(self, params: Any, version: int) -> None:
        """See `WeightSink`."""
        await self._sink.publish(params, version)
        self._version = version

    def load(self) -> PolicyLoad:
        """See `agent.Policy`."""
        return self._policy.load()

    def statistics(self) -> SampledTokens:
        """Counts so far."""
        return self._counts


async def open_sampler(
    config: RunConfig,
    model: ModelConfig,
    params: Params,
    tokenizer: Tokenizer,
    *,
    version: int,
    stack: AsyncExitStack,
) -> Trainee:
    """The run's policy with `params` as `version`; it closes with `stack`."""
    use = config.policy.use
    if use == "embedded":
        return await _embedded(config, model, params, tokenizer, version, stack)
    opened = await (
        _engine(config, model, params, tokenizer, stack)
        if use == "vllm"
        else _servers(config, model, tokenizer, stack)
    )
    await opened.publish(params, version)
    return opened


async def _embedded(
    config: RunConfig,
    model: ModelConfig,
    params: Params,
    tokenizer: Tokenizer,
    version: int,
    stack: AsyncExitStack,
) -> Trainee:
    from .sampler import JaxSampler

    settings: Any = config.sampler
    sampler = JaxSampler(settings, model, params, tokenizer, version=version)
    return await stack.enter_async_context(sampler)


async def _servers(
    config: RunConfig, model: ModelConfig, tokenizer: Tokenizer, stack: AsyncExitStack
) -> PublishedPolicy:
    from patchgym.agent.policies import PolicyRouter, VllmServer

    ends = sorted(tokenizer.end_ids)
    servers: dict[str, VllmServer] = {}
    for url in await _urls(config, stack):
        server = VllmServer(url, end_ids=ends, turn_limit=config.rollout.turn_seconds)
        servers[url] = await stack.enter_async_context(server)
    weights = ServerWeights(list(servers.values()), model, Path(config.policy.weights_folder))
    sink = await stack.enter_async_context(weights)
    policy: Policy = next(iter(servers.values()))
    if len(servers) > 1:
        policy = await stack.enter_async_context(PolicyRouter(servers))
    return PublishedPolicy(policy, sink)


async def _urls(config: RunConfig, stack: AsyncExitStack) -> Sequence[str]:
    use = config.policy.use
    if server_port(use) is not None:
        from .ray.servers import ray_servers

        return await stack.enter_async_context(ray_servers(use, config.ray.address))
    return use.removeprefix("vllm:").split(",")


async def _engine(
    config: RunConfig,
    model: ModelConfig,
    params: Params,
    tokenizer: Tokenizer,
    stack: AsyncExitStack,
) -> PublishedPolicy:
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        raise ConfigError(
            "policy.use is vllm, and vLLM is not installed here: pip install 'patchgym[vllm]', or "
            "name a server: vllm:http://HOST:PORT"
        )
    import tempfile

    from patchgym.agent.policies import VllmEngine

    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="patchgym-model-"))
    await anyio.to_thread.run_sync(export_folder, model, params, tokenizer, Path(folder))
    engine = VllmEngine(
        folder,
        end_ids=sorted(tokenizer.end_ids),
        options={"max_model_len": config.rollout.context_tokens},
    )
    await stack.enter_async_context(engine)
    return PublishedPolicy(engine, EngineWeights(engine, model))
