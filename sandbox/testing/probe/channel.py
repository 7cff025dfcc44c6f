"""The way out: JSON lines on a descriptor of our own."""

from __future__ import annotations

import json
import os
from typing import Any


class Channel:
    """Writes records; children of this process don't inherit the descriptor."""

    def __init__(self, nonce: str) -> None:
        sink = int(os.environ.pop("PATCHGYM_REPORT_FD"))
        os.set_inheritable(sink, False)
        self._owner = os.getpid()
        self._number = 0
        self.tell = self._teller(nonce, sink, json.dumps, os.write, os.getpid)

    def _teller(self, nonce: str, sink: int, dumps: Any, write: Any, getpid: Any) -> Any:
        """The functions it needs are held here: replacing them elsewhere changes nothing."""

        def tell(**record: object) -> None:
            if getpid() != self._owner:  # a child that a test forked goes on with our hooks
                return
            line = dumps({"nonce": nonce, "n": self._number, **record})
            self._number += 1
            data = memoryview(line.encode("utf-8", "backslashreplace") + b"\n")
            while data:
                data = data[write(sink, data) :]

        return tell
