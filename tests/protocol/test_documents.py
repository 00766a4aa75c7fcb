"""What the wire documents refuse; their plain content needs no test."""

from typing import Any

import pytest
from pydantic import ValidationError

from fedward.protocol.documents import (
    AppRef,
    Document,
    Enrolment,
    Plan,
    RoundRules,
    StrategySpec,
    Study,
    TaskFailure,
    TaskResult,
    UpdateRef,
    WeightRules,
)

DIGEST = "sha256:" + "0" * 64
STUDY = {
    "study": "sepsis-2026",
    "purpose": "early warning",
    "legal_basis": "consent",
    "sites": ["north", "south"],
    "expires": "2027-01-01T00:00:00.000000Z",
}
PLAN: dict[str, Any] = {
    "name": "first",
    "study": "sepsis-2026",
    "app": {"recipe": "tabular"},
    "model": DIGEST,
    "rounds": {"count": 3},
}
RESULT: dict[str, Any] = {"fence": 1, "model": DIGEST, "metrics": {"loss": 0.5}}


def refused(document: type[Document], values: dict[str, Any], match: str = "error") -> bool:
    with pytest.raises(ValidationError, match=match):
        document.model_validate(values)
    return True


def test_complete_documents_are_accepted() -> None:
    assert Study.model_validate(STUDY).sites == ["north", "south"]
    assert Plan.model_validate(PLAN).strategy == StrategySpec(name="fedavg")
    assert TaskResult.model_validate(RESULT).failure is None


@pytest.mark.parametrize("document, values", [(Study, STUDY), (Plan, PLAN), (TaskResult, RESULT)])
def test_an_unknown_field_is_refused(document: type[Document], values: dict[str, Any]) -> None:
    assert refused(document, values | {"extra": 1}, "extra")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused_everywhere(value: float) -> None:
    assert refused(TaskResult, RESULT | {"metrics": {"loss": value}})
    assert refused(TaskResult, RESULT | {"metrics": {"loss": [1.0, value]}})
    assert refused(TaskResult, RESULT | {"num_examples": value})
    assert refused(AppRef, {"recipe": "tabular", "config": {"rate": value}})
    assert refused(StrategySpec, {"parameters": {"proximal-mu": value}})
    assert refused(WeightRules, {"cap": value})


def test_a_document_cannot_be_changed() -> None:
    plan = Plan.model_validate(PLAN)
    with pytest.raises(ValidationError, match="frozen"):
        plan.name = "second"  # type: ignore[misc]  # wrong on purpose


def test_a_site_named_twice_is_refused() -> None:
    assert refused(Study, STUDY | {"sites": ["north", "north"]}, "named twice")


@pytest.mark.parametrize("name", ["", "North", "-north", "nord\n", "a" * 64, "north_1", "../x"])
def test_a_name_that_is_no_slug_is_refused(name: str) -> None:
    assert refused(Study, STUDY | {"study": name})


@pytest.mark.parametrize(
    "when", ["2027-01-01", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00.000000+01:00"]
)
def test_a_time_that_is_not_utc_with_microseconds_is_refused(when: str) -> None:
    assert refused(Study, STUDY | {"expires": when})


def test_an_app_is_either_a_recipe_or_a_bundle() -> None:
    assert refused(AppRef, {}, "either a recipe or a bundle")
    assert refused(AppRef, {"recipe": "tabular", "bundle": DIGEST}, "either a recipe or a bundle")


@pytest.mark.parametrize(
    "digest", ["", "0" * 64, "sha256:" + "A" * 64, DIGEST + "\n", "md5:" + "0" * 64]
)
def test_what_is_no_digest_is_refused(digest: str) -> None:
    assert refused(Plan, PLAN | {"model": digest})


def test_a_result_has_metrics_or_a_failure() -> None:
    failure = {"failure": TaskFailure.APP_RAISED}
    bare = {"fence": 1, "model": DIGEST}
    update = {"update": UpdateRef(digest=DIGEST, size_bytes=1)}
    assert TaskResult.model_validate(bare | failure).failure is TaskFailure.APP_RAISED
    assert refused(TaskResult, bare, "either metrics or failure")
    assert refused(TaskResult, RESULT | failure, "either metrics or failure")
    assert refused(TaskResult, bare | failure | update, "carries no update")


def test_booleans_and_integers_of_a_config_keep_their_types() -> None:
    config = AppRef(
        recipe="tabular", config={"flag": True, "epochs": 3, "rate": 1.0, "x": "1"}
    ).config
    assert [type(value) for value in config.values()] == [bool, int, float, str]
    again = AppRef.model_validate_json('{"recipe":"tabular","config":{"flag":true,"epochs":3}}')
    assert [type(value) for value in again.config.values()] == [bool, int]


def test_limits_of_the_rounds_are_checked() -> None:
    for values in ({"count": 0}, {"count": 1, "quorum": 0}, {"count": 1, "deadline_s": 0}, {}):
        assert refused(RoundRules, values)


def test_an_enrolment_announces_a_key_of_64_hex_digits() -> None:
    values = {
        "invite": "i" * 20,
        "public_key": "ab" * 32,
        "protocol": "fedward/1",
        "agent_version": "1",
    }
    assert Enrolment.model_validate(values).library_versions == {}
    assert refused(Enrolment, values | {"public_key": "AB" * 32})
    assert refused(Enrolment, values | {"invite": "short"})


@pytest.mark.parametrize("value", [True, "1", [True], [1.0, False], ["1"], None, 10**400])
def test_a_metric_is_a_number_or_numbers(value: object) -> None:
    assert refused(TaskResult, RESULT | {"metrics": {"loss": value}})


def test_integer_and_float_metrics_stay_what_they_are() -> None:
    metrics = {"a": 1, "b": 1.0, "c": [1, -2], "d": [1.0, 2.0], "e": -(2**63)}
    taken = TaskResult.model_validate(RESULT | {"metrics": metrics}).metrics
    assert repr(taken) == repr(metrics)
    again = TaskResult.model_validate_json(TaskResult.model_validate(RESULT).model_dump_json())
    assert again == TaskResult.model_validate(RESULT)


@pytest.mark.parametrize("changes", [{"fence": True}, {"fence": 1.0}, {"num_examples": True}])
def test_truth_values_are_no_numbers(changes: dict[str, Any]) -> None:
    assert refused(TaskResult, RESULT | changes)
