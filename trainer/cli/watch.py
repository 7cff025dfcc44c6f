"""`patchgym runs watch`: a run that goes on elsewhere, until it has ended."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from patchgym.trainer.live import PictureView
from patchgym.trainer.live_picture import inert, picture
from patchgym.trainer.run_folder import RunFolder, find_run

from .number_words import seconds
from .sight import News, Sight, look

_OLD = 10.0  # seconds: a picture that is older says so
_ALARMS = 3


def add_watch(actions: Any) -> None:
    """The sub-command's flags."""
    watch = actions.add_parser("watch", help="follow a run from another terminal, until it ends")
    watch.add_argument("run", metavar="RUN", help="a folder, a name, or latest")
    watch.add_argument(
        "--every", type=seconds, default=2.0, metavar="SECONDS", help="between looks"
    )
    watch.add_argument("--json", action="store_true", help="one document a look, a line each")


def run_watch(known: argparse.Namespace) -> int:
    """Entry point; 0 when the run has ended, however it did."""
    folder = find_run(known.run, known.folder)
    if known.json:
        return _documents(folder, known.every)
    console = Console()
    sight, news = look(folder), News()
    with PictureView(console, lambda: _picture(sight)) as view:
        while True:
            view.refresh()
            for line in news.of(sight):
                view.say(inert(line))
            if sight.ended:
                return 0
            time.sleep(known.every)
            sight = look(folder)


def _documents(folder: RunFolder, every: float) -> int:
    while True:
        sight = look(folder)
        sys.stdout.write(json.dumps(sight.document(folder.path.name)) + "\n")
        sys.stdout.flush()
        if sight.ended:
            return 0
        time.sleep(every)


def _picture(sight: Sight) -> RenderableType:
    parts: list[RenderableType] = [picture(sight.now, sight.history)]
    parts += [Text(inert(words), style="yellow") for words in sight.alarms[-_ALARMS:]]
    if not sight.ended and sight.age > _OLD:
        parts.append(Text(f"seen {sight.age:.0f} s ago; {sight.state}", style="yellow"))
    return Group(*parts)
