"""What a site records about itself: one model per action, and nothing else may be recorded.

Details hold ids, digests, counts and stable names only: no paths, no exception texts, no
values of data. A class's docstring is the event's documentation.
"""

from typing import ClassVar

from fedward.protocol.documents import Digest, Document, Name, Slug, TaskFailure, TaskKind


class EventDetails(Document):
    """Base of the catalogue; `ACTION` is the record's `action`."""

    ACTION: ClassVar[str]


class AgentEnrolled(EventDetails):
    """The site joined a federation; `coordinator_key` is pinned from now on."""

    ACTION: ClassVar[str] = "agent.enrol"

    key_id: Name
    coordinator_key: Name


class AgentStarted(EventDetails):
    """The agent process started; `unfinished` tasks had been received and not finished."""

    ACTION: ClassVar[str] = "agent.start"

    agent_version: Name
    unfinished: int


class AgentStopped(EventDetails):
    """The agent process was asked to stop, or ends because the coordinator refused it."""

    ACTION: ClassVar[str] = "agent.stop"


class TaskReceived(EventDetails):
    """The coordinator leased a task to this site."""

    ACTION: ClassVar[str] = "task.receive"

    kind: TaskKind
    attempt: int
    fence: int
    plan: Digest
    model: Digest


class PlanAccepted(EventDetails):
    """The site's rules allow what the plan asks."""

    ACTION: ClassVar[str] = "plan.accept"

    plan: Digest
    recipe: Slug | None
    bundle: Digest | None
    dataset: Name | None


class PlanRefused(EventDetails):
    """The site's rules do not allow what the plan asks; no data was read."""

    ACTION: ClassVar[str] = "plan.refuse"

    plan: Digest
    failure: TaskFailure


class TaskFinished(EventDetails):
    """The app's answer passed the site's checks and is stored here; nothing was sent yet."""

    ACTION: ClassVar[str] = "task.finish"

    kind: TaskKind
    update: Digest | None
    update_bytes: int
    metrics: list[Name]


class TaskFailedHere(EventDetails):
    """The task could not be done here."""

    ACTION: ClassVar[str] = "task.fail"

    kind: TaskKind
    failure: TaskFailure


class TaskGone(EventDetails):
    """The coordinator no longer wants the task; work on it was stopped."""

    ACTION: ClassVar[str] = "task.abandon"

    fence: int


class EgressIntended(EventDetails):
    """Bytes that derive from data are about to be sent; written before the first byte."""

    ACTION: ClassVar[str] = "egress.begin"

    kind: Name
    digest: Digest
    size_bytes: int


class EgressSettled(EventDetails):
    """The coordinator answered what was sent."""

    ACTION: ClassVar[str] = "egress.end"

    accepted: bool
