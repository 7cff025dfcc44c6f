"""Asks pip-audit for the known vulnerabilities of pinned packages. Nothing is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .dependencies import Dependency

OUTPUT_LIMIT = 16 << 20  # bytes
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.!+_-]{0,100}")
IDS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What is known of some packages."""

    vulnerable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids of vulnerabilities, by package."""
    problem: str = ""
    """Why nothing, or not all, is known."""


def audit(packages: Sequence[Dependency], seconds: float) -> Audit:
    """Known vulnerabilities of those packages that are Python's and pinned.

    Blocking, for at most `seconds`, and never raises: without pip-audit (the extra `audit`), an
    index that answers, or output that makes sense, `problem` says so.
    """
    lines = [
        f"{each.name}=={each.pinned}\n"
        for each in packages
        if each.ecosystem == "python" and VERSION.fullmatch(each.pinned)
    ]
    if not lines:
        return Audit()
    with tempfile.TemporaryDirectory(prefix="patchgym-audit-") as folder:
        try:
            return _run(Path(folder), "".join(lines), seconds)
        except subprocess.TimeoutExpired:
            return Audit(problem=f"pip-audit: no answer within {seconds:g} s")
        except OSError as problem:
            return Audit(problem=f"pip-audit could not be run: {problem.strerror}")


def _run(folder: Path, requirements: str, seconds: float) -> Audit:
    (folder / "requirements.txt").write_text(requirements)
    options = ["--disable-pip", "--no-deps", "--format=json", "--progress-spinner=off"]
    command = [sys.executable, "-m", "pip_audit", *options, "-r", "requirements.txt"]
    with (folder / "out").open("w+b") as out, (folder / "err").open("w+b") as err:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder, timeout=seconds
        )  # fmt: skip
        out.seek(0)
        err.seek(0)
        return read_audit(out.read(OUTPUT_LIMIT), err.read(OUTPUT_LIMIT))


def read_audit(output: bytes, complaints: bytes = b"") -> Audit:
    """What pip-audit's JSON says; never raises."""
    try:
        told = json.loads(output)
    except (ValueError, RecursionError):
        lines = complaints.decode("utf-8", "replace").strip().splitlines()
        reason = "pip-audit is not installed: add the extra `audit`"
        if not any("No module named pip_audit" in line for line in lines):
            reason = f"pip-audit gave no answer: {lines[-1][:200] if lines else 'no reason given'}"
        return Audit(problem=reason)
    packages = told.get("dependencies") if isinstance(told, dict) else None
    if not isinstance(packages, list):
        return Audit(problem="pip-audit's answer has no list of packages")
    found: dict[str, tuple[str, ...]] = {}
    unknown: list[str] = []
    for each in packages:
        name = _text(each, "name")
        ids = [_text(one, "id") for one in _list(each, "vulns")]
        if name and any(ids):
            found[name] = tuple(one[:50] for one in ids if one)
        if name and _text(each, "skip_reason"):
            unknown.append(name[:100])
    shown = ", ".join(unknown[:IDS_SHOWN])
    return Audit(
        vulnerable=found, problem=f"pip-audit knows nothing of {shown}" if unknown else ""
    )  # fmt: skip


def _text(value: Any, key: str) -> str:
    told = value.get(key) if isinstance(value, dict) else None
    return told if isinstance(told, str) else ""


def _list(value: Any, key: str) -> list[Any]:
    told = value.get(key) if isinstance(value, dict) else None
    return told if isinstance(told, list) else []
