"""The deployment files as their readers see them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


def documents(path: Path) -> list[dict[str, Any]]:
    """The YAML documents of one file."""
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def pods(found: object) -> Iterator[dict[str, Any]]:
    """Every pod's specification in a document, however deep: a dict with `containers`."""
    if isinstance(found, dict):
        if "containers" in found:
            yield found
        for value in found.values():
            yield from pods(value)
    elif isinstance(found, list):
        for value in found:
            yield from pods(value)


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of a pod, its first and its lasting ones."""
    return [*pod.get("initContainers", ()), *pod["containers"]]


def command_lines(path: Path) -> list[list[str]]:
    """Calls of `ray` and `patchgym` in a container's command, its script, or a cluster's lists."""
    lines: list[list[str]] = []
    for document in documents(path):
        for pod in pods(document):
            for each in containers(pod):
                words = [*each.get("command", ()), *each.get("args", ())]
                script = "\n".join(words[2:]) if words[:2] == ["bash", "-ec"] else ""
                lines += [shlex.split(line) for line in script.splitlines()] or [words]
        for name, value in document.items():
            if name.endswith("_commands"):
                lines += [shlex.split(line) for line in value]
    return [call for line in lines for call in _calls(line)]


def _calls(words: list[str]) -> Iterator[list[str]]:
    """The part of a line that begins with one of our programs."""
    for place, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name in ("ray", "patchgym"):
            yield [name, *words[place + 1 :]]
            return
