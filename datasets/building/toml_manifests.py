"""pyproject.toml, Pipfile and lock files: what their tables declare."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from .declared import GROUP, Declared, literal_of, minors_of, table_of, texts_of
from .ini_manifests import read_ini


def read_pyproject(text: str) -> Declared:
    """pyproject.toml: PEP 621 and 735, and the tables of poetry, pdm, uv and hatch."""
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return Declared()
    project, tool, build = table_of(tables, "project"), table_of(tables, "tool"), table_of(
        tables, "build-system"
    )  # fmt: skip
    poetry = table_of(tool, "poetry")
    extras = {
        name: texts_of(value) for name, value in table_of(project, "optional-dependencies").items()
    }
    groups = {
        **_groups(table_of(tables, "dependency-groups")),
        **{
            name: texts_of(value)
            for name, value in table_of(tool, "pdm", "dev-dependencies").items()
        },
        **{
            name: _poetry_list(table_of(value, "dependencies"))
            for name, value in table_of(poetry, "group").items()
            if isinstance(value, dict)
        },
        **_hatch(table_of(tool, "hatch", "envs")),
    }
    old_dev = _poetry_list(table_of(poetry, "dev-dependencies"))
    uv_dev = texts_of(table_of(tool, "uv").get("dev-dependencies"))
    tests = {name: value for name, value in (extras | groups).items() if GROUP.fullmatch(name)}
    if old_dev or uv_dev:
        tests["dev"] = (*tests.get("dev", ()), *old_dev, *uv_dev)
    legacy_tox = table_of(tool, "tox").get("legacy_tox_ini")
    tox = read_ini(legacy_tox) if isinstance(legacy_tox, str) else Declared()
    backend = str(build.get("build-backend", ""))
    needs = texts_of(build.get("requires"))
    scm = table_of(tool, "setuptools_scm") | table_of(tool, "setuptools-scm")
    written = {"write_to", "version_file", "version-file"} & scm.keys()
    hooks = table_of(tool, "hatch", "build", "hooks", "vcs") or table_of(
        tool, "pdm", "version"
    ).get("write_to")
    return Declared(
        name=str(project.get("name") or poetry.get("name") or ""),
        version=literal_of(project.get("version")) or literal_of(poetry.get("version")),
        python=str(
            project.get("requires-python")
            or _caret(str(table_of(poetry, "dependencies").get("python", "")))
        ),
        minors=(*minors_of(texts_of(project.get("classifiers") or poetry.get("classifiers"))),)
        or tox.minors,
        requires=texts_of(project.get("dependencies"))
        or _poetry_list(table_of(poetry, "dependencies")),
        tests=tests | dict(tox.tests),
        includes=tox.includes,
        extras=extras,
        wants=tox.wants,
        entry_points=_entry_points(project, poetry),
        build=needs,
        backend=backend or ("setup.py" if project or build else ""),
        compiled=backend.startswith(("maturin", "mesonpy", "scikit_build_core", "setuptools_rust"))
        or any(re.match(r"(?i)(cython|pybind11|setuptools-rust|cffi)\b", each) for each in needs),
        generated=bool(written or hooks),
        runners=(("pytest",) if "pytest" in tool else ()) + tox.runners,
    )


def read_pipfile(text: str) -> Declared:
    """Pipfile."""
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return Declared()
    version = str(table_of(tables, "requires").get("python_version", ""))
    tests = _poetry_list(table_of(tables, "dev-packages"))
    return Declared(
        minors=(version,) if version else (),
        requires=_poetry_list(table_of(tables, "packages")),
        tests={"dev": tests} if tests else {},
    )


def read_lock(text: str) -> dict[str, str]:
    """Version by name in uv.lock, poetry.lock or pdm.lock; names with two versions are left out."""
    try:
        packages = tomllib.loads(text).get("package", [])
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    versions: dict[str, set[str]] = {}
    for each in packages if isinstance(packages, list) else ():
        if isinstance(each, dict) and each.get("name") and literal_of(each.get("version")):
            source = each.get("source")
            own = isinstance(source, dict) and {"editable", "virtual", "git", "url"} & source.keys()
            if not own:
                versions.setdefault(str(each["name"]), set()).add(str(each["version"]))
    return {name: found.pop() for name, found in versions.items() if len(found) == 1}


def _groups(table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """PEP 735's groups with what they include."""

    def expand(name: str, above: tuple[str, ...]) -> Iterator[str]:
        for each in table.get(name, ()) if name not in above else ():
            if isinstance(each, str):
                yield each
            elif isinstance(each, dict) and isinstance(each.get("include-group"), str):
                yield from expand(each["include-group"], (*above, name))

    return {name: tuple(dict.fromkeys(expand(name, ()))) for name in table}


def _hatch(envs: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, table in envs.items():
        words = texts_of(table_of(table).get("dependencies")) + texts_of(
            table_of(table).get("extra-dependencies")
        )
        if words and (name == "default" or GROUP.fullmatch(name) or name.startswith("hatch-test")):
            found["test" if name != "dev" else "dev"] = words
    return found


def _poetry_list(table: Mapping[str, Any]) -> tuple[str, ...]:
    """poetry's and pipenv's tables as requirements; what lies at paths and in git is left out."""
    found = []
    for name, value in table.items():
        if name == "python":
            continue
        given = value[0] if isinstance(value, list) and value else value
        extras = ""
        if isinstance(given, dict):
            if {"path", "git", "url", "file"} & given.keys() or given.get("optional"):
                continue
            extras = f"[{','.join(texts_of(given.get('extras')))}]" if given.get("extras") else ""
            given = given.get("version", "*")
        found.append(f"{name}{extras}{_caret(str(given))}")
    return tuple(found)


def _caret(version: str) -> str:
    """poetry's `^1.2`, `~1.2` and `1.2.*` as PEP 440 writes them."""
    parts = []
    for part in re.split(r"\s*,\s*", version.partition("||")[0].strip()):
        found = re.fullmatch(r"([~^])\s*v?(\d+(?:\.\d+)*)\S*", part)
        if part in ("", "*"):
            continue
        if found is None:
            parts.append(f"=={part}" if re.match(r"\d", part) else part.replace(" ", ""))
            continue
        numbers = [int(each) for each in found[2].split(".")]
        fixed = next((place for place, each in enumerate(numbers) if each), len(numbers) - 1)
        if found[1] == "~":
            fixed = min(1, len(numbers) - 1)
        upper = [*numbers[:fixed], numbers[fixed] + 1]
        parts.append(f">={found[2]},<{'.'.join(map(str, upper))}")
    return ",".join(parts)


def _entry_points(
    project: Mapping[str, Any], poetry: Mapping[str, Any]
) -> dict[str, dict[str, str]]:
    scripts = table_of(project, "scripts") or table_of(poetry, "scripts")
    tables = {"console_scripts": scripts, "gui_scripts": table_of(project, "gui-scripts")}
    tables |= table_of(project, "entry-points") or table_of(poetry, "plugins")
    found = {}
    for group, table in tables.items():
        texts = {name: value for name, value in table_of(table).items() if isinstance(value, str)}
        if texts:
            found[group] = texts
    return found
