"""Errors of the coordinator, split by who must act. `api/problems.py` maps each to a status.

CoordinatorError
├── EventRefused      a run, attempt or task does not allow this now (409)
│   └── OffsetMismatch  an upload continues somewhere else (409)
├── InvalidInput      what was sent is well-formed, but cannot be meant (400)
├── NotFound          no such object, or not for this caller (404)
├── Conflict          it exists already with other content (409)
├── PlanRefused       the plan cannot work; all reasons at once (422)
├── UpdateRefused     an answer of a site, or an app, did not pass the gate (422, shown by name)
├── NotAllowed        the caller may not do this (403)
├── NotAuthenticated  who the caller is could not be established (401)
├── LimitExceeded     larger than what is configured (413)
└── Unavailable       storage or audit log cannot be written; nothing changed (503)
"""


class CoordinatorError(Exception):
    """Root of the tree; `name` is the stable problem type."""

    def __init__(self, name: str, detail: str, **ids: str) -> None:
        super().__init__(detail)
        self.name = name
        self.detail = detail
        self.ids = ids


class EventRefused(CoordinatorError):
    """A run, attempt or task does not allow this now."""


class NotFound(CoordinatorError):
    """No such object, or not for this caller."""


class Conflict(CoordinatorError):
    """It exists already with other content."""


class PlanRefused(CoordinatorError):
    """The plan cannot work; `reasons` lists all that is wrong."""

    def __init__(self, reasons: list[str], **ids: str) -> None:
        super().__init__("plan-refused", "; ".join(reasons), **ids)
        self.reasons = reasons


class UpdateRefused(CoordinatorError):
    """An answer of a site, or an app, did not pass the gate."""


class NotAllowed(CoordinatorError):
    """The caller may not do this."""


class NotAuthenticated(CoordinatorError):
    """Who the caller is could not be established."""


class LimitExceeded(CoordinatorError):
    """Larger than what is configured."""


class Unavailable(CoordinatorError):
    """Storage or the audit log cannot be written; nothing changed."""


class InvalidInput(CoordinatorError):
    """What was sent is well-formed, but cannot be meant."""


class OffsetMismatch(EventRefused):
    """An upload continues at another offset: `received_bytes` have arrived."""

    def __init__(self, got: int, *, received_bytes: int, task: str) -> None:
        super().__init__(
            "offset-mismatch",
            f"upload of {task}: got offset {got}, expected {received_bytes}",
            task=task,
        )
        self.received_bytes = received_bytes
