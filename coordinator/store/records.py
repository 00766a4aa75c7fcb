"""One frozen record per table, field for column; tables.py says what the columns hold."""

from dataclasses import dataclass, field
from typing import Any

Json = Any
"""A JSON column: dicts, lists, texts, numbers; its writer knows its form."""


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A row of `studies`."""

    study: str
    document: Json
    created: float
    expires: float
    closed: float | None = None


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """A row of `sites`."""

    site: str
    organisation: str
    status: str
    invited: float
    enrolled: float | None = None
    revoked: float | None = None
    last_seen: float | None = None
    clock_skew_s: float | None = None
    key_id: str | None = None
    public_key: str | None = None
    protocol: str | None = None
    agent_version: str | None = None
    library_versions: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InviteRecord:
    """A row of `invites`."""

    invite_hash: str
    site: str
    created: float
    expires: float
    used: float | None = None
    used_by: str | None = None


@dataclass(frozen=True, slots=True)
class AppRecord:
    """A row of `apps`."""

    digest: str
    name: str
    version: str
    clientapp: str
    config: Json
    files: Json
    size_bytes: int
    created: float


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A row of `models`; `schema` is a list of [name, dtype, shape]."""

    digest: str
    size_bytes: int
    parameters: int
    schema: Json
    created: float


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A row of `plans`."""

    digest: str
    study: str
    document: Json
    created: float
    created_by: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A row of `runs`; `state` is the RunState without its plan."""

    run: str
    plan: str
    study: str
    status: str
    round: int
    state: Json
    model: str
    server_version: int
    slots: str | None
    prepared: Json
    created: float
    started: float | None
    ended: float | None
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A row of `model_versions`."""

    run: str
    round: int
    digest: str
    parent: str
    created: float


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """A row of `attempts`."""

    run: str
    round: int
    kind: str
    attempt: int
    status: str
    opened: float
    model_before: str
    reason: str | None = None
    note: str | None = None
    aggregating: float | None = None
    closed: float | None = None
    weight: float | None = None
    metrics: Json = field(default_factory=dict)
    model_after: str | None = None


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A row of `tasks`."""

    task: str
    run: str
    round: int
    kind: str
    attempt: int
    site: str
    status: str
    fence: int
    reason: str | None
    offered: float
    leased: float | None = None
    finished: float | None = None
    result_digest: str | None = None
    receipt: Json = None
    detail: str | None = None
    num_examples: float | None = None
    weight: float | None = None
    metrics: Json = field(default_factory=dict)
    duration_s: float | None = None
    update_digest: str | None = None
    update_bytes: int = 0


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A row of `jobs`: a timer (`tick`) or an aggregation (`aggregate`) of a run."""

    run: str
    kind: str
    due: float
    leased_until: float | None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A row of `tokens`."""

    token: str
    secret_hash: str
    name: str
    role: str
    created: float
    expires: float
    revoked: float | None = None


@dataclass(frozen=True, slots=True)
class NonceRecord:
    """A row of `nonces`."""

    key_id: str
    nonce: str
    created: float


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """A row of `idempotency`; `body` is None where the answer held a secret."""

    actor: str
    key: str
    request_digest: str
    status: int
    body: bytes | None
    created: float


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A row of `audit_events`; all but `record` is derived from `record`."""

    seq: int
    id: str
    record: bytes
    leaf_hash: bytes
    ts: float
    action: str
    outcome: str
    actor: str
    study: str | None
    run: str | None
    round: int | None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A row of `audit_nodes`."""

    level: int
    idx: int
    hash: bytes
