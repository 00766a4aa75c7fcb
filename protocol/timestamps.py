"""Seconds since the epoch, as kept in SQL, and the RFC 3339 text that goes on the wire."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_timestamp(seconds: float) -> str:
    """Return `seconds` as UTC text with microseconds, `2026-01-31T12:00:00.000000Z`."""
    moment = _EPOCH + timedelta(microseconds=round(seconds * 1e6))
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_timestamp(text: str) -> float:
    """Return the seconds since the epoch.

    Raises:
        ValueError: `text` is not a UTC time in that form, or no such day exists.
    """
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return (moment - _EPOCH).total_seconds()
