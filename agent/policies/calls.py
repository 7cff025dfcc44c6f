"""JSON over HTTP to one server, where every way to fail becomes a PolicyError that names it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from .errors import (
    ContextTooLong,
    PolicyAnswerError,
    PolicyClosed,
    PolicyRefused,
    PolicyTimeout,
    PolicyUnavailable,
    one_line,
)

if TYPE_CHECKING:
    import httpx2

CONNECT_LIMIT = 10.0
"""Seconds that opening a connection may take."""

_LARGE = 1 << 18
"""Bytes of JSON from which on parsing leaves the event loop."""

_BUSY = (408, 425, 429)
_TOO_LONG = (
    "context length",
    "context window",
    "max_model_len",
    "maximum model length",
    "too long",
)


class JsonCalls:
    """Calls to one server; `open` before and `close` after, both cheap."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, proxies: bool = False
    ) -> None:
        """`proxies` follows HTTP_PROXY and its kin: never for servers of our own."""
        self.url = url.rstrip("/")
        self._headers = dict(headers or {})
        self._proxies = proxies
        self._client: httpx2.AsyncClient | None = None

    async def open(self) -> None:
        """Make the client; connects to nothing yet."""
        self._client = await anyio.to_thread.run_sync(self._make)

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def get(self, path: str, *, limit: float) -> Any:
        """The JSON at `path`, within `limit` seconds."""
        return await self._parsed(path, await self._call("GET", path, None, limit))

    async def get_text(self, path: str, *, limit: float) -> str:
        """The text at `path`, within `limit` seconds."""
        return (await self._call("GET", path, None, limit)).decode("utf-8", errors="replace")

    async def post(self, path: str, body: Any = None, *, limit: float) -> Any:
        """The JSON answer to `body`, within `limit` seconds; None when the answer is empty."""
        answer = await self._call("POST", path, body, limit)
        return await self._parsed(path, answer) if answer else None

    def _make(self) -> httpx2.AsyncClient:
        # Loads certificates from disk: that is why it runs in a thread.
        try:
            import httpx2
        except ImportError as error:
            raise PolicyUnavailable(
                f"{self.url} can't be asked without httpx2: pip install 'patchgym[policies]'"
            ) from error

        return httpx2.AsyncClient(
            headers=self._headers,
            timeout=httpx2.Timeout(None, connect=CONNECT_LIMIT),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=self._proxies,
        )

    async def _call(self, method: str, path: str, body: Any, limit: float) -> bytes:
        import httpx2

        client, where = self._client, f"{self.url}{path}"
        if client is None:
            raise PolicyClosed(f"{self.url}: the policy is not open: use `async with`")
        try:
            with anyio.fail_after(limit):
                response = await client.request(method, where, json=body)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise PolicyUnavailable(f"{where}: can't be reached: {one_line(error)}") from error
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise PolicyTimeout(f"{where}: no answer in {limit:g} s") from error
        except httpx2.TransportError as error:
            kind = type(error).__name__
            raise PolicyUnavailable(
                f"{where}: the connection broke before the answer was complete: {kind}"
            ) from error
        except (httpx2.DecodingError, httpx2.InvalidURL) as error:
            raise PolicyAnswerError(f"{where}: {one_line(error)}") from error
        if response.status_code >= 300:
            raise _refusal(where, response)
        return response.content

    async def _parsed(self, path: str, answer: bytes) -> Any:
        parse: Callable[[bytes], Any] = json.loads
        try:
            if len(answer) < _LARGE:
                return parse(answer)
            return await anyio.to_thread.run_sync(parse, answer)
        except ValueError as error:
            start = one_line(answer[:60].decode("utf-8", errors="replace"))
            raise PolicyAnswerError(
                f"{self.url}{path}: the answer is not JSON; it begins {start!r}"
            ) from error


def _refusal(where: str, response: httpx2.Response) -> Exception:
    """The error for an answer that is not a success."""
    status, reason = response.status_code, _reason(response)
    words = f"{where}: status {status}: {reason}"
    if status in _BUSY or status >= 500:
        return PolicyUnavailable(words, wait=_retry_after(response))
    if status in (400, 413, 422) and any(part in reason.lower() for part in _TOO_LONG):
        return ContextTooLong(words)
    return PolicyRefused(words)


def _reason(response: httpx2.Response) -> str:
    """What the server says is wrong, from any of the shapes that servers use."""
    try:
        body = response.json()
    except ValueError:
        return one_line(response.text) or "no reason given"
    for key in ("error", "message", "detail"):
        if isinstance(body, dict) and body.get(key):
            body = body[key]
    return one_line(body)


def _retry_after(response: httpx2.Response) -> float | None:
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None
