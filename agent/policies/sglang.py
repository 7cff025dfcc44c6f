"""An SGLang server as a policy: token ids in, token ids out, over its native `/generate`."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from patchgym.agent.policy import Completion, Finish, PolicyLoad, SampleRequest, VersionSpan

from .answers import check_request, completion_of, version_of
from .errors import (
    ContextTooLong,
    PolicyAnswerError,
    PolicyRefused,
    PolicyUnavailable,
    one_line,
)
from .served import CALL_LIMIT, Connection

_SEEDS = 1 << 31


class SglangServer:
    """Asks one SGLang server for turns; an async context manager. Implements `agent.Policy`.

    Seeds are kept only where the server runs with `--enable-deterministic-inference`, and the load
    is known only with `--enable-metrics`. Takes no weights from us.
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
        """As for VllmServer: `version` names the weights that the server was started with."""
        self._server = Connection(url, poll_seconds=poll_seconds, api_key_variable=api_key_variable)
        self.url = self._server.url
        self._initial = self._version = version
        self._end_ids, self._turn_limit = tuple(end_ids), turn_limit
        self._window: int | None = None

    async def __aenter__(self) -> SglangServer:
        """Connect: learn the model's window and the version of its weights."""
        await self._server.open(self._greet)
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
        """The newest version of the weights known to be there."""
        return self._version

    @property
    def window(self) -> int | None:
        """The most tokens that a context and its turn may have together, where it is known."""
        return self._window

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one turn; see `agent.Policy`, and `errors` for what is raised.

        The server names one version a turn, that of its end; where weights changed in the middle
        the older one is recorded for all of it.
        """
        check_request(request, where=self.url, window=self._window)

        async def ask(name: str) -> Completion:
            began = self._version
            body = {
                "rid": name,
                "input_ids": list(request.tokens),
                "sampling_params": self._parameters(request),
                "return_logprob": True,
                "stream": False,
            }
            answer = await self._server.calls.post("/generate", body, limit=self._turn_limit)
            return self._completion(request, answer, began)

        return await self._server.turn(ask, self._abort)

    def load(self) -> PolicyLoad:
        """What the server said of itself last."""
        return self._server.load

    async def check_health(self) -> None:
        """Return when the server answers; raises PolicyError when not."""
        self._server.check_open()
        await self._server.calls.get_text("/health", limit=CALL_LIMIT)

    def _parameters(self, request: SampleRequest) -> dict[str, Any]:
        return {
            "max_new_tokens": request.max_new_tokens,
            "temperature": request.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "sampling_seed": request.seed % _SEEDS,
            "stop": list(request.stop),
            "stop_token_ids": list(self._end_ids),
            "no_stop_trim": True,
            "skip_special_tokens": True,
        }

    def _completion(self, request: SampleRequest, answer: Any, began: int) -> Completion:
        where = self.url
        try:
            about = answer["meta_info"]
            tokens, reason = answer["output_ids"], about["finish_reason"]
            entries = about["output_token_logprobs"]
            logprobs = [entry[0] for entry in entries]
            named = [entry[1] for entry in entries]
        except (KeyError, TypeError, IndexError) as error:
            raise PolicyAnswerError(
                f"{where}: the answer has not the form of /generate: {type(error).__name__}"
                f" {one_line(error)}"
            ) from error
        finish = _finish_of(reason, where)
        if isinstance(tokens, list) and len(named) == len(tokens) and named != tokens:
            raise PolicyAnswerError(f"{where}: logprobs of other tokens than those sampled")
        ended = version_of(about.get("weight_version"), self._initial, where)
        self._version = max(self._version, ended)
        span = VersionSpan(policy_version=min(began, ended), tokens=len(logprobs))
        return completion_of(
            request, where=where, tokens=tokens, logprobs=logprobs, finish=finish, spans=[span]
        )

    async def _greet(self) -> None:
        try:
            about = await self._server.calls.get("/get_server_info", limit=CALL_LIMIT)
            model = await self._server.calls.get("/get_model_info", limit=CALL_LIMIT)
        except PolicyRefused:
            return
        about = about if isinstance(about, dict) else {}
        window = about.get("max_req_input_len") or about.get("context_length")
        self._window = window if isinstance(window, int) else None
        label = model.get("weight_version") if isinstance(model, dict) else None
        self._version = version_of(label, self._initial, self.url)

    async def _abort(self, name: str) -> None:
        await self._server.calls.post("/abort_request", {"rid": name}, limit=CALL_LIMIT)


def _finish_of(reason: Any, where: str) -> Finish:
    """Why a turn ended, from SGLang's `finish_reason`."""
    kind = reason.get("type") if isinstance(reason, dict) else None
    if kind == "stop":
        return "stop" if isinstance(reason.get("matched"), str) else "eos"
    if kind == "length":
        return "length"
    if kind == "abort":
        words = one_line(reason.get("message", "no reason given"))
        if "context length" in words or "too long" in words:
            raise ContextTooLong(f"{where}: {words}")
        raise PolicyUnavailable(f"{where}: the server ended the turn: {words}")
    raise PolicyAnswerError(f"{where}: unknown finish_reason {reason!r}")
