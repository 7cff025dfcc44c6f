"""Recipes: what the file may say, how errors read, which version gets which recipe."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.datasets.environment import Environment
from patchgym.datasets.recipes import (
    OFFICIAL_PATH,
    Recipe,
    RecipeError,
    _Table,
    find_recipe,
    load_recipes,
)

TWELVE = (
    "astropy/astropy", "django/django", "matplotlib/matplotlib", "mwaskom/seaborn",
    "pallets/flask", "psf/requests", "pydata/xarray", "pylint-dev/pylint", "pytest-dev/pytest",
    "scikit-learn/scikit-learn", "sphinx-doc/sphinx", "sympy/sympy",
)  # fmt: skip
FULL = """
[[recipe]]
repo = "ada/shop"
versions = ["1.7", ">=3.0,<4"]
base = "debian:bullseye"
packages = ["python3-pip", "git"]
setup = ["python3 -m pip install six==1.16.0"]
install = ["python3 -m pip install -e ."]
test_command = "python3 -m pytest {test_files}"
report = "pytest"
environment = { LANG = "C" }
timeout_seconds = 60

[[recipe]]
repo = "ada/shop"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "recipes.toml"
    path.write_text(text)
    return path


def recipe(*versions: str, repo: str = "ada/shop") -> Recipe:
    return Recipe(repo=repo, versions=versions, environment=Environment())


def test_every_key_is_read(tmp_path: Path) -> None:
    full, short = load_recipes(written(tmp_path, FULL))
    assert full == Recipe(
        repo="ada/shop",
        versions=("1.7", ">=3.0,<4"),
        environment=Environment(
            base="debian:bullseye",
            packages=("python3-pip", "git"),
            setup=("python3 -m pip install six==1.16.0",),
            install=("python3 -m pip install -e .",),
            test_command="python3 -m pytest {test_files}",
            report="pytest",
            variables={"LANG": "C"},
            timeout=60.0,
        ),
    )
    assert short == Recipe(repo="ada/shop", environment=Environment())


def test_a_ready_image_shares_its_folder_and_path_with_the_recipe(tmp_path: Path) -> None:
    text = '[[recipe]]\nrepo = "ada/shop"\nimage = "hub/eval.{id}:latest"\n'
    own = 'workdir = "/src"\nenvironment = { PATH = "/usr/bin" }\n'
    (made,) = load_recipes(written(tmp_path, text))
    assert made.image_of("Ada__shop-12") == "hub/eval.ada_1776_shop-12:latest"
    assert made.environment.workdir == "/testbed"
    assert made.environment.variables == {"PATH": OFFICIAL_PATH}
    (said,) = load_recipes(written(tmp_path, text + own))
    assert said.environment.workdir == "/src"
    assert said.environment.variables == {"PATH": "/usr/bin"}


def test_shipped_recipes_say_what_was_checked() -> None:
    shipped = load_recipes()
    assert {each.repo for each in shipped} == set(TWELVE)
    assert all(each.checked for each in shipped)
    assert load_recipes() is shipped
    for each in shipped:
        assert each.environment.command.kind == each.environment.report


@pytest.mark.parametrize("version", ["1.0", "1.4", "1.13", "1.14.dev", None])
def test_every_version_of_sympy_has_a_recipe(version: str | None) -> None:
    assert find_recipe(load_recipes(), "sympy/sympy", version) is not None


BAD = {
    'rep = "a/b"\n': "2: unknown key rep: did you mean repo?",
    'repo = "a/b"\ntimeout = 3\n': "3: unknown key timeout: did you mean timeout_seconds?",
    'repo = "a/b"\nzzz = 3\n': "3: unknown key zzz: use repo, versions, base",
    'base = "x"\n': "1: no key repo: add it",
    'repo = "shop"\n': "2: repo: 'shop' is no name of a repository: write owner/name",
    'repo = "a/b"\nversions = "1.7"\n': "3: versions: input should be a valid tuple, not str",
    'repo = "a/b"\nversions = ["1.x"]\n': "3: versions: '1.x' is no version: write",
    'repo = "a/b"\nversions = []\n': "3: versions: it is empty",
    'repo = "a/b"\n\nreport = "tap"\n': "4: report: test report 'tap': use pytest",
    'repo = "a/b"\nreport = "sympy"\n': "3: report: test report sympy: it needs a test command",
    'repo = "a/b"\ntest_command = "run {file}"\n': "3: test_command: test command: no placeholder",
    'repo = "a/b"\ntimeout_seconds = 0\n': "3: timeout_seconds: 0 is no time",
    'repo = "a/b"\nsetup = [" "]\n': "3: setup: one of them is empty",
    'repo = "a/b"\nworkdir = "src"\n': "3: workdir: 'src' can't hold a repository",
    'repo = "a/b"\n[recipe.environment]\n"A B" = "1"\n': "3: environment: 'A B' can't be",
    'repo = "a/b"\nenvironment = { A = 1 }\n': "3: environment.A: input should be",
    'repo = "a/b\n': "2: not TOML",
}


@pytest.mark.parametrize("body", BAD)
def test_errors_are_one_line_with_the_place(body: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"[[recipe]]\n{body}")
    with pytest.raises(RecipeError) as caught:
        load_recipes(path)
    assert str(caught.value).startswith(f"{path}:{BAD[body]}")
    assert "\n" not in str(caught.value)


def test_the_line_is_that_of_the_right_recipe(tmp_path: Path) -> None:
    path = written(tmp_path, FULL + 'bases = "x"\n')
    with pytest.raises(RecipeError, match=r"toml:16: unknown key bases: did you mean base\?"):
        load_recipes(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: no recipe in it"),
        ('recipe = "x"\n', ":1: no recipe in it"),
        ("[recipes]\n", r":1: unknown key recipes: did you mean recipe\?"),
        ("recipe = [1]\n", ":1: a recipe is a table"),
    ],
)
def test_a_file_without_recipes(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipes(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="No such file"):
        load_recipes(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    with pytest.raises(RecipeError, match="not UTF-8"):
        load_recipes(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("specifier", "version", "fits"),
    [
        ("*", "1.7", True),
        ("*", None, True),
        ("*", "trunk", True),
        ("1.7", "1.7", True),
        ("1.7", "1.7.0", True),
        ("1.7", "1.70", False),
        ("1.7", None, False),
        (">=3.0,<4", "3.0", True),
        (">=3.0,<4", "3.2.dev1", True),
        (">=3.0,<4", "4.0", False),
        (">=3.0,<4", "trunk", False),
        (">=1.9,<1.11", "1.10", True),
    ],
)
def test_versions(specifier: str, version: str | None, fits: bool) -> None:
    assert recipe(specifier).fits("ada/shop", version) is fits
    assert not recipe(specifier).fits("ada/shops", version)


def test_the_first_that_fits_counts() -> None:
    own, rest = recipe("1.7"), recipe("*")
    assert find_recipe((own, rest), "ada/shop", "1.7") is own
    assert find_recipe((own, rest), "ada/shop", "1.8") is rest
    assert find_recipe((own,), "ada/shop", "1.8") is None


@given(st.lists(st.integers(0, 30), min_size=1, max_size=3), st.integers(0, 30))
def test_a_range_holds_what_lies_in_it(numbers: list[int], last: int) -> None:
    version = ".".join(map(str, numbers))
    below = ".".join(map(str, [*numbers[:-1], max(numbers[-1] - 1, 0)]))
    assert recipe(version).fits("ada/shop", version)
    assert recipe(f">={version}").fits("ada/shop", version)
    assert recipe(f">={below}").fits("ada/shop", version)
    assert not recipe(f"<{version}").fits("ada/shop", version)
    assert recipe(f"{version}").fits("ada/shop", f"{version}.{last}") is (last == 0)


def test_the_example_of_the_page_holds(root: Path, tmp_path: Path) -> None:
    page = (root / "docs" / "recipes.md").read_text()
    example = page.partition("<!-- example -->\n```toml\n")[2].partition("```")[0]
    (made,) = load_recipes(written(tmp_path, example))
    assert made.repo == "ada/shop" and made.environment.base == "bullseye"
    keys = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert keys == {field.name for field in fields(_Table)}


def test_the_page_names_every_recipe_that_is_shipped(root: Path) -> None:
    page = (root / "docs" / "recipes.md").read_text()
    assert all(f"| {each.repo} |" in page for each in load_recipes())
