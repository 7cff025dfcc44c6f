"""detect-secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from patchgym.sandbox.result import CommandResult

from .linter import PROBLEMS_LIMIT, Linter, Problem, Reading, Tool, UnreadableOutput, printed
from .report import Confidence
from .untrusted import line_number, listing, load, mapping, text

PROBE = "secrets_probe.py"
# the interpreter that the program itself runs under is the one that can import it
START = 'exec "$(sed -n "1s/^#!//p" "$(command -v detect-secrets)")" -I "$@"'
CONFIDENCES: dict[str, Confidence] = {"high": "high", "medium": "medium", "low": "low"}
BINARY = (
    ".7z", ".a", ".avi", ".bin", ".bmp", ".bz2", ".class", ".dll", ".docx", ".ear", ".eot", ".exe",
    ".fits", ".gif", ".gz", ".h5", ".hdf5", ".icns", ".ico", ".inv", ".jar", ".jpeg", ".jpg",
    ".mo", ".mov", ".mp3", ".mp4", ".nc", ".npy", ".npz", ".o", ".ogg", ".otf", ".parquet", ".pdf",
    ".pickle", ".pkl", ".png", ".psd", ".pyc", ".pyd", ".rar", ".so", ".sqlite", ".tar", ".tgz",
    ".tif", ".tiff", ".ttf", ".wasm", ".wav", ".webm", ".webp", ".whl", ".woff", ".woff2", ".xls",
    ".xlsx", ".xz", ".zip", ".zst",
)  # fmt: skip
LOCKS = (
    ".lock", ".sum", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml",
    "packages.lock.json", "Package.resolved", "Cartfile.resolved",
)  # fmt: skip
"""Ends of names of files that are full of hashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectSecrets:
    """detect-secrets without network, on every file that may be text. `pragma: allowlist secret`
    is ignored, in both states. No finding quotes the secret, or a hash of it.

    A secret with a form of its own is found anywhere, one that is only told by its name or by its
    randomness in code and settings.
    """

    seconds: int = 5
    """For one file; past it the file counts as not looked at."""

    @property
    def tool(self) -> Tool:
        """Its name and needs."""
        return Tool(
            name="detect-secrets",
            layout="bare",
            exit_codes=frozenset({0}),
            files={PROBE: _probe()},
            environment={"PYTHONUTF8": "1"},
        )

    @property
    def fallback(self) -> Linter | None:
        """None."""
        return None

    def wants(self, path: str) -> bool:
        """All but what is binary by its name, and lock files."""
        return not path.lower().endswith(BINARY) and not path.endswith(LOCKS)

    def command(self, targets: Sequence[str], folder: str) -> Sequence[str]:
        """Its argv: a program of ours, under detect-secrets' own Python."""
        return ["sh", "-c", START, "sh", f"{folder}/{PROBE}", str(self.seconds), *targets]

    def read(self, result: CommandResult) -> Reading:
        """Its JSON."""
        told = mapping(load(printed(result)))
        found = told.get("findings")
        if not isinstance(found, list) or len(found) > PROBLEMS_LIMIT:
            raise UnreadableOutput(f"its output has no list of at most {PROBLEMS_LIMIT} findings")
        return Reading(
            problems=tuple(_problem(mapping(each)) for each in found),
            unread={
                path: text(reason)[:300] for path, reason in mapping(told.get("unread")).items()
            },
            seen=frozenset(map(text, listing(told.get("seen")))),
            version=text(told.get("version"))[:100] or None,
        )


def _problem(told: dict[str, Any]) -> Problem:
    line = line_number(told.get("line"))
    kind = text(told.get("kind"))
    return Problem(
        rule=kind.lower().replace(" ", "-") or "secret",
        path=text(told.get("path")),
        line=line,
        end_line=line,
        message=f"this looks like a secret: {kind}; keep it out of the repository",
        severity="error",
        confidence=CONFIDENCES.get(text(told.get("confidence"))),
        secret=True,
    )


@cache
def _probe() -> bytes:
    return (files("patchgym.sandbox") / "linting" / PROBE).read_bytes()
