"""A coordinator on a real SQLite file with a settable clock, and sites that behave."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedward.coordinator import scheduler, views
from fedward.coordinator.actors import Actor
from fedward.coordinator.blobs import Blobs, map_file
from fedward.coordinator.notify import Notifier
from fedward.coordinator.service import Coordinator
from fedward.coordinator.store.unit_of_work import Store
from fedward.protocol.arrays import classify, decode, encode, schema_of, subtract
from fedward.protocol.canonical import sha256_digest
from fedward.protocol.documents import (
    PROTOCOL_VERSION,
    AppRef,
    Enrolment,
    Plan,
    ResultReceipt,
    RoundRules,
    Study,
    Task,
    TaskKind,
    TaskResult,
    UpdateRef,
)
from fedward.protocol.signatures import new_private_key, public_bytes
from fedward.protocol.timestamps import to_timestamp

ADMIN = Actor("user", "token-admin0", "admin")
START = 1_800_000_000.0
SITES = ("hospital-a", "hospital-b", "hospital-c")


@dataclass
class Clock:
    """Tells the time that the test sets."""

    now: float = START

    def __call__(self) -> float:
        return self.now


class Entropy:
    """Deterministic bytes that never repeat."""

    def __init__(self, salt: str = "") -> None:
        self._count = 0
        self._salt = salt

    def __call__(self, size: int) -> bytes:
        self._count += 1
        return hashlib.shake_256(f"{self._salt}{self._count}".encode()).digest(size)


def first_model() -> dict[str, np.ndarray]:
    return {
        "w": np.array([[1.0, 2.0, 3.0]], np.float32),
        "b": np.zeros((), np.float32),
        "seen": np.array(0, np.int64),
    }


@dataclass
class Federation:
    """One data folder; `restart` opens it anew as after a crash."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    starts: int = 0
    salt: str = ""

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.starts += 1
        self.store = Store(f"sqlite:///{self.folder / 'fedward.sqlite'}")
        self.blobs = Blobs(self.folder)
        self.coordinator = Coordinator(
            self.store,
            self.blobs,
            Notifier(),
            new_private_key(b"k" * 32),
            self.clock,
            Entropy(f"{self.salt}/{self.starts}"),
        )
        self.coordinator.start()

    def restart(self) -> None:
        self.store.close()
        self.open()

    def close(self) -> None:
        self.store.close()

    def run_due(self) -> None:
        scheduler.run_due(self.coordinator.context)

    def enrol(self, site: str) -> str:
        invite = self.coordinator.invite_site(ADMIN, site, organisation=site.title())
        key = public_bytes(new_private_key(hashlib.sha256(site.encode()).digest()))
        enrolment = Enrolment(
            invite=invite.invite,
            public_key=key.hex(),
            protocol=PROTOCOL_VERSION,
            agent_version="0.1.0",
        )
        key_id = hashlib.sha256(key).hexdigest()[:32]
        self.coordinator.enrol(enrolment, key_id=key_id)
        return key_id

    def prepare(self, sites: tuple[str, ...] = SITES, **plan: Any) -> str:
        """Make a study, enrol its sites, submit a plan and create a run of it."""
        self.coordinator.create_study(ADMIN, self.study(sites))
        for site in sites:
            self.enrol(site)
        return self.new_run(**plan)

    def new_run(self, **plan: Any) -> str:
        submitted = self.coordinator.submit_plan(ADMIN, self.plan(**plan))
        return self.coordinator.create_run(ADMIN, submitted.digest).run

    def study(self, sites: tuple[str, ...] = SITES) -> Study:
        return Study(
            study="sepsis",
            purpose="early warning",
            legal_basis="GDPR 9(2)(j)",
            sites=list(sites),
            expires=to_timestamp(START + 86_400 * 30),
        )

    def plan(self, model: dict[str, np.ndarray] | None = None, **changes: Any) -> Plan:
        path = self.folder / "upload.safetensors"
        path.write_bytes(b"".join(encode(first_model() if model is None else model)))
        digest = self.coordinator.add_model(ADMIN, path).digest
        fields: dict[str, Any] = {
            "name": "sepsis model",
            "study": "sepsis",
            "app": AppRef(recipe="tabular"),
            "model": digest,
            "rounds": RoundRules(count=2, quorum=2),
        }
        return Plan(**(fields | changes))

    def model(self, digest: str) -> dict[str, np.ndarray]:
        return decode(map_file(self.blobs.path(digest)))

    def finish(self, run: str, sites: dict[str, SimulatedSite]) -> views.RunView:
        """Let the sites work in turn until nobody has anything to do."""
        while True:
            busy = [site for site in sites.values() if site.work()]
            self.run_due()
            if not busy and not any(site.peek() for site in sites.values()):
                return self.coordinator.show_run(run)


@dataclass
class SimulatedSite:
    """Trains by moving the weights towards its own target; uploads in small chunks."""

    federation: Federation
    name: str
    target: float
    examples: float | None
    kinds: list[TaskKind] = field(default_factory=list)
    configs: list[dict[str, Any]] = field(default_factory=list)
    chunk_bytes: int = 37
    held: Task | None = None

    def peek(self) -> Task | None:
        self.held = self.federation.coordinator.next_task(self.name)
        return self.held

    def work(self) -> bool:
        task, self.held = self.held or self.federation.coordinator.next_task(self.name), None
        if task is None:
            return False
        receipt = self.answer(task)
        return receipt.accepted or receipt.reason != "round-closed"

    def answer(self, task: Task) -> ResultReceipt:
        self.kinds.append(task.kind)
        self.configs.append(task.config)
        if task.kind is TaskKind.TRAIN:
            return self.send(task, self.train(task))
        metrics = {"loss": self.target, "mean": [self.target, 2.0 * self.target]}
        return self.submit(task, metrics=metrics)

    def train(self, task: Task) -> dict[str, np.ndarray]:
        base = self.federation.model(task.model)
        trained = {
            name: np.asarray(
                array + np.float32(0.5) * (np.float32(self.target) - array), array.dtype
            )
            for name, array in base.items()
        }
        if "seen" in base:
            trained["seen"] = np.asarray(base["seen"] + int(self.target), np.int64)
        classes = classify(
            schema_of(base), self.federation.coordinator.show_plan(task.plan).plan.arrays
        )
        return subtract(trained, base, classes)

    def send(self, task: Task, update: dict[str, np.ndarray], **result: Any) -> ResultReceipt:
        data = b"".join(encode(update))
        self.upload(task, data)
        ref = UpdateRef(digest=sha256_digest(data), size_bytes=len(data))
        return self.submit(task, update=ref, **({"metrics": {"loss": self.target}} | result))

    def upload(self, task: Task, data: bytes) -> None:
        service = self.federation.coordinator
        offset = service.upload_state(self.name, task.task, fence=task.fence).received_bytes
        while offset < len(data):
            chunk = data[offset : offset + self.chunk_bytes]
            offset = service.append_chunk(
                self.name, task.task, fence=task.fence, offset=offset, data=chunk
            ).received_bytes

    def submit(self, task: Task, **result: Any) -> ResultReceipt:
        fields = {"fence": task.fence, "model": task.model, "num_examples": self.examples}
        return self.federation.coordinator.submit_result(
            self.name, task.task, result=TaskResult(**(fields | result))
        )


def simulated(
    federation: Federation, examples: tuple[float | None, ...] = (100, 200, 700)
) -> dict[str, SimulatedSite]:
    return {
        site: SimulatedSite(federation, site, target=float(number + 1), examples=count)
        for number, (site, count) in enumerate(zip(SITES, examples, strict=True))
    }
