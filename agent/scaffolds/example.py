"""Arguments for a tool that is shown as an example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from patchgym.agent.action import ToolCall, ToolSpec

_BY_NAME: Mapping[str, str] = {
    "command": "grep -rn 'def load' src",
    "path": "src/config.py",
}
_BY_TYPE: Mapping[str, object] = {
    "string": "...",
    "integer": 1,
    "number": 1,
    "boolean": True,
    "array": [],
    "object": {},
}


def example_call(spec: ToolSpec) -> ToolCall:
    """A call of `spec` with a likely value for each required argument.

    A schema's own `examples`, `default` and `enum` are taken first.
    """
    properties = spec.parameters.get("properties")
    required = spec.parameters.get("required")
    known = properties if isinstance(properties, Mapping) else {}
    names = required if isinstance(required, Sequence) and not isinstance(required, str) else ()
    return ToolCall(
        name=spec.name, arguments={str(name): _value(str(name), known.get(name)) for name in names}
    )


def _value(name: str, schema: object) -> object:
    described = schema if isinstance(schema, Mapping) else {}
    for key in ("examples", "enum"):
        given = described.get(key)
        if isinstance(given, Sequence) and given:
            return given[0]
    if "default" in described:
        return described["default"]
    wanted = str(described.get("type", "string"))
    if wanted == "string" and name in _BY_NAME:
        return _BY_NAME[name]
    return _BY_TYPE.get(wanted, "...")
