"""Drives one contestant from inside its own environment, asked over stdin, answering over stdout.

    python serve.py MODULE:CLASS DISTRIBUTION... < requests > answers

One JSON object a line each way. The first line in holds the class's arguments; the first one out
says {"versions"} or {"error"}. Then, by "do":
    start                       a fresh container -> {"seconds", "container"}
    run      words              -> {"seconds", "code", "output"}
    burst    count, concurrency `true` that often -> {"seconds"}
    timed    words, limit       until the contestant gives up -> {"seconds", "told"}
    close                       the contestant's own way to end it -> {"seconds"}
Seconds are those of the contestant's call alone. Standard library only: it runs anywhere.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import version
from typing import Any, Protocol


class Driver(Protocol):
    """One contestant. `container` names what `start` made."""

    container: str

    def start(self) -> None:
        """A fresh container."""

    def run(self, words: list[str]) -> tuple[int, str]:
        """A command's exit code and output."""

    def timed(self, words: list[str], limit: int) -> bool:
        """Run past the limit; whether the contestant said that time was up."""

    def close(self) -> None:
        """End the container as users of this contestant do."""


def burst(driver: Driver, count: int, concurrency: int) -> None:
    """`true`, `count` times over; a driver may know a better way than threads."""
    own = getattr(driver, "burst", None)
    if own is not None:
        own(count, concurrency)
    elif concurrency == 1:
        for _ in range(count):
            driver.run(["true"])
    else:
        with ThreadPoolExecutor(concurrency) as threads:
            list(threads.map(driver.run, [["true"]] * count))


def perform(driver: Driver, request: dict[str, Any]) -> dict[str, Any]:
    """One request, timed."""
    verb, words = request["do"], request.get("words", [])
    facts: dict[str, Any] = {}
    started = time.perf_counter()
    if verb == "start":
        driver.start()
    elif verb == "run":
        code, output = driver.run(words)
        facts = {"code": code, "output": output[-20000:]}
    elif verb == "burst":
        burst(driver, request["count"], request["concurrency"])
    elif verb == "timed":
        facts = {"told": driver.timed(words, request["limit"])}
    elif verb == "close":
        driver.close()
    else:
        raise ValueError(verb)
    facts["seconds"] = time.perf_counter() - started
    return facts | {"container": driver.container}


def reason(problem: Exception) -> str:
    """What went wrong, with what a failed command said."""
    said = getattr(problem, "stderr", None) or ""
    return f"{type(problem).__name__}: {problem} {said}"


def main() -> None:
    """Serve until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not get between the answers

    def answer(facts: dict[str, Any]) -> None:
        answers.write(json.dumps(facts) + "\n")

    module, _, name = sys.argv[1].partition(":")
    try:
        driver = getattr(import_module(module), name)(**json.loads(sys.stdin.readline()))
        answer({"versions": {each: version(each) for each in sys.argv[2:]}})
    except Exception as problem:
        answer({"error": reason(problem)})
        return
    for line in sys.stdin:
        try:
            answer(perform(driver, json.loads(line)))
        except Exception as problem:
            answer({"error": reason(problem)})
    os._exit(0)  # threads that still wait for a container must not hold this up


if __name__ == "__main__":
    main()
