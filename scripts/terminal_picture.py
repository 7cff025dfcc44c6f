"""Turn a terminal into an SVG picture: `tmux capture-pane -ep | python ... OUT.svg TITLE`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text


def main() -> None:
    """Read ANSI text from stdin, write a picture of it."""
    text = sys.stdin.read().rstrip()
    lines = [Text.from_ansi(line) for line in text.splitlines()]
    width = max((line.cell_len for line in lines), default=80)
    console = Console(record=True, width=width, file=Path("/dev/null").open("w"))
    for line in lines:
        console.print(line, no_wrap=True, crop=False)
    picture = console.export_svg(title=sys.argv[2] if len(sys.argv) > 2 else "patchgym")
    # Without the web fonts: a picture should ask no server for anything.
    Path(sys.argv[1]).write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL))


if __name__ == "__main__":
    main()
