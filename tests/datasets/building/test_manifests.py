"""What each kind of manifest says of a project: every kind, in a small tree."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent

import pytest

from patchgym.datasets.building import Project, is_manifest, read_project


def read(files: Mapping[str, str], subproject: str = "") -> Project:
    """The project of a tree that is written down as text."""
    tree = {path: dedent(text).encode() for path, text in files.items()}
    project = read_project(tree, subproject)
    assert project is not None
    return project


def test_pyproject_with_a_dependency_group_that_includes_another() -> None:
    project = read(
        {
            "pyproject.toml": """
            [project]
            name = "shop-floor"
            version = "1.2"
            requires-python = ">=3.9"
            classifiers = ["Programming Language :: Python :: 3.11"]
            dependencies = ["attrs>=20"]
            [project.scripts]
            shop = "shop_floor.cli:main"
            [dependency-groups]
            base = ["pytest>=7"]
            tests = [{include-group = "base"}, "hypothesis"]
            docs = ["sphinx"]
            """,
            "src/shop_floor/__init__.py": "",
            "tests/test_a.py": "",
        }
    )
    assert (project.name, project.version, project.python) == ("shop-floor", "1.2", ">=3.9")
    assert project.minors == ("3.11",)
    assert project.requires == ("attrs>=20",)
    assert project.tests == ("pytest>=7", "hypothesis")
    assert project.entry_points == {"console_scripts": {"shop": "shop_floor.cli:main"}}
    assert project.sources == ("src", ".")
    assert project.test_folders == ("tests",)
    assert project.installable
    assert not project.compiled


def test_an_extra_of_itself_is_replaced_by_what_it_holds() -> None:
    project = read(
        {
            "pyproject.toml": """
            [project]
            name = "shop"
            [project.optional-dependencies]
            web = ["flask"]
            tests = ["pytest", "shop[web]"]
            """
        }
    )
    assert project.tests == ("pytest", "flask")


def test_setup_cfg_with_tox() -> None:
    project = read(
        {
            "setup.cfg": """
            [metadata]
            name = shop
            version = attr: shop.__version__
            classifiers =
                Programming Language :: Python :: 3.8
            [options]
            python_requires = >=3.8
            install_requires =
                attrs  # classes
                click>=8
            [options.extras_require]
            testing =
                pytest
            [options.entry_points]
            console_scripts =
                shop = shop.cli:main
            """,
            "setup.py": "from setuptools import setup\nsetup()\n",
            "tox.ini": """
            [tox]
            envlist = py{38,39},lint
            [testenv]
            extras = testing
            deps =
                freezegun
                py38: importlib-resources
                windows: colorama
                -r{toxinidir}/ci.txt
            commands = pytest {posargs}
            """,
            "ci.txt": "responses==0.24\n",
            "shop/__init__.py": '__version__ = "3.1"\n',
        }
    )
    assert project.requires == ("attrs", "click>=8")
    assert project.tests == ("pytest", "responses==0.24", "freezegun", "importlib-resources")
    assert project.version == "3.1"
    assert project.minors == ("3.8",)
    assert project.entry_points == {"console_scripts": {"shop": "shop.cli:main"}}


def test_setup_py_is_read_and_not_run() -> None:
    project = read(
        {
            "setup.py": """
            import sys
            from setuptools import setup, Extension
            sys.exit("not to be run")
            requires = ["attrs"] + ["click"]
            extras = {"test": ["pytest"]}
            extras["fast"] = ["orjson"]
            setup(name="shop", version="2.0", install_requires=requires, extras_require=extras,
                  python_requires=">=3.6", ext_modules=[Extension("shop._fast", ["fast.c"])])
            """
        }
    )
    assert (project.name, project.version, project.python) == ("shop", "2.0", ">=3.6")
    assert project.requires == ("attrs", "click")
    assert project.tests == ("pytest",)
    assert project.optional == ("pytest", "orjson")
    assert project.compiled


def test_setup_py_of_python_2_is_still_a_project() -> None:
    project = read({"setup.py": "print 'hello'\n", "shop/__init__.py": ""})
    assert project.name == "shop"


def test_requirements_with_includes() -> None:
    project = read(
        {
            "requirements.txt": "attrs==20.1 \\\n    --hash=sha256:aa\n# more\nclick\n-e .\n",
            "requirements/test.txt": "-r base.txt\n-c pins.txt\npytest\n",
            "requirements/base.txt": "six\n",
            "requirements-docs.txt": "sphinx\n",
        }
    )
    assert project.requires == ("attrs==20.1", "click")
    assert project.tests == ("six", "pytest")


def test_nox() -> None:
    project = read(
        {
            "noxfile.py": """
            import nox
            @nox.session(python=["3.10"])
            def tests(session):
                session.install("-r", "dev.txt", "pytest-mock", "-e", ".")
                session.run("pytest", *session.posargs)
            @nox.session
            def lint(session):
                session.install("ruff")
            """,
            "dev.txt": "pytest\n",
        }
    )
    assert project.tests == ("pytest", "pytest-mock")
    assert project.runner == "pytest"


def test_pipfile() -> None:
    project = read(
        {
            "Pipfile": """
            [packages]
            flask = "*"
            django = {version = "~=3.2", extras = ["argon2"]}
            ours = {path = "."}
            [dev-packages]
            pytest = ">=6"
            [requires]
            python_version = "3.9"
            """
        }
    )
    assert project.requires == ("flask", "django[argon2]~=3.2")
    assert project.tests == ("pytest>=6",)
    assert project.minors == ("3.9",)


def test_poetry_with_its_carets_and_lock() -> None:
    project = read(
        {
            "pyproject.toml": """
            [tool.poetry]
            name = "shop"
            version = "0.3.0"
            [tool.poetry.dependencies]
            python = "^3.8"
            attrs = "^20.3"
            tiny = "^0.2.3"
            click = "~8.0.1"
            extra = {version = "1.0", optional = true}
            [tool.poetry.group.test.dependencies]
            pytest = "*"
            [build-system]
            build-backend = "poetry.core.masonry.api"
            """,
            "poetry.lock": """
            [[package]]
            name = "attrs"
            version = "20.3.0"
            [[package]]
            name = "twice"
            version = "1.0"
            [[package]]
            name = "twice"
            version = "2.0"
            """,
        }
    )
    assert project.python == ">=3.8,<4"
    assert project.requires == ("attrs>=20.3,<21", "tiny>=0.2.3,<0.3", "click>=8.0.1,<8.1")
    assert project.tests == ("pytest",)
    assert project.locked == {"attrs": "20.3.0"}


@pytest.mark.parametrize(
    ("table", "tests"),
    [
        ('[tool.pdm.dev-dependencies]\ntest = ["pytest", "faker"]', ("pytest", "faker")),
        ('[tool.uv]\ndev-dependencies = ["pytest"]', ("pytest",)),
        ('[tool.hatch.envs.test]\ndependencies = ["pytest", "faker"]', ("pytest", "faker")),
        ('[tool.poetry.dev-dependencies]\npytest = "^6"', ("pytest>=6,<7",)),
        (
            '[tool.tox]\nlegacy_tox_ini = """\n[testenv]\ndeps =\n    pytest\n"""',
            ("pytest",),
        ),
    ],
)
def test_other_tables_of_pyproject(table: str, tests: tuple[str, ...]) -> None:
    project = read({"pyproject.toml": f'[project]\nname = "shop"\n{table}\n'})
    assert project.tests == tests


def test_uv_lock_leaves_the_project_itself_out() -> None:
    project = read(
        {
            "pyproject.toml": '[project]\nname = "shop"\n',
            "uv.lock": """
            [[package]]
            name = "shop"
            version = "0.1.0"
            source = { editable = "." }
            [[package]]
            name = "attrs"
            version = "25.1"
            source = { registry = "https://index.example/simple" }
            """,
        }
    )
    assert project.locked == {"attrs": "25.1"}


def test_conda() -> None:
    project = read(
        {
            "environment.yml": """\
            name: shop
            channels:
              - conda-forge
            dependencies:
              - python=3.9
              - numpy>=1.20
              - conda-forge::pandas=1.3
              - pip
              - pip:
                - flask==2.0  # web
                - -e .
              - pytest
            """
        }
    )
    assert project.python == "==3.9.*"
    assert project.tests == ("numpy>=1.20", "pandas==1.3.*", "flask==2.0", "pytest")


@pytest.mark.parametrize(
    ("files", "runner"),
    [
        ({"tox.ini": "[testenv]\ncommands = python -m unittest discover\n"}, "unittest"),
        ({"tox.ini": "[testenv]\ncommands = py.test\n"}, "pytest"),
        ({"setup.py": "", "manage.py": ""}, "django"),
        ({"setup.py": "", "django/__init__.py": "", "tests/runtests.py": ""}, "runtests"),
        ({"setup.py": "", "manage.py": "", "conftest.py": ""}, "pytest"),
        ({"setup.py": ""}, "pytest"),
    ],
)
def test_the_runner(files: dict[str, str], runner: str) -> None:
    assert read(files).runner == runner


def test_a_file_that_the_build_writes_means_an_install() -> None:
    scm = '[project]\nname = "shop"\n[tool.setuptools_scm]\nwrite_to = "src/shop/_version.py"\n'
    assert read({"pyproject.toml": scm}).generated
    old = 'setup(name="shop", use_scm_version={"write_to": "shop/_version.py"})\n'
    assert read({"setup.py": old}).generated


def test_a_subproject_has_its_own_manifests() -> None:
    files = {
        "pyproject.toml": '[project]\nname = "whole"\n',
        "libs/core/pyproject.toml": '[project]\nname = "core"\n',
        "libs/core/src/core/__init__.py": "",
        "libs/core/tests/test_a.py": "",
    }
    project = read(files, "libs/core")
    assert project.name == "core"
    assert project.sources == ("libs/core/src", "libs/core")
    assert project.test_folders == ("libs/core/tests",)
    assert project.manifests == ("libs/core/pyproject.toml",)


def test_no_manifest_no_project() -> None:
    assert read_project({"README.md": b"", "shop.py": b""}) is None


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": "[project\n"},
        {"setup.cfg": "no section\n"},
        {"Pipfile": "= 1\n"},
        {"environment.yml": "\t- : [\n"},
        {"noxfile.py": "def tests(:\n"},
        {"pyproject.toml": '[project]\nname = "shop"\ndependencies = 3\n[tool]\npoetry = 1\n'},
        {"pyproject.toml": '[dependency-groups]\na = [{include-group = "a"}]\n'},
    ],
)
def test_broken_manifests_say_nothing(files: dict[str, str]) -> None:
    assert read(files).requires == ()


def test_which_contents_matter() -> None:
    yes = ("setup.py", "uv.lock", "requirements/test.txt", "dev-requirements.txt", "package.json")
    assert all(map(is_manifest, yes))
    no = ("README.md", "docs/deep/requirements.txt", "src/shop.py", "LICENSE.txt")
    assert not any(map(is_manifest, no))
