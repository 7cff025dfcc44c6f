"""`patchgym evaluate --policy` as its users meet it: real sandboxes, policies of every kind."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tiny_model import byte_tokenizer
from tokenizer_folders import write_tokenizer

from patchgym.agent import ScriptedPolicy
from patchgym.agent.policies.conformance_server import ConformanceServer
from patchgym.datasets.task import Task, bundled_tasks, dump_tasks
from patchgym.trainer.cli import main

PATCHGYM = str(Path(sys.executable).with_name("patchgym"))
TASKS = [task for task in bundled_tasks("heldout") if task.pass_to_pass][:2]
BYTES = byte_tokenizer()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of two tasks, and the current one."""
    monkeypatch.chdir(tmp_path)
    dump_tasks(TASKS, "tasks.jsonl")
    return tmp_path


def fixed(task: Task) -> str:
    """The task's file as its gold patch leaves it; the patch has one hunk with all of it."""
    _, _, hunk = task.gold_patch.partition("@@\n")
    kept = [line[1:] for line in hunk.splitlines() if line[:1] in (" ", "+")]
    return "\n".join(kept) + "\n"


def task_in(text: str) -> Task:
    """The task that a prompt is about."""
    return next(task for task in TASKS if f"{task.focus.function}`" in text)  # type: ignore[union-attr]


Ask = Callable[[Any], Awaitable[tuple[int, Any]]]


def chat(text: str) -> tuple[int, Any]:
    choice = {"message": {"content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return 200, {"choices": [choice], "usage": usage}


def endpoint(ask: Ask) -> ConformanceServer:
    async def models(body: Any) -> tuple[int, Any]:
        await anyio.lowlevel.checkpoint()
        return 200, {"data": [{"id": "oracle"}]}

    routes = {"/v1/chat/completions": ask, "/v1/models": models}
    return ConformanceServer(ScriptedPolicy(BYTES, lambda text, seed: ""), routes=routes)


async def first_only(body: Any) -> tuple[int, Any]:
    """Solves the first task, and answers nothing of use to the other."""
    await anyio.lowlevel.checkpoint()
    task = task_in(body["messages"][0]["content"])
    if task is TASKS[0]:
        return chat(f"So:\n\n```python\n{fixed(task)}```\nDone.")
    return chat("I do not know.")


def command(*words: str) -> list[str]:
    jobs = () if "--jobs" in words else ("--jobs", "2")
    return [PATCHGYM, "evaluate", "--tasks", "tasks.jsonl", *jobs, *words]


async def evaluate(*words: str, code: int = 0) -> Any:
    """The report, as `--json` prints it."""
    done = await anyio.run_process(command(*words, "--json"), check=False)
    assert done.returncode == code, done.stderr.decode()
    return json.loads(done.stdout)


def rows_of(path: str, *, whole: bool = False) -> list[Any]:
    """A file's JSON lines, or its one document."""
    text = Path(path).read_text()
    return [json.loads(line) for line in ([text] if whole else text.splitlines())]


@pytest.mark.docker
async def test_a_chat_endpoint(here: Path, docker_image: str) -> None:
    async with endpoint(first_only) as server:
        words = ("--policy", f"openai:{server.url}/v1", "--samples", "2", "--run-folder", "run")
        more = ("--predictions-out", "p.jsonl", "--report", "r.json", "--price-in", "2",
                "--price-out", "8", "--fail-under", "0.5")  # fmt: skip
        record = await evaluate(*words, *more)
        assert [record] == rows_of("r.json", whole=True)
        asked = server.turns
        again = await evaluate(*words)
        assert (again["taken_over"], server.turns) == (4, asked)
        assert again["pass_at"] == record["pass_at"]
    check_report(record)
    first, second = (task.id for task in TASKS)
    assert (record["resolved_ids"], record["empty_patch_ids"]) == ([first], [second])
    assert record["policy"]["model"] == "oracle"
    assert record["policy"]["trainable"] is False
    assert {k: each["rate"] for k, each in record["pass_at"].items()} == {"1": 0.5, "2": 0.5}
    assert record["rollouts"]["outcomes"] == {"solved": 2, "submitted": 2}
    turns = 2 + 2 * 2
    assert record["tokens"]["prompt"] == 100 * turns
    assert record["cost"]["total"] == pytest.approx((100 * 2 + 10 * 8) * turns / 1e6)
    rows = rows_of("p.jsonl")
    assert [row["instance_id"] for row in rows] == sorted([first, second])
    assert {row["model_name_or_path"] for row in rows} == {"oracle"}
    check_text_is_kept_apart(first)


def check_report(record: Any) -> None:
    """The keys that design section 9 promises."""
    for key in ("total_instances", "resolved_instances", "resolved_ids", "unresolved_ids",
                "error_ids", "empty_patch_ids"):  # fmt: skip
        assert key in record
    for verdict in record["verdicts"].values():
        wanted = {"resolved", "outcomes", "evidence", "tampering", "flaky", "seconds"}
        assert wanted <= set(verdict)
        assert len(verdict["repeats"]) == record["samples"]


def check_text_is_kept_apart(task_id: str) -> None:
    """Its trajectories are readable, exported as text alone, and refused by the import."""
    name = f"{task_id.replace('/', '+')}-s0"
    assert main(["runs", "show", "run", "--trajectory", name]) == 0
    assert main(["runs", "export", "run", "--format", "chat", "--tokens"]) == 2
    assert main(["runs", "export", "run", "--format", "chat", "--out", "c.jsonl"]) == 0
    assert [row["trainable"] for row in rows_of("c.jsonl")] == [False] * 4
    folder = write_tokenizer(Path("tokenizer"))
    words = ["runs", "import", "chat", "c.jsonl", "--out", "s.jsonl", "--tokenizer", str(folder)]
    assert main(words) == 2
    assert Path("s.jsonl").read_text() == ""


@pytest.mark.docker
async def test_a_repository_is_worked_on_with_tools(here: Path, docker_image: str) -> None:
    async def work(body: Any) -> tuple[int, Any]:
        await anyio.lowlevel.checkpoint()
        messages = body["messages"]
        assert "tools" not in body and '"command"' in messages[0]["content"]
        task = task_in(messages[1]["content"])
        if len(messages) > 3:
            return chat(call("submit"))
        assert task.focus is not None
        script = f"cat > {task.focus.path} <<'EOF'\n{fixed(task)}EOF"
        return chat(call("bash", command=script))

    def call(name: str, **arguments: str) -> str:
        value = json.dumps({"name": name, "arguments": arguments})
        return f"I do it.\n<tool_call>\n{value}\n</tool_call>"

    async with endpoint(work) as server:
        record = await evaluate(
            "--policy", f"openai:{server.url}/v1#m", "--environment", "repository",
            "--run-folder", "run",
        )  # fmt: skip
    assert record["rollouts"]["outcomes"] == {"submitted": 2}
    assert record["pass_at"]["1"]["rate"] == 1.0
    assert record["settings"]["scaffold"] == "tools"
    assert record["turns"]["p50"] == 2


@pytest.mark.docker
async def test_cut_off_work_is_judged_by_what_it_left(here: Path, docker_image: str) -> None:
    async def edit(body: Any) -> tuple[int, Any]:
        await anyio.lowlevel.checkpoint()
        task = task_in(body["messages"][1]["content"])
        assert task.focus is not None
        return chat(f"```bash\ncat > {task.focus.path} <<'EOF'\n{fixed(task)}EOF\n```\n")

    async with endpoint(edit) as server:
        record = await evaluate(
            "--policy", f"openai:{server.url}/v1#m", "--environment", "repository",
            "--scaffold", "bash", "--max-turns", "1", "--run-folder", "run",
        )  # fmt: skip
    assert record["rollouts"]["outcomes"] == {"turn_limit": 2}
    assert record["pass_at"]["1"]["rate"] == 1.0


@pytest.mark.docker
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_a_server_of_ids(kind: str, here: Path, docker_image: str) -> None:
    folder = write_tokenizer(here / "tokenizer")
    policy = ScriptedPolicy(BYTES, lambda text, seed: f"{fixed(task_in(text))}```\n", version=4)
    async with ConformanceServer(policy) as server:
        record = await evaluate(
            "--policy", f"{kind}:{server.url}", "--tokenizer", str(folder),
            "--context-tokens", "2000", "--max-new-tokens", "300", "--run-folder", "run",
        )  # fmt: skip
    assert record["pass_at"]["1"]["rate"] == 1.0
    assert (record["policy"]["version"], record["policy"]["trainable"]) == (4, True)
    assert record["tokens"]["sampled"] > 0
    assert main(["runs", "export", "run", "--format", "chat", "--tokens", "--out", "c"]) == 0
    words = ["runs", "import", "chat", "c", "--out", "s", "--tokenizer", str(folder)]
    assert main(words) == 0
    assert len(rows_of("s")) == 2


@pytest.mark.docker
@pytest.mark.model
@pytest.mark.slow
async def test_the_embedded_model(here: Path, docker_image: str, weights: Path) -> None:
    record = await evaluate(
        "--policy", "model:smollm2-135m-instruct", "--samples", "2", "--run-folder", "run"
    )
    check_report(record)
    assert record["rollouts"]["kept"] == record["rollouts"]["known"] == 4
    assert set(record["pass_at"]) == {"1", "2"}
    assert record["tokens"]["sampled"] > 0
    assert main(["runs", "export", "run", "--format", "atif", "--tokens", "--out", "a.jsonl"]) == 0
    words = ("--tokenizer", "smollm2-135m-instruct", "--out", "s.jsonl")
    assert main(["runs", "import", "atif", "a.jsonl", *words]) == 0
    sampled = sum(sum(each["loss_mask"]) for each in rows_of("s.jsonl"))
    assert sampled == record["tokens"]["sampled"]


@pytest.mark.docker
async def test_a_stopped_evaluation_goes_on(here: Path, docker_image: str) -> None:
    asked: Counter[str] = Counter()
    gate = anyio.Event()

    async def slowly(body: Any) -> tuple[int, Any]:
        task = task_in(body["messages"][0]["content"])
        asked[task.id] += 1
        if task is TASKS[1]:
            await gate.wait()
        return chat(f"```python\n{fixed(task)}```\n")

    async with endpoint(slowly) as server:
        words = ("--policy", f"openai:{server.url}/v1#m", "--run-folder", "run")
        process = await anyio.open_process(command(*words))
        assert process.stderr is not None
        said = ""
        with anyio.fail_after(120):
            while "[1/2] resolved" not in said:
                said += (await process.stderr.receive()).decode()
        process.send_signal(signal.SIGINT)
        with anyio.fail_after(60):
            async for piece in process.stderr:
                said += piece.decode()
        assert await process.wait() == 130
        assert "1 of 2 rollouts are kept" in said and "the same command goes on" in said
        await process.aclose()
        gate.set()
        record = await evaluate(*words)
    assert (record["taken_over"], record["pass_at"]["1"]["rate"]) == (1, 1.0)
    assert asked == {TASKS[0].id: 1, TASKS[1].id: 2}


@pytest.mark.docker
async def test_failures_of_the_policy_are_no_verdict_on_it(here: Path, docker_image: str) -> None:
    async def refuse(body: Any) -> tuple[int, Any]:
        await anyio.lowlevel.checkpoint()
        if task_in(body["messages"][0]["content"]) is TASKS[1]:
            return 400, {"error": {"message": "not today"}}
        return await first_only(body)

    async with endpoint(refuse) as server:
        words = ("--policy", f"openai:{server.url}/v1#m", "--run-folder", "run")
        record = await evaluate(*words)
        assert (record["rollouts"]["known"], record["rollouts"]["unknown"]) == (1, 1)
        assert record["pass_at"]["1"]["tasks"] == 1
        (reason,) = record["rollouts"]["unknown_reasons"]
        assert reason.startswith("policy_failed") and "not today" in reason
        assert record["error_ids"] == [TASKS[1].id]
        again = await evaluate(*words)
        assert again["taken_over"] == 1


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Exit code 2 and one line."""
    assert main(["evaluate", *words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    return lines[-1]


def test_mistakes_show_at_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = ("--policy", "openai:http://127.0.0.1:9/v1#m")
    words = ("--tasks", "tasks.jsonl", *policy)
    assert "--tasks is missing" in refused(capsys, *policy)
    assert "no such policy" in refused(capsys, *words[:2], "--policy", "gpt")
    assert "--samples has no use with --predictions" in refused(
        capsys, *words[:2], "--predictions", "gold", "--samples=2"
    )
    assert "--predictions has no use" in refused(capsys, *words, "--predictions", "gold")
    assert "use --samples" in refused(capsys, *words, "--repeats", "2")
    assert "give --tokenizer" in refused(capsys, *words[:2], "--policy", "vllm:http://127.0.0.1:9")
    tokenizer = str(write_tokenizer(here / "tokenizer"))
    assert "which cluster? give --ray" in refused(
        capsys, *words[:2], "--policy", "vllm:ray", "--tokenizer", tokenizer
    )
    assert "--ray has no use with --predictions" in refused(
        capsys, *words[:2], "--predictions", "gold", "--ray", "auto"
    )
    assert "--scaffold bash does not fit the repair" in refused(
        capsys, *words, "--scaffold", "bash"
    )
    assert "leaves no room" in refused(capsys, *words, "--max-new-tokens", "512")
    assert "one report with --policy" in refused(capsys, *words, "--compare", "a", "b", "c")
    assert "it is a folder" in refused(capsys, *words, "--predictions-out", ".")
    assert not Path("runs").exists()
    Path("other").mkdir()
    Path("other/file").touch()
    assert "something else lies there" in refused(capsys, *words, "--run-folder", "other")


def test_what_never_began_leaves_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--tasks", "tasks.jsonl", "--policy", "model:gone.gguf", "--run-folder", "run")
    assert "gone.gguf: no such model" in refused(capsys, *words)
    assert not Path("run").exists()


@pytest.mark.docker
async def test_a_folder_keeps_to_its_settings(
    here: Path, docker_image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with endpoint(first_only) as server:
        known = ("--policy", f"openai:{server.url}/v1#m", "--run-folder", "runs/x")
        await evaluate(*known)
        more = await evaluate(*known, "--samples", "2")
        assert (more["taken_over"], more["rollouts"]["kept"]) == (2, 4)
        words = ("--tasks", "tasks.jsonl", *known)
        said = refused(capsys, *words, "--temperature", "0.5")
        assert "runs/x holds an evaluation with other settings: limits was" in said
        untrained = command("--policy", "run:x", "--run-folder", "y")
        done = await anyio.run_process(untrained, check=False)
        assert (done.returncode, b"has no checkpoint" in done.stderr) == (2, True)
    assert main(["runs", "ls"]) == 0
    assert "x  finished  4/4 rollouts of openai:" in capsys.readouterr().out
    assert main(["runs", "show", "latest"]) == 0
    assert "pass@2" in capsys.readouterr().out
    assert main(["runs", "show", "latest", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 2
    assert main(["runs", "watch", "latest", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["kind"], seen["now"]["done"], seen["now"]["total"]) == ("evaluation", 4, 4)


def test_no_engine(here: Path) -> None:
    import subprocess

    env = {**os.environ, "DOCKER_HOST": f"unix://{here}/nowhere.sock"}
    words = command("--policy", "openai:http://127.0.0.1:9/v1#m")
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 2
    assert "nowhere.sock" in done.stderr and "Traceback" not in done.stderr
