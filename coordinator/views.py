"""What the service returns: read-only documents that the API sends as they are.

Times are `Timestamp` texts, sizes are bytes. A `Page` is one step of keyset paging: pass its
`next` as `after` to get what follows, until it is None.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import Field

from fedward.protocol.documents import (
    Document,
    MetricValue,
    Plan,
    Scalar,
    Study,
    Timestamp,
)

T = TypeVar("T")


class Page(Document, Generic[T]):
    """Some items in order; `next` continues after them, None at the end."""

    items: list[T]
    next: str | None = None


class StudyView(Document):
    """A study and where it stands: `open`, `closed` or `expired`."""

    study: Study
    status: str
    created: Timestamp
    closed: Timestamp | None = None


class AppView(Document):
    """An uploaded Flower app. `config` is `[tool.flwr.app.config]`, flattened with dots."""

    digest: str
    name: str
    version: str
    clientapp: str
    config: dict[str, Scalar]
    files: list[str]
    size_bytes: int
    created: Timestamp


class ArrayView(Document):
    """Name, dtype and shape of one array."""

    name: str
    dtype: str
    shape: list[int]


class ModelView(Document):
    """A model version. `parent`, `run` and `round` are None for an uploaded one."""

    digest: str
    parent: str | None = None
    run: str | None = None
    round: int | None = None
    created: Timestamp
    size_bytes: int
    parameters: int
    arrays: list[ArrayView] = Field(default_factory=list)


class PlanCheck(Document):
    """What would be refused, with all reasons at once; accepted when `reasons` is empty."""

    accepted: bool
    reasons: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    sites: list[str] = Field(default_factory=list)
    model_bytes: int | None = None
    bytes_down_per_round: int | None = None
    bytes_up_per_round: int | None = None


class PlanView(Document):
    """A submitted plan; `digest` is the SHA-256 of its RFC 8785 bytes."""

    digest: str
    plan: Plan
    created: Timestamp
    created_by: str


class WaitingFor(Document):
    """A site that the run waits for, since when, and why.

    `why` is `not-enrolled`, `not-fetched` (the task is offered) or `working` (it has the task;
    `since` is its last sign of life).
    """

    site: str
    since: Timestamp
    why: str


class RunView(Document):
    """A run's progress. `round` of `rounds`; `phase` such as `train open`; `took_part` of
    `invited` in the current attempt; `metrics` of the last evaluation (else of training).
    """

    run: str
    name: str
    plan: str
    study: str
    status: str
    reason: str | None = None
    created: Timestamp
    started: Timestamp | None = None
    ended: Timestamp | None = None
    sites: list[str]
    available: list[str]
    round: int
    rounds: int
    attempt: int | None = None
    phase: str | None = None
    took_part: int = 0
    invited: int = 0
    participation: str = ""
    """For people: `5 of 7 took part`."""
    waiting_for: list[WaitingFor] = Field(default_factory=list)
    model: str
    metrics: dict[str, MetricValue] = Field(default_factory=dict)
    metrics_round: int | None = None
    bytes_up: int = 0
    bytes_down: int = 0


class TaskView(Document):
    """One site's part in an attempt; `weight` is what its update counted."""

    task: str
    site: str
    status: str
    reason: str | None = None
    detail: str | None = None
    fence: int
    leased: Timestamp | None = None
    finished: Timestamp | None = None
    duration_s: float | None = None
    num_examples: float | None = None
    weight: float | None = None
    metrics: dict[str, MetricValue] = Field(default_factory=dict)
    update: str | None = None
    update_bytes: int = 0


class SiteReason(Document):
    """A site and the stable name of why it did not take part."""

    site: str
    reason: str


class AttemptView(Document):
    """One try at a round: who was selected, who took part, who was refused or late and why.

    `duration_s` is from opening to closing, `aggregation_s` the part of it that combining took.
    `note` says what was unusual about a committed attempt (`no-data`).
    """

    kind: str
    attempt: int
    status: str
    reason: str | None = None
    note: str | None = None
    opened: Timestamp
    closed: Timestamp | None = None
    duration_s: float | None = None
    aggregation_s: float | None = None
    cohort: list[str]
    took_part: list[str]
    participation: str = ""
    refused: list[SiteReason] = Field(default_factory=list)
    late: list[SiteReason] = Field(default_factory=list)
    weight: float | None = None
    metrics: dict[str, MetricValue] = Field(default_factory=dict)
    model_before: str
    model_after: str | None = None
    bytes_up: int = 0
    tasks: list[TaskView] = Field(default_factory=list)


class RoundView(Document):
    """All attempts of a round (0 = preparation), in order. Lists leave out the tasks."""

    run: str
    round: int
    attempts: list[AttemptView]


class Invite(Document):
    """Shown once: what a site's agent enrols with."""

    site: str
    organisation: str
    invite: str
    expires: Timestamp


class SiteView(Document):
    """A site: `invited`, `enrolled` or `revoked`."""

    site: str
    organisation: str
    status: str
    invited: Timestamp
    enrolled: Timestamp | None = None
    revoked: Timestamp | None = None
    last_seen: Timestamp | None = None
    clock_skew_s: float | None = None
    """Of the last request, positive when the site's clock is ahead."""
    key_id: str | None = None
    public_key: str | None = None
    protocol: str | None = None
    agent_version: str | None = None
    library_versions: dict[str, str] = Field(default_factory=dict)


class TokenView(Document):
    """An API token without its secret."""

    token: str
    name: str
    role: str
    created: Timestamp
    expires: Timestamp
    revoked: Timestamp | None = None


class NewToken(Document):
    """Shown once: the token with its secret."""

    token: str
    name: str
    role: str
    expires: Timestamp
    secret: str


class AuditEventView(Document):
    """One record of the audit log; `record` is the parsed form of the hashed bytes."""

    seq: int
    id: str
    leaf_hash: str
    record: dict[str, object]


class AuditHead(Document):
    """The tree's size and root (hex)."""

    size: int
    root: str


class InclusionProof(Document):
    """Shows that record `seq` (the leaf at index seq - 1) is in the tree of `size` leaves."""

    seq: int
    size: int
    leaf_hash: str
    root: str
    proof: list[str]


class ConsistencyProof(Document):
    """Shows that the tree of `first` leaves is a prefix of the tree of `second` leaves."""

    first: int
    second: int
    first_root: str
    second_root: str
    proof: list[str]


class AuditCheck(Document):
    """The outcome of recomputing the log from its stored bytes.

    `first_bad_seq` is the first record that does not fit; `problem` says what was found there.
    """

    ok: bool
    size: int
    root: str
    first_bad_seq: int | None = None
    problem: str | None = None
