"""The worker as a process: kept warm, replaced when needed, and told nothing it need not know."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from fedward.client.errors import TaskFailed, WorkerDied
from fedward.client.worker_process import WorkerProcess, worker_command, worker_environment

BEHAVING = [sys.executable, str(Path(__file__).parent / "behaving_worker.py")]
LOAD = {"op": "load", "app": "a"}


def message(folder: Path, do: str = "raise") -> dict:
    return {
        "op": "run",
        "kind": "train",
        "config": {"do": do},
        "node_config": {"log": f"{folder}/log"},
    }


def start(folder: Path, command=BEHAVING, **more) -> WorkerProcess:
    environment = worker_environment(os.environ)
    return WorkerProcess(command, folder=folder, environment=environment, **more)


def run(scenario) -> None:
    asyncio.run(scenario)


def test_one_process_serves_an_app_and_another_app_gets_another(tmp_path):
    async def scenario() -> None:
        worker, pids = start(tmp_path), []
        for app in ("a", "a", "b"):
            with pytest.raises(TaskFailed, match="app-raised: Traceback"):
                await worker.run({"op": "load", "app": app}, message(tmp_path), limit_s=30)
            pids.append(worker.pid)
        assert pids[0] == pids[1] != pids[2]
        await worker.close()
        assert worker.pid is None

    run(scenario())


def test_a_worker_that_dies_is_noticed_and_the_next_call_starts_another(tmp_path):
    async def scenario() -> None:
        worker = start(tmp_path)
        with pytest.raises(WorkerDied, match="ended"):
            await worker.run(LOAD, message(tmp_path, "die"), limit_s=30)
        with pytest.raises(TaskFailed):
            await worker.run(LOAD, message(tmp_path), limit_s=30)
        await worker.close()

    run(scenario())


def test_a_call_that_is_cancelled_leaves_no_process(tmp_path):
    async def scenario() -> None:
        worker = start(tmp_path)
        os.mkfifo(tmp_path / "log")
        call = asyncio.create_task(worker.run(LOAD, message(tmp_path, "hang"), limit_s=30))
        pid = int((await asyncio.to_thread((tmp_path / "log").read_text)).split()[0])
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    run(scenario())


@pytest.mark.parametrize(
    "code",
    [
        "print('hello, I am an app')",
        "import sys; sys.stdout.buffer.write(bytes([0, 0, 0, 2]) + b'{]')",
        "1 / 0",
    ],
)
def test_noise_in_place_of_frames_is_a_death(tmp_path, code):
    async def scenario() -> None:
        worker = start(tmp_path, [sys.executable, "-c", code])
        with pytest.raises(WorkerDied):
            await worker.run(LOAD, message(tmp_path), limit_s=30)

    run(scenario())


def test_an_answer_to_another_request_is_a_death(tmp_path):
    async def scenario() -> None:
        worker = start(tmp_path)
        with pytest.raises(WorkerDied, match="got the answer to request 1, expected 2"):
            await worker.run(LOAD, message(tmp_path, "old-number"), limit_s=30)
        assert worker.pid is None

    run(scenario())


def test_what_an_app_prints_is_passed_on_up_to_a_limit_for_each_message(tmp_path, capfd, caplog):
    async def scenario() -> list[int]:
        worker, sizes = start(tmp_path), []
        for size in (1000, 3 * 2**20, 1000):
            with pytest.raises(TaskFailed, match="printed"):
                await worker.run(LOAD, message(tmp_path, f"print {size}"), limit_s=30)
            sizes.append(capfd.readouterr().err.count("x"))
        await worker.close()
        return sizes

    assert asyncio.run(scenario()) == [1000, 2**20, 1000]
    cut = [text for text in caplog.messages if "cut" in text]
    assert cut == [
        f"the app printed {3 * 2**20} bytes for one message: the last {2**21} bytes were cut"
    ]


def test_the_last_words_of_a_worker_that_dies_are_passed_on(tmp_path, capfd):
    async def scenario() -> None:
        with pytest.raises(WorkerDied):
            await start(tmp_path).run(LOAD, message(tmp_path, "die"), limit_s=30)

    run(scenario())
    assert capfd.readouterr().err == "last words"


SLOW = [
    sys.executable,
    "-c",
    f"import runpy, time; time.sleep(3); runpy.run_path({BEHAVING[1]!r}, run_name='__main__')",
]
"""Takes three seconds to start, as a worker that imports torch from a slow disk."""


def test_loading_does_not_count_against_the_limit_of_a_message(tmp_path):
    async def scenario() -> None:
        worker = start(tmp_path, SLOW)
        with pytest.raises(TaskFailed, match="app-raised"):
            await worker.run(LOAD, message(tmp_path), limit_s=2)
        await worker.close()

    run(scenario())


def test_loading_has_a_limit_of_its_own(tmp_path):
    async def scenario() -> None:
        worker = start(tmp_path, SLOW, load_s=0.5)
        with pytest.raises(TaskFailed, match=r"resources: the app is not loaded after 0\.5 s"):
            await worker.run(LOAD, message(tmp_path), limit_s=30)
        assert worker.pid is None, "what goes on loading would answer the next request"

    run(scenario())


def test_a_command_that_does_not_exist_is_a_death(tmp_path):
    async def scenario() -> None:
        with pytest.raises(WorkerDied, match="cannot be started"):
            await start(tmp_path, ["/nowhere/python"]).run(LOAD, {}, limit_s=30)

    run(scenario())


def test_a_worker_sees_no_credentials_and_no_telemetry():
    inherited = {
        "PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "x", "FEDWARD_TOKEN": "x", "HTTPS_PROXY": "x",
        "CUDA_VISIBLE_DEVICES": "1", "FEDWARD_TORCH_THREADS": "2", "PYTHONPATH": "/a:b",
    }  # fmt: skip
    assert worker_environment(inherited) == {
        "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1", "FEDWARD_TORCH_THREADS": "2",
        "PYTHONPATH": f"/a:{Path.cwd() / 'b'}", "PYTHONHASHSEED": "0",
        "FLWR_TELEMETRY_ENABLED": "0", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    assert worker_command()[1:] == ["-P", "-m", "fedward.client.worker"]
