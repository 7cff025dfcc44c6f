"""The tools of a repository environment, as they are shown to the model."""

from __future__ import annotations

from collections.abc import Mapping

from patchgym.agent.action import ToolCall, ToolSpec, missing_arguments

from .config import RepositoryConfig


def repository_tools(config: RepositoryConfig) -> tuple[ToolSpec, ...]:
    """`bash`, `view`, `edit`, `run_tests`, `submit`."""
    return (
        ToolSpec(
            name="bash",
            description=(
                "Run a shell command in the repository. The working directory and exported "
                "variables last from one call to the next; nothing can be typed into it. "
                f"It is stopped after {config.command_seconds:g} s."
            ),
            parameters=_parameters(["command"], command=_text("the command or script")),
        ),
        ToolSpec(
            name="view",
            description=(
                "Show a file with line numbers, or the entries of a folder, "
                f"at most {config.view_lines} lines of it at once."
            ),
            parameters=_parameters(
                ["path"],
                path=_text("file or folder, relative to the repository"),
                first=_number("first line to show, from 1"),
                last=_number("last line to show"),
            ),
        ),
        ToolSpec(
            name="edit",
            description=(
                "Replace a text in a file by another. `search` must be in the file exactly once, "
                "blanks and indentation included. An empty `search` makes a new file of `replace`."
            ),
            parameters=_parameters(
                ["path", "search", "replace"],
                path=_text("file, relative to the repository"),
                search=_text("the text that is there, without line numbers"),
                replace=_text("the text to put in its place"),
            ),
        ),
        ToolSpec(
            name="run_tests",
            description=(
                "Run tests and say what became of each: the named ones, or without names those "
                f"that go with the task. They are stopped after {config.tests_seconds:g} s."
            ),
            parameters=_parameters(
                [],
                tests={
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "test files or test ids, such as tests/test_a.py::test_x",
                },
            ),
        ),
        ToolSpec(
            name="submit",
            description="Hand in the repository as it is now. The work ends with it.",
            parameters=_parameters([]),
        ),
    )


def without_nulls(spec: ToolSpec, call: ToolCall) -> ToolCall:
    """The call without optional arguments that are null, which says that they are not given."""
    required = spec.parameters["required"]
    assert isinstance(required, list)
    given = {
        name: value
        for name, value in call.arguments.items()
        if value is not None or name in required
    }
    return ToolCall(name=call.name, arguments=given)


def unusable(spec: ToolSpec, call: ToolCall) -> str:
    """What is wrong with the arguments, in words for the policy; empty when nothing is."""
    problem = missing_arguments(spec, call)
    if problem:
        return problem
    for name, value in call.arguments.items():
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(value, list | tuple) and not isinstance(each, str):
                return f"{spec.name}: `{name}` must hold strings, not {type(each).__name__}."
            if isinstance(each, str) and (problem := _bad_text(each)):
                return f"{spec.name}: `{name}` {problem}."
    return ""


def _bad_text(text: str) -> str:
    if "\0" in text:
        return "holds a zero character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half a surrogate pair, which is no character"
    return ""


def _parameters(required: list[str], **properties: Mapping[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": required}


def _text(description: str) -> dict[str, object]:
    return {"type": "string", "description": description}


def _number(description: str) -> dict[str, object]:
    return {"type": "integer", "description": description}
