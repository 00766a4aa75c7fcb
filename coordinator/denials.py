"""Denials and failed logins on the audit log; floods of them are counted."""

from collections.abc import Iterator
from contextlib import contextmanager

from fedward.coordinator import audit
from fedward.coordinator.actors import ANONYMOUS, Actor
from fedward.coordinator.context import Context, Denial
from fedward.coordinator.errors import NotAuthenticated
from fedward.coordinator.floods import WINDOW_S
from fedward.protocol.records import Subject


def record(context: Context, denial: Denial) -> None:
    """Record a denial, or a failed login where the actor is ANONYMOUS."""
    if context.floods.is_first(denial, now=context.clock()):
        _append(context, denial, repeats=0)


def record_repeats(context: Context, *, older_than_s: float = WINDOW_S) -> None:
    """Record how often denials were repeated within minutes that are over."""
    for denial, repeats in context.floods.drain(before=context.clock() - older_than_s):
        _append(context, denial, repeats=repeats)


@contextmanager
def recorded(context: Context, actor: Actor, *, action: str) -> Iterator[None]:
    """Record a NotAuthenticated that the body raises, after its transaction has ended."""
    try:
        yield
    except NotAuthenticated as error:
        record(context, Denial(actor, action, error.name))
        raise


def _append(context: Context, denial: Denial, *, repeats: int) -> None:
    with context.store.transaction() as work:
        audit.append(
            context,
            work,
            actor=denial.actor,
            action="login.fail" if denial.actor == ANONYMOUS else "access.deny",
            subject=Subject(
                "task" if denial.task else None,
                denial.task,
                study=denial.study,
                run=denial.run,
                round=denial.round,
            ),
            outcome="denied",
            reason=denial.reason,
            details={"action": denial.action, "repeats": repeats},
        )
