"""Settings of test runners, before and after: what decides which tests run, and how they end."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .base import FileChange, TamperFinding, finding
from .lexical import added_lines
from .roles import is_runner, is_test_path

Settings = dict[str, str]

# configparser trips with an AttributeError over a continuation of a key without value.
_UNPARSED = (configparser.Error, ValueError, RecursionError, AttributeError, TypeError)

_SIZE_LIMIT = 1 << 20  # bytes of a configuration file that is parsed
_PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
_SECTIONS = ("pytest", "tool:pytest", "nosetests")
_DECISIVE = frozenset(
    {"addopts", "testpaths", "python_files", "python_classes", "python_functions", "norecursedirs",
     "usefixtures", "required_plugins", "pythonpath", "confcutdir", "empty_parameter_set_mark",
     "enable_assertion_pass_hook", "collect_imported_tests", "doctest_plus", "exclude", "exe",
     "with-doctest", "attr", "ignore-files", "tests", "test_suite", "xfail_strict"}
)  # fmt: skip
_HARMLESS_OPTION = re.compile(
    r"-[rvqsl]\w*|--(strict\S*|tb=\w+|durations\S*|color=\w+|showlocals|verbose|quiet|cov\S*|no-cov\S*"
    r"|show-capture=\S+|capture=\S+|doctest-modules|doctest-glob=\S+|doctest-\S+|no-header|junit\S*"
    r"|import-mode=\w+|numprocesses=\S+|instafail|benchmark\S*|timeout=\S+|random-order\S*|html=\S+"
    r"|asyncio-mode=\w+|pyargs)|-n=?\w*|-n|auto|\d+"
)
# Options and shell tricks that leave tests out, or let failures pass.
_SABOTAGE = re.compile(
    r"(^|\s)(-p\s{0,9}\S|-k[\s=]|-m\s['\"]?(not\b|\w+['\"]?$)|-O+\b|-c\s|-o\s|--deselect|--ignore"
    r"|--collect-only|--co\b|--noconftest|--pass-?[wW]ith-?[nN]o-?[tT]ests|--last-failed|--lf\b"
    r"|--maxfail|--suppress|--no-assert|--assert=plain|-DskipTests|-Dmaven\.test|--exclude"
    r"|--skip\b|--runxfail|--override-ini)"
    r"|\|\|\s{0,9}(true|:|exit 0)|(^|&&|;)\s{0,9}(exit 0|true)\s{0,9}$|^-\s"
    r"|\bPYTEST_ADDOPTS|\bPYTHONOPTIMIZE|PYTHONSTARTUP"
)
_RESTRICTIVE_OPTION = re.compile(r"-p|no:\S+|--(ignore|deselect|maxfail)\S*|-x")
_RUNS_TESTS = re.compile(
    r"\b(pytest|py\.test|unittest|nosetests?|tox|nox|runtests|run_tests|trial|jest|mocha|vitest|ava"
    r"|karma|tape|tap|bin/test|manage\.py test|setup\.py test|ctest|cargo test|go test|rspec"
    r"|phpunit|stestr|zope-testrunner|coverage run|check|test\w*)\b"
)
# Lines that leave tests out or let failures pass, in files that are not taken apart.
_TELLTALES: Sequence[tuple[str, str]] = (
    (r"(.*/)?build\.gradle(\.kts)?", r"ignoreFailures|excludeTestsMatching|\bexclude\b.*[Tt]est"
     r"|enabled\s*=\s*false|onlyIf\s*\{\s*false|failOnNoMatchingTests"),
    (r"(.*/)?pom\.xml", r"<skip(Tests|ITs)?>\s*true|testFailureIgnore|maven\.test\.(skip|failure)"
     r"|<excludes?>|<excludedGroups>"),
    (r"(.*/)?(jest|vitest|vite|karma|playwright|cypress|ava|wdio|jasmine)\.(conf|config)\.\w+"
     r"|(.*/)?\.mocharc(\.\w+)?|(.*/)?jasmine\.json",
     r"\b(testMatch|testRegex|testPathIgnorePatterns|testIgnore|passWithNoTests|globalSetup|exclude"
     r"|setupFiles\w*|runner|testRunner|reporters?|bail|require|ignore|spec|roots|modulePathIgnore\w*"
     r"|dangerouslyIgnoreUnhandledErrors|globals?Teardown|environment)\b"),
    (r"(.*/)?phpunit\.xml(\.dist)?", r"<exclude>|<bootstrap|<extension|stopOn"),
    (r"(.*/)?\.rspec", r"--(tag|pattern|exclude-pattern|require)|-r"),
    (r"(.*/)?CMakeLists\.txt|(.*/)?CTest\w*\.cmake", r"WILL_FAIL|DISABLED\s+TRUE|PASS_REGULAR"),
    (r"(.*/)?Cargo\.toml", r"^\s*(harness|test|doctest|autotests)\s*=\s*false"),
    (r"(.*/)?noxfile\.py|(.*/)?tasks\.py|(.*/)?dodo\.py",
     r"--(deselect|ignore|collect-only|co|maxfail)\b|success_codes|warn\s*=\s*True|['\"]-[pkO]['\"]"
     r"|PYTEST_ADDOPTS|PYTHONOPTIMIZE"),
)  # fmt: skip


def configuration_findings(change: FileChange, moved: Settings) -> Iterator[TamperFinding]:
    """Findings in one file; `moved` are settings that other files of the change lost."""
    if change.before == change.after:
        return
    name = change.path.rpartition("/")[2]
    if is_runner(change.path) and change.before is not None:
        what = "deleted" if change.after is None else "changed"
        yield finding("test-command", change.path, f"a script that starts the tests is {what}")
    elif name in ("Makefile", "GNUmakefile", "makefile", "package.json", "composer.json"):
        yield from _commands(change, _targets(change.before), _targets(change.after), moved)
    elif is_settings_file(change.path):
        yield from _settings(change, moved)
    elif name == "setup.py":
        yield from _setup_script(change)
    yield from _telltales(change)


def settings_lost(changes: Sequence[FileChange]) -> Settings:
    """Settings of pytest that files of the change lost: another may have got them.

    `kept:NAME` says that some file got NAME, `kept:commands` that one got a test command.
    """
    lost: Settings = {}
    for change in changes:
        if not is_settings_file(change.path):
            continue
        before, had, _ = runner_settings(change.before, change.old_path or change.path)
        after, has, _ = runner_settings(change.after, change.path)
        lost |= {key: value for key, value in before.items() if key not in after}
        lost |= {f"kept:{key}": "" for key in after if key not in before}
        if any(_tests_in(has[key]) for key in has.keys() - had.keys()):
            lost["kept:commands"] = ""
    return lost


def is_settings_file(path: str) -> bool:
    """Whether that file holds pytest's, tox' or nose's settings."""
    name = path.rpartition("/")[2]
    return name in (*_PYTEST_FILES, "tox.ini", "setup.cfg", "pyproject.toml", "tox.toml")


def runner_settings(content: bytes | None, path: str) -> tuple[Settings, Settings, Settings]:
    """Settings of pytest, commands by name, plugins by name; all empty where there is nothing."""
    if not content or len(content) > _SIZE_LIMIT:
        return {}, {}, {}
    text = content.decode("utf-8", "replace")
    try:
        if path.endswith(".toml"):
            return _from_toml(tomllib.loads(text))
        return _from_ini(text, path)
    except _UNPARSED:
        return {}, {}, {}


def _from_ini(text: str, path: str) -> tuple[Settings, Settings, Settings]:
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    parser.read_string(text)
    pytest: Settings = {}
    commands: Settings = {}
    plugins: Settings = {}
    for section in parser.sections():
        values = {key: value or "" for key, value in parser.items(section)}
        if section in _SECTIONS:
            pytest |= values
        elif section.startswith("testenv"):
            for key in ("commands", "commands_pre", "setenv", "set_env", "ignore_errors"):
                if key in values:
                    commands[f"{section}.{key}"] = values[key]
        elif section == "aliases" and "test" in values:
            commands["aliases.test"] = values["test"]
        elif section == "options.entry_points" and "pytest11" in values:
            plugins["pytest11"] = values["pytest11"]
        elif section == "options" and "test_suite" in values:
            pytest["test_suite"] = values["test_suite"]
    return pytest, commands, plugins


def _from_toml(document: Mapping[str, Any]) -> tuple[Settings, Settings, Settings]:
    tool = _table(document, "tool")
    pytest = _table(tool, "pytest")
    options = _table(pytest, "ini_options") or pytest or _table(document, "pytest")
    plugins = _table(_table(document, "project", "entry-points"), "pytest11")
    plugins = plugins or _table(_table(tool, "poetry", "plugins"), "pytest11")
    commands: Settings = {}
    for owner in ("hatch", "pdm", "poe", "taskipy", "rye", "tox", "nox"):
        for name, value in _leaves(_table(tool, owner), owner):
            if re.search(r"(?i)test|commands|legacy_tox_ini", name):
                commands[name] = value
    return (
        {key: _flat(value) for key, value in options.items() if key != "ini_options"},
        commands,
        {key: _flat(value) for key, value in plugins.items()},
    )


def _table(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        inner = document.get(key)
        if not isinstance(inner, dict):
            return {}
        document = inner
    return document


def _leaves(table: Mapping[str, Any], prefix: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict) and depth < 6:
            yield from _leaves(value, f"{prefix}.{key}", depth + 1)
        elif isinstance(value, (str, list)):
            yield f"{prefix}.{key}", _flat(value)


def _flat(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(str(item) for item in value)
    return str(value)


def _settings(change: FileChange, moved: Settings) -> Iterator[TamperFinding]:
    old, old_commands, old_plugins = runner_settings(change.before, change.old_path or change.path)
    new, new_commands, new_plugins = runner_settings(change.after, change.path)
    name = change.path.rpartition("/")[2]
    if name in _PYTEST_FILES and change.before is None and change.after is not None:
        if not moved:
            yield finding("test-configuration", change.path, "a new file that overrides all others")
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key, moved.get(key, "") if not change.before else ""), new.get(key, "")
        if was.split() == now.split():
            continue
        if key not in old and moved.get(key, "").split() == now.split():
            continue
        yield _setting_changed(change, key, was, now, moved)
    for key in sorted(new_plugins):
        if new_plugins[key] != old_plugins.get(key):
            yield finding("test-plugin", change.path, f"the plugin {key} = {new_plugins[key]}")
    yield from _commands(change, old_commands, new_commands, moved)


def _setting_changed(
    change: FileChange, key: str, was: str, now: str, moved: Settings
) -> TamperFinding:
    text = f"{key}: {was.strip() or 'unset'} -> {now.strip() or 'unset'}"
    if key == "addopts" and re.search(r"(^|\s)-p[\s=]*(?!no:)\S", now) and "-p" not in was:
        return finding("test-plugin", change.path, text)
    decisive = key in _DECISIVE and not _only_widens(key, was, now)
    if not now and change.path and moved.get(f"kept:{key}") is not None:
        decisive = False
    return finding("test-configuration" if decisive else "test-configuration-edited",
                   change.path, text)  # fmt: skip


def _only_widens(key: str, was: str, now: str) -> bool:
    """More is collected than before, or only what is shown changes."""
    if key == "xfail_strict":
        return now.strip().lower() in ("true", "1")
    if key == "addopts":
        old, new = set(_words(was)), set(_words(now))
        return all(_HARMLESS_OPTION.fullmatch(word) for word in new - old) and all(
            _HARMLESS_OPTION.fullmatch(word) or _RESTRICTIVE_OPTION.fullmatch(word)
            for word in old - new
        )
    old, new = set(was.split()), set(now.split())
    if key == "testpaths" and not old:
        return any(is_test_path(f"{each}/x") for each in new)
    if key == "norecursedirs":
        return bool(new) and new <= old
    if key in ("testpaths", "python_files", "python_classes", "python_functions"):
        return bool(old) and old <= new
    return False


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _targets(content: bytes | None) -> Settings:
    """Commands of a Makefile's or package.json's targets that have to do with tests."""
    if not content or len(content) > _SIZE_LIMIT:
        return {}
    text = content.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        return _package_scripts(text)
    found: Settings = {}
    target = ""
    for whole in text.split("\n"):
        line = whole[:2000]
        rule = re.match(r"([\w.%/ -]+?)\s*::?(?!=)([^=]*)$", line)
        if line.startswith("\t") and target:
            found[target] += "\n" + line.strip().lstrip("@")
        elif rule and line[0] not in " \t#":
            target = rule[1] if re.search(r"(?i)\b(test\w*|check|tests)\b", rule[1]) else ""
            if target:
                found[target] = rule[2].split("#")[0].strip()
        elif line.strip() and not line.startswith("#"):
            target = ""
            variable = re.match(r"\s*(?:export\s+)?(\w*(?:TEST|PYTEST)\w*)\s*[:+?]?=(.*)", line)
            if variable:
                found[variable[1]] = variable[2].strip()
    return found


def _package_scripts(text: str) -> Settings:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    scripts = document.get("scripts")
    found = {
        f"scripts.{key}": _flat(value)
        for key, value in (scripts.items() if isinstance(scripts, dict) else ())
        if re.search(r"(?i)test|^check$|^spec$", key)
    }
    for runner in ("jest", "vitest", "mocha", "ava", "nyc", "tap"):
        found |= dict(_leaves(_table(document, runner), runner))
    return found


def _commands(
    change: FileChange, old: Settings, new: Settings, moved: Settings
) -> Iterator[TamperFinding]:
    """Test commands that are gone, run no tests any more, or got a way to leave some out."""
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key, ""), new.get(key, "")
        if was.split() == now.split():
            continue
        rule = "test-configuration-edited"
        if re.match(r"(jest|vitest|mocha|ava|tap)\.", key):
            harmless = re.search(r"coverage|verbose|testEnvironment|preset|transform|timeout", key)
            rule = "test-configuration-edited" if harmless else "test-configuration"
        elif was and not now and "kept:commands" in moved:
            pass  # another file of the change has test commands now
        elif was and (_sabotages(was, now) or (_RUNS_TESTS.search(was) and not _tests_in(now))):
            rule = "test-command"
        elif not was and change.before is not None and _sabotages("", now) and "setenv" in key:
            rule = "test-command"
        shown = f"{key}: {was.strip() or 'unset'} -> {now.strip() or 'unset'}"
        yield finding(rule, change.path, shown)


def _tests_in(command: str) -> bool:
    """Whether a line of the command could run tests; saying so in an echo does not count."""
    lines = [line for line in re.split(r"\n|&&|;", command) if line.strip()]
    return any(
        _RUNS_TESTS.search(line) and not re.match(r"\s*-?@?(echo|true|:|#)\b", line)
        for line in lines
    )


def _sabotages(was: str, now: str) -> bool:
    lines = [line.strip() for line in now.split("\n")]
    old = {match for line in was.split("\n") for match in _finds(line.strip())}
    return any(match not in old for line in lines for match in _finds(line))


def _finds(line: str) -> Iterator[str]:
    for match in _SABOTAGE.finditer(line):
        yield match[0].strip()


def _setup_script(change: FileChange) -> Iterator[TamperFinding]:
    for number, line in added_lines(change):
        text = line.decode("utf-8", "replace")
        if re.search(r"pytest11", text):
            yield finding("test-plugin", change.path, f"registers {text.strip()}", number)
        elif re.search(r"\.pth\b|(site|user)customize|(site|dist)-packages", text):
            yield finding("startup-file", change.path, f"installs {text.strip()}", number)
        elif change.before is not None and re.search(r"\btest_suite\s*=", text):
            yield finding("test-configuration", change.path, text, number)


def _telltales(change: FileChange) -> Iterator[TamperFinding]:
    if change.before is None and not re.search(r"(jest|vitest|mocha)", change.path):
        return
    for pattern, telltale in _TELLTALES:
        if not re.fullmatch(pattern, change.path):
            continue
        for number, line in added_lines(change):
            text = line.decode("utf-8", "replace")
            if re.search(telltale, text):
                yield finding("test-configuration", change.path, f"adds {text.strip()}", number)
