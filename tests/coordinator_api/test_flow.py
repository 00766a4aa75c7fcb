"""A whole run over real sockets, with agents that sign and verify but do not train."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from hashlib import sha256

import httpx
import numpy as np
import pytest

from fedward.coordinator.clock import system_clock
from fedward.protocol import signatures
from fedward.protocol.arrays import decode, encode
from fedward.protocol.documents import Task

pytestmark = [pytest.mark.anyio, pytest.mark.flow]
SERVE = (
    "import sys; from pathlib import Path; from fedward.coordinator.server import serve;"
    "from fedward.coordinator.settings import Settings;"
    "serve(Settings(data=Path(sys.argv[1]), port=0, poll_recheck_s=0.5, sse_ping_s=0.2))"
)
STUDY = {
    "study": "flow", "purpose": "test", "legal_basis": "none", "sites": ["site-a", "site-b"],
    "expires": "2099-01-01T00:00:00.000000Z",
}  # fmt: skip
STEPS = {"site-a": 1.0, "site-b": 3.0}
"""What each site adds to every element; with 100 and 300 examples the mean is 2.5."""
EXAMPLES = {"site-a": 100.0, "site-b": 300.0}


class Server:
    """A coordinator in its own process and a client with the first admin's token."""

    def __init__(self, data):
        self.data = data
        self.clients = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(data)], stdout=subprocess.PIPE, text=True
        )
        text = ""
        while "listening" not in text:
            line = self.process.stdout.readline()
            assert line, "the coordinator did not start"
            text += line
        self.url = re.search(r"listening on (\S+)", text)[1]
        token = re.search(r"(fw_\S+)", text)[1]
        self.headers = {"Authorization": f"Bearer {token}"}
        self.http = self.client(headers=self.headers)
        seed = bytes.fromhex((data / "keys" / "coordinator.key").read_text())
        self.key = signatures.public_bytes(signatures.new_private_key(seed))

    def client(self, **options):
        """Return a client that is closed with the server."""
        self.clients.append(httpx.AsyncClient(base_url=self.url, timeout=60, **options))
        return self.clients[-1]

    async def post(self, path, **kwargs):
        answer = await self.http.post(f"/api/v1{path}", **kwargs)
        assert answer.status_code in {200, 201}, answer.text
        return answer.json()

    async def get(self, path, **kwargs):
        answer = await self.http.get(f"/api/v1{path}", **kwargs)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def role(self, role):
        made = await self.post("/tokens", json={"name": role, "role": role, "ttl_s": 600})
        return {"Authorization": f"Bearer {made['secret']}"}


@asynccontextmanager
async def served(folder):
    server = Server(folder / "data")
    try:
        yield server
    finally:
        for client in server.clients:
            await client.aclose()
        server.process.kill()
        server.process.communicate()


async def enrol(server, agent_class, site):
    invite = await server.post("/sites/invite", json={"site": site, "organisation": site})
    agent = agent_class(server.client(), server.key, system_clock)
    assert (await agent.enrol(invite["invite"])).status_code == 201
    return agent


async def submit(server, model, **rounds):
    await server.post("/studies", json=STUDY)
    initial = await server.post("/models", content=model)
    plan = {
        "name": "flow", "study": "flow", "app": {"recipe": "tabular"}, "model": initial["digest"],
        "rounds": {"count": 2, "quorum": 2} | rounds,
    }  # fmt: skip
    check = await server.post("/plans/validate", json=plan)
    assert check["accepted"], check
    digest = (await server.post("/plans", json=plan))["digest"]
    return (await server.post("/runs", json={"plan": digest}))["run"]


async def fetch(agent, digest, step):
    """Download in ranges of `step` bytes and check the digest."""
    data, total = b"", 1
    while len(data) < total:
        span = f"bytes={len(data)}-{len(data) + step - 1}"
        answer = await agent.send("GET", f"/agent/v1/blobs/{digest}", range=span)
        assert answer.status_code == 206
        total = int(answer.headers["content-range"].rpartition("/")[2])
        data += answer.content
    assert f"sha256:{sha256(data).hexdigest()}" == digest
    return data


async def upload(agent, task, data):
    """Send in two chunks, after a wrong offset that is refused with the right one."""
    url, half = f"/agent/v1/uploads/{task.task}", len(data) // 2
    fence = str(task.fence)
    await agent.send("PUT", url, data[:half], upload_offset="0", upload_fence=fence)
    wrong = await agent.send("PUT", url, data[half:], upload_offset="1", upload_fence=fence)
    assert (wrong.status_code, wrong.json()["type"]) == (409, "/problems/offset-mismatch")
    assert wrong.json()["expected"] == half
    head = await agent.send("HEAD", url, upload_fence=fence)
    assert head.headers["upload-offset"] == str(half)
    rest = await agent.send("PUT", url, data[half:], upload_offset=str(half), upload_fence=fence)
    assert rest.json() == {"task": task.task, "received_bytes": len(data)}


async def work(agent, site, task):
    """Do one task: add this site's step to every element of the model."""
    result = {
        "fence": task.fence, "model": task.model, "metrics": {"loss": STEPS[site]},
        "num_examples": EXAMPLES[site], "duration_s": 0.1,
    }  # fmt: skip
    received = decode(await fetch(agent, task.model, 64))
    progress = json.dumps({"fence": task.fence}).encode()
    told = await agent.send("POST", f"/agent/v1/tasks/{task.task}/progress", progress)
    assert told.status_code == 204, told.text
    if task.kind == "train":
        update = {name: np.full_like(a, STEPS[site]) for name, a in received.items()}
        data = b"".join(bytes(part) for part in encode(update))
        await upload(agent, task, data)
        digest = f"sha256:{sha256(data).hexdigest()}"
        result["update"] = {"digest": digest, "size_bytes": len(data)}
    body, url = json.dumps(result).encode(), f"/agent/v1/tasks/{task.task}/result"
    receipt = await agent.send("POST", url, body)
    assert receipt.json()["accepted"], receipt.text
    return url, body, receipt


async def run_agent(agent, site, *, tasks):
    for _ in range(tasks):
        answer = await agent.send("GET", "/agent/v1/next?wait=20")
        assert answer.status_code == 200, answer.text
        url, body, receipt = await work(agent, site, Task.model_validate_json(answer.content))
        again = await agent.send("POST", url, body)
        assert again.content == receipt.content


def parse(frame):
    return dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))


async def read_events(server, run, *, after=0, until="end"):
    """Return the events of the stream up to one called `until`."""
    headers = {"Last-Event-ID": str(after)} if after else {}
    events, buffer = [], ""
    async with server.http.stream("GET", f"/api/v1/runs/{run}/events", headers=headers) as stream:
        assert stream.status_code == 200
        async for text in stream.aiter_text():
            buffer += text
            *frames, buffer = buffer.split("\n\n")
            events += [parse(frame) for frame in frames if not frame.startswith(":")]
            if until in [event["event"] for event in events]:
                return events
    return events


async def test_a_run_of_two_sites_goes_from_study_to_downloaded_model(
    folder, agent_class, model_file
):
    async with served(folder) as server:
        agents = {site: await enrol(server, agent_class, site) for site in STEPS}
        run = await submit(server, model_file)
        watching = asyncio.create_task(read_events(server, run))
        await server.post(f"/runs/{run}/start")
        await asyncio.gather(*(run_agent(a, site, tasks=4) for site, a in agents.items()))
        events = await asyncio.wait_for(watching, 30)
        view = await server.get(f"/runs/{run}")
        assert (view["status"], view["round"], view["participation"]) == (
            "completed", 2, "2 of 2 took part",
        )  # fmt: skip
        await check_model(server, view["model"], model_file)
        await check_rounds(server, run)
        await check_stream(server, run, events)
        assert (await server.get("/audit/verify"))["ok"]


async def check_model(server, digest, initial):
    researcher = await server.role("researcher")
    url = f"/api/v1/models/{digest}/content"
    data = (await server.http.get(url, headers=researcher)).content
    assert f"sha256:{sha256(data).hexdigest()}" == digest
    np.testing.assert_array_equal(decode(data)["w"], np.full(3, 5.0, np.float32))
    part = await server.http.get(url, headers=researcher | {"Range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, data[5:10])
    lineage = await server.get(f"/models/{digest}/lineage")
    assert [model["round"] for model in lineage] == [2, 1, None]
    assert lineage[-1]["digest"] == f"sha256:{sha256(initial).hexdigest()}"


async def check_rounds(server, run):
    first = await server.get(f"/runs/{run}/rounds", params={"limit": 1})
    assert [view["round"] for view in first["items"]] == [1]
    rest = await server.get(f"/runs/{run}/rounds", params={"after": first["next"]})
    assert [view["round"] for view in rest["items"]] == [2]
    shown = await server.get(f"/runs/{run}/rounds/2")
    assert [attempt["kind"] for attempt in shown["attempts"]] == ["train", "evaluate"]
    assert shown["attempts"][1]["metrics"]["loss"] == 2.5


async def check_stream(server, run, events):
    actions = [json.loads(e["data"])["record"]["action"] for e in events[:-1]]
    assert "run.start" in actions
    assert actions.index("run.start") < actions.index("attempt.commit") < len(actions)
    assert "run.complete" in actions
    ids = [int(event["id"]) for event in events[:-1]]
    assert ids == sorted(set(ids))
    middle = ids[len(ids) // 2]
    resumed = await read_events(server, run, after=middle)
    assert [int(event["id"]) for event in resumed[:-1]] == [i for i in ids if i > middle]
    over = await server.http.get(
        f"/api/v1/runs/{run}/events", headers={"Last-Event-ID": str(ids[-1])}
    )
    assert over.status_code == 204


async def test_an_agent_that_asks_again_gets_its_task_under_a_higher_fence(
    folder, agent_class, model_file
):
    async with served(folder) as server:
        agents = {site: await enrol(server, agent_class, site) for site in STEPS}
        run = await submit(server, model_file)
        await server.post(f"/runs/{run}/start")
        agent = agents["site-a"]
        first, second = [
            Task.model_validate_json((await agent.send("GET", "/agent/v1/next?wait=5")).content)
            for _ in range(2)
        ]
        assert (first.task, first.fence + 1) == (second.task, second.fence)
        stale = json.dumps({"fence": first.fence}).encode()
        answer = await agent.send("POST", f"/agent/v1/tasks/{first.task}/progress", stale)
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/stale-fence")


async def test_sigterm_stops_in_under_three_seconds_with_polls_and_streams_open(
    folder, agent_class, model_file
):
    async with served(folder) as server:
        agents = [await enrol(server, agent_class, site) for site in STEPS]
        run = await submit(server, model_file)
        polls = [asyncio.create_task(a.send("GET", "/agent/v1/next?wait=50")) for a in agents]
        stream = asyncio.create_task(read_events(server, run))
        await asyncio.wait([*polls, stream], timeout=1.0)
        assert not any(task.done() for task in [*polls, stream])
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        status = await asyncio.to_thread(server.process.wait, 20)
        assert (status, time.monotonic() - began < 3.0) == (0, True)
        assert [(await poll).status_code for poll in polls] == [204, 204]
        await stream


async def test_a_poll_is_answered_as_soon_as_there_is_a_task(folder, agent_class, model_file):
    async with served(folder) as server:
        agents = [await enrol(server, agent_class, site) for site in STEPS]
        run = await submit(server, model_file)
        polls = [asyncio.create_task(a.send("GET", "/agent/v1/next?wait=50")) for a in agents]
        await asyncio.wait(polls, timeout=0.5)
        await server.post(f"/runs/{run}/start")
        began = time.monotonic()
        answers = await asyncio.wait_for(asyncio.gather(*polls), 10)
        assert [answer.status_code for answer in answers] == [200, 200]
        assert time.monotonic() - began < 2.0


async def test_what_another_process_changed_is_found_by_looking_again(
    folder, agent_class, model_file
):
    async with served(folder) as server:
        agents = [await enrol(server, agent_class, site) for site in STEPS]
        run = await submit(server, model_file)
        poll = asyncio.create_task(agents[0].send("GET", "/agent/v1/next?wait=50"))
        await asyncio.wait([poll], timeout=0.5)
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", OTHER_PROCESS, str(server.data), run
        )
        assert await asyncio.wait_for(other.wait(), 60) == 0
        assert (await asyncio.wait_for(poll, 10)).status_code == 200


OTHER_PROCESS = """
import os, sys
from pathlib import Path
from fedward.coordinator.actors import SYSTEM
from fedward.coordinator.blobs import Blobs
from fedward.coordinator.clock import system_clock
from fedward.coordinator.notify import Notifier
from fedward.coordinator.service import Coordinator
from fedward.coordinator.store.unit_of_work import Store
from fedward.protocol.signatures import new_private_key
data = Path(sys.argv[1])
store = Store(f"sqlite:///{data / 'fedward.sqlite'}")
key = new_private_key(os.urandom(32))
other = Coordinator(store, Blobs(data), Notifier(), key, system_clock, os.urandom)
other.start_run(SYSTEM, sys.argv[2])
"""
