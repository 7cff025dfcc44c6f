"""Files for the browser: ours, and plotly's, which its Python package ships.

Each has the digest of its content in its address, so that a browser keeps it for good.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_STATIC = Path(__file__).with_name("static")
_PLOTLY = "plotly.js"
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_GOOD = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class _Asset:
    content: bytes
    packed: bytes
    """By gzip."""
    digest: str


def address_of(name: str) -> str:
    """The address of the file `name` in static/, or of `plotly.js`."""
    return f"/static/{_asset(name).digest}/{name}"


@cache
def style_places() -> list[str]:
    """Ids of the style elements that plotly adds as it loads, for maps, unless they are there.

    Our policy forbids such elements, and we draw no maps: a page has empty ones in their place.
    """
    content = _asset(_PLOTLY).content
    return [found.decode() for found in re.findall(rb'getElementById\("([0-9a-f]{64})"\)', content)]


def _answer(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _names():
        raise HTTPException(404, f"there is no file {name}")
    asset = _asset(name)
    headers = {
        "Cache-Control": _FOR_GOOD if request.path_params["digest"] == asset.digest else "no-cache",
        "Vary": "Accept-Encoding",
    }
    kind = _KINDS[Path(name).suffix]
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.packed, media_type=kind, headers=headers)
    return Response(asset.content, media_type=kind, headers=headers)


@cache
def _names() -> frozenset[str]:
    return frozenset({path.name for path in _STATIC.iterdir()} | {_PLOTLY})


@cache
def _asset(name: str) -> _Asset:
    content = (_plotly() if name == _PLOTLY else _STATIC / name).read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return _Asset(content, gzip.compress(content, 6, mtime=0), digest)


def _plotly() -> Path:
    # Without importing it: plotly's import takes a second, and only the file is wanted.
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly")
    return Path(found.origin).parent / "package_data" / "plotly.min.js"


ROUTES = [Route("/static/{digest}/{name}", _answer, name="static")]
