"""Bytes of a sandbox as text for a policy: every byte visible, the length bounded."""

from __future__ import annotations

import re

from patchgym.sandbox import Output

_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f]")


def readable(data: bytes) -> str:
    """UTF-8 text; broken bytes and control characters become \\xNN, CRLF a line end."""
    text = data.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def output_bytes(limit: int) -> int:
    """How many bytes to keep of a stream so that `limit` characters of it can be shown."""
    return 8 * limit  # a character has up to four bytes, and head and tail get half each


def bounded(output: Output, limit: int) -> tuple[str, int]:
    """At most `limit` characters, head and tail, with a word on what is left out, and its size.

    What the sandbox itself let go counts one character a byte.
    """
    if not output.dropped:
        text = readable(output.head + output.tail)
        if len(text) <= limit:
            return text, 0
        head = tail = text
        left = len(text) - 2 * (limit // 2)
    else:
        head, tail = readable(output.head), readable(output.tail)
        left = output.dropped + len(head) + len(tail) - 2 * (limit // 2)
    half = limit // 2
    return f"{head[:half]}\n[... {left} characters left out ...]\n{tail[-half:]}", left


def cut(text: str, limit: int) -> tuple[str, int]:
    """The first `limit` characters of words of ours, and how many are left out."""
    left = len(text) - limit
    return (text, 0) if left <= 0 else (f"{text[:limit]}\n[{left} characters left out]", left)
