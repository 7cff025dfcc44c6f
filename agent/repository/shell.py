"""`bash`: each command in a fresh shell, which takes over where the last one stood.

At its exit a shell tells its working directory and exported variables over the descriptor for
reports; the next shell begins with them. A shell that was killed, or replaced by `exec`, tells
nothing, and the next one begins where this one did.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from patchgym.agent.action import Observation
from patchgym.sandbox import CommandResult, Sandbox

from .text import bounded, output_bytes, readable

STATE_LIMIT = 64 << 10  # bytes of exported variables that are kept
# bash where there is one; on one line, so that bash counts the lines of the command from 1.
START = 'exec "$(command -v bash || command -v sh)" -c "$1" bash "$2" "$3" "$4"'
SHELL = (
    "exec 2>&1; _patchgym_command=$(cat); "
    "trap \"unset PATCHGYM_COMMAND; { printf '%s\\0' \\\"\\$PWD\\\"; export -p; printf '\\0'; } "
    '2>/dev/null >&$PATCHGYM_REPORT_FD" EXIT; unset PATCHGYM_REPORT_FD; '
    'cd -- "$1" 2>/dev/null || set -- "$1" "$2" "$3" gone; '
    'eval "$PATCHGYM_STATE" 2>/dev/null; unset PATCHGYM_STATE; '
    'test -z "$4" || { cd -- "$2"; printf "%s\\n" "$3"; }; set --; '
    'eval "$_patchgym_command"'
)
"""Takes a folder, the repository's, and what to print when the first is gone; reads a command.

PATCHGYM_COMMAND is the sandbox's mark of which processes are whose: each command has its own.
"""


@dataclass(slots=True)
class Shell:
    """The commands of one rollout."""

    sandbox: Sandbox
    seconds: float
    """For one command."""
    characters: int
    """Of one output."""
    folder: str = ""
    """Where the next command starts, absolute; empty: in the workdir."""
    state: str = ""
    """Exported variables, as shell code."""

    async def run(self, command: str) -> Observation:
        """Run it to its end or its limit, and say what it printed."""
        root = self.sandbox.spec.workdir
        gone = f"[{self._place()} is gone: this ran in the repository's root]"
        result = await self.sandbox.run(
            ["sh", "-c", START, "sh", SHELL, self.folder or root, root, gone],
            timeout=self.seconds,
            environment={"PATCHGYM_STATE": self.state},
            stdin=command.encode(),
            output_limit=output_bytes(self.characters),
            report=True,
        )
        notes = self._notes(result)
        if not result.timed_out:
            notes += self._remember(result.report)
        text, dropped = bounded(result.stdout, self.characters)
        text += bounded(result.stderr, self.characters)[0]
        lines = [text.rstrip("\n")] if text.strip("\n") else []
        return Observation(
            kind="timeout" if result.timed_out else "output",
            text="\n".join([*lines, *notes]),
            done=False,
            timed_out=result.timed_out,
            dropped=dropped,
        )

    def _notes(self, result: CommandResult) -> list[str]:
        """What happened to the command, a line each."""
        notes = []
        if result.oom_killed:
            limit = self.sandbox.spec.memory_mib
            notes.append(f"[out of memory: a process was killed at the limit of {limit} MiB]")
        if "disk" in result.limits_hit:
            notes.append("[the disk is full]")
        if "pids" in result.limits_hit:
            notes.append(f"[no more processes: the limit is {self.sandbox.spec.pids}]")
        if result.timed_out:
            limit_s = f"{self.seconds:g} s"
            notes.append(f"[stopped after {limit_s}, with every process that it started]")
        elif result.signal is not None:
            notes.append(f"[ended by signal {result.signal}]")
        else:
            notes.append(f"[exit code {result.exit_code}]")
        return notes

    def _remember(self, report: bytes) -> list[str]:
        """Take over what the shell told at its exit; a note when not all of it can be."""
        folder, told, rest = report.partition(b"\0")
        state, ended, _ = rest.partition(b"\0")
        if not (told and ended and folder.startswith(b"/")):
            return []
        self.folder = folder.decode("utf-8", "surrogateescape")
        if len(state) > STATE_LIMIT:
            return [f"[exported variables are over {STATE_LIMIT >> 10} KiB: not kept]"]
        self.state = state.decode("utf-8", "surrogateescape")
        return []

    def _place(self) -> str:
        """The folder in words that do not depend on where the repository lies."""
        root = self.sandbox.spec.workdir
        folder = self.folder or root
        inside = folder == root or folder.startswith(f"{root}/")
        shown = posixpath.relpath(folder, root) if inside else folder
        return readable(shown.encode("utf-8", "surrogateescape"))
