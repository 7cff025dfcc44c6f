"""A vLLM server as a policy: token ids in, token ids out, over its `/inference/v1/generate`.

open ─► serving ─► closed
          │  ▲
   push() ▼  │ resumed
       paused: turns in flight are kept, and go on with the new weights
          │ the update broke
          ▼
        broken: every turn is told; nothing is sampled any more
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import anyio

from patchgym.agent.policy import Completion, PolicyLoad, SampleRequest

from .answers import check_request, completion_of, numbers, version_of
from .errors import PolicyAnswerError, PolicyError, PolicyRefused, WeightPushError, one_line
from .served import CALL_LIMIT, Connection
from .vllm_wire import finish_of, sampling_fields, spans_of

PUSH_LIMIT = 600.0
"""Seconds that one stage of taking new weights may take."""

_GENERATE = "/inference/v1/generate"
_ABORT = "/inference/v1/abort_requests"


class VllmServer:
    """Asks one vLLM server for turns; an async context manager. Implements `agent.Policy`.

    The server must run with `--enable-scale-out --logprobs-mode processed_logprobs`; to take new
    weights also with VLLM_SERVER_DEV_MODE=1 and our worker module (see docs/policies.md).
    """

    def __init__(
        self,
        url: str,
        *,
        version: int = 0,
        end_ids: Sequence[int] = (),
        turn_limit: float = 900.0,
        poll_seconds: float = 1.0,
        api_key_variable: str | None = None,
    ) -> None:
        """`version` names the weights that the server was started with.

        `end_ids` end a turn, beside those that the model's own configuration names. `turn_limit`
        is how many seconds a turn may take, its wait in the server's line included.
        `poll_seconds` is the time between two looks at the server's load.
        """
        self._server = Connection(url, poll_seconds=poll_seconds, api_key_variable=api_key_variable)
        self.url = self._server.url
        self._initial = self._version = version
        self._end_ids, self._turn_limit = tuple(end_ids), turn_limit
        self._window: int | None = None
        self._pushes = 0

    async def __aenter__(self) -> VllmServer:
        """Connect: learn the model's window and the version of its weights.

        Raises PolicyUnavailable when nobody answers.
        """
        await self._server.open(self._greet, self._refresh)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Tell waiting turns, and disconnect; the server runs on."""
        await self._server.close()

    @property
    def version(self) -> int:
        """The version of the weights that are there; somebody else's push shows after a poll."""
        return self._version

    @property
    def window(self) -> int | None:
        """The most tokens that a context and its turn may have together, where it is known."""
        return self._window

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one turn; see `agent.Policy`, and `errors` for what is raised.

        Cancelling disconnects, which the server takes as an abort, and aborts by id as well.
        """
        check_request(request, where=self.url, window=self._window)

        async def ask(name: str) -> Completion:
            body = {
                "request_id": name,
                "token_ids": list(request.tokens),
                "sampling_params": sampling_fields(request, self._end_ids),
                # Keys and values of other weights must never serve this turn.
                "cache_salt": f"policy-{self._version}",
            }
            answer = await self._server.calls.post(_GENERATE, body, limit=self._turn_limit)
            return self._completion(request, answer)

        return await self._server.turn(ask, self._abort)

    def load(self) -> PolicyLoad:
        """What the server said of itself last, at most `poll_seconds` ago while it answers."""
        return self._server.load

    async def check_health(self) -> None:
        """Return when the server answers; raises PolicyError when not."""
        self._server.check_open()
        await self._server.calls.get_text("/health", limit=CALL_LIMIT)

    async def push(
        self, file: str | os.PathLike[str], version: int, *, rewind: bool = False
    ) -> None:
        """Load the safetensors `file`, whose full path must name it on the server too.

        Turns in flight are kept: they go on with the new weights, their keys and values made
        again, and record the version of each token. A file that doesn't fit the model is refused
        beforehand and the server serves on. When the update itself breaks, the weights are in
        doubt: the server counts as broken from then on. ValueError unless `version` is newer, or
        `rewind` allows any: a run that resumes may be older than a server that lived on.
        """
        self._server.check_open()
        if version <= self._version and not rewind:
            raise ValueError(f"version {version} is not newer than {self._version}")
        path = os.fspath(file)
        if not os.path.isabs(path):
            raise ValueError(f"{path} is not a full path: the server has its own working folder")
        await self._stage("check", "/collective_rpc", _rpc("patchgym_refuse", path))
        with anyio.CancelScope(shield=True):
            # Never half: whoever cancels waits for the update, which has deadlines of its own.
            try:
                await self._stage("pause", "/pause?mode=keep&clear_cache=true")
                await self._stage("start", "/start_weight_update")
                await self._stage("load", "/update_weights", {"update_info": {"path": path}})
                await self._stage(
                    "finish", "/finish_weight_update", {"weight_version": str(version)}
                )
                await self._stage("reset", "/reset_prefix_cache?reset_running_requests=true")
                self._version, self._pushes = version, self._pushes + 1
                await self._stage("resume", "/resume")
            except PolicyError as error:
                self._server.fail(error)
                raise

    async def _stage(self, stage: str, path: str, body: Any = None) -> None:
        try:
            answer = await self._server.calls.post(path, body, limit=PUSH_LIMIT)
        except PolicyError as error:
            hint = "; is VLLM_SERVER_DEV_MODE=1 set there?" if stage == "check" else ""
            words = f"new weights were not taken in stage {stage!r}: {error}{hint}"
            raise WeightPushError(words) from error
        if stage == "check":
            reasons = answer.get("results") if isinstance(answer, dict) else None
            if not isinstance(reasons, list):
                raise WeightPushError(f"{self.url}: our worker module is not loaded there")
            if refused := next((reason for reason in reasons if reason), None):
                raise WeightPushError(f"{self.url}: the new weights don't fit: {one_line(refused)}")

    def _completion(self, request: SampleRequest, answer: Any) -> Completion:
        where = self.url
        try:
            (choice,) = answer["choices"]
            tokens, entries = choice["token_ids"], choice["logprobs"]["content"]
            reason, detail = choice["finish_reason"], choice.get("stop_reason")
            said = [(s["version"], s["start"], s["end"]) for s in choice["weight_versions"] or ()]
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyAnswerError(
                f"{where}: the answer has not the form of {_GENERATE}: {type(error).__name__}"
                f" {one_line(error)}"
            ) from error
        finish = finish_of(reason, detail, where)
        count = len(tokens) if isinstance(tokens, list) else 0
        spans = spans_of(said, count, initial=self._initial, where=where)
        logprobs = _logprobs_of(entries, tokens, where)
        return completion_of(
            request, where=where, tokens=tokens, logprobs=logprobs, finish=finish, spans=spans
        )

    async def _greet(self) -> None:
        self._window = await self._read_window()
        self._version = await self._read_version()

    async def _refresh(self) -> None:
        pushes = self._pushes
        version = await self._read_version()
        if pushes == self._pushes:  # else what was read is older than our own push
            self._version = version

    async def _read_window(self) -> int | None:
        models = await self._server.calls.get("/v1/models", limit=CALL_LIMIT)
        try:
            window = models["data"][0]["max_model_len"]
        except (KeyError, TypeError, IndexError):
            return None
        return window if isinstance(window, int) else None

    async def _read_version(self) -> int:
        try:
            said = await self._server.calls.get("/weight_info", limit=CALL_LIMIT)
        except PolicyRefused:
            return self._initial  # it takes no weights: not in development mode
        label = said.get("weight_version") if isinstance(said, dict) else None
        return version_of(label, self._initial, self.url)

    async def _abort(self, name: str) -> None:
        # The bare name would do nothing, silently.
        names = [f"generate-tokens-{name}"]
        await self._server.calls.post(_ABORT, {"request_ids": names}, limit=CALL_LIMIT)


def _rpc(method: str, *arguments: str) -> dict[str, Any]:
    return {"method": method, "args": list(arguments)}


def _logprobs_of(entries: Any, tokens: Any, where: str) -> list[float]:
    """The log-probability of each token; they come one entry a token, which names the token."""
    try:
        named = [entry["token_id"] for entry in entries]
        values = [entry["logprob"] for entry in entries]
    except (KeyError, TypeError) as error:
        raise PolicyAnswerError(f"{where}: logprobs without token ids") from error
    if len(named) == len(tokens) and named != tokens:
        raise PolicyAnswerError(f"{where}: logprobs of other tokens than those sampled")
    return numbers(values, f"{where}: logprobs")
