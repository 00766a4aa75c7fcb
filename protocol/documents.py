"""The documents that coordinator, agents and command line exchange, and their limits.

Every document forbids unknown fields and non-finite numbers. A document that is signed or
hashed (the plan) is hashed over its RFC 8785 bytes, see `canonical.py`. What a document means
for a run is decided elsewhere (`coordinator/rounds.py`, `coordinator/plans.py`); this module
decides only which ones are well-formed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

PROTOCOL_VERSION = "fedward/1"
"""Negotiated at enrolment and sent with every request in `Fedward-Protocol`."""

MAX_CHUNK_BYTES = 8 * 1024 * 1024
"""Largest body of one upload chunk, and of one signed response."""

MAX_DOCUMENT_BYTES = 256 * 1024
"""Largest body of any other request: one JSON document, as it travels."""

MAX_INTEGER = 2**53 - 1
"""Largest integer that every reader of JSON keeps (RFC 8785), and SQL and the audit log hold."""

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
"""Name of a site or study: lower case, digits and hyphens, at most 63 characters."""
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,8}-[0-9a-z]{6,40}$")]
"""A generated id such as `run-0k3f…` or `task-…`."""
PublicKey = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""Ed25519 identity key, hex."""
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=4000)]
Timestamp = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
"""UTC, RFC 3339, microseconds."""
Scalar = bool | int | float | Annotated[str, StringConstraints(max_length=16_384)]
"""A Flower configuration value."""
Fence = Annotated[int, Field(strict=True, ge=1, le=MAX_INTEGER)]
"""Fencing token of a lease; strict, so that `true` and 1.0 are none."""
_Integer = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
_Float = Annotated[float, Field(strict=True)]
MetricValue = _Integer | _Float | list[_Integer] | list[_Float]
"""A value of Flower's MetricRecord; no truth value and no text."""
Metrics = Annotated[dict[Name, MetricValue], Field(max_length=256)]


class Document(BaseModel):
    """Base of all wire documents: frozen, no unknown fields, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# ---------------------------------------------------------------- studies, apps, plans


class Study(Document):
    """Why data is used, by whom it may be used, and until when."""

    study: Slug
    purpose: Annotated[str, StringConstraints(min_length=1, max_length=4000)]
    legal_basis: Annotated[str, StringConstraints(min_length=1, max_length=4000)]
    sites: Annotated[list[Slug], Field(min_length=1, max_length=10_000)]
    expires: Timestamp

    @model_validator(mode="after")
    def _sites_are_distinct(self) -> Study:
        if len(set(self.sites)) != len(self.sites):
            raise ValueError("a site is named twice")
        return self


class AppRef(Document):
    """The training code: a recipe by name or an uploaded bundle by digest, and its settings.

    `config` overrides the app's own `[tool.flwr.app.config]` and reaches the ClientApp as
    `context.run_config`. `train_config` and `evaluate_config` reach it in the ConfigRecord of
    each such message (as `lr` does in Flower's templates), beside what fedward puts there.
    """

    recipe: Slug | None = None
    bundle: Digest | None = None
    config: Annotated[dict[Name, Scalar], Field(max_length=256)] = {}
    train_config: Annotated[dict[Name, Scalar], Field(max_length=256)] = {}
    evaluate_config: Annotated[dict[Name, Scalar], Field(max_length=256)] = {}

    @model_validator(mode="after")
    def _one_of_the_two(self) -> AppRef:
        if (self.recipe is None) == (self.bundle is None):
            raise ValueError("name either a recipe or a bundle")
        return self


class StrategySpec(Document):
    """The strategy's registered name and its parameters."""

    name: Slug = "fedavg"
    parameters: Annotated[dict[Name, Scalar], Field(max_length=64)] = {}


class RoundRules(Document):
    """How many rounds, who must take part in each, and how long it waits.

    `cohort` is the number of sites selected per attempt (all of the plan's sites when None).
    An attempt closes when every selected site has answered, or `grace_s` seconds after the
    `quorum`-th update. `deadline_s` is time without progress of a site, not time in all.
    """

    count: Annotated[int, Field(ge=1, le=1_000_000)]
    quorum: Annotated[int, Field(ge=1, le=10_000)] = 2
    cohort: Annotated[int, Field(ge=1, le=10_000)] | None = None
    deadline_s: Annotated[float, Field(gt=0, le=604_800)] = 600.0
    grace_s: Annotated[float, Field(ge=0, le=86_400)] = 10.0
    attempts: Annotated[int, Field(ge=1, le=100)] = 3


class WeightRules(Document):
    """How updates are weighted.

    `cap` is the largest number of examples that is believed; an update above it is refused.
    `missing` is the weight of an update whose reply has no `num-examples` (refused when None).
    """

    by: Literal["num-examples", "uniform"] = "num-examples"
    cap: Annotated[float, Field(gt=0, le=1e15)] = 10_000_000.0
    missing: Annotated[float, Field(ge=0, le=1e15)] | None = None


class ArrayClass(StrEnum):
    """What aggregation does with an array."""

    AVERAGED = "averaged"
    """Floating point: the weighted mean of the differences is added."""
    COUNTED = "counted"
    """Integer or boolean: never averaged; see `ArrayRules.counted`."""
    LOCAL = "local"
    """Stays at each site; neither sent nor changed centrally."""


class ArrayRules(Document):
    """Which arrays are not treated by their dtype alone.

    `local` holds shell patterns (`*.running_mean`) of names that stay at the site.
    `counted` says what becomes of integer and boolean arrays: the elementwise `largest` value
    of those who took part, or `keep` the current model's.
    """

    local: Annotated[list[Name], Field(max_length=256)] = []
    counted: Literal["largest", "keep"] = "largest"


class EvaluateRules(Document):
    """When (every n-th round and the last; 0 = never) and where new models are evaluated."""

    every: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    sites: Annotated[list[Slug], Field(min_length=1, max_length=10_000)] | None = None


class Plan(Document):
    """What a run will execute. Its digest is what sites accept and audit records name.

    `dataset` is the name under which every site keeps the data in its own agent.toml.
    `prepare` sends one `query` message with that action before round 1 to all sites; the mean
    of the replies' metrics, weighted by `num-examples`, reaches later messages in
    `config["prepared.<metric>"]`.
    """

    format: Literal["fedward-plan/1"] = "fedward-plan/1"
    name: Name
    study: Slug
    app: AppRef
    model: Digest
    rounds: RoundRules
    sites: Annotated[list[Slug], Field(min_length=1, max_length=10_000)] | None = None
    dataset: Name | None = None
    prepare: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]{0,63}$")] | None = None
    strategy: StrategySpec = StrategySpec()
    weights: WeightRules = WeightRules()
    arrays: ArrayRules = ArrayRules()
    evaluate: EvaluateRules = EvaluateRules()
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0


# ---------------------------------------------------------------- agents


class Enrolment(Document):
    """What an agent sends to join. The request is signed with the key that it announces."""

    invite: Annotated[str, StringConstraints(min_length=20, max_length=200)]
    public_key: PublicKey
    protocol: Name
    agent_version: Name
    library_versions: Annotated[dict[Name, Name], Field(max_length=64)] = {}


class Membership(Document):
    """The coordinator's answer: who the agent is from now on."""

    site: Slug
    key_id: Name
    coordinator_key: PublicKey
    protocol: Name
    enrolled_at: Timestamp


class TaskKind(StrEnum):
    """The message type that the ClientApp receives."""

    QUERY = "query"
    TRAIN = "train"
    EVALUATE = "evaluate"


class Task(Document):
    """One piece of work for one site, leased with a fencing token.

    The agent fetches the plan (its canonical bytes are a blob named by `plan`), the model and
    the bundle by digest, and believes only what matches. `config` is the message's
    ConfigRecord; `server-round` is in it.
    """

    task: Identifier
    kind: TaskKind
    run: Identifier
    study: Slug
    round: Annotated[int, Field(ge=0)]
    attempt: Annotated[int, Field(ge=1)]
    fence: Fence
    plan: Digest
    model: Digest
    config: Annotated[
        dict[Name, Scalar | list[float] | list[int] | list[str]], Field(max_length=512)
    ]
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    lease_s: Annotated[float, Field(gt=0)]
    """Seconds until the lease ends without a sign of progress."""


class TaskFailure(StrEnum):
    """Why a site did not do a task. Only these codes leave the site, never a traceback."""

    APP_NOT_ACCEPTED = "app-not-accepted"
    APP_INVALID = "app-invalid"
    APP_RAISED = "app-raised"
    REPLY_INVALID = "reply-invalid"
    DATASET_UNKNOWN = "dataset-unknown"
    DATASET_UNREADABLE = "dataset-unreadable"
    WEIGHT_MISSING = "weight-missing"
    NON_FINITE = "non-finite"
    SCHEMA_MISMATCH = "schema-mismatch"
    WORKER_DIED = "worker-died"
    PLAN_INVALID = "plan-invalid"
    MODEL_INVALID = "model-invalid"
    RESOURCES = "resources"
    STOPPED = "stopped-at-site"


class UpdateRef(Document):
    """The uploaded arrays of an update."""

    digest: Digest
    size_bytes: Annotated[int, Field(ge=0, le=2**40)]


class TaskResult(Document):
    """What a site returns for a task; exactly one of `metrics` and `failure` is set.

    `fence` and `model` repeat the task's: an answer to an older lease or another model is
    refused. `num_examples` is the weight, None where the reply had none. `update` is set for
    `train` only.
    """

    fence: Fence
    model: Digest
    update: UpdateRef | None = None
    num_examples: Annotated[float, Field(strict=True, ge=-1e300, le=1e300)] | None = None
    metrics: Metrics | None = None
    failure: TaskFailure | None = None
    duration_s: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _metrics_or_failure(self) -> TaskResult:
        if (self.metrics is None) == (self.failure is None):
            raise ValueError("set either metrics or failure")
        if self.failure is not None and self.update is not None:
            raise ValueError("a failure carries no update")
        return self


class NextStep(StrEnum):
    """What the agent does after an answer."""

    POLL = "poll"
    """Done with this task, in whatever way; ask for the next."""
    UPLOAD = "upload"
    """Bytes are missing: continue the upload, then send the result again."""


class ResultReceipt(Document):
    """The coordinator's answer to a TaskResult."""

    task: Identifier
    accepted: bool
    reason: Name | None = None
    """Stable name of the refusal (`round-closed`, `stale-fence`, `non-finite` …)."""
    detail: Text | None = None
    next: NextStep = NextStep.POLL


class UploadState(Document):
    """How much of a task's upload has arrived, in bytes."""

    task: Identifier
    received_bytes: Annotated[int, Field(ge=0)]


class Problem(BaseModel):
    """RFC 9457 problem details. `type` is `/problems/<name>` and stable."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str
    title: str
    status: int
    detail: str
    got: object = None
    expected: object = None
    ids: dict[str, str] = {}
    reasons: list[str] = []
