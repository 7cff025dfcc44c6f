"""A test report in words for an agent: short, exact, and honest about what was left out."""

from __future__ import annotations

from collections.abc import Iterator

from .report import Outcome, TestReport

LAST_LINES = 12
LINE = 200  # characters of one printed line
ORDER: tuple[Outcome, ...] = ("error", "failed", "timeout", "not_run", "flaky", "skipped")


def describe(report: TestReport, *, limit: int = 3000) -> str:
    """At most about `limit` characters: what did not pass and why, the worst first.

    The last printed lines come with it when the run ended badly or nothing else explains it.
    """
    head = _head(report)
    pieces = [piece for outcome in ORDER for piece in _pieces(report, outcome)]
    tail = _printed(report) if not report.consistent or (pieces and not report.messages) else ""
    room, shown = limit - len(head) - len(tail), 0
    lines = [head]
    for piece in pieces:
        if len(piece) + 1 > room and shown:
            break
        lines.append(piece[: max(room, LINE)])
        room -= len(piece) + 1
        shown += 1
    if shown < len(pieces):
        lines.append(f"[{len(pieces) - shown} more tests not shown]")
    if tail:
        lines.append(tail)
    return "\n".join(lines)


def _head(report: TestReport) -> str:
    count = len(report.outcomes)
    passed = sum(outcome == "passed" for outcome in report.outcomes.values())
    lines = [f"{passed} of {count} tests passed ({report.duration:.1f} s)."]
    if report.timed_out:
        killed = f", {report.killed} processes killed" if report.killed else ""
        lines.append(f"The run was stopped at its time limit{killed}.")
    if report.oom_killed:
        lines.append("The memory limit was reached, and a process was killed.")
    if not report.consistent and not report.timed_out:
        lines.append(f"This run does not count: {report.problem}.")
    return " ".join(lines)


def _pieces(report: TestReport, outcome: Outcome) -> Iterator[str]:
    for test, found in report.outcomes.items():
        if found == outcome:
            yield _piece(report, test, outcome)


def _piece(report: TestReport, test: str, outcome: Outcome) -> str:
    line = f"{outcome} {test}"
    if outcome == "flaky":
        flake = report.flakes[test]
        low, high = flake.interval
        line += (
            f": did not pass in {flake.failures} of {flake.runs} runs"
            f" (95% interval {low:.0%} to {high:.0%})"
        )
    elif len(report.runs.get(test, ())) > 1 and outcome != "not_run":
        line += f" (in each of {len(report.runs[test])} runs)"
    message = report.messages.get(test, "") if outcome not in ("skipped", "not_run") else ""
    return "\n".join([line, *(f"    {each}" for each in message.splitlines())])


def _printed(report: TestReport) -> str:
    lines = [line[:LINE] for line in report.output.rstrip().splitlines()]
    if not lines:
        return "Nothing was printed."
    cut = len(lines) - LAST_LINES
    head = f"Last lines printed ({cut} before them cut):" if cut > 0 else "Printed:"
    return "\n".join([head, *lines[-LAST_LINES:]])
