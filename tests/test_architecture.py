"""Imports go one way: sandbox <- datasets <- agent <- rewards <- trainer; and stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ORDER = ("sandbox", "datasets", "agent", "rewards", "trainer")


def imported_parts(path: Path) -> Iterator[str]:
    """The patchgym folders that a file imports, absolute imports only."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module]
            if node.module == "patchgym":
                names = [f"patchgym.{alias.name}" for alias in node.names]
        for name in names:
            first, _, rest = name.partition(".")
            if first == "patchgym" and rest:
                yield rest.partition(".")[0]


@pytest.mark.parametrize("part", ORDER)
def test_a_folder_imports_only_itself_and_those_to_its_left(part: str, root: Path) -> None:
    allowed = set(ORDER[: ORDER.index(part) + 1])
    files = sorted((root / part).rglob("*.py"))
    assert files
    wrong = {
        f"{file.relative_to(root)}: {name}"
        for file in files
        for name in imported_parts(file)
        if name in ORDER and name not in allowed
    }
    assert not wrong


def test_the_check_sees_a_wrong_import(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text("from patchgym import trainer\nfrom patchgym.rewards.base import Score\n")
    assert set(imported_parts(file)) == {"trainer", "rewards"}


def test_datasets_is_no_regular_package(root: Path) -> None:
    assert not (root / "datasets" / "__init__.py").exists()


HEAVY = ("jax", "flax", "torch", "docker", "matplotlib", "pydantic", "rich", "numpy")


@pytest.mark.parametrize("part", ["sandbox", "agent", "trainer", "trainer.cli"])
def test_importing_a_part_is_light(part: str) -> None:
    allowed = {"trainer.cli": (), "trainer": (), "sandbox": (), "agent": ()}[part]
    code = (
        f"import sys, patchgym.{part}\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules and m not in {allowed!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("part", ["sandbox", "agent", "rewards"])
def test_exports_exist_and_are_sorted_by_nothing_but_their_list(part: str) -> None:
    module = __import__(f"patchgym.{part}", fromlist=["__all__"])
    assert module.__all__
    missing = [name for name in module.__all__ if not hasattr(module, name)]
    assert not missing
    assert len(set(module.__all__)) == len(module.__all__)


def test_every_module_says_what_it_is(root: Path) -> None:
    silent = [
        str(file.relative_to(root))
        for part in (*ORDER, "tests", "benchmarks")
        for file in (root / part).rglob("*.py")
        if not ast.get_docstring(ast.parse(file.read_text()))
    ]
    assert not silent
