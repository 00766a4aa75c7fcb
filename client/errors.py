"""Errors of the site agent, split by who must act.

ClientError
├── InvalidSettings      agent.toml: the site's administrator corrects it
├── InvalidState         the state folder cannot be used as it is
│   ├── NotEnrolled      `fedward agent enrol` comes first
│   ├── AlreadyEnrolled  the folder belongs to a membership already
│   ├── StateInUse       another agent runs on the folder
│   └── AuditBroken      the site's own audit log does not verify
├── EnrolmentRefused     the coordinator is not the one that the invite names, or refused
├── TaskFailed           this site did not do a task; a typed code leaves the site
├── WorkerDied           the worker process ended or broke its protocol
├── CorruptDownload      bytes arrived that do not have the wanted digest
├── ConnectionFailed     trying again helps
│   ├── Unreachable      no answer, or one that says "later"
│   └── UntrustedAnswer  an answer that the pinned coordinator key did not sign
└── CallRefused          a signed refusal of the coordinator
    ├── NotAdmitted      the site is revoked or unknown: the agent ends
    └── AgentOutdated    the coordinator does not speak this protocol: the agent ends
"""

from fedward.protocol.documents import Problem, TaskFailure


class ClientError(Exception):
    """Root of the tree."""


class InvalidSettings(ClientError):
    """agent.toml is not usable; the message names the file and each key."""


class InvalidState(ClientError):
    """The state folder cannot be used as it is."""


class NotEnrolled(InvalidState):
    """The state folder holds no membership."""


class AlreadyEnrolled(InvalidState):
    """The state folder holds a membership already."""


class StateInUse(InvalidState):
    """Another agent runs on the state folder."""


class AuditBroken(InvalidState):
    """The site's own audit log does not verify."""


class EnrolmentRefused(ClientError):
    """The coordinator is not the one that the invite names, or it refused."""


class TaskFailed(ClientError):
    """A task was not done at this site.

    Only `failure` leaves the site; the message is for the site's own log.
    """

    def __init__(self, failure: TaskFailure, detail: str) -> None:
        super().__init__(f"{failure.value}: {detail}")
        self.failure = failure


class WorkerDied(ClientError):
    """The worker process ended, or broke its protocol."""


class CorruptDownload(ClientError):
    """The bytes that arrived do not have the wanted digest."""


class ConnectionFailed(ClientError):
    """No answer that can be believed; trying again helps."""


class Unreachable(ConnectionFailed):
    """No answer, or one that says "later"; `retry_after_s` is what the peer asked for."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UntrustedAnswer(ConnectionFailed):
    """The answer is not signed by the coordinator's pinned key: nothing in it is believed."""


class CallRefused(ClientError):
    """A signed refusal; `name` is the stable problem type."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.status} {problem.type}: {problem.detail}")
        self.problem = problem
        self.name = problem.type.rsplit("/", 1)[-1]


class NotAdmitted(CallRefused):
    """The site is revoked or unknown to the coordinator."""


class AgentOutdated(CallRefused):
    """The coordinator does not speak this agent's protocol."""
