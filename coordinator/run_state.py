"""The states, events and effects of the round machine (`rounds.py` says how they follow)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fedward.protocol.documents import Plan, TaskKind


class RunStatus(StrEnum):
    """Where a run stands; `rounds.py` says what follows what."""

    DRAFT = "draft"
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


class AttemptStatus(StrEnum):
    """Where an attempt stands."""

    SELECTING = "selecting"
    OPEN = "open"
    CLOSING = "closing"
    AGGREGATING = "aggregating"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TaskStatus(StrEnum):
    """Where a site's task stands."""

    OFFERED = "offered"
    LEASED = "leased"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    EXPIRED = "expired"


ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.STOPPED})
PENDING = frozenset({TaskStatus.OFFERED, TaskStatus.LEASED})
CLOSED = frozenset({AttemptStatus.COMMITTED, AttemptStatus.ABORTED})


@dataclass(frozen=True, slots=True)
class SiteTask:
    """A site's work in an attempt; `progress_at` is when it last showed signs of life."""

    task: str
    site: str
    status: TaskStatus
    fence: int
    progress_at: float
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try; `grace_until` is set while closing."""

    kind: TaskKind
    round: int
    number: int
    status: AttemptStatus
    opened_at: float
    tasks: tuple[SiteTask, ...] = ()
    grace_until: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RunState:
    """All that decides how a run goes on; small, stored whole with every step."""

    run: str
    plan: Plan
    sites: tuple[str, ...]
    available: tuple[str, ...]
    model: str
    status: RunStatus = RunStatus.DRAFT
    attempt: Attempt | None = None
    reason: str | None = None


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Start:
    """An operator starts the run."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Open no further attempt and hand out no task; what is out may come back."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on; every pending task's deadline begins anew."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run for good; `reason` is a stable name."""

    reason: str


@dataclass(frozen=True, slots=True)
class SitesChanged:
    """The enrolled, not revoked sites among the run's are now these."""

    available: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lease:
    """The site fetches its task; asking again renews the lease under a new fence."""

    site: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The site shows that it works on the task (a heartbeat, an upload's chunk)."""

    site: str
    fence: int


@dataclass(frozen=True, slots=True)
class Accept:
    """The site's answer passed the gate."""

    task: str
    fence: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The site's answer is a failure, or did not pass the gate."""

    task: str
    fence: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Aggregated:
    """The attempt's answers are combined; `model` is the run's model from now on."""

    model: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AggregationFailed:
    """The attempt's answers could not be combined."""

    reason: str


Event = (
    Start | Pause | Resume | Stop | SitesChanged | Lease | Progress | Accept | Refuse | Tick
    | Aggregated | AggregationFailed
)  # fmt: skip

# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Wake:
    """Answer the long polls of these sites: there may be a task for them."""

    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Combine the attempt's accepted answers, then send Aggregated or AggregationFailed."""


@dataclass(frozen=True, slots=True)
class TickAt:
    """Send a Tick at this time."""

    at: float


@dataclass(frozen=True, slots=True)
class Note:
    """Write an audit record; `failed` where the step records something that went wrong."""

    action: str
    details: dict[str, Any]
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Closed:
    """Store how this attempt ended: the state may hold the next one already."""

    attempt: Attempt


Effect = Wake | Aggregate | TickAt | Note | Closed
Effects = tuple[Effect, ...]
Stepped = tuple[RunState, Effects]
