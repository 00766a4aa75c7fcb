"""The catalogue of audit events: one model of details per action, and nothing else is recorded.

Details are allow-listed fields: names, ids, digests, counts and stable reasons. Never tokens,
paths, exception texts or values of data. Decimals are texts, so that the canonical form of a
record never depends on how a float is printed.
"""

from typing import Annotated

from pydantic import Field, StringConstraints

from fedward.protocol.documents import Digest, Document, Name, Slug, Timestamp

Reason = Annotated[str, StringConstraints(max_length=300)]
Count = Annotated[int, Field(ge=0, lt=2**53)]


class Details(Document):
    """Base of all details."""


class Nothing(Details):
    """The record's other fields say it all."""


class CoordinatorStarted(Details):
    """`unfinished` runs go on; `clean` tells an orderly stop before from a crash."""

    version: Name
    clean: bool
    unfinished: list[Name]


class StudyCreated(Details):
    """The digest is that of the study's canonical bytes."""

    digest: Digest
    sites: list[Slug]
    expires: Timestamp


class StudyClosed(Details):
    """`stopped` are the runs that ended with it; `cause` is `operator` or `expired`."""

    cause: Name
    stopped: list[Name]


class AppAdded(Details):
    """An app bundle was uploaded."""

    name: Name
    version: Name
    size_bytes: Count


class ModelAdded(Details):
    """An initial model was uploaded."""

    size_bytes: Count
    parameters: Count


class PlanSubmitted(Details):
    """A plan was accepted under its digest (the record's object)."""

    app: Name
    model: Digest
    strategy: Name


class RunCreated(Details):
    """A run was drafted."""

    plan: Digest
    sites: list[Slug]


class RunStarted(Details):
    """Sites of the plan, and how many of them are enrolled."""

    plan_sites: Count
    available: Count


class RunEnded(Details):
    """The run's last model, and why it ended where it did not complete."""

    model: Digest
    reason: Reason | None = None


class AttemptOpened(Details):
    """Who was selected."""

    kind: Name
    attempt: Count
    cohort: list[Slug]
    quorum: Count


class AttemptTallied(Details):
    """Who took part so far."""

    kind: Name
    attempt: Count
    took_part: list[Slug]
    invited: Count


class AttemptCommitted(AttemptTallied):
    """The model after the attempt; `note` where something was unusual (`no-data`)."""

    model: Digest
    note: Reason | None = None
    weight: Name | None = None
    updates: list[Digest] = Field(default_factory=list)
    """Digests of the combined updates, by site, as in `took_part`."""


class AttemptAborted(AttemptTallied):
    """The attempt changed nothing."""

    reason: Reason


class TaskLeased(Details):
    """A site fetched its task."""

    task: Name
    site: Slug
    fence: Count


class TaskAccepted(Details):
    """A site's answer passed the gate."""

    task: Name
    site: Slug
    num_examples: Name | None = None
    update: Digest | None = None
    size_bytes: Count = 0


class TaskRefused(Details):
    """A site's answer was refused, or the site did not do the task."""

    task: Name
    site: Slug
    reason: Reason
    update: Digest | None = None


class TaskExpired(Details):
    """A site's answer is no longer waited for."""

    task: Name
    site: Slug
    reason: Reason


class SiteInvited(Details):
    """An invite was made; only its hash is kept."""

    expires: Timestamp


class SiteEnrolled(Details):
    """The site's identity key from now on."""

    key_id: Name
    public_key: Name
    protocol: Name
    agent_version: Name


class TokenCreated(Details):
    """An API token was made."""

    role: Name
    expires: Timestamp


class AuditRead(Details):
    """Which records were read."""

    after_seq: Count
    count: Count


class Denied(Details):
    """What was not allowed. `repeats` counts like denials since the record before this one."""

    action: Name
    repeats: Count = 0


DETAILS: dict[str, type[Details]] = {
    "coordinator.start": CoordinatorStarted,
    "coordinator.stop": Nothing,
    "study.create": StudyCreated,
    "study.close": StudyClosed,
    "app.add": AppAdded,
    "model.add": ModelAdded,
    "model.read": Nothing,
    "plan.submit": PlanSubmitted,
    "run.create": RunCreated,
    "run.start": RunStarted,
    "run.pause": Nothing,
    "run.resume": Nothing,
    "run.complete": RunEnded,
    "run.fail": RunEnded,
    "run.stop": RunEnded,
    "attempt.open": AttemptOpened,
    "attempt.close": AttemptTallied,
    "attempt.aggregate": AttemptTallied,
    "attempt.commit": AttemptCommitted,
    "attempt.abort": AttemptAborted,
    "task.lease": TaskLeased,
    "task.accept": TaskAccepted,
    "task.refuse": TaskRefused,
    "task.expire": TaskExpired,
    "site.invite": SiteInvited,
    "site.enrol": SiteEnrolled,
    "site.revoke": Nothing,
    "token.create": TokenCreated,
    "token.revoke": Nothing,
    "audit.read": AuditRead,
    "access.deny": Denied,
    "login.fail": Denied,
}
"""Every action that is ever recorded."""
