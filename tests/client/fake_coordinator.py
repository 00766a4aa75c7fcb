"""A coordinator that behaves, on a real socket.

It verifies and signs as the real one does, keeps leases, uploads and receipts, and has
`faults`: what goes wrong on the way, each once. Tests wait for what happened (`wait_for`),
never for time.
"""

import base64
import contextlib
import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from fedward.client import clock
from fedward.protocol import signatures
from fedward.protocol.arrays import decode, encode
from fedward.protocol.canonical import canonical_bytes, sha256_digest
from fedward.protocol.documents import MAX_DOCUMENT_BYTES, Plan

PATIENCE_S = 30.0


@dataclass
class Fault:
    """Goes wrong once, at the first request whose method and path begin so.

    kind: cut-request, cut-answer, lost-answer, gateway (504 after the work was done), wrong-key,
    unsigned, replay-later (the next call gets this call's answer again), status (a signed
    problem), impostor (a problem that somebody else signed).
    """

    kind: str
    method: str
    path: str
    status: int = 0
    name: str = ""


@dataclass
class FakeCoordinator:
    """State of the coordinator; `changed` guards it and tells what happens."""

    Fault = Fault
    key: signatures.PrivateKey = field(
        default_factory=lambda: signatures.new_private_key(os.urandom(32))
    )
    secret: str = field(default_factory=lambda: base64.urlsafe_b64encode(os.urandom(24)).decode())
    keys: dict[str, bytes] = field(default_factory=dict)
    site_of: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    tasks: list[dict] = field(default_factory=list)
    fences: dict[str, int] = field(default_factory=dict)
    uploads: dict[tuple[str, int], bytearray] = field(default_factory=dict)
    updates: dict[str, bytes] = field(default_factory=dict)
    results: dict[str, dict] = field(default_factory=dict)
    receipts: dict[str, dict] = field(default_factory=dict)
    refuse_results: list[str] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    broken_results: bool = False
    """Whether results are read and never answered: the connection is cut."""
    dislikes: Callable[[dict], bool] = lambda result: False
    on_refusal: Callable[[], None] = lambda: None
    bytes_sent: Counter = field(default_factory=Counter)
    polls: int = 0
    polls_before: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    nonces: set[str] = field(default_factory=set)
    old_answer: tuple[int, dict, bytes] | None = None
    server: ThreadingHTTPServer | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def key_id(self) -> str:
        return hashlib.sha256(signatures.public_bytes(self.key)).hexdigest()[:32]

    @property
    def invite(self) -> str:
        return f"fwi_{self.secret}_{self.key_id}"

    def add_blob(self, data: bytes) -> str:
        digest = sha256_digest(data)
        self.blobs[digest] = data
        return digest

    def add_model(self, **arrays) -> str:
        return self.add_blob(b"".join(encode(arrays)))

    def add_plan(self, model: str, **parts) -> str:
        plan = {
            "name": "p", "study": "s1", "app": {"recipe": "tabular"}, "model": model,
            "rounds": {"count": 9, "quorum": 1}, "dataset": "ehr",
        }  # fmt: skip
        return self.add_blob(canonical_bytes(Plan.model_validate(plan | parts)))

    def offer(self, plan: str, model: str, *, number=1, kind="train", **config) -> str:
        """Offer a task; `config` tells the behaving worker what to do."""
        task = {
            "task": f"task-{number:08d}", "kind": kind, "run": "run-aaaaaa", "study": "s1",
            "round": number, "attempt": 1, "plan": plan, "model": model,
            "config": {"server-round": number, **config}, "seed": 7, "lease_s": 0.2,
        }  # fmt: skip
        with self.changed:
            self.tasks.append(task)
            self.changed.notify_all()
        return task["task"]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            if not self.changed.wait_for(condition, PATIENCE_S):
                raise TimeoutError(f"not seen; last requests: {self.requests[-8:]}")

    def settled(self, task: str) -> bool:
        """Say whether the agent asked for work again after the task's receipt."""
        return task in self.receipts and self.polls > self.polls_before[task]

    def update_of(self, task: str) -> dict[str, np.ndarray]:
        return decode(self.updates[task])

    # ------------------------------------------------------------ what the agent calls

    def handle(self, method: str, path: str, headers: dict, body: bytes, key_id: str):
        """Return (status, headers, body)."""
        parts = path.partition("?")[0].removeprefix("/agent/v1/").split("/")
        if method == "POST" and len(body) > MAX_DOCUMENT_BYTES:
            return problem(413, "body-too-large")
        with self.changed:
            match parts:
                case ["enrol"]:
                    return self._enrol(json.loads(body), key_id)
                case ["next"]:
                    return self._next(float(path.rpartition("=")[2]))
                case ["blobs", digest]:
                    return self._blob(digest, headers)
                case ["uploads", task]:
                    return self._upload(method, task, headers, body)
                case ["tasks", task, call]:
                    return self._task_call(task, call, json.loads(body))

    def _enrol(self, enrolment: dict, key_id: str):
        if self.secret not in enrolment["invite"]:
            return problem(403, "invite-unknown")
        self.keys[key_id] = bytes.fromhex(enrolment["public_key"])
        return answer(201, {
            "site": "north", "key_id": key_id, "protocol": "fedward/1",
            "coordinator_key": signatures.public_hex(self.key),
            "enrolled_at": "2026-01-01T00:00:00.000000Z",
        })  # fmt: skip

    def _next(self, wait_s: float):
        self.polls += 1
        self.changed.notify_all()
        self.changed.wait_for(self._open, wait_s)
        if not self._open():
            return 204, {}, b""
        task = self._open()[0]
        fence = self.fences[task["task"]] = self.fences.get(task["task"], 0) + 1
        return answer(200, task | {"fence": fence})

    def _open(self) -> list[dict]:
        return [
            t for t in self.tasks if t["task"] not in self.receipts | dict.fromkeys(self.closed)
        ]

    def _blob(self, digest: str, headers: dict):
        if digest not in self.blobs:
            return problem(404, "blob-unknown")
        data = self.blobs[digest]
        first, last = (int(n) for n in headers["range"].removeprefix("bytes=").split("-"))
        if first >= len(data):
            return problem(416, "invalid-range")
        piece = data[first : last + 1]
        span = f"bytes {first}-{first + len(piece) - 1}/{len(data)}"
        return 206, {"content-range": span, "content-type": "application/octet-stream"}, piece

    def _upload(self, method: str, task: str, headers: dict, body: bytes):
        fence = int(headers["upload-fence"])
        if task in self.closed or fence != self.fences.get(task):
            return problem(409, "round-closed" if task in self.closed else "stale-fence")
        have = self.uploads.setdefault((task, fence), bytearray())
        if method == "HEAD":
            return 200, {"upload-offset": str(len(have))}, b""
        if int(headers["upload-offset"]) != len(have):
            return problem(409, "offset-mismatch", expected=len(have))
        have += body
        return answer(200, {"task": task, "received_bytes": len(have)})

    def _task_call(self, task: str, call: str, body: dict):
        if call == "progress":
            if task in self.closed or body["fence"] != self.fences[task]:
                return problem(409, "round-closed")
            return 204, {}, b""
        if self.dislikes(body):
            return problem(422, "malformed-document")
        return answer(200, self._result(task, body))

    def _result(self, task: str, result: dict) -> dict:
        if self.results.get(task) == result:
            return self.receipts[task]
        refused = self.refuse_results.pop(0) if self.refuse_results else None
        if task in self.closed:
            refused = "round-closed"
        if refused:
            self.on_refusal()
            return {"task": task, "accepted": False, "reason": refused}
        if result["update"] is not None:
            got = bytes(self.uploads.get((task, result["fence"]), b""))
            if sha256_digest(got) != result["update"]["digest"]:
                return {"task": task, "accepted": False, "reason": "incomplete", "next": "upload"}
            self.updates[task] = got
        self.results[task] = result
        self.receipts[task] = {"task": task, "accepted": True}
        self.polls_before[task] = self.polls
        return self.receipts[task]


def answer(status: int, document: dict):
    return status, {"content-type": "application/json"}, json.dumps(document).encode()


def problem(status: int, name: str, **more):
    document = {"type": f"/problems/{name}", "title": name, "status": status, "detail": name}
    return answer(status, document | more)


class Handler(BaseHTTPRequestHandler):
    """One request; `server.fake` is the coordinator."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args) -> None:
        pass

    def do_GET(self) -> None:
        fake = self.server.fake
        fault = self._fault()
        size = int(self.headers.get("content-length", 0))
        if fault and fault.kind == "cut-request":
            self.rfile.read(size // 2)
            self.close_connection = True
            return
        body = self.rfile.read(size)
        headers = {name.lower(): value for name, value in self.headers.items()}
        if fake.broken_results and self.path.endswith("/result"):
            fault = Fault("lost-answer", self.command, self.path)
        got = self._verified(headers, body)
        if fault and fault.kind in {"status", "impostor"}:
            got = problem(fault.status, fault.name)
        if isinstance(got, str):
            got = fake.handle(self.command, self.path, headers, body, got)
        self._respond(got, headers, fault)
        with fake.changed:
            fake.requests.append((self.command, self.path))
            fake.changed.notify_all()

    do_POST = do_PUT = do_HEAD = do_GET  # noqa: N815  http.server's names

    def _fault(self) -> Fault | None:
        fake = self.server.fake
        with fake.changed:
            for fault in fake.faults:
                if self.command == fault.method and self.path.startswith(fault.path):
                    fake.faults.remove(fault)
                    return fault
        return None

    def _verified(self, headers: dict, body: bytes):
        fake = self.server.fake

        def find(key_id: str) -> bytes | None:
            if self.path == "/agent/v1/enrol":
                return bytes.fromhex(json.loads(body)["public_key"])
            return fake.keys.get(key_id)

        try:
            verified = signatures.verify_request(
                method=self.command, url=self.path, headers=headers, body=body, find_key=find,
                now=clock.now(),
            )  # fmt: skip
        except signatures.InvalidSignature:
            return problem(401, "invalid-signature")
        if verified.nonce in fake.nonces:
            return problem(401, "replayed-request")
        fake.nonces.add(verified.nonce)
        return verified.key_id

    def _respond(self, got, request_headers: dict, fault: Fault | None) -> None:
        fake, kind = self.server.fake, fault.kind if fault else ""
        if kind == "lost-answer":
            self.close_connection = True
            return
        if kind == "gateway":
            got = 504, {"content-type": "text/html"}, b"<h1>504 Gateway Time-out</h1>"
        elif kind != "unsigned":
            got = self._signed(got, request_headers, stranger=kind in {"wrong-key", "impostor"})
        if kind == "replay":
            got = fake.old_answer
        if kind == "replay-later":
            fake.old_answer = got
            fake.faults.append(Fault("replay", self.command, self.path))
        self._write(*got, cut=kind == "cut-answer")

    def _signed(self, got, request_headers: dict, *, stranger: bool):
        fake, (status, headers, body) = self.server.fake, got
        added = signatures.sign_response(
            signatures.new_private_key(os.urandom(32)) if stranger else fake.key,
            key_id=fake.key_id, status=status, headers=headers, body=body,
            request=(self.command, self.path, request_headers), now=clock.now(),
        )  # fmt: skip
        return status, headers | added, body

    def _write(self, status: int, headers: dict, body: bytes, *, cut: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut
        if not cut:
            self.server.fake.bytes_sent[self.path.rpartition("/")[2]] += len(body)
