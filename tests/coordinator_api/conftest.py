"""A coordinator on a real SQLite folder, its application in process, and an agent that signs."""

import hashlib
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import pytest

from fedward.coordinator.actors import Actor
from fedward.coordinator.api.app import create_app
from fedward.coordinator.blobs import Blobs
from fedward.coordinator.errors import Unavailable
from fedward.coordinator.notify import Notifier
from fedward.coordinator.service import Coordinator
from fedward.coordinator.settings import Settings
from fedward.coordinator.store.unit_of_work import Store
from fedward.protocol import signatures
from fedward.protocol.arrays import encode

NOW = 1_790_000_000.0
ADMIN = Actor("user", "test-admin", "admin")


@dataclass
class Clock:
    """A clock that stands until it is moved."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


class FaultyCoordinator(Coordinator):
    """A coordinator of which some calls fail while `fault` is set."""

    fault: Exception | None = None

    def list_studies(self, **page):
        self._fail()
        return super().list_studies(**page)

    def next_task(self, site):
        self._fail()
        return super().next_task(site)

    def find_site_key(self, key_id):
        if isinstance(self.fault, Unavailable):
            self._fail()
        return super().find_site_key(key_id)

    def _fail(self):
        if self.fault is not None:
            raise self.fault


@dataclass
class Agent:
    """Signs what it sends and believes only what the coordinator signed for it."""

    http: httpx.AsyncClient
    coordinator_key: bytes
    clock: Clock
    key: signatures.PrivateKey = field(
        default_factory=lambda: signatures.new_private_key(os.urandom(32))
    )

    @property
    def key_id(self) -> str:
        return hashlib.sha256(signatures.public_bytes(self.key)).hexdigest()[:32]

    def signed(self, method, url, body=b"", *, nonce=None, **headers):
        """Return the headers of a signed request."""
        plain = {"content-type": "application/json", "fedward-protocol": "fedward/1"}
        plain |= {name.replace("_", "-"): value for name, value in headers.items()}
        added = signatures.sign_request(
            self.key, key_id=self.key_id, method=method, url=url, headers=plain, body=body,
            now=self.clock(), nonce=nonce or os.urandom(16).hex(),
        )  # fmt: skip
        return plain | added

    async def send(self, method, url, body=b"", *, headers=None, **extra):
        """Send, and verify the signature of the answer."""
        headers = headers or self.signed(method, url, body, **extra)
        answer = await self.http.request(method, url, headers=headers, content=body)
        signatures.verify_response(
            status=answer.status_code, headers=dict(answer.headers), body=answer.content,
            request=(method, url, headers), find_key=lambda _: self.coordinator_key,
        )  # fmt: skip
        return answer

    async def enrol(self, invite, **changes):
        document = {
            "invite": invite, "public_key": signatures.public_hex(self.key),
            "protocol": "fedward/1", "agent_version": "0.1.0",
        } | changes  # fmt: skip
        return await self.send("POST", "/agent/v1/enrol", json.dumps(document).encode())


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def settings(tmp_path):
    data = tmp_path / "data"
    made = Settings(data=data, max_json_bytes=100_000, max_app_bytes=50_000, max_model_bytes=60_000)
    made.scratch.mkdir(parents=True)
    return made


@pytest.fixture
def coordinator(settings, clock):
    store = Store(settings.database_url)
    key = signatures.new_private_key(b"c" * 32)
    made = FaultyCoordinator(store, Blobs(settings.data), Notifier(), key, clock, os.urandom)
    yield made
    store.close()


@pytest.fixture
def app(coordinator, settings, clock):
    return create_app(coordinator, None, settings, clock=clock)


@pytest.fixture
def token(coordinator):
    """Return a function from a role to the headers of a fresh token."""

    def make(role, *, ttl_s=3600.0):
        made = coordinator.create_token(ADMIN, f"a {role}", role=role, ttl_s=ttl_s)
        return {"Authorization": f"Bearer {made.secret}"}

    return make


@pytest.fixture
async def http(app):
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://coordinator") as client:
        yield client


@pytest.fixture
def new_agent(http, coordinator, clock):
    """Return a function that makes an agent without a site."""
    public = signatures.public_bytes(coordinator.context.key)
    return lambda: Agent(http, public, clock)


@pytest.fixture
def enrolled(new_agent, coordinator):
    """Return a function that enrols the agent of a site."""

    async def enrol(site):
        agent = new_agent()
        invite = coordinator.invite_site(ADMIN, site, organisation=site.title()).invite
        answer = await agent.enrol(invite)
        assert answer.status_code == 201, answer.text
        return agent

    return enrol


@pytest.fixture
def model_file():
    """Return the bytes of a small model."""
    return b"".join(bytes(p) for p in encode({"w": np.zeros(3, np.float32)}))


@pytest.fixture
def problem():
    """Return a function that checks that an answer is a problem and returns it."""

    def check(answer, name, status):
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        shown = answer.json()
        assert (shown["type"], answer.status_code) == (f"/problems/{name}", status), shown
        assert shown["status"] == status
        assert shown["title"]
        assert {"detail", "ids", "got", "expected"} <= set(shown)
        return shown

    return check


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path


@pytest.fixture
def agent_class():
    return Agent


SERVE = """
import json, sys
from fedward.coordinator.errors import CoordinatorError
from fedward.coordinator.server import serve
from fedward.coordinator.settings import Settings
try:
    serve(Settings.model_validate(json.loads(sys.argv[1])))
except CoordinatorError as error:
    sys.exit(f"{error.name}: {error.detail}")
"""


class Serving:
    """Starts coordinators in processes of their own."""

    def start(self, data, **settings):
        given = json.dumps({"data": str(data), "port": 0} | settings)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", SERVE, given], **pipes)

    @contextmanager
    def __call__(self, data, **settings):
        """Yield the process, its first token or None, and its URL."""
        process = self.start(data, **settings)
        try:
            yield process, *self._read_start(process)
        finally:
            process.kill()
            process.communicate()

    def _read_start(self, process):
        token = None
        for line in process.stdout:
            if found := re.search(r"shown only this once: (fw_\S+)", line):
                token = found[1]
            if found := re.search(r"listening on (\S+)", line):
                return token, found[1]
        raise AssertionError(process.stderr.read())


@pytest.fixture
def serving():
    return Serving()
