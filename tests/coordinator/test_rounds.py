"""The rules of the round machine, one claim a test."""

from dataclasses import replace

import pytest

from fedward.coordinator.attempts import tally
from fedward.coordinator.errors import EventRefused
from fedward.coordinator.rounds import MAX_LEASES
from fedward.coordinator.run_state import (
    ENDED,
    Accept,
    Aggregate,
    Aggregated,
    AggregationFailed,
    AttemptStatus,
    Lease,
    Pause,
    Progress,
    Refuse,
    Resume,
    RunStatus,
    SitesChanged,
    Start,
    Stop,
    TaskStatus,
    Tick,
    TickAt,
    Wake,
)
from fedward.protocol.documents import EvaluateRules, RoundRules, TaskKind

from .round_driver import M0, M1, M2, SITES, Driver


def test_a_run_waits_until_a_quorum_is_enrolled() -> None:
    d = Driver(available=("a",)).send(Start())
    assert d.state.status is RunStatus.WAITING and d.state.attempt is None
    d.send(SitesChanged(("a", "c")))
    assert d.state.status is RunStatus.RUNNING
    assert [t.site for t in d.state.attempt.tasks] == ["a", "c"]
    assert Wake(("a", "c")) in d.effects


def test_two_rounds_without_evaluation_complete_the_run() -> None:
    d = Driver().send(Start()).answer(*SITES)
    assert Aggregate() in d.effects and d.attempt_status is AttemptStatus.AGGREGATING
    d.send(Aggregated(M1))
    assert d.place == (TaskKind.TRAIN, 2, 1) and d.state.model == M1
    d.answer(*SITES).send(Aggregated(M2))
    assert d.state.status is RunStatus.COMPLETED and d.state.model == M2
    assert d.notes == ["attempt.commit", "run.complete"]


def test_order_is_query_then_train_then_evaluate() -> None:
    d = Driver(prepare="statistics", evaluate=EvaluateRules(every=2)).send(Start())
    seen = [d.place]
    while d.state.status not in ENDED:
        d.answer(*SITES).send(Aggregated(d.state.model))
        seen.append(d.place)
    kinds = [(kind.value, number) for kind, number, _ in seen[:-1]]
    assert kinds == [("query", 0), ("train", 1), ("train", 2), ("evaluate", 2)]


def test_the_last_round_is_evaluated_even_off_the_step() -> None:
    d = Driver(evaluate=EvaluateRules(every=5)).send(Start())
    d.answer(*SITES).send(Aggregated(M1)).answer(*SITES).send(Aggregated(M2))
    assert d.place == (TaskKind.EVALUATE, 2, 1)


def test_quorum_starts_the_grace_and_its_end_closes_the_round() -> None:
    d = Driver().send(Start()).at(5).answer("a", "b")
    assert d.attempt_status is AttemptStatus.CLOSING and TickAt(15) in d.effects
    d.at(14.9).send(Tick())
    assert d.attempt_status is AttemptStatus.CLOSING
    d.at(15).send(Tick())
    assert d.task("c").status is TaskStatus.EXPIRED and d.task("c").reason == "grace-over"
    assert Aggregate() in d.effects
    assert tally(d.state.attempt) == {"took_part": ["a", "b"], "invited": 3}


def test_an_answer_within_the_grace_still_counts() -> None:
    d = Driver().send(Start()).answer("a", "b").at(3).answer("c")
    assert d.attempt_status is AttemptStatus.AGGREGATING
    assert tally(d.state.attempt)["took_part"] == ["a", "b", "c"]


def test_no_progress_for_the_deadline_expires_a_task_and_a_sign_of_life_extends_it() -> None:
    sites = ("a", "b", "c", "d")
    d = Driver(sites, sites).send(Start()).send(Lease("a")).send(Lease("b")).answer("c")
    d.at(60).send(Progress("a", d.task("a").fence))
    d.at(100).send(Tick())
    assert [d.task(s).status.value for s in sites] == ["leased", "expired", "accepted", "expired"]
    assert d.task("b").reason == "no-progress" and TickAt(160) in d.effects


def test_no_progress_of_too_many_sites_opens_the_next_attempt() -> None:
    d = Driver().send(Start()).send(Lease("a")).at(100).send(Tick())
    assert d.place == (TaskKind.TRAIN, 1, 2)


def test_a_site_that_only_ever_leases_is_given_up() -> None:
    d = Driver(("a", "b"), ("a", "b")).send(Start()).answer("b")
    for n in range(MAX_LEASES):
        d.at(float(n)).send(Lease("a"))
    with pytest.raises(EventRefused) as refusal:
        d.at(120).send(Lease("a"))
    assert refusal.value.name == "leased-too-often"
    d.at(149).send(Tick())
    assert d.place == (TaskKind.TRAIN, 1, 2)


def test_a_missed_quorum_is_tried_again_then_fails_loudly() -> None:
    d = Driver().send(Start())
    for _ in range(2):
        for site in ("a", "b"):
            d.send(Lease(site))
            d.send(Refuse(d.task(site).task, d.task(site).fence, "app-raised"))
            if d.state.status in ENDED:
                break
    assert d.state.status is RunStatus.FAILED
    assert d.state.reason == (
        "round 1: quorum-missed: 0 of 3 took part, 2 are needed (app-raised: 2)"
    )
    assert "run.fail" in d.notes


def test_a_renewed_lease_has_a_new_fence_and_the_old_one_is_refused() -> None:
    d = Driver().send(Start()).send(Lease("a"))
    old = d.task("a")
    d.send(Lease("a"))
    assert (d.task("a").task, d.task("a").fence) == (old.task, old.fence + 1)
    before = d.state
    with pytest.raises(EventRefused, match="got fence 1, expected 2") as refusal:
        d.send(Accept(old.task, old.fence))
    assert refusal.value.name == "stale-fence" and d.state == before


def test_the_same_answer_twice_is_a_duplicate() -> None:
    d = Driver().send(Start()).answer("a")
    with pytest.raises(EventRefused) as refusal:
        d.send(Accept(d.task("a").task, 1))
    assert refusal.value.name == "duplicate"


def test_an_answer_to_an_earlier_round_is_refused_as_closed() -> None:
    d = Driver().send(Start()).send(Lease("a"))
    old = d.task("a")
    d.answer("b", "c").at(10).send(Tick()).send(Aggregated(M1))
    assert d.place[1] == 2
    with pytest.raises(EventRefused) as refusal:
        d.send(Accept(old.task, old.fence))
    assert refusal.value.name == "round-closed"


def test_pausing_hands_out_nothing_and_resuming_begins_deadlines_anew() -> None:
    d = Driver().send(Start()).send(Lease("a")).send(Pause())
    with pytest.raises(EventRefused):
        d.send(Lease("b"))
    d.at(500).send(Tick())
    assert d.task("a").status is TaskStatus.LEASED
    d.send(Resume()).at(599).send(Tick())
    assert d.task("a").status is TaskStatus.LEASED and d.state.status is RunStatus.RUNNING


def test_an_attempt_that_ends_while_paused_is_followed_up_at_resume() -> None:
    d = Driver().send(Start()).answer("a", "b").send(Lease("c")).send(Pause())
    d.send(Accept(d.task("c").task, 1)).send(Aggregated(M1))
    assert d.place == (TaskKind.TRAIN, 1, 1) and d.attempt_status is AttemptStatus.COMMITTED
    assert d.send(Resume()).place == (TaskKind.TRAIN, 2, 1)


def test_stopping_expires_what_is_open_and_is_final() -> None:
    d = Driver().send(Start()).send(Lease("a")).send(Stop("stopped-by-operator"))
    assert d.state.status is RunStatus.STOPPED and d.state.reason == "stopped-by-operator"
    assert d.task("a").reason == "run-stopped"
    with pytest.raises(EventRefused, match="is stopped"):
        d.send(Resume())
    with pytest.raises(EventRefused):
        d.send(Accept(d.task("a").task, 1))


def test_a_revoked_site_leaves_the_open_attempt_at_once() -> None:
    d = Driver().send(Start()).answer("a", "b").send(SitesChanged(("a", "b")))
    assert d.task("c").reason == "site-revoked" and d.attempt_status is AttemptStatus.AGGREGATING


def test_too_few_sites_left_are_waited_for_then_the_run_fails() -> None:
    d = Driver().send(Start()).answer(*SITES).send(SitesChanged(("a",))).send(Aggregated(M1))
    assert d.attempt_status is AttemptStatus.SELECTING
    d.at(100).send(Tick())
    assert d.place == (TaskKind.TRAIN, 2, 2)
    d.at(200).send(Tick())
    assert d.state.status is RunStatus.FAILED and "too-few-sites: 1 of the 2" in (
        d.state.reason or ""
    )


def test_a_site_that_returns_ends_the_selecting() -> None:
    d = Driver().send(Start()).answer(*SITES).send(SitesChanged(("a",))).send(Aggregated(M1))
    d.send(SitesChanged(("a", "b")))
    assert d.attempt_status is AttemptStatus.OPEN


def test_an_evaluation_below_quorum_is_shown_and_the_run_goes_on() -> None:
    d = Driver(evaluate=EvaluateRules(every=1)).send(Start()).answer(*SITES).send(Aggregated(M1))
    for site in ("a", "b"):
        d.send(Lease(site)).send(Refuse(d.task(site).task, 1, "app-raised"))
    assert "attempt.abort" in d.notes and d.place == (TaskKind.TRAIN, 2, 1) and d.state.model == M1


def test_an_evaluation_site_that_left_is_not_waited_for() -> None:
    d = Driver(evaluate=EvaluateRules(every=1, sites=["c"])).send(Start()).answer(*SITES)
    d.send(SitesChanged(("a", "b"))).send(Aggregated(M1))
    assert d.place == (TaskKind.TRAIN, 2, 1)


def test_evaluation_goes_only_to_the_sites_that_the_plan_names() -> None:
    d = Driver(evaluate=EvaluateRules(every=1, sites=["b"])).send(Start()).answer(*SITES)
    d.send(Aggregated(M1))
    assert [t.site for t in d.state.attempt.tasks] == ["b"]
    d.answer("b")
    assert Aggregate() in d.effects


def test_a_failed_aggregation_aborts_the_attempt_and_tries_again() -> None:
    d = Driver().send(Start()).answer(*SITES).send(AggregationFailed("overflow"))
    assert d.place == (TaskKind.TRAIN, 1, 2) and d.state.model == M0


def test_aggregation_events_outside_aggregating_are_refused() -> None:
    d = Driver().send(Start())
    for event in (Aggregated(M1), AggregationFailed("x")):
        with pytest.raises(EventRefused) as refusal:
            d.send(event)
        assert refusal.value.name == "not-aggregating"


def test_operator_events_out_of_order_are_refused() -> None:
    d = Driver()
    for event in (Pause(), Resume()):
        with pytest.raises(EventRefused):
            d.send(event)
    d.send(Start())
    with pytest.raises(EventRefused, match="expected draft"):
        d.send(Start())


def test_resuming_while_selecting_chooses_again() -> None:
    d = Driver().send(Start()).answer(*SITES).send(SitesChanged(("a",))).send(Aggregated(M1))
    d.send(Pause()).send(SitesChanged(SITES))
    assert d.attempt_status is AttemptStatus.SELECTING
    assert d.send(Resume()).attempt_status is AttemptStatus.OPEN


def test_a_cohort_smaller_than_the_sites_changes_with_the_round_and_only_with_it() -> None:
    rules = RoundRules(count=30, quorum=2, cohort=2, attempts=1)
    cohorts = []
    d = Driver(rounds=rules).send(Start())
    while d.state.status not in ENDED:
        cohorts.append(tuple(t.site for t in d.state.attempt.tasks))
        d.answer(*cohorts[-1]).send(Aggregated(M1))
    assert len(cohorts) == 30 and all(len(c) == 2 for c in cohorts) and len(set(cohorts)) == 3


def test_states_are_values() -> None:
    d = Driver().send(Start())
    copy = replace(d.state)
    d.answer("a")
    assert copy.attempt is not None and copy.attempt.tasks[0].status is TaskStatus.OFFERED


def test_a_clock_set_back_moves_what_it_left_in_the_future_to_now() -> None:
    d = Driver().at(5000).send(Start()).answer("a", "b").send(Lease("c")).at(1000).send(Tick())
    assert TickAt(1010) in d.effects
    assert d.task("c").progress_at == 1000
    assert d.at(1010).send(Tick()).attempt_status is AttemptStatus.AGGREGATING
