"""The button for a profile capture: it asks the run as `patchgym runs profile` does."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from patchgym.trainer.errors import UserError
from patchgym.trainer.profile_config import LONGEST, SHORTEST
from patchgym.trainer.profiling import ask_for_capture
from patchgym.trainer.profiling.capture import captures
from patchgym.trainer.run_folder import RunFolder

from .access import FORM_FIELD, checked_form
from .pages import run_url
from .runs import named

_LARGEST_FORM = 4096
"""Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The last capture that was asked for here."""

    seconds: float
    began: float
    """Seconds since the epoch."""
    words: str = ""
    """Why there is none; empty while it goes on and when it was made."""
    folder: str = ""
    """Name of the one that was made."""

    @property
    def going_on(self) -> bool:
        """No answer yet."""
        return not self.words and not self.folder


class Captures:
    """Who asked for what; one capture of a run at a time."""

    def __init__(self) -> None:
        self._asked: dict[Path, Asked] = {}
        self._lock = threading.Lock()

    def ask(self, folder: RunFolder, seconds: float) -> bool:
        """Have a capture made beside; false when one goes on."""
        with self._lock:
            last = self._asked.get(folder.path)
            if last is not None and last.going_on:
                return False
            self._asked[folder.path] = Asked(seconds=seconds, began=time.time())
        # It waits for minutes: no thread of the pool, and none that holds up the end.
        threading.Thread(target=self._run, args=(folder, seconds), daemon=True).start()
        return True

    def last(self, folder: RunFolder) -> Asked | None:
        """The last one that was asked for."""
        return self._asked.get(folder.path)

    def _run(self, folder: RunFolder, seconds: float) -> None:
        try:
            record = ask_for_capture(folder, seconds)
            self._answer(folder, folder_name=Path(record["path"]).name)
        except UserError as error:
            self._answer(folder, words=str(error))
        except BaseException as error:
            self._answer(folder, words=f"{type(error).__name__}: {error}")
            raise

    def _answer(self, folder: RunFolder, *, words: str = "", folder_name: str = "") -> None:
        with self._lock:
            last = self._asked[folder.path]
            self._asked[folder.path] = replace(last, words=words, folder=folder_name)


def kept_captures(folder: RunFolder, most: int = 6) -> list[dict[str, Any]]:
    """Records of the captures in a run's folder, the newest first. Blocking."""
    return captures(folder.profile)[: -most - 1 : -1]


async def _post(request: Request) -> Response:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM:
            raise HTTPException(413, "that is no form of ours: it is too large")
    form = {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}
    if not checked_form(request, form.get(FORM_FIELD)):
        raise HTTPException(403, "this form is not from a page of this server; load the page again")
    name = request.path_params["run"]
    folder = await anyio.to_thread.run_sync(named, request.app.state.root, name)
    if not request.app.state.captures.ask(folder, _seconds(form.get("seconds", ""))):
        raise HTTPException(409, f"{name}: a capture is going on already; wait for it")
    return RedirectResponse(f"{run_url(name)}#captures", status_code=303)


def _seconds(word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = float("nan")
    if not SHORTEST <= seconds <= LONGEST:
        raise HTTPException(400, f"seconds is {word!r}: give {SHORTEST:g} to {LONGEST:g}")
    return seconds


ROUTES = [Route("/runs/{run}/captures", _post, methods=["POST"])]
