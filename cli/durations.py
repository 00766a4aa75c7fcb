"""Durations as people write them: `90s`, `30m`, `72h`, `7d`; and days as expiry dates."""

import re
from datetime import UTC, datetime, timedelta

import click

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> int:
    """Return the seconds of `72h` and the like.

    Raises:
        click.BadParameter: another form.
    """
    found = re.fullmatch(r"([1-9]\d{0,8})([smhd])", text.strip())
    if found is None:
        raise click.BadParameter(f"got {text!r}, expected a number and s, m, h or d, as in 72h")
    return int(found[1]) * UNITS_S[found[2]]


def parse_end_of_day(text: str) -> str:
    """Return the wire timestamp of the last second (UTC) of a day such as `2027-12-31`.

    Raises:
        click.BadParameter: another form, or no such day.
    """
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise click.BadParameter(f"got {text!r}, expected a day as in 2027-12-31") from error
    return (day + timedelta(days=1) - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
