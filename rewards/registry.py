"""Finds components by name: ours, those of installed packages, those in a file of yours."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import math
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from .component import Component

ENTRY_POINTS = "patchgym.rewards"
"""The group in which packages name their components: `name = "module:Class"`."""

BUILT_IN: Mapping[str, str] = {
    name: f"patchgym.rewards.components.{place}"
    for name, place in {
        "tests": "tests:Tests",
        "regressions": "regressions:Regressions",
        "patch_size": "patch_size:PatchSize",
        "needless_changes": "needless_changes:NeedlessChanges",
        "formatting": "formatting:Formatting",
        "lint": "lint:Lint",
        "security": "security:Security",
        "tampering": "tampering:Tampering",
        "similarity": "similarity:Similarity",
        "turns": "conduct:Turns",
        "format_errors": "conduct:FormatErrors",
    }.items()
}


def component_names() -> list[str]:
    """Every component that can be named without a `use`, ours first."""
    return [*BUILT_IN, *(each.name for each in entry_points(group=ENTRY_POINTS))]


def source_of(name: str, use: str = "") -> str:
    """`module:Class` or `file.py:Class` of a component. Raises ValueError for an unknown name."""
    if use:
        return use
    if name in BUILT_IN:
        return BUILT_IN[name]
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name == name:
            return entry.value
    known = component_names()
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    raise ValueError(
        f"no such component; {hint} One of your own needs `use`, such as my_rewards.py:Mine"
    )


def make_component(source: str, options: Mapping[str, Any]) -> Component:
    """The component of that source with these options. Raises ValueError, naming the option."""
    kind = load_object(source)
    if not (isinstance(kind, type) and issubclass(kind, Component) and is_dataclass(kind)):
        raise ValueError(f"{source} is no Component that is a dataclass")
    known = [each.name for each in fields(kind)]
    for key, value in options.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
            raise ValueError(f"unknown option {key}; {hint}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{key} is {value}: it must be a finite number")
    from pydantic import TypeAdapter, ValidationError

    try:
        made: Component = TypeAdapter(kind).validate_python(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        told = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}: {told}" if where else told) from None
    except Exception as error:  # its own code, such as a `measure` that is missing
        raise ValueError(f"{source} can't be made: {type(error).__name__}: {error}") from error
    return made


def load_object(source: str) -> Any:
    """The object that `package.module:name` or `file.py:name` means; ValueError without one."""
    place, found, attribute = source.partition(":")
    if not found or not attribute:
        raise ValueError(f"{source!r} is not of the form module:name or file.py:name")
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise ValueError(f"no such file: {place}")
    try:
        module = _load_file(Path(place)) if is_file else importlib.import_module(place)
    except Exception as error:  # whatever its code does
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"{place} can't be imported: {what}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ValueError(f"{place} has no {attribute!r}") from None


def _load_file(path: Path) -> Any:
    name = f"patchgym_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
