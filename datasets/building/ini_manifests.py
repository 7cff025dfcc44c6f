"""setup.cfg and tox.ini, which are read alike."""

from __future__ import annotations

import configparser
import re

from .declared import GROUP, Declared, assignments_of, lines_of, minors_of, runners_of
from .line_manifests import read_requirements


def read_ini(text: str) -> Declared:
    """setup.cfg and tox.ini, whose sections may stand in one file."""
    parser = configparser.RawConfigParser(strict=False, inline_comment_prefixes=("#",))
    try:
        parser.read_string(text)
    except configparser.Error:
        return Declared()

    def value(section: str, *names: str) -> str:
        return next(
            (parser.get(section, n) for n in names if parser.has_option(section, n)),
            "",
        )

    extras = {
        name: lines_of(parser.get("options.extras_require", name))
        for name in (
            parser.options("options.extras_require")
            if parser.has_section("options.extras_require")
            else ()
        )
    }
    entry_points = {
        group: assignments_of(parser.get("options.entry_points", group))
        for group in (
            parser.options("options.entry_points")
            if parser.has_section("options.entry_points")
            else ()
        )
    }
    deps, includes, constraints = _tox_deps(parser)
    commands = " ".join(
        parser.get(section, "commands", fallback="")
        for section in parser.sections()
        if section.startswith("testenv")
    )
    tests = {name: found for name, found in extras.items() if GROUP.fullmatch(name)}
    if value("options", "tests_require"):
        tests["tests"] = (*tests.get("tests", ()), *lines_of(value("options", "tests_require")))
    if deps:
        tests["tox"] = deps
    pytest = any(parser.has_section(name) for name in ("tool:pytest", "pytest"))
    version = value("metadata", "version")
    return Declared(
        name=value("metadata", "name"),
        version=version if re.match(r"\d", version) else "",
        python=value("options", "python_requires", "requires-python"),
        minors=minors_of(lines_of(value("metadata", "classifiers", "classifier")))
        or _env_minors(value("tox", "envlist", "env_list")),
        requires=lines_of(value("options", "install_requires")),
        tests=tests,
        includes=includes,
        constraints=constraints,
        extras=extras,
        wants=tuple(
            re.findall(
                r"[\w-]+",
                " ".join(
                    (
                        value("testenv", "extras"),
                        value("testenv", "groups"),
                        value("testenv", "dependency_groups"),
                    )
                ),
            )
        ),  # fmt: skip
        entry_points=entry_points,
        backend="setup.py" if parser.has_section("metadata") else "",
        runners=runners_of(commands) or (("pytest",) if pytest else ()),
    )


def _env_minors(envlist: str) -> tuple[str, ...]:
    words = re.findall(r"py\{([^}]*)\}|py3\.?(\d+)", envlist)
    minors = []
    for braces, single in words:
        minors += [single] if single else re.findall(r"3\.?(\d+)", braces)
    return tuple(f"3.{minor}" for minor in dict.fromkeys(minors))


def _tox_deps(
    parser: configparser.RawConfigParser,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Requirements, requirements files and constraints of [testenv]; lines for some factors only
    are left out, but for those that name a Python or `test`."""
    text = parser.get("testenv", "deps", fallback="")
    for section, option in re.findall(r"\{\[([^\]]+)\](\w+)\}", text):
        other = parser.get(section, option, fallback="")
        text = text.replace(f"{{[{section}]{option}}}", other)
    lines = []
    for line in lines_of(text):
        factor = re.match(r"([\w!,{}.-]+)\s*:\s+(.*)$", line)
        if factor is None:
            lines.append(line)
        elif re.fullmatch(r"(py3\d*|tests?|unit)", factor[1]):
            lines.append(factor[2])
    read = read_requirements("\n".join(lines).replace("{toxinidir}/", ""))
    plain = tuple(each for each in read.requires if "{" not in each)
    return plain, read.includes, read.constraints
