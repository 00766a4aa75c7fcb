"""Who acts: the identity that every call of the service takes and every audit record names."""

from dataclasses import dataclass
from typing import Literal, get_args

Role = Literal["admin", "operator", "researcher", "auditor"]
"""Of a user; what each may do is decided in `api/auth.py`."""
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Actor:
    """A user (by API token), a site's agent (by its key) or the system itself.

    `id` is the token's id, the site's name or the component's; `session` names the token that
    was used.
    """

    type: Literal["user", "agent", "system"]
    id: str
    role: str | None = None
    session: str | None = None


SYSTEM = Actor("system", "coordinator")
"""The scheduler: timers, aggregation, start and stop."""

ANONYMOUS = Actor("user", "anonymous")
"""A caller that could not be authenticated."""


def agent(site: str) -> Actor:
    """Return the actor of a site's agent."""
    return Actor("agent", site, "agent")
