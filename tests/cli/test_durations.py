"""Durations and days as people write them."""

import click
import pytest

from fedward.cli.durations import parse_duration, parse_end_of_day


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("72h", 259_200), ("7d", 604_800)]
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "72", "h", "-1h", "0h", "1.5h", "1w"])
def test_another_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="as in 72h"):
        parse_duration(text)


def test_a_day_lasts_to_its_last_second() -> None:
    assert parse_end_of_day("2027-02-28") == "2027-02-28T23:59:59.000000Z"


@pytest.mark.parametrize("text", ["2027-02-29", "tomorrow", "28.2.2027"])
def test_no_such_day_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="as in 2027-12-31"):
        parse_end_of_day(text)
