"""`patchgym images`: build from a file, list, prune; and what a mistake in the file looks like."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from patchgym.trainer.cli.image_file import load_image_file

PATCHGYM = str(Path(sys.executable).with_name("patchgym"))
Run = Callable[..., subprocess.CompletedProcess[str]]

FILE = """
repository = "repository"
commits = ["HEAD", "HEAD~1"]

[recipe]
files = ["requirements.txt"]
commands = ["cp requirements.txt /etc/made"]
network = "none"
"""


def docker(*words: str) -> str:
    """What the docker command prints."""
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def patchgym(tmp_path: Path, clean_environment: dict[str, str]) -> Run:
    """Runs `patchgym images`, with a cache folder of the test's own."""
    environment = {**clean_environment, "PATCHGYM_CACHE": str(tmp_path / "cache")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PATCHGYM, "images", *words], cwd=tmp_path, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def prefix() -> Iterator[str]:
    """A set of images of this test's own, gone after it."""
    name = f"patchgym-test-{secrets.token_hex(4)}"
    yield name
    for kind in ("repository", "recipe"):
        for tag in docker(
            "images", "--format", "{{.Repository}}:{{.Tag}}", f"{name}/{kind}"
        ).split():
            docker("rmi", tag)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits with the same requirements, beside each other in time."""
    root = tmp_path / "repository"
    root.mkdir()
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")

    def git(*words: str) -> None:
        subprocess.run(["git", *identity, "-C", str(root), *words], check=True, capture_output=True)

    git("init", "-q")
    root.joinpath("requirements.txt").write_text("none\n")
    for number in "12":
        root.joinpath("a.py").write_text(f"x = {number}\n")
        git("add", "-A")
        git("commit", "-qm", number)
    return root


def refused(done: subprocess.CompletedProcess[str], part: str) -> None:
    """Exit code 2, one line on stderr, no trace."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert part in done.stderr


@pytest.mark.docker
def test_build_ls_prune(
    patchgym: Run, prefix: str, repository: Path, tmp_path: Path, docker_image: str
) -> None:
    (tmp_path / "images.toml").write_text(FILE)
    mine = ("--prefix", prefix)
    words = ("build", "images.toml", *mine, "--no-host-pip")
    done = patchgym(*words, "--json")
    assert done.returncode == 0, done.stderr
    new, old = json.loads(done.stdout)
    assert new["built"] and old["built"] and new["image"] != old["image"]
    assert new["recipe_image"] == old["recipe_image"]
    again = patchgym(*words)
    assert again.stdout.splitlines() == [
        f"{image['image']}  {image['commit'][:12]}  was there" for image in (new, old)
    ]
    listed = json.loads(patchgym("ls", *mine, "--json").stdout)
    assert {image["tag"] for image in listed} >= {
        new["image"], old["image"], new["recipe_image"],
    }  # fmt: skip
    assert {image["commit"] for image in listed} == {new["commit"], old["commit"], ""}
    assert f"{new['image']}  " in patchgym("ls", *mine).stdout
    made = docker(
        "run", "--rm", "--network=none", new["image"], "sh", "-c", "cat a.py /etc/made; id -u"
    )
    assert made.split("\n")[:3] == ["x = 2", "none", "1000"]
    logs = list((tmp_path / "cache" / "images" / "logs").iterdir())
    assert len(logs) == 1 and "cp requirements.txt" in logs[0].read_text()
    assert json.loads(patchgym("prune", *mine, "--json").stdout)["removed"] == []
    gone = json.loads(patchgym("prune", *mine, "--all", "--json").stdout)
    assert sorted(gone["removed"]) == sorted(image["tag"] for image in listed)
    assert json.loads(patchgym("ls", *mine, "--json").stdout) == []


@pytest.mark.docker
def test_a_build_that_fails(
    patchgym: Run, prefix: str, repository: Path, tmp_path: Path, docker_image: str
) -> None:
    (tmp_path / "images.toml").write_text(FILE.replace("cp requirements.txt", "cp nothing"))
    done = patchgym("build", "images.toml", "--prefix", prefix, "--no-host-pip", "--jobs", "1")
    refused(done, "cp: cannot stat 'nothing'")
    log = Path(done.stderr.strip().rpartition("log: ")[2])
    assert "$ cp nothing" in log.read_text()


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("commits =", "comits =", "unknown key comits; did you mean commits?"),
        ("files =", "flies =", "unknown key recipe.flies; did you mean recipe.files?"),
        ('network = "none"', 'network = "host"', "recipe.network: input should be 'bridge'"),
        ("[recipe]", "[recipe", "not TOML"),
        ('["HEAD", "HEAD~1"]', "[]", "commits: name at least one"),
        ('repository = "repository"', "", "repository: field required"),
    ],
)
def test_mistakes_in_the_file(patchgym: Run, tmp_path: Path, old: str, new: str, part: str) -> None:
    (tmp_path / "images.toml").write_text(FILE.replace(old, new))
    refused(patchgym("build", "images.toml"), part)


def test_other_mistakes(patchgym: Run, tmp_path: Path) -> None:
    refused(patchgym("build", "none.toml"), "none.toml: no such file")
    for words in (
        ("prune", "--keep", "much"),
        ("build", "--jobs", "0"),
        ("prune", "--all", "--keep", "1"),
    ):
        assert patchgym(*words).returncode == 2


def test_the_example_can_be_read(root: Path) -> None:
    assert load_image_file(root / "examples" / "images.toml").recipe.network == "bridge"
