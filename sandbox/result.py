"""What a command in a sandbox came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One stream of a command, as bytes, cut in the middle when it was too long."""

    head: bytes
    """The first bytes; everything when nothing was dropped."""
    tail: bytes = b""
    """The last bytes, when something was dropped in between."""
    dropped: int = 0
    """Bytes between head and tail that were not kept."""

    def text(self) -> str:
        """UTF-8 text; broken bytes become \\xNN, a cut is marked with the bytes it took."""
        head = self.head.decode("utf-8", "backslashreplace")
        if not self.dropped:
            return head + self.tail.decode("utf-8", "backslashreplace")
        tail = self.tail.decode("utf-8", "backslashreplace")
        return f"{head}\n[... {self.dropped} bytes dropped ...]\n{tail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The end of one command. A failing command is a result, never an exception."""

    exit_code: int | None
    """Exit status; None when a signal ended it or it was killed at its limit."""
    signal: int | None = None
    """Number of the signal that ended it, if one did."""
    timed_out: bool = False
    """Its time was up; its whole process tree is dead."""
    oom_killed: bool = False
    """The kernel killed a process of the sandbox for want of memory while it ran."""
    limits_hit: tuple[str, ...] = ()
    """Which of time, memory, pids, disk, output, report were reached."""
    duration: float = 0.0
    """Wall-clock seconds, measured inside."""
    cpu_seconds: float = 0.0
    """CPU seconds that the whole sandbox used while it ran."""
    peak_memory: int | None = None
    """Bytes; the sandbox's highest use so far, files in tmpfs included; None if unknown."""
    stdout: Output
    stderr: Output
    report: bytes = b""
    """What was written to the file descriptor named by PATCHGYM_REPORT_FD."""
    killed: int = 0
    """Processes killed when the time was up or the caller cancelled."""

    @property
    def ok(self) -> bool:
        """Exit status 0 and no limit that ended it."""
        return self.exit_code == 0 and not self.timed_out
