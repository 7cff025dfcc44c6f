"""Environments that are really built and checked, in sandboxes."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from patchgym.datasets.building import BuildFailure, environment_of
from patchgym.datasets.environment import Environment
from patchgym.datasets.images import image_recipe
from patchgym.datasets.recipes import Recipe
from patchgym.sandbox import ImageStore, Pool, SandboxSpec, TestReport, run_tests

WAIT = 120.0


class Repository(Protocol):
    """See conftest."""

    folder: Path

    def commit(self, files: dict[str, str], day: str) -> str:
        """Write files and commit them; the id."""
        ...


PYTHON = {
    "pyproject.toml": """
    [build-system]
    requires = ["setuptools"]
    build-backend = "setuptools.build_meta"
    [project]
    name = "shop"
    dynamic = ["version"]
    requires-python = ">=3.8"
    dependencies = ["attrs"]
    [project.scripts]
    shop = "shop:main"
    [dependency-groups]
    test = ["pytest"]
    """,
    "src/shop/__init__.py": """
    from importlib.metadata import version
    __version__ = version("shop")
    def main():
        print(__version__)
    """,
    "tests/test_shop.py": """
    import subprocess, attr, pytest, shop
    def test_versions_are_of_that_time():
        assert attr.__version__ == "23.1.0"
        assert pytest.__version__.startswith("7.4.")
    def test_script():
        assert subprocess.check_output(["shop"], text=True).strip() == shop.__version__
    """,
}


async def outcome_of(
    image: str, environment: Environment, repository: Path, commit: str, ids: list[str]
) -> TestReport:
    """Run tests as a trial does, in an image without the repository."""
    spec = SandboxSpec(image=image, workdir=environment.workdir, memory_mib=1024)
    async with Pool(spec, size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
        await sandbox.checkout(repository, commit)
        return await run_tests(
            sandbox, test_ids=ids, timeout=WAIT, command=environment.command, lean=False
        )


@pytest.mark.docker
@pytest.mark.slow
async def test_python_packages_of_that_time_and_one_image_for_neighbours(
    store: ImageStore, repository: Repository
) -> None:
    first = repository.commit(PYTHON, "2023-09-20")
    second = repository.commit({"src/shop/more.py": "x = 1\n"}, "2023-09-25")
    environment = await environment_of(repository.folder, first, store=store)
    assert environment == await environment_of(repository.folder, second, store=store)
    assert environment.install == ()
    assert [image.kind for image in await store.images()].count("recipe") == 1
    image = await store.environment(image_recipe(environment))
    ids = ["tests/test_shop.py::test_versions_are_of_that_time", "tests/test_shop.py::test_script"]
    report = await outcome_of(image, environment, repository.folder, second, ids)
    assert list(report.outcomes.values()) == ["passed", "passed"], report.output


@pytest.mark.docker
@pytest.mark.slow
async def test_what_a_compiler_lacks_is_installed_on_a_retry(
    store: ImageStore, repository: Repository
) -> None:
    commit = repository.commit(
        {
            "requirements.txt": "psycopg2==2.9.9\n",
            "tests/test_a.py": "import psycopg2\ndef test_a():\n    assert psycopg2.apilevel\n",
        },
        "2023-11-20",
    )
    environment = await environment_of(repository.folder, commit, store=store)
    assert environment.packages == ("build-essential", "libpq-dev", "python3-dev")
    assert "--exclude-newer 2023-11-21" in environment.setup[0]


@pytest.mark.docker
@pytest.mark.slow
async def test_a_version_that_does_not_exist_is_named_with_its_line_and_log(
    store: ImageStore, repository: Repository
) -> None:
    commit = repository.commit({"requirements.txt": "attrs==1999.1\n"}, "2023-11-20")
    with pytest.raises(BuildFailure) as caught:
        await environment_of(repository.folder, commit, store=store)
    failure = caught.value
    assert failure.kind == "dependency_missing"
    assert "attrs==1999.1" in failure.line
    assert failure.line in failure.log.read_text()
    assert "\n" not in str(failure)


@pytest.mark.docker
async def test_a_tree_without_a_manifest_is_told(store: ImageStore, repository: Repository) -> None:
    recipes = (Recipe(repo="ada/other", environment=Environment()),)
    commit = repository.commit({"README.md": "hello\n"}, "2023-11-20")
    with pytest.raises(BuildFailure) as caught:
        await environment_of(repository.folder, commit, store=store, recipes=recipes)
    assert caught.value.kind == "no_python_manifest"
    assert caught.value.log.read_text()


async def test_a_users_recipe_comes_first(store: ImageStore, repository: Repository) -> None:
    mine = Environment(base="bullseye", setup=("true",), test_command="python3 -m pytest")
    recipes = (Recipe(repo="ada/shop", environment=mine),)
    commit = repository.commit(PYTHON, "2023-09-20")
    found = await environment_of(repository.folder, commit, store=store, recipes=recipes)
    assert found == mine
    assert await store.images() == ()


@pytest.mark.docker
@pytest.mark.slow
async def test_node_from_lock_file_to_report(store: ImageStore, repository: Repository) -> None:
    commit = repository.commit(
        {
            "package.json": """
            {"name": "shop", "version": "1.0.0", "type": "module",
             "scripts": {"test": "node --test"}, "dependencies": {"ms": "2.1.3"}}
            """,
            "package-lock.json": """
            {"name": "shop", "version": "1.0.0", "lockfileVersion": 3, "packages": {
              "": {"name": "shop", "version": "1.0.0", "dependencies": {"ms": "2.1.3"}},
              "node_modules/ms": {"version": "2.1.3"}}}
            """,
            "test/time.test.js": """
            import test from "node:test";
            import assert from "node:assert";
            import ms from "ms";
            test("hours", () => assert.equal(ms("2h"), 7200000));
            test("wrong", () => assert.equal(ms("1h"), 1));
            """,
        },
        "2023-11-20",
    )
    environment = await environment_of(repository.folder, commit, store=store)
    assert (environment.report, environment.install) == ("junit", ())
    image = await store.environment(image_recipe(environment))
    spec = SandboxSpec(image=image, workdir=environment.workdir, memory_mib=1024)
    async with Pool(spec, size=1) as pool, pool.lease(timeout=WAIT) as sandbox:
        await sandbox.checkout(repository.folder, commit)
        report = await run_tests(
            sandbox,
            test_ids=["hours", "wrong"],
            test_files=["test/time.test.js"],
            timeout=WAIT,
            command=environment.command,
        )
    assert report.outcomes == {"hours": "passed", "wrong": "failed"}, report.output
    assert report.evidence == "junit"
    assert report.consistent
