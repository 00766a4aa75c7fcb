import inspect

import pytest
from pydantic import ValidationError

from fedward.coordinator import errors as coordinator_errors
from fedward.coordinator.api.problems import (
    STATUS,
    RequestRefused,
    problem_of,
    problem_response,
    refused_input,
)
from fedward.coordinator.errors import CoordinatorError, NotFound, PlanRefused, Unavailable
from fedward.protocol import errors as protocol_errors
from fedward.protocol.documents import RoundRules
from fedward.protocol.errors import ClockSkew


def _classes(module):
    return [
        c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__
    ]


@pytest.mark.parametrize(
    "cls", _classes(protocol_errors) + _classes(coordinator_errors), ids=lambda cls: cls.__name__
)
def test_every_error_class_has_a_status(cls):
    assert any(base in STATUS for base in cls.__mro__)


def test_a_problem_names_the_objects_concerned():
    shown = problem_of(NotFound("unknown-run", "no run run-1", run="run-1"))
    assert (shown.type, shown.status) == ("/problems/unknown-run", 404)
    assert (shown.title, shown.ids) == ("Unknown run", {"run": "run-1"})


def test_a_refused_plan_carries_all_its_reasons():
    shown = problem_of(PlanRefused(["one", "two"], study="s"))
    assert (shown.status, shown.reasons) == (422, ["one", "two"])


def test_clock_skew_says_how_much_and_how_much_is_allowed():
    shown = problem_of(ClockSkew(600.2, limit_s=300))
    assert (shown.type, shown.status) == ("/problems/clock-skew", 401)
    assert (shown.got, shown.expected) == (600, "at most 300 s")
    assert "your clock is 600 s ahead" in shown.detail


def test_the_most_specific_class_decides():
    class Special(NotFound):
        pass

    assert problem_of(Special("a", "b")).status == 404
    assert problem_of(CoordinatorError("a", "b")).status == 400
    assert problem_of(RequestRefused("a", "b", status=416, got=1, expected=2)).got == 1


def test_unavailable_says_when_to_come_back():
    answer = problem_response(problem_of(Unavailable("audit-unavailable", "full")))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_findings_say_place_got_and_expected():
    with pytest.raises(ValidationError) as caught:
        RoundRules.model_validate({"count": 0, "colour": "blue", "quorum": float("nan")})
    shown = refused_input(caught.value.errors())
    assert shown.status == 422
    assert any(r.startswith("count: ") and r.endswith("got 0") for r in shown.reasons)
    assert "colour: unknown field" in shown.reasons
    assert shown.model_dump_json()  # NaN in what was got does not break the answer


def test_a_refused_secret_is_not_told_back():
    error = {"type": "string_too_short", "loc": ("body", "invite"), "msg": "short", "input": "fwi"}
    shown = refused_input([error])
    assert (shown.got, shown.reasons) == (None, ["invite: short"])


def test_a_long_value_is_cut():
    error = {"type": "x", "loc": ("body", "name"), "msg": "long", "input": "n" * 5000}
    assert len(refused_input([error]).got) < 300
