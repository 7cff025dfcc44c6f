"""The fields of a row, in every way that people have written them."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from .base import Unusable, Values


def text(values: Values, key: str) -> str | None:
    """A text that says something, as it is; else None."""
    found = values.get(key)
    return found if isinstance(found, str) and found.strip() else None


def need(values: Values, key: str) -> str:
    """The text under a key; Unusable without it."""
    found = text(values, key)
    if found is None:
        raise Unusable(f"no {key} in it: every row needs one")
    return found


def plain(value: object) -> object:
    """An array of numpy's, as pandas hands it on, as a list."""
    tolist = getattr(value, "tolist", None)
    return tolist() if callable(tolist) else value


def tests(values: Values, key: str) -> tuple[str, ...]:
    """A list of test ids, each once and as it is; also as text, JSON or Python's way to write it.

    Raises Unusable when it is no such list.
    """
    found = plain(values.get(key))
    if isinstance(found, str):
        found = _read(found, key) if found.strip() else []
    if found is None:
        return ()
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        raise Unusable(f"{key} is no list of texts: give a list of test ids")
    return tuple(dict.fromkeys(found))


def both_lists(values: Values) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """FAIL_TO_PASS and PASS_TO_PASS; a name that is in both is judged once."""
    fail_to_pass = tests(values, "FAIL_TO_PASS")
    if not fail_to_pass:
        raise Unusable("no FAIL_TO_PASS: nothing would tell whether it is resolved")
    known = set(fail_to_pass)
    return fail_to_pass, tuple(each for each in tests(values, "PASS_TO_PASS") if each not in known)


def table(values: Values, key: str) -> Mapping[str, Any]:
    """An object, also as JSON text; empty when it is not there. Raises Unusable for another."""
    found = plain(values.get(key))
    if isinstance(found, str):
        found = _read(found, key) if found.strip() else {}
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise Unusable(f"{key} is no object: give one, or its JSON text")
    return found


def texts(values: Values, key: str) -> tuple[str, ...]:
    """A list of texts, or a single one."""
    found = plain(values.get(key))
    if isinstance(found, str):
        return (found,) if found.strip() else ()
    if not isinstance(found, list | tuple):
        return ()
    return tuple(each for each in found if isinstance(each, str) and each.strip())


def words(values: Values, *keys: str) -> dict[str, str]:
    """Those of the keys that hold a text or a number, as text: for a task's provenance."""
    return {
        key: str(values[key])
        for key in keys
        if isinstance(values.get(key), str | int | float) and str(values[key]).strip()
    }


def _read(value: str, key: str) -> object:
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise Unusable(f"{key} is not JSON ({error.msg}): mend it") from error
