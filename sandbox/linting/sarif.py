"""Reads SARIF 2.1.0, and runs any linter that writes it: eslint, clippy, golangci-lint, ...

Results that a comment in the source suppresses count like the others: what was suppressed at the
base commit is there in both states, and a comment that the diff adds hides nothing.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from patchgym.sandbox.result import CommandResult

from .linter import (
    PROBLEMS_LIMIT,
    SYNTAX,
    Layout,
    Linter,
    Problem,
    Reading,
    Tool,
    UnreadableOutput,
    printed,
)
from .report import Confidence, Severity
from .untrusted import line_number, listing, load, mapping, text

TARGETS = "{targets}"
FOLDER = "{folder}"
LEVELS: dict[str, Severity] = {"error": "error", "warning": "warning", "note": "note"}
CONFIDENCES: dict[str, Confidence] = {"HIGH": "high", "MEDIUM": "medium", "LOW": "low"}
NO_PROBLEM = ("pass", "notApplicable", "informational")  # kinds of result


@dataclass(frozen=True, slots=True, kw_only=True)
class SarifLinter:
    """Any program that writes SARIF to stdout."""

    name: str
    """In findings and reports."""
    arguments: tuple[str, ...]
    """Its argv. The word {targets} stands for the changed files, each a word; {folder}, in any
    word, for the folder of `files`."""
    suffixes: tuple[str, ...]
    """Ends of the names of the files that it is for, such as .js."""
    layout: Layout = "each"
    """each: it runs in a folder with the changed files alone, before and after; project: in copies
    of the whole project, for what must compile or resolve imports; see `Tool`."""
    exit_codes: frozenset[int] = frozenset({0, 1})
    """Those after which the SARIF counts."""
    version_command: tuple[str, ...] = ()
    """Prints the version; empty when the SARIF tells it."""
    configuration: tuple[str, ...] = ()
    """Names of the repository's files that steer it: always those of the base commit."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files of its own, by relative path, such as a configuration of yours."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Extra environment."""

    @property
    def tool(self) -> Tool:
        """Its name and needs."""
        return Tool(
            name=self.name,
            layout=self.layout,
            exit_codes=self.exit_codes,
            version_command=self.version_command,
            configuration=self.configuration,
            files=self.files,
            environment=self.environment,
        )

    @property
    def fallback(self) -> Linter | None:
        """None."""
        return None

    def wants(self, path: str) -> bool:
        """By its suffix."""
        return path.endswith(self.suffixes)

    def command(self, targets: Sequence[str], folder: str) -> Sequence[str]:
        """`arguments` with the names filled in."""
        words: list[str] = []
        for word in self.arguments:
            words += targets if word == TARGETS else [word.replace(FOLDER, folder)]
        return words

    def read(self, result: CommandResult) -> Reading:
        """Its SARIF."""
        return read_sarif(printed(result))


def read_sarif(data: bytes) -> Reading:
    """The problems of all runs of a SARIF log. Raises UnreadableOutput."""
    log = load(data)
    runs = mapping(log).get("runs")
    if not isinstance(runs, list):
        raise UnreadableOutput("its output is no SARIF: it has no runs")
    problems: list[Problem] = []
    unread: dict[str | None, str] = {}
    version: str | None = None
    for run in map(mapping, runs):
        told = _Run(run)
        problems += told.problems()
        unread.update(told.unread())
        version = version or told.version
        if len(problems) > PROBLEMS_LIMIT:
            raise UnreadableOutput(f"it has more than {PROBLEMS_LIMIT} results")
    return Reading(problems=tuple(problems), unread=unread, version=version)


class _Run:
    """One run of a log, and what its results refer to."""

    def __init__(self, run: dict[str, Any]) -> None:
        self._run = run
        driver = mapping(mapping(run.get("tool")).get("driver"))
        self._rules = [mapping(rule) for rule in listing(driver.get("rules"))]
        self._by_id = {text(rule.get("id")): rule for rule in self._rules}
        self.version = text(driver.get("semanticVersion")) or text(driver.get("version")) or None

    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong somewhere; that a file can't be parsed, too."""
        for path, line, reason in self._notices():
            if path and re.search("pars|syntax", reason, re.IGNORECASE):
                yield Problem(
                    rule=SYNTAX,
                    path=path,
                    line=line,
                    end_line=line,
                    message=reason,
                    severity="error",
                )
        for result in map(mapping, listing(self._run.get("results"))):
            if result.get("kind") in NO_PROBLEM or result.get("baselineState") == "absent":
                continue
            where = mapping(next(iter(listing(result.get("locations"))), None))
            place = mapping(where.get("physicalLocation"))
            path = self._path(mapping(place.get("artifactLocation")))
            if path:
                yield self._problem(result, path, mapping(place.get("region")))

    def unread(self) -> Iterator[tuple[str | None, str]]:
        """What the tool says that it could not do, and whether it failed altogether."""
        notices = [(path or None, reason) for path, _, reason in self._notices()]
        yield from notices
        for invocation in map(mapping, listing(self._run.get("invocations"))):
            if invocation.get("executionSuccessful") is False and not notices:
                yield None, "it says that it did not succeed"

    def _notices(self) -> Iterator[tuple[str, int, str]]:
        """Path or nothing, line and text of what stopped the tool."""
        for invocation in map(mapping, listing(self._run.get("invocations"))):
            for kind in ("toolExecutionNotifications", "toolConfigurationNotifications"):
                for notice in map(mapping, listing(invocation.get(kind))):
                    if notice.get("level") == "error":
                        yield self._notice(notice)

    def _notice(self, notice: dict[str, Any]) -> tuple[str, int, str]:
        where = mapping(next(iter(listing(notice.get("locations"))), None))
        place = mapping(where.get("physicalLocation"))
        path = self._path(mapping(place.get("artifactLocation")))
        line = line_number(mapping(place.get("region")).get("startLine"))
        reason = text(mapping(notice.get("message")).get("text")).strip().partition("\n")[0]
        return path, line, reason[:300] or "no reason given"

    def _problem(self, result: dict[str, Any], path: str, region: dict[str, Any]) -> Problem:
        rule = self._rule(result)
        line = line_number(region.get("startLine"))
        reference = mapping(result.get("rule"))
        return Problem(
            rule=text(result.get("ruleId")) or text(reference.get("id")) or text(rule.get("id")),
            path=path,
            line=line,
            end_line=line_number(region.get("endLine"), least=line),
            message=_message(result, rule),
            severity=_severity(result, rule),
            confidence=_confidence(result, rule),
        )

    def _rule(self, result: dict[str, Any]) -> dict[str, Any]:
        reference = mapping(result.get("rule"))
        for index in (result.get("ruleIndex"), reference.get("index")):
            if type(index) is int and 0 <= index < len(self._rules):
                return self._rules[index]
        name = text(result.get("ruleId")) or text(reference.get("id"))
        # a result may name a rule more narrowly, with /parts behind it
        return self._by_id.get(name) or self._by_id.get(name.rpartition("/")[0]) or {}

    def _path(self, location: dict[str, Any]) -> str:
        """An absolute or relative path, or nothing."""
        index = location.get("index")
        artifacts = listing(self._run.get("artifacts"))
        if "uri" not in location and type(index) is int and 0 <= index < len(artifacts):
            location = mapping(mapping(artifacts[index]).get("location"))
        uri = text(location.get("uri"))
        bases = mapping(self._run.get("originalUriBaseIds"))
        base = text(mapping(bases.get(text(location.get("uriBaseId")))).get("uri"))
        if base.startswith("file:") and not re.match(r"[a-z]+:|/", uri):
            uri = f"{base.rstrip('/')}/{uri}"
        if uri.startswith("file:"):
            uri = re.sub("^file:(//[^/]*)?", "", uri)
        elif re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:", uri):
            return ""  # it is not about a file here
        return urllib.parse.unquote(uri)


def _message(result: dict[str, Any], rule: dict[str, Any]) -> str:
    message = mapping(result.get("message"))
    told = text(message.get("text")) or text(message.get("markdown"))
    if not told:
        strings = mapping(mapping(rule.get("messageStrings")).get(text(message.get("id"))))
        told = text(strings.get("text"))
    for number, value in enumerate(listing(message.get("arguments"))[:10]):
        told = told.replace(f"{{{number}}}", text(value))
    return told or text(mapping(rule.get("shortDescription")).get("text"))


def _severity(result: dict[str, Any], rule: dict[str, Any]) -> Severity:
    standard = mapping(rule.get("defaultConfiguration")).get("level")
    level = text(result.get("level")) or text(standard) or "warning"
    return LEVELS.get(level, "note")


def _confidence(result: dict[str, Any], rule: dict[str, Any]) -> Confidence | None:
    """Not part of SARIF: from the properties that linters are known to use."""
    own = mapping(result.get("properties"))
    told = [own.get("issue_confidence"), own.get("confidence")]
    for tag in listing(mapping(rule.get("properties")).get("tags")):
        grade, _, kind = text(tag).partition(" ")
        told += [grade] if kind == "CONFIDENCE" else []
    for value in told:
        level = CONFIDENCES.get(text(value).upper())
        if level is not None:
            return level
    return None
