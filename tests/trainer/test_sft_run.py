"""Supervised runs on the tiny model: they learn, go on to the bit, and leave usable weights."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_model import TINY, byte_tokenizer

from patchgym.trainer.cli import main
from patchgym.trainer.config import EnvironmentSection, ModelSection, RunConfig
from patchgym.trainer.model.decoder import Params, init_params
from patchgym.trainer.model.load import load_model
from patchgym.trainer.policies import PolicyOptions, open_policy
from patchgym.trainer.progress import Progress
from patchgym.trainer.resources import open_resources
from patchgym.trainer.run_folder import RunFolder, create_run
from patchgym.trainer.sft import read_summary
from patchgym.trainer.weights import export_folder

SETTINGS = """
[data]
heldout = 0.2
[train]
epochs = 2
batch = 4
[learner]
learning_rate = 3e-3
warmup_steps = 2
row_tokens = [128, 256]
[checkpoint]
every = 2
"""
WORDS = ("add", "sub", "head", "tail", "last", "size", "flip", "join", "half", "keep")


def chat(number: int, word: str) -> dict[str, Any]:
    return {
        "task_id": f"{word}{number % 2}",
        "messages": [
            {"role": "user", "content": f"{word} {number % 2}?"},
            {"role": "assistant", "content": f"def {word}({number})"},
        ],
    }


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny model, twenty conversations and settings; the working directory."""
    monkeypatch.chdir(tmp_path)
    export_folder(TINY, init_params(TINY, 0), byte_tokenizer(), tmp_path / "model")
    rows = [chat(number, word) for word in WORDS for number in range(2)]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "sft.toml").write_text(SETTINGS)
    return tmp_path


WHAT = ("--config", "sft.toml", "--model.path", "model", "--data", "chat.jsonl")


def sft(*words: str) -> int:
    return main(["sft", *words])


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in read_summary(RunFolder(folder))["history"]]


def same(one: Params, other: Params) -> bool:
    pairs = jax.tree.map(lambda a, b: np.array_equal(np.asarray(a), np.asarray(b)), one, other)
    return all(jax.tree.leaves(pairs))


async def test_a_run_learns_and_its_weights_are_where_train_begins(
    here: Path, root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = (*WHAT, "--run.name", "warm", "--export", "out")
    assert await run_in_thread(*words) == 0
    folder = here / "runs" / "warm"
    summary = read_summary(RunFolder(folder))
    assert (summary["state"], summary["steps"], summary["planned_steps"]) == ("finished", 8, 8)
    assert summary["history"][-1]["loss"] < 0.8 * summary["history"][0]["loss"]
    measured = summary["heldout"]
    assert [row["step"] for row in measured] == [0, 4, 8]
    assert measured[-1]["loss"] < 0.8 * measured[0]["loss"]
    assert measured[-1]["accuracy"] > measured[0]["accuracy"]
    rates = [row["learning_rate"] for row in summary["history"]]
    assert rates[:3] == pytest.approx([1.5e-3, 3e-3, 3e-3])
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert (folder / "curve.png").stat().st_size > 1000
    text = capfd.readouterr().out
    assert "held out at step 8: loss" in text
    assert "start from it: patchgym train --model.path" in text

    # The exported folder, the checkpoint, and what `patchgym train` would begin with: one model.
    config, exported, tokenizer = load_model(here / "out")
    assert (config, tokenizer.vocabulary) == (TINY, byte_tokenizer().vocabulary)
    async with open_policy("run:warm", PolicyOptions(context_tokens=64, slots=1)) as opened:
        assert (opened.version, opened.model) == (8, "warm-step8")
    begin = RunConfig(
        model=ModelSection(path=str(here / "out")),
        environment=EnvironmentSection(use=f"{root / 'examples' / 'arithmetic.py'}:SumDomain"),
    )
    async with AsyncExitStack() as stack:
        resources = await open_resources(
            replace(begin, run=replace(begin.run, name="grpo")),
            create_run(replace(begin, run=replace(begin.run, name="grpo"))),
            Progress(), stack, resume=False, stopped=lambda: False,
        )  # fmt: skip
        assert same(resources.learner.params, exported)
        assert resources.learner.step == 0
    assert not same(exported, init_params(TINY, 0))
    async with open_policy("run:warm@best", PolicyOptions(context_tokens=64, slots=1)) as opened:
        assert opened.version == 8, "the lowest held-out loss"


async def run_in_thread(*words: str) -> int:
    import anyio.to_thread

    return await anyio.to_thread.run_sync(lambda: start(*words).wait())


def start(*words: str, stdout: Any = None) -> subprocess.Popen[str]:
    """`patchgym sft` in a process of its own: signals go to the main thread."""
    command = [str(Path(sys.executable).with_name("patchgym")), "sft", *words]
    return subprocess.Popen(command, stdout=stdout, text=True)


def interrupt(process: subprocess.Popen[str], after: str, number: signal.Signals) -> int:
    """Send the signal once a line with `after` was printed; the exit code."""
    assert process.stdout is not None
    for line in process.stdout:
        if after in line:
            process.send_signal(number)
            break
    process.stdout.read()
    process.stdout.close()
    return process.wait()


def test_a_run_that_was_stopped_and_killed_goes_on_to_the_bit(here: Path) -> None:
    assert sft(*WHAT, "--run.name", "whole") == 0
    parts = start(*WHAT, "--run.name", "parts", stdout=subprocess.PIPE)
    assert interrupt(parts, "step 1/", signal.SIGINT) == 130
    again = start("--resume", "parts", stdout=subprocess.PIPE)
    assert interrupt(again, "step 5/", signal.SIGKILL) == -signal.SIGKILL
    assert sft("--resume", "parts", "--export", "late") == 0
    whole, parted = here / "runs" / "whole", here / "runs" / "parts"
    assert losses(parted) == losses(whole)
    assert len(losses(whole)) == 8
    summaries = [read_summary(RunFolder(folder)) for folder in (whole, parted)]
    assert summaries[0]["heldout"] == summaries[1]["heldout"]
    assert summaries[1]["export"] == str(here / "late")
    assert sft("--resume", "whole", "--export", "early") == 0
    assert same(load_model(here / "early")[1], load_model(here / "late")[1])


def test_adapters_are_trained_by_name_and_exported_as_one_model(here: Path) -> None:
    words = (*WHAT, "--run.name", "lora", "--learner.lora.rank", "4", "--export", "merged")
    assert sft(*words) == 0
    found = losses(here / "runs" / "lora")
    assert found[-1] < found[0]
    embed, start = (load_model(here / name)[1]["embed"] for name in ("merged", "model"))
    assert same(embed, start), "no adapter on it"
    assert not same(load_model(here / "merged")[1], load_model(here / "model")[1])


def test_other_commands_read_a_supervised_runs_folder(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sft(*WHAT, "--run.name", "seen", "--train.steps", "3") == 0
    capsys.readouterr()
    assert main(["runs", "ls"]) == 0
    assert "seen finished 3/3 steps, supervised loss" in " ".join(capsys.readouterr().out.split())
    assert main(["runs", "ls", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1
    assert main(["runs", "show", "seen"]) == 0
    shown = capsys.readouterr().out
    assert "3 of 3 (finished)" in shown
    assert "16 conversations about 16 tasks" in shown
    assert main(["runs", "show", "seen", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["kind"], summary["planned_steps"], summary["state"]) == ("sft", 3, "finished")
    assert main(["runs", "watch", "seen"]) == 0
    assert "step 3: loss " in capsys.readouterr().out
    assert main(["runs", "why", "seen"]) == 2
    assert "is a supervised run: only trainings keep" in capsys.readouterr().err
    for words in (["train", "--resume", "seen"], ["sft", "--data", "seen", *WHAT[:4]]):
        assert main(words) == 2
    assert "patchgym sft" in capsys.readouterr().err


def test_a_run_goes_on_with_the_same_data_and_settings_only(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sft(*WHAT, "--run.name", "fixed", "--train.steps", "2") == 0
    assert sft("--resume", "fixed", "--train.steps", "4") == 2
    assert "train.steps can't change from 2 to 4" in capsys.readouterr().err
    lines = (here / "chat.jsonl").read_text().splitlines(keepends=True)
    (here / "chat.jsonl").write_text("".join(lines[1:]))
    assert sft("--resume", "fixed") == 2
    assert "the data is not what the run began with" in capsys.readouterr().err
    assert sft("--resume", "nowhere") == 2
    assert sft(*WHAT, "--run.name", "fixed") == 2
    assert "exists already" in capsys.readouterr().err


def test_a_dry_run_trains_and_writes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"role": "assistant", "content": "x" * 300}
    long = {"messages": [{"role": "user", "content": "?"}, said]}
    with (here / "chat.jsonl").open("a") as file:
        file.write(json.dumps(long) + "\n")
    before = sorted(here.rglob("*"))
    assert sft(*WHAT, "--dry-run") == 0
    text = capsys.readouterr().out
    assert "to train on: 16 conversations" in text
    assert "chat.jsonl:21: it has 3" in text
    assert "8 updates of 4 conversations, 4 an epoch" in text
    assert sft(*WHAT, "--dry-run", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["steps"], record["data"]["heldout"]["conversations"]) == (8, 4)
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    ("heldout", "words"),
    [
        ("0.0", "step 1 was not applied: the loss is nan"),
        ("0.2", "the held-out loss at step 0 is nan"),
    ],
)
def test_a_loss_that_is_not_finite_stops_the_run(
    heldout: str, words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    params = init_params(TINY, 0)
    broken = {**params, "norm": jnp.full_like(jnp.asarray(params["norm"]), jnp.nan)}
    export_folder(TINY, broken, byte_tokenizer(), here / "model")
    assert sft(*WHAT, "--run.name", "broken", "--data.heldout", heldout) == 1
    assert words in capsys.readouterr().err
    assert read_summary(RunFolder(here / "runs" / "broken"))["state"] == "failed"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--data", "nowhere.jsonl"), "nowhere.jsonl: neither a file, nor a run"),
        (("--export", "chat.jsonl"), "a file lies there; name a folder"),
        (("--export", "model"), "the model itself lies there"),
        (("--learner.row-tokens", "[128, 4096]"), "the model's context is 1024"),
        (("--learner.warmup-steps", "9"), "the run has 8 steps"),
        (("--model.path", "missing"), "missing: no such model"),
        (("--learner.mesh.fsdp", "3"), "3 devices; there are 1"),
        (("--json",), "--json is for --dry-run"),
        (("--learner.learning-rat", "1"), "did you mean learner.learning_rate"),
        (("--config", "none.toml"), "none.toml: no such file; start from examples/sft.toml"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_folder(
    words: tuple[str, ...], part: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sft(*WHAT, *words) == 2
    captured = capsys.readouterr().err.strip().splitlines()
    assert len(captured) == 1
    assert part in captured[0]
    assert not (here / "runs").exists()


def test_settings_are_printed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sft(*WHAT, "--keep", "best", "--per-task", "2", "--print-config") == 0
    printed = capsys.readouterr().out
    for line in ('keep = "best"', "per_task = 2", 'loss = "nll"', "heldout = 0.2"):
        assert line in printed


def test_importing_the_package_is_light(clean_environment: dict[str, str]) -> None:
    code = "import sys, patchgym.trainer.sft; print({'jax', 'torch'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean_environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "set()"
