"""What a reward is made of, as the `[reward]` section of a run says it.

[reward]
tests = 1.0                # a component's weight; penalties are taken off
patch_size = 0.05
clip = [-1.0, 1.0]

[reward.security]          # the same with options
weight = 0.2
scale = 2.0

[reward.todos]             # one of your own
use = "my_rewards.py:Todos"
weight = 0.1
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from .component import Component
from .registry import make_component, source_of

Combine = Literal["sum", "rubric"]
Normalize = Literal["total", "components"]
LARGEST = 1000.0
"""No weight is larger: a reward of that size is a slip of the pen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One component with its place in the reward."""

    name: str
    component: Component
    source: str
    """`module:Class` or `file.py:Class` that it was made from."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What it was made with."""
    weight: float
    """At least 0. With 0 it is measured and shown, and counts nothing."""
    gate: str = ""
    """Another component; this one counts only where that one's value is above `gate_above`."""
    gate_above: float = 0.0
    deadline: float = 120.0
    """Seconds for its own work, not for the tests and linters that it looks at."""
    required: bool = False
    """Without its value the whole reward is unknown; otherwise it counts nothing then."""
    use: str = ""
    """As it was written in the configuration."""

    @property
    def signed(self) -> float:
        """The weight as a factor of the value."""
        return -self.weight if self.component.penalty else self.weight


_OWN = ("weight", "use", "gate", "gate_above", "deadline", "required")
_DEFAULT: Mapping[str, float] = {"tests": 1.0, "patch_size": 0.05}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """The components of a reward and how they come together."""

    parts: tuple[Part, ...] = ()
    """In the order in which they were named; a rubric goes through them in it."""
    combine: Combine = "sum"
    """`sum`: the weighted values added up. `rubric`: one after the other, ending at the first that
    is not full: a penalty is full at 0, anything else at 1."""
    clip: tuple[float, float] | None = None
    """The total is kept between these."""
    normalize: Normalize = "total"
    """What advantages compare within a group: the total, or each component by itself (GDPO)."""

    def __post_init__(self) -> None:
        """Raise ValueError, naming the key, for what can't work."""
        self._check_clip()
        names = [part.name for part in self.parts]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is there twice: give one of them another name")
        for part in self.parts:
            _check_part(part, names)
        if not any(part.weight and not part.component.penalty for part in self.parts):
            raise ValueError("no component that earns anything has a weight: set tests = 1.0")
        if self.combine == "rubric" and self.normalize == "components":
            raise ValueError("normalize = 'components' has no meaning for combine = 'rubric'")
        _check_circles({part.name: part.gate for part in self.parts})

    def _check_clip(self) -> None:
        if self.clip is None:
            return
        low, high = self.clip
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"clip is [{low}, {high}]: it must be two numbers, the lower first")

    @classmethod
    def of(cls, mapping: Mapping[str, Any] | None = None) -> RewardConfig:
        """From a `[reward]` section; what it does not name stays as it is by default: tests 1.0,
        patch_size 0.05. Raises ValueError, naming the key."""
        given = dict(mapping or {})
        combine = _choice("combine", given.pop("combine", "sum"), ("sum", "rubric"))
        normalize = _choice("normalize", given.pop("normalize", "total"), ("total", "components"))
        clip = _clip(given.pop("clip", None))
        named = dict.fromkeys([*given, *_DEFAULT])  # a rubric's order is the reader's
        parts = [_part(name, given.get(name, _DEFAULT.get(name, {}))) for name in named]
        return cls(
            parts=tuple(parts),
            combine=cast(Combine, combine),
            normalize=cast(Normalize, normalize),
            clip=clip,
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        """A section of a larger configuration takes one that is made already, as it is."""
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    def as_mapping(self) -> dict[str, Any]:
        """A section that `of` reads back as the same configuration."""
        section: dict[str, Any] = {"combine": self.combine, "normalize": self.normalize}
        if self.clip is not None:
            section["clip"] = list(self.clip)
        return section | {part.name: _as_mapping(part) for part in self.parts}

    def part(self, name: str) -> Part | None:
        """The part of that name."""
        return next((part for part in self.parts if part.name == name), None)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that a total can be."""
        low = 0.0 if self.combine == "rubric" else sum(min(0.0, p.signed) for p in self.parts)
        high = sum(p.weight for p in self.parts if self.combine == "rubric" or p.signed > 0)
        if self.clip is None:
            return low, high
        return max(low, self.clip[0]), min(high, self.clip[1])


def _check_part(part: Part, names: list[str]) -> None:
    for key in ("weight", "gate_above", "deadline"):
        value = getattr(part, key)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise ValueError(f"{part.name}.{key} is {value!r}: it must be a finite number")
    if not 0 <= part.weight <= LARGEST:
        signed = part.weight < 0 and part.component.penalty
        sign = " (a penalty's weight is taken off by itself)" if signed else ""
        raise ValueError(f"{part.name}.weight is {part.weight}: it must be 0 to {LARGEST:g}{sign}")
    if not 0 <= part.gate_above < 1:
        raise ValueError(f"{part.name}.gate_above is {part.gate_above}: it must be 0 to below 1")
    if part.deadline <= 0:
        raise ValueError(f"{part.name}.deadline is {part.deadline}: it must be above 0 seconds")
    if not isinstance(part.required, bool):
        raise ValueError(f"{part.name}.required is {part.required!r}: it must be true or false")
    if part.gate and part.gate not in names:
        raise ValueError(
            f"{part.name}.gate is {part.gate!r}, which is no component of this reward; "
            f"there are: {', '.join(names)}"
        )


def _check_circles(gates: Mapping[str, str]) -> None:
    for name in gates:
        at, seen = name, {name}
        while at := gates[at]:
            if at in seen:
                raise ValueError(f"{name}.gate leads back to {at}: a gate can't wait for itself")
            seen.add(at)


def _part(name: str, given: object) -> Part:
    """One component from its weight, or from its table."""
    if not isinstance(given, Mapping):
        given = {"weight": given}
    own = {key: given[key] for key in _OWN if key in given}
    options = {key: value for key, value in given.items() if key not in _OWN}
    try:
        source = source_of(name, str(own.get("use", "")))
        component = make_component(source, options)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if "weight" not in own:
        raise ValueError(f"{name} has no weight; a weight of 0 measures it and counts nothing")
    kind = type(component)
    # A gate on the component itself, as in a reward of one's own that is called `tests`, is none.
    gate = "" if kind.gate == name else kind.gate
    place: dict[str, Any] = {"gate": gate, "required": kind.required, **own}
    return Part(name=name, component=component, source=source, options=options, **place)


def _as_mapping(part: Part) -> dict[str, Any]:
    usual = {"gate_above": 0.0, "deadline": 120.0, "use": ""}
    section: dict[str, Any] = {"weight": part.weight, "gate": part.gate}
    section |= {key: getattr(part, key) for key, value in usual.items()
                if getattr(part, key) != value}  # fmt: skip
    return section | {"required": part.required} | dict(part.options)


def _choice(key: str, value: object, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{key} is {value!r}: it must be {' or '.join(known)}")
    return str(value)


def _clip(value: object) -> tuple[float, float] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"clip is {value!r}: it must be two numbers, the lower first")
    try:
        return float(value[0]), float(value[1])
    except (TypeError, ValueError):
        raise ValueError(f"clip is {value!r}: it must be two numbers, the lower first") from None
