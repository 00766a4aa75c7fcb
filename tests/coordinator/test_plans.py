"""What a plan is refused for, all at once; studies and their end."""

from typing import Any

import numpy as np
import pytest

from fedward.coordinator.errors import Conflict, InvalidInput, NotFound, PlanRefused
from fedward.coordinator.plans import PlanFacts, check_plan
from fedward.protocol.arrays import encode, schema_of
from fedward.protocol.documents import (
    AppRef,
    ArrayRules,
    EvaluateRules,
    Plan,
    RoundRules,
    StrategySpec,
    Study,
    WeightRules,
)

from .federation import ADMIN, SITES, Federation, simulated

MODEL = "sha256:" + "1" * 64
STUDY = Study(
    study="sepsis",
    purpose="p",
    legal_basis="l",
    sites=list(SITES),
    expires="2027-01-01T00:00:00.000000Z",
)


def check(facts: dict[str, Any] | None = None, **plan: Any) -> list[str]:
    fields: dict[str, Any] = {
        "study": "sepsis",
        "app": AppRef(recipe="tabular"),
        "model": MODEL,
        "name": "n",
    }
    fields["rounds"] = RoundRules(count=1)
    known: dict[str, Any] = {
        "study": STUDY,
        "study_status": "open",
        "app_config": None,
        "schema": schema_of({"w": np.zeros(3, np.float32), "n": np.zeros((), np.int64)}),
        "model_bytes": 100,
        "sites_enrolled": frozenset(SITES),
    }
    return check_plan(Plan(**(fields | plan)), PlanFacts(**(known | (facts or {})))).reasons


def test_a_good_plan_has_no_reasons() -> None:
    assert check() == []


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"rounds": RoundRules(count=1, quorum=1)}, "one participating site, minimum 2"),
        ({"rounds": RoundRules(count=1, quorum=4)}, "got 4, expected at most 3 (the sites)"),
        ({"rounds": RoundRules(count=1, quorum=3, cohort=2)}, "at least 3 (the quorum)"),
        ({"rounds": RoundRules(count=1, cohort=4)}, "rounds.cohort: got 4, expected at most 3"),
        ({"sites": ["hospital-a", "bank-x"]}, "site 'bank-x': not of study 'sepsis'"),
        ({"sites": ["hospital-a", "hospital-a"]}, "a site is named twice"),
        ({"sites": ["hospital-a"]}, "expected at most 1 (the sites)"),
        ({"app": AppRef(recipe="images")}, "got 'images', expected one of tabular"),
        ({"app": AppRef(bundle=MODEL)}, "unknown"),
        (
            {"strategy": StrategySpec(name="krum")},
            "got 'krum', expected one of fedadagrad, fedadam, fedavg",
        ),
        ({"strategy": StrategySpec(parameters={"lr": 1})}, "got parameter 'lr', expected none"),
        ({"arrays": ArrayRules(local=["bn.*"])}, "local pattern 'bn.*' matches no array"),
        ({"arrays": ArrayRules(local=["*"])}, "all local"),
        ({"weights": WeightRules(cap=10, missing=11)}, "expected at most weights.cap"),
        ({"evaluate": EvaluateRules(sites=["bank-x"])}, "'bank-x' is not one of the plan's"),
        ({"evaluate": EvaluateRules(sites=["hospital-a"] * 2)}, "a site is named twice"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(plan: dict[str, Any], reason: str) -> None:
    reasons = check(**plan)
    assert any(reason in text for text in reasons), reasons


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"study": None, "study_status": None}, "study 'sepsis': unknown"),
        ({"study_status": "closed"}, "got closed, expected open"),
        ({"study_status": "expired"}, "got expired, expected open"),
        ({"schema": None, "model_bytes": None}, f"model {MODEL}: unknown"),
    ],
)
def test_what_the_coordinator_does_not_have_is_refused(facts: dict[str, Any], reason: str) -> None:
    assert reason in "; ".join(check(facts))


def test_all_reasons_are_told_at_once() -> None:
    reasons = check(
        {"study_status": "closed"},
        rounds=RoundRules(count=1, quorum=1, cohort=9),
        app=AppRef(recipe="images"),
        strategy=StrategySpec(name="krum"),
        arrays=ArrayRules(local=["bn.*"]),
    )
    assert len(reasons) == 6


def test_the_cost_of_a_round_is_told(federation: Federation) -> None:
    federation.coordinator.create_study(ADMIN, federation.study())
    plan = federation.plan(rounds=RoundRules(count=1, cohort=2), arrays=ArrayRules(local=["b"]))
    found = federation.coordinator.validate_plan(plan)
    assert found.accepted
    assert found.model_bytes is not None
    assert found.bytes_down_per_round == 2 * found.model_bytes
    update = {"w": np.zeros((1, 3), np.float32), "seen": np.zeros((), np.int64)}
    assert found.bytes_up_per_round == 2 * len(b"".join(encode(update)))
    assert found.warnings == ["not enrolled yet: hospital-a, hospital-b, hospital-c"]


def test_a_refused_plan_is_not_kept(federation: Federation) -> None:
    with pytest.raises(PlanRefused) as caught:
        federation.coordinator.submit_plan(ADMIN, federation.plan())
    assert caught.value.reasons == ["study 'sepsis': unknown"]
    assert federation.coordinator.list_plans().items == []


def test_the_same_plan_has_one_digest(federation: Federation) -> None:
    federation.coordinator.create_study(ADMIN, federation.study())
    first = federation.coordinator.submit_plan(ADMIN, federation.plan())
    assert federation.coordinator.submit_plan(ADMIN, federation.plan()) == first
    assert federation.blobs.exists(first.digest)


def test_a_study_is_created_once(federation: Federation) -> None:
    service = federation.coordinator
    made = service.create_study(ADMIN, federation.study())
    assert service.create_study(ADMIN, federation.study()) == made
    with pytest.raises(Conflict, match="other content"):
        service.create_study(ADMIN, federation.study(SITES[:2]))
    with pytest.raises(NotFound):
        service.show_study("other")


@pytest.mark.parametrize("expires", ["2020-01-01T00:00:00.000000Z", "2027-13-01T00:00:00.000000Z"])
def test_a_study_that_has_no_future_is_refused(federation: Federation, expires: str) -> None:
    study = federation.study().model_copy(update={"expires": expires})
    with pytest.raises(InvalidInput, match="expires"):
        federation.coordinator.create_study(ADMIN, study)


def test_closing_a_study_stops_its_runs(federation: Federation) -> None:
    run = federation.prepare()
    federation.coordinator.start_run(ADMIN, run)
    assert federation.coordinator.close_study(ADMIN, "sepsis").status == "closed"
    assert federation.coordinator.show_run(run).status == "stopped"
    assert simulated(federation)["hospital-a"].peek() is None
    with pytest.raises(PlanRefused, match="closed"):
        federation.new_run()


def test_a_study_ends_with_its_time(federation: Federation) -> None:
    run = federation.prepare()
    federation.coordinator.start_run(ADMIN, run)
    federation.clock.now += 31 * 86_400
    federation.run_due()
    assert federation.coordinator.show_run(run).status == "stopped"
    assert federation.coordinator.show_study("sepsis").status == "closed"
