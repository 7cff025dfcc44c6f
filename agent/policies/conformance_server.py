"""A small HTTP server around any policy that speaks as SGLang and as vLLM do: for tests, dry runs.

A documented fake, shipped with the kit: it lets a client be checked where neither server can run,
and misbehaves on demand. It is no server for production: one request a connection, no TLS.

    SGLang  POST /generate, /abort_request · GET /get_server_info, /get_model_info
    vLLM    POST /inference/v1/generate, /inference/v1/abort_requests · GET /v1/models, /weight_info
    both    GET /health, /metrics
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, TypeAlias

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from patchgym.agent.policy import Completion, Policy, SampleRequest

from .background import Background

Fault: TypeAlias = Literal[
    "none", "garbage", "empty", "short_logprobs", "no_logprob", "cut", "refuse", "busy", "hang"
]
"""How answers to turns go wrong: not JSON, no token, a logprob too few, one that is -9999, the
connection closed in the middle of the answer, status 400, status 503, no answer at all."""

Handler: TypeAlias = Callable[[Any], Awaitable[tuple[int, Any]]]
"""Takes a request's JSON and gives a status and an answer."""

_BODY_LIMIT = 64 << 20


@dataclass(slots=True)
class _Running:
    scope: anyio.CancelScope
    aborted: bool = False


class ConformanceServer:
    """Serves `policy` on this machine; an async context manager, with its address in `url`."""

    def __init__(
        self,
        policy: Policy,
        *,
        window: int = 4096,
        routes: Mapping[str, Handler] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """`routes` are further paths to answer, such as `/v1/chat/completions`; `host` is the
        address of this machine to listen at."""
        self._policy, self._window, self._host = policy, window, host
        self._routes = dict(routes or {})
        self._running: dict[str, _Running] = {}
        self._background = Background()
        self.fault: Fault = "none"
        """How turns go wrong from now on."""
        self.turns = 0
        """Turns that were asked for."""
        self.aborted = 0
        """Turns that ended because the client went away or said so."""
        self.url = ""

    async def __aenter__(self) -> ConformanceServer:
        """Listen on a free port."""
        self._listener = await anyio.create_tcp_listener(local_host=self._host)
        await self._background.open()
        port = self._listener.extra(anyio.abc.SocketAttribute.local_port)
        self.url = f"http://{self._host}:{port}"
        self._gone = anyio.Event()
        self._background.start(self._listen)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """As `die`."""
        await self._background.close()

    async def die(self) -> None:
        """Break all connections off and listen no more, as a server that is killed."""
        self._background.cancel()
        await self._gone.wait()

    async def _listen(self) -> None:
        try:
            await self._listener.serve(self._answer)
        finally:
            with anyio.CancelScope(shield=True):
                await self._listener.aclose()
            self._gone.set()

    async def _answer(self, stream: SocketStream) -> None:
        try:
            async with stream:
                method, path, body = await _read(stream)
                status, answer = await self._route(method, path, body, stream)
                await self._send(stream, path, status, answer)
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead):
            pass  # the client went away
        except (ValueError, anyio.DelimiterNotFound):
            pass  # not HTTP

    async def _route(
        self, method: str, path: str, body: Any, stream: SocketStream
    ) -> tuple[int, Any]:
        if path in self._routes:
            return await self._routes[path](body)
        if path in ("/generate", "/inference/v1/generate") and method == "POST":
            return await self._turn(path, body, stream)
        if path == "/abort_request":
            # Whatever begins with the name, as SGLang does it.
            self._abort(lambda name: name.startswith(body["rid"]))
            return 200, None
        if path == "/inference/v1/abort_requests":
            self._abort(lambda name: f"generate-tokens-{name}" in body["request_ids"])
            return 200, None
        known = self._pages()
        return (200, known[path]) if path in known else (404, {"error": f"no {path} here"})

    def _pages(self) -> dict[str, Any]:
        load = self._policy.load()
        page = (
            f'vllm:num_requests_running{{engine="0"}} {len(self._running)}\n'
            f'vllm:num_requests_waiting{{engine="0"}} {load.waiting}\n'
            f'vllm:kv_cache_usage_perc{{engine="0"}} {load.cache_use}\n'
        )
        label = str(self._policy.version)
        return {
            "/health": "",
            "/metrics": page,
            "/v1/models": {"data": [{"id": "policy", "max_model_len": self._window}]},
            "/weight_info": {"weight_version": label},
            "/get_server_info": {"context_length": self._window},
            "/get_model_info": {"weight_version": label},
        }

    def _abort(self, chosen: Callable[[str], bool]) -> None:
        for name, running in self._running.items():
            if chosen(name):
                running.aborted = True
                running.scope.cancel()

    async def _turn(self, path: str, body: Any, stream: SocketStream) -> tuple[int, Any]:
        self.turns += 1
        sglang = path == "/generate"
        name = body["rid" if sglang else "request_id"]
        request = _sglang_request(body) if sglang else _vllm_request(body)
        if self.fault in ("refuse", "busy"):
            return (400 if self.fault == "refuse" else 503), {"error": {"message": "as told"}}
        room = self._window - len(request.tokens) - request.max_new_tokens
        if room < 0:
            words = f"This model's maximum context length is {self._window} tokens."
            return 400, {"error": {"message": words}}
        completion = await self._sample(name, request, stream)
        if completion is None:
            return 200, {"meta_info": {"finish_reason": {"type": "abort"}}}
        completion, logprobs = _spoilt(completion, self.fault)
        form = _sglang_answer if sglang else _vllm_answer
        return 200, form(completion, logprobs)

    async def _sample(
        self, name: str, request: SampleRequest, stream: SocketStream
    ) -> Completion | None:
        """The turn, or None when it was aborted by name or by a client that went away."""
        completion = None
        running = self._running[name] = _Running(anyio.CancelScope())
        with running.scope as scope:
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(_leave_with, stream, scope)
                    if self.fault == "hang":
                        await anyio.sleep_forever()
                    completion = await self._policy.sample(request)
                    group.cancel_scope.cancel()
            finally:
                del self._running[name]
        if completion is None:
            self.aborted += 1
            if not running.aborted:
                raise anyio.EndOfStream
        return completion

    async def _send(self, stream: SocketStream, path: str, status: int, answer: Any) -> None:
        if isinstance(answer, str) or answer is None:
            content = (answer or "").encode()
        else:
            content = json.dumps(answer).encode()
        sampled = path.endswith("/generate") and status == 200
        if sampled and self.fault == "garbage":
            content = b"<html>502 Bad Gateway</html>"
        head = (
            f"HTTP/1.1 {status} OK\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        if sampled and self.fault == "cut":
            content = content[: len(content) // 2]
        await stream.send(head.encode() + content)


async def _read(stream: SocketStream) -> tuple[str, str, Any]:
    """Method, path without its query, and JSON of one request."""
    buffered = BufferedByteReceiveStream(stream)
    head = (await buffered.receive_until(b"\r\n\r\n", 1 << 16)).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ", 2)
    fields = {
        key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    length = int(fields.get("content-length", "0"))
    if length > _BODY_LIMIT:
        raise ValueError("the request is too large")
    body = await buffered.receive_exactly(length) if length else b""
    return method, target.partition("?")[0], json.loads(body) if body else None


async def _leave_with(stream: SocketStream, scope: anyio.CancelScope) -> None:
    """Cancel when the client disconnects: it sends nothing more, so anything read is the end."""
    try:
        await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        pass
    scope.cancel()


def _sglang_request(body: Any) -> SampleRequest:
    said = body["sampling_params"]
    return SampleRequest(
        rollout_id=body["rid"],
        tokens=tuple(body["input_ids"]),
        max_new_tokens=said["max_new_tokens"],
        stop=tuple(said["stop"]),
        seed=said["sampling_seed"],
        temperature=said["temperature"],
    )


def _vllm_request(body: Any) -> SampleRequest:
    said = body["sampling_params"]
    return SampleRequest(
        rollout_id=body["request_id"],
        tokens=tuple(body["token_ids"]),
        max_new_tokens=said["max_tokens"],
        stop=tuple(said["stop"]),
        seed=said["seed"],
        temperature=said["temperature"],
    )


def _sglang_answer(completion: Completion, logprobs: list[float]) -> dict[str, Any]:
    matched = "a stop text" if completion.finish == "stop" else 0
    reason = {"type": "length"} if completion.finish == "length" else {"type": "stop"}
    pairs = zip(logprobs, completion.tokens, strict=False)
    return {
        "output_ids": list(completion.tokens),
        "meta_info": {
            "finish_reason": {**reason, "matched": matched},
            "weight_version": str(completion.policy_version),
            "output_token_logprobs": [[logprob, token, None] for logprob, token in pairs],
        },
    }


def _vllm_answer(completion: Completion, logprobs: list[float]) -> dict[str, Any]:
    pairs = zip(logprobs, completion.tokens, strict=False)
    spans, start = [], 0
    for version in dict.fromkeys(completion.versions()):
        count = completion.versions().count(version)
        spans.append({"version": str(version), "start": start, "end": start + count})
        start += count
    choice = {
        "index": 0,
        "token_ids": list(completion.tokens),
        "logprobs": {"content": [{"token_id": t, "logprob": p} for p, t in pairs]},
        "finish_reason": "length" if completion.finish == "length" else "stop",
        "stop_reason": "a stop text" if completion.finish == "stop" else None,
        "weight_versions": spans,
    }
    return {"choices": [choice]}


def _spoilt(completion: Completion, fault: Fault) -> tuple[Completion, list[float]]:
    """The completion and its logprobs, as the fault leaves them."""
    logprobs = list(completion.logprobs)
    if fault == "short_logprobs":
        return completion, logprobs[:-1]
    if fault == "no_logprob":
        return completion, [*logprobs[:-1], -9999.0]
    if fault == "empty":
        return replace(completion, tokens=(), logprobs=()), []
    return completion, logprobs
