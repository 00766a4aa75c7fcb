"""Keyset paging: how many items one answer holds and where the next one begins."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from fedward.coordinator import views
from fedward.coordinator.errors import InvalidInput

MAX_LIMIT = 500
R = TypeVar("R")
V = TypeVar("V")


def checked_limit(limit: int) -> int:
    """Return `limit`.

    Raises:
        InvalidInput: it is not 1 to 500.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput("invalid-limit", f"limit: got {limit}, expected 1 to {MAX_LIMIT}")
    return limit


def make_page(
    records: Sequence[R], *, limit: int, key: Callable[[R], str], view: Callable[[R], V]
) -> views.Page[V]:
    """Return a page of the first `limit` of `records`, which were asked for with one more."""
    shown = records[:limit]
    more = len(records) > limit
    return views.Page(
        items=[view(record) for record in shown], next=key(shown[-1]) if more else None
    )
