"""Settings of any composition of dataclass sections: TOML in, flags on top, mistakes named."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from .errors import ConfigError

Settings = TypeVar("Settings")


def read_mapping(
    path: Path | None, overrides: Sequence[tuple[str, str]], *, example: str
) -> tuple[dict[str, Any], str]:
    """What the file `path` holds, with `overrides` (dotted key, TOML text) on top; and its name.

    ConfigError for a file that can't be read, which names `example` as one to start from.
    """
    mapping: dict[str, Any] = {} if path is None else _read_toml(path, example)
    for key, text in overrides:
        _set(mapping, key.replace("-", "_"), text)
    return mapping, str(path or "the command line")


def check_known(
    kind: type, mapping: Mapping[str, Any], source: str, *, free: tuple[type, ...] = ()
) -> None:
    """ConfigError names the first key of `mapping` that `kind` hasn't got, and the nearest it has.

    Sections of the types `free` are not looked into: they name their keys themselves.
    """
    for where, key, known in _unknown_keys(kind, mapping, free):
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"; did you mean {where}{near[0]}?" if near else f"; known: {', '.join(known)}"
        raise ConfigError(f"{source}: unknown key {where}{key}{hint}")


def validated(kind: type[Settings], mapping: Mapping[str, Any], source: str) -> Settings:
    """A `kind` of `mapping`; ConfigError names the key whose value could not be."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(mapping)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        words = first["msg"].removeprefix("Value error, ")
        place = f"{source}: {key}: " if key else f"{source}: "
        raise ConfigError(f"{place}{words[:1].lower()}{words[1:]}") from None


def override_pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs from `--section.field value` and `--section.field=value`; ConfigError for others."""
    pairs: list[tuple[str, str]] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or "." not in name:
            raise ConfigError(f"{word}: not a flag; settings are written --section.field value")
        if not equals:
            if not queue:
                raise ConfigError(f"--{name}: its value is missing")
            value = queue.pop(0)
        pairs.append((name, value))
    return pairs


def to_toml(sections: Mapping[str, Any]) -> str:
    """Nested mappings as TOML; what is None is left out."""
    import tomli_w

    return tomli_w.dumps(_plain(sections))


def changed(
    old: Mapping[str, Any], new: Mapping[str, Any], where: str = ""
) -> dict[str, tuple[object, object]]:
    """Dotted keys whose values differ, with both values."""
    found: dict[str, tuple[object, object]] = {}
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found |= changed(before, after, f"{where}{key}.")
        elif before != after:
            found[f"{where}{key}"] = before, after
    return found


def _read_toml(path: Path, example: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; start from {example}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _set(mapping: dict[str, Any], key: str, text: str) -> None:
    *sections, name = key.split(".")
    for section in sections:
        mapping = mapping.setdefault(section, {})
        if not isinstance(mapping, dict):
            raise ConfigError(f"--{key}: {section} is a value, not a section")
    try:
        mapping[name] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        mapping[name] = text  # a bare word is a string: --run.name first


def _unknown_keys(
    section: type, mapping: Mapping[str, Any], free: tuple[type, ...], where: str = ""
) -> Iterator[tuple[str, str, list[str]]]:
    hints = get_type_hints(section)
    known = [each.name for each in dataclasses.fields(section)]
    for key, value in mapping.items():
        if key not in known:
            yield where, key, known
            continue
        kind = hints[key]
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind not in free:
            if isinstance(value, Mapping):
                yield from _unknown_keys(kind, value, free, f"{where}{key}.")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
