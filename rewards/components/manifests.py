"""Reads the requirements that a manifest names, as text, one each. Nothing is executed."""

from __future__ import annotations

import ast
import configparser
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Reader = Callable[[str], Iterable[str]]
REQUIREMENTS = re.compile(r"(.*[-_.])?(requirements?|reqs|requires)([-_.].*)?\.(txt|in|pip)")
FOLDERS = ("requirements", "reqs", "requires")
ARGUMENTS = ("install_requires", "setup_requires", "tests_require", "extras_require", "requires")
"""Of setuptools' setup()."""
NODES_LIMIT = 100_000
"""Of a setup.py."""


class Unreadable(Exception):
    """A manifest can't be read; `str()` is why."""


def reader_of(path: str) -> Reader | None:
    """What reads the manifest at a path; None when it is none. A reader raises Unreadable."""
    folder, _, name = path.rpartition("/")
    if name in READERS:
        return READERS[name]
    if REQUIREMENTS.fullmatch(name):
        return read_requirements
    if name.endswith((".txt", ".in")) and folder.rpartition("/")[2] in FOLDERS:
        return read_requirements
    return None


def read_requirements(text: str) -> Iterator[str]:
    """A requirements file of pip's, without the files that it includes."""
    for line in text.replace("\\\n", " ").split("\n"):
        word = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        egg = re.search(r"#egg=([\w.-]+)", line)
        if egg and "://" in line:
            yield egg[1]
        elif word and not re.match(r"[-./]|[a-z+]+://", word):
            yield re.split(r"\s--?\w", word, maxsplit=1)[0]


def read_pyproject(text: str) -> Iterator[str]:
    """pyproject.toml: PEP 621 and 735, the build's own, and the tables of poetry, uv, pdm, hatch.

    Extras of the project itself are no package.
    """
    document = _toml(text)
    project, tool = _table(document, "project"), _table(document, "tool")
    poetry = _table(tool, "poetry")
    own = {_plain(table.get("name")) for table in (project, poetry)}
    lists = [
        _table(document, "build-system").get("requires"),
        project.get("dependencies"),
        *_table(project, "optional-dependencies").values(),
        *_table(document, "dependency-groups").values(),
        _table(tool, "uv").get("dev-dependencies"),
        *_table(tool, "pdm", "dev-dependencies").values(),
    ]
    for environment in _table(tool, "hatch", "envs").values():
        lists += [_table(environment).get(key) for key in ("dependencies", "extra-dependencies")]
    tables = [_table(poetry, "dependencies"), _table(poetry, "dev-dependencies")]
    tables += [_table(group, "dependencies") for group in _table(poetry, "group").values()]
    named = [text for each in lists for text in _texts(each)]
    named += [text for table in tables for text in _keyed(table)]
    for requirement in named:
        if _plain(re.split(r"[\[\s<>=!~;@]", requirement, maxsplit=1)[0]) not in own:
            yield requirement


def read_pipfile(text: str) -> Iterator[str]:
    """Pipfile."""
    document = _toml(text)
    yield from _keyed(_table(document, "packages"))
    yield from _keyed(_table(document, "dev-packages"))


def read_setup_cfg(text: str) -> Iterator[str]:
    """setup.cfg of setuptools."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as problem:
        raise Unreadable(str(problem).partition("\n")[0][:200]) from None
    values = [
        parser.get("options", key, fallback="")
        for key in ("install_requires", "setup_requires", "tests_require")
    ]
    if parser.has_section("options.extras_require"):
        values += [value for _, value in parser.items("options.extras_require")]
    for value in values:
        for line in value.replace(";\n", "\n").split("\n"):
            word = line.partition("#")[0].strip()
            if word and not word.startswith("file:"):
                yield word


def read_setup_py(text: str) -> Iterator[str]:
    """setup.py: the literal texts in the arguments of setup() that list requirements, and in what
    is assigned to the names that those arguments are made of."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise Unreadable(f"no Python that can be parsed: {type(problem).__name__}") from None
    assigned: dict[str, list[ast.expr]] = {}
    waiting: list[ast.expr] = []
    for node in _walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                name = target.value if isinstance(target, ast.Subscript) else target
                if isinstance(name, ast.Name):
                    assigned.setdefault(name.id, []).append(node.value)
        elif isinstance(node, ast.Call):
            waiting += [each.value for each in node.keywords if each.arg in ARGUMENTS]
    taken: set[str] = set()
    while waiting:
        for leaf in _leaves(waiting.pop()):
            if isinstance(leaf, ast.Name) and leaf.id not in taken:
                taken.add(leaf.id)
                waiting += assigned.get(leaf.id, [])
            elif isinstance(leaf, ast.Constant) and isinstance(leaf.value, str):
                yield from (line.strip() for line in leaf.value.split("\n") if line.strip())


def read_conda(text: str) -> Iterator[str]:
    """environment.yml, in the plain form that conda writes: what its `dependencies` list, pip's
    too."""
    inside = False
    for line in text.split("\n"):
        if re.match(r"[^\s#-]", line):
            inside = line.startswith("dependencies:")
            continue
        item = re.match(r"\s*-\s+[\"']?(?:[\w.-]{1,100}::)?([A-Za-z0-9][^\s\"'#]*)", line)
        if inside and item and not item[1].endswith(":") and "://" not in item[1]:
            word = re.split(r"(?<![=<>!~])=(?!=)", item[1], maxsplit=1)
            if word[0].lower() not in ("python", "pip"):
                yield word[0]


def read_package_json(text: str) -> Iterator[str]:
    """package.json: the names alone."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise Unreadable(f"no JSON: {str(problem)[:100]}") from None
    for key in ("dependencies", "devDependencies", "peerDependencies", "optionalDependencies"):
        yield from _table(document, key)


READERS: dict[str, Reader] = {
    "pyproject.toml": read_pyproject,
    "Pipfile": read_pipfile,
    "setup.cfg": read_setup_cfg,
    "setup.py": read_setup_py,
    "environment.yml": read_conda,
    "environment.yaml": read_conda,
    "package.json": read_package_json,
}


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        raise Unreadable(f"no TOML: {str(problem)[:100]}") from None


def _table(value: object, *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, str))


def _keyed(table: dict[str, Any]) -> Iterator[str]:
    """Requirements by name, as poetry and Pipfile have them; a plain version is a pin."""
    for name, told in table.items():
        version = told.get("version") if isinstance(told, dict) else told
        exact = re.fullmatch(r"(?:==)?(\d[\w.]*)", version) if isinstance(version, str) else None
        if name.lower() != "python":
            yield f"{name}=={exact[1]}" if exact else name


def _plain(name: object) -> str:
    return re.sub(r"[-_.]+", "-", name).lower() if isinstance(name, str) else ""


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    for count, node in enumerate(ast.walk(tree)):
        if count > NODES_LIMIT:
            raise Unreadable(f"more than {NODES_LIMIT} nodes")
        yield node


def _leaves(node: ast.expr) -> Iterator[ast.expr]:
    """The names and constants of lists, of the values of dictionaries, and of sums of them."""
    waiting: list[ast.expr | None] = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Dict):
            waiting += each.values
        elif isinstance(each, (ast.List, ast.Tuple, ast.Set)):
            waiting += each.elts
        elif isinstance(each, ast.BinOp):
            waiting += [each.left, each.right]
        elif isinstance(each, ast.Starred):
            waiting.append(each.value)
        elif isinstance(each, (ast.Name, ast.Constant)):
            yield each
