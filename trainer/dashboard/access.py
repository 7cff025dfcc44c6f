"""Who may ask: the host that is named, the token, and what every answer tells the browser.

request --> named as this server? --> has the token? --> a page
               no: 421                  no: 401, a form that takes it

A page of another site can have a browser send requests here. It can't read the answers, it can't
name this server as its own (DNS rebinding), and it can't post: forms carry a word that only our own
pages know.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from patchgym.trainer.errors import UserError

SHORTEST_TOKEN = 16
"""Characters."""
FORM_FIELD = "form"
"""Name of the field that says that a form is ours."""

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # The plots colour their marks by style attributes. No attribute of ours holds foreign text.
        "style-src-attr 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may ask."""

    hosts: frozenset[str]
    """Names of this server besides addresses, in lower case."""
    addresses: str
    """`loopback`, or `all`: which addresses may stand for a name."""
    token: str = ""
    """Asked for on the first visit; empty asks nobody."""
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Of this process."""

    @property
    def cookie(self) -> str:
        """Its name: servers on other ports of one host have others."""
        return f"patchgym_{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"

    @property
    def form_word(self) -> str:
        """What only our own pages know."""
        return hmac.new(self.secret, b"form", "sha256").hexdigest()

    @property
    def pass_word(self) -> str:
        """What the cookie holds of whoever gave the token: not the token itself."""
        return hmac.new(self.token.encode(), b"cookie", "sha256").hexdigest()

    def knows(self, host: str) -> bool:
        """Whether `host`, with or without its port, is a name of this server."""
        name = _without_port(host).lower()
        if name in self.hosts:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.addresses == "all" or address.is_loopback

    def admits(self, request: Request) -> bool:
        """Whether the request shows the token, in its cookie or as a bearer."""
        if not self.token:
            return True
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        cookie = request.cookies.get(self.cookie, "")
        return _same(bearer, self.token) or _same(cookie, self.pass_word)

    def takes(self, token: str) -> bool:
        """Whether `token` is the token."""
        return bool(self.token) and _same(token, self.token)


def access_for(host: str, token: str, names: Collection[str] = ()) -> Access:
    """Who may ask a server that listens on `host`; UserError where that would let anybody in."""
    loopback = is_loopback(host)
    if token and len(token) < SHORTEST_TOKEN:
        raise UserError(
            f"--token has {len(token)} characters: give {SHORTEST_TOKEN} at least, for example "
            f"--token {secrets.token_urlsafe(18)}"
        )
    if not loopback and not token:
        raise UserError(
            f"--host {host}: whoever reaches this machine could read the runs; give a token, for "
            f"example --token {secrets.token_urlsafe(18)}, or stay on --host 127.0.0.1 and come "
            "through ssh -L"
        )
    hosts = {"localhost", *names, *(() if _is_wildcard(host) else (host,))}
    return Access(
        hosts=frozenset(name.lower() for name in hosts),
        addresses="loopback" if loopback else "all",
        token=token,
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def checked_form(request: Request, word: object) -> bool:
    """Whether a form that was posted came from one of our pages."""
    access: Access = request.app.state.access
    return isinstance(word, str) and _same(word, access.form_word)


class Guard:
    """ASGI middleware: nothing gets past it that may not."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(request)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that gets no page."""
        from .pages import problem

        access, host = self._access, request.headers.get("host", "")
        if not access.knows(host):
            return problem(
                request,
                421,
                "This server has another name",
                f"It was asked for {host!r}, which is no name that it was given. Start it with "
                f"--name {_without_port(host)} if it is one.",
            )
        if access.admits(request) or request.url.path.startswith("/static/"):
            return None
        if access.takes(request.query_params.get("token", "")):
            return self._welcome(request)
        wrong = "token" in request.query_params
        words = "That is not the token." if wrong else "This server asks for a token."
        return problem(request, 401, "A token, please", words, template="token.html")

    def _welcome(self, request: Request) -> Response:
        """The same page without the token in its address, and a cookie to be known by."""
        left = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
        target = request.url.path + (f"?{urlencode(left)}" if left else "")
        # "//host/" would be another server.
        response = RedirectResponse("/" + target.lstrip("/"), status_code=303)
        response.set_cookie(
            self._access.cookie, self._access.pass_word, httponly=True, samesite="lax", path="/"
        )
        return response


def _same(one: str, other: str) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""
