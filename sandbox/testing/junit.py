"""JUnit XML, read as what it is: a file that a hostile program may have written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element, ParseError

from .report import WORST, Outcome, TestRun

LIMIT = 16 << 20  # bytes of XML that are looked at
MESSAGE = 400  # characters
BAD: Mapping[str, Outcome] = {"failure": "failed", "error": "error", "skipped": "skipped"}
"""Outcome by the name of a test case's child; its absence is a pass."""


class ReportError(ValueError):
    """A report that can't be read; the text says why in one line."""


def read_junit(data: bytes) -> tuple[dict[str, TestRun], dict[str, tuple[str, ...]]]:
    """Tests by `classname::name` (or the name alone), and ids by other names they go by.

    Raises ReportError for what is no XML, has a document type (entity bombs), or is too long.
    """
    from defusedxml import DefusedXmlException, ElementTree

    if len(data) > LIMIT:
        raise ReportError(f"the JUnit report is over {LIMIT >> 20} MiB")
    try:
        root = ElementTree.fromstring(data, forbid_dtd=True)
    except DefusedXmlException as error:
        raise ReportError(f"the JUnit report has a document type: {type(error).__name__}") from None
    except (ParseError, ValueError, RecursionError) as error:
        raise ReportError(f"the JUnit report is no XML: {error}") from None
    tests: dict[str, TestRun] = {}
    names: dict[str, dict[str, None]] = {}
    for case in _cases(root):
        name, owner = case.get("name") or "", case.get("classname") or ""
        test = f"{owner}::{name}" if owner else name
        run = _run(case)
        if test in tests:
            run = min(tests[test], run, key=lambda one: WORST.index(one.outcome))
        tests[test] = run
        file = case.get("file")
        for other in (name, f"{owner}.{name}", f"{file}::{name}" if file else name):
            if other != test:
                names.setdefault(other, {})[test] = None
    return tests, {name: tuple(ids) for name, ids in names.items()}


def _cases(root: Element) -> Iterator[Element]:
    for element in root.iter():
        if element.tag.rpartition("}")[2] == "testcase":
            yield element


def _run(case: Element) -> TestRun:
    outcome: Outcome = "passed"
    message = ""
    for child in case:
        kind = child.tag.rpartition("}")[2]
        found = BAD.get(kind)
        if found and WORST.index(found) < WORST.index(outcome):
            outcome = found
            message = (child.get("message") or child.text or "").strip()[:MESSAGE]
    return TestRun(
        outcome=outcome,
        message="" if outcome in ("passed", "skipped") else message,
        seconds=_seconds(case.get("time")),
    )


def _seconds(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


def merge(pieces: list[bytes]) -> bytes:
    """Several documents as one; what is no document stays what it is, for the reader to refuse."""
    if len(pieces) == 1:
        return pieces[0]
    bodies = []
    for piece in pieces:
        body = piece.lstrip(b"\xef\xbb\xbf \t\r\n")
        if body.startswith(b"<?xml"):
            body = body.partition(b"?>")[2]
        bodies.append(body)
    return b"<testsuites>" + b"\n".join(bodies) + b"</testsuites>"
