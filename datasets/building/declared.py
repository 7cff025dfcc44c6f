"""What a Python manifest can declare, and how its values are read, whatever the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

GROUP = re.compile(r"(unit)?[-_]?(tests?|testing|pytest|dev|develop|development)[-_]?(s|deps)?")
"""Names of extras and groups that hold what the tests need."""
PREFERENCE = ("test", "tests", "testing", "unittest", "pytest", "dev", "develop", "development")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What one manifest says; all of it may be missing."""

    name: str = ""
    """Name of the distribution."""
    version: str = ""
    """Only when it is written down as a literal."""
    python: str = ""
    """Specifier of the Pythons it is for, such as `>=3.8`."""
    minors: tuple[str, ...] = ()
    """Pythons that classifiers or tox's environments name, such as `3.11`."""
    requires: tuple[str, ...] = ()
    """Requirements at run time, as PEP 508 writes them."""
    tests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Requirements by the name of an extra, a group or an environment that is for tests."""
    includes: tuple[str, ...] = ()
    """Requirements files that it names for its tests, relative to the manifest."""
    constraints: tuple[str, ...] = ()
    """Constraints files, as those."""
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """All its extras."""
    wants: tuple[str, ...] = ()
    """Names of its own extras and groups that its test environment asks for."""
    entry_points: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By group and name."""
    build: tuple[str, ...] = ()
    """Requirements of the build."""
    backend: str = ""
    """The build back end, or `setup.py`."""
    compiled: bool = False
    """Whether it says that something has to be compiled."""
    generated: bool = False
    """Whether the build writes a file that the sources import, such as `_version.py`."""
    runners: tuple[str, ...] = ()
    """Test runners that it names: pytest, unittest, django."""


def table_of(value: Any, *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def texts_of(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return lines_of(value)
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(each.strip() for each in value if isinstance(each, str) and each.strip())


def literal_of(value: Any) -> str:
    return value if isinstance(value, str) and re.match(r"v?\d", value) else ""


def lines_of(text: str) -> tuple[str, ...]:
    found = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return tuple(line for line in found if line)


def assignments_of(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in lines_of(text))
    return {name.strip(): value.strip() for name, found, value in pairs if found}


def minors_of(classifiers: Iterable[str]) -> tuple[str, ...]:
    found = (re.search(r"Python :: (3\.\d+)\s*$", each) for each in classifiers)
    return tuple(each[1] for each in found if each)


def runners_of(commands: str) -> tuple[str, ...]:
    known = {
        "pytest": r"\bpy\.?test\b",
        "unittest": r"-m unittest|\bunittest\b|setup\.py test",
        "django": r"manage\.py test|django-admin test",
    }
    return tuple(name for name, pattern in known.items() if re.search(pattern, commands))
