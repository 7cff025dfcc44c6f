"""Foreign text for a page: what a model, a test or a tool wrote, as it is, and able to do nothing.

Everything is escaped. What a reader would not see, or what would change how the text around it is
shown, is put in plain sight instead: control characters, terminal escapes (one mark for a whole
sequence, so that colours of a terminal don't bury the words), characters without a width, overrides
of the direction, halves of surrogate pairs. Line ends and tabs stay what they are.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
)
_ESCAPES = (
    "\x1b\\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor: CSI
    "|\x1b[\\]PX^_][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\\\)"  # links, titles: OSC and other strings
)
_MARKED = re.compile(f"{_ESCAPES}|\r\n|[{_HIDDEN}]")
_ACCENT = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]"
_ACCENTS = re.compile(f"({_ACCENT}{{2}}){_ACCENT}+")


def inert(text: str) -> Markup:
    """`text` escaped, what is hidden in it marked (`<span class="hidden-mark">`)."""
    if text.isascii() and text.isprintable():
        return escape(text)  # most lines
    text = _ACCENTS.sub(r"\1", text)  # towers of accents cover the lines around them
    parts: list[str] = []
    at = 0
    for found in _MARKED.finditer(text):
        parts.append(str(escape(text[at : found.start()])))
        parts.append(_mark(found[0]))
        at = found.end()
    parts.append(str(escape(text[at:])))
    return Markup("".join(parts))


def one_line(text: str, most: int = 200) -> str:
    """Plain characters, for titles and attributes: marks instead of what is hidden, no line ends,
    at most `most` characters."""
    cut = text[: most + 1]
    shown = " ".join(marked(cut).split())
    return shown if len(text) <= most else f"{shown[:most]}…"


def marked(text: str) -> str:
    """`text` with what is hidden in it spelled, for whoever does not take markup."""
    return _MARKED.sub(lambda found: _spelled_out(found[0]), text)


def _mark(hidden: str) -> str:
    line_end = "\n" if hidden == "\r\n" else ""
    name = f"U+{ord(hidden):04X}" if len(hidden) == 1 else "terminal escape"
    name = "carriage return" if line_end else name
    shown = escape(_spelled_out(hidden).rstrip("\n"))
    return f'<span class="hidden-mark" title="{name}">{shown}</span>{line_end}'


def _spelled_out(hidden: str) -> str:
    """`^[` for an escape, as terminals have it, `⟨U+202E⟩` for an override; a line end stays."""
    if hidden == "\r\n":
        return "^M\n"
    return "".join(_spelled(each) for each in hidden)


def _spelled(character: str) -> str:
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"^{chr(code ^ 0x40)}"
    return f"⟨U+{code:04X}⟩" if _MARKED.match(character) else character
