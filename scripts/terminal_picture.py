"""Turn a terminal's screen into an SVG picture: `tmux capture-pane -ep | python ... OUT.svg`."""

from __future__ import annotations

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
    console.save_svg(sys.argv[1], title="patchgym train --config examples/quickstart.toml")


if __name__ == "__main__":
    main()
