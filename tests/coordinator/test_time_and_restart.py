"""Quorum, grace and deadlines on a settable clock; what a crash leaves and what it loses."""

import shutil
from pathlib import Path

import pytest

from fedward.coordinator import aggregation, run_steps, scheduler
from fedward.coordinator.errors import EventRefused
from fedward.protocol.arrays import encode
from fedward.protocol.canonical import document_digest
from fedward.protocol.documents import RoundRules

from .federation import ADMIN, Federation, SimulatedSite, simulated


def begin(federation: Federation, **rules: float) -> tuple[str, dict[str, SimulatedSite]]:
    run = federation.prepare(rounds=RoundRules(**({"count": 2, "quorum": 2} | rules)))
    federation.coordinator.start_run(ADMIN, run)
    return run, simulated(federation)


def test_a_silent_site_delays_a_round_by_the_grace_only(federation: Federation) -> None:
    run, sites = begin(federation, grace_s=10)
    for name in ("hospital-a", "hospital-b"):
        assert sites[name].work()
    federation.run_due()
    shown = federation.coordinator.show_run(run)
    assert (shown.phase, shown.participation) == ("train closing", "2 of 3 took part")
    assert [(w.site, w.why) for w in shown.waiting_for] == [("hospital-c", "not-fetched")]
    federation.clock.now += 10
    federation.run_due()
    shown = federation.coordinator.show_run(run)
    assert (shown.round, shown.phase) == (1, "evaluate open")
    late = federation.coordinator.show_round(run, 1).attempts[0].late
    assert [(entry.site, entry.reason) for entry in late] == [("hospital-c", "grace-over")]


def test_a_deadline_passes_without_any_traffic(federation: Federation) -> None:
    run, sites = begin(federation, deadline_s=100, attempts=1)
    sites["hospital-a"].work()
    federation.clock.now += 101
    federation.run_due()
    shown = federation.coordinator.show_run(run)
    assert shown.status == "failed"
    assert shown.reason == (
        "round 1: quorum-missed: 1 of 3 took part, 2 are needed (no-progress: 2)"
    )


def test_progress_moves_a_sites_deadline(federation: Federation) -> None:
    run, sites = begin(federation, deadline_s=100)
    working = [task for name in ("hospital-a", "hospital-b") if (task := sites[name].peek())]
    for _ in range(5):
        federation.clock.now += 50
        for site, task in zip(("hospital-a", "hospital-b"), working, strict=True):
            federation.coordinator.note_progress(site, task.task, fence=task.fence)
        federation.run_due()
    (attempt,) = federation.coordinator.show_round(run, 1).attempts
    assert [t.status for t in attempt.tasks] == ["leased", "leased", "expired"]
    assert attempt.late[0].reason == "no-progress"


def test_a_missed_quorum_is_tried_again_with_the_same_model(federation: Federation) -> None:
    run, sites = begin(federation, deadline_s=100, count=1)
    federation.clock.now += 101
    federation.run_due()
    assert federation.finish(run, sites).status == "completed"
    attempts = federation.coordinator.show_round(run, 1).attempts
    assert [(a.kind, a.attempt, a.status) for a in attempts] == [
        ("train", 1, "aborted"),
        ("train", 2, "committed"),
        ("evaluate", 1, "committed"),
    ]
    assert {t.status for t in attempts[0].tasks} == {"expired"}
    assert attempts[0].model_before == attempts[1].model_before


def test_a_paused_run_hands_out_nothing_and_goes_on_after(federation: Federation) -> None:
    run, sites = begin(federation)
    federation.coordinator.pause_run(ADMIN, run)
    assert not sites["hospital-a"].work()
    federation.clock.now += 10_000
    federation.run_due()
    federation.coordinator.resume_run(ADMIN, run)
    assert federation.finish(run, sites).status == "completed"
    with pytest.raises(EventRefused, match="is completed"):
        federation.coordinator.stop_run(ADMIN, run)


def test_stopping_takes_the_tasks_away(federation: Federation) -> None:
    run, sites = begin(federation)
    task = sites["hospital-a"].peek()
    assert task is not None
    assert federation.coordinator.stop_run(ADMIN, run).status == "stopped"
    assert sites["hospital-a"].submit(task, metrics={}).reason == "run-ended"
    assert sites["hospital-b"].peek() is None


def test_a_run_waits_for_its_quorum_of_sites(federation: Federation) -> None:
    federation.coordinator.create_study(ADMIN, federation.study())
    federation.enrol("hospital-a")
    run = federation.new_run()
    shown = federation.coordinator.start_run(ADMIN, run)
    assert shown.status == "waiting"
    assert [w.site for w in shown.waiting_for] == ["hospital-b", "hospital-c"]
    federation.enrol("hospital-b")
    assert federation.coordinator.show_run(run).status == "running"


def test_a_revoked_site_loses_its_task(federation: Federation) -> None:
    run, sites = begin(federation)
    federation.coordinator.revoke_site(ADMIN, "hospital-c")
    for name in ("hospital-a", "hospital-b"):
        sites[name].work()
    federation.run_due()
    late = federation.coordinator.show_round(run, 1).attempts[0].late
    assert [(entry.site, entry.reason) for entry in late] == [("hospital-c", "site-revoked")]


# ---------------------------------------------------------------- crashes


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    federation = Federation(tmp_path_factory.mktemp("undisturbed"))
    run, sites = begin(federation, count=3)
    model = federation.finish(run, sites).model
    federation.close()
    return model


def test_a_restart_after_every_answer_changes_no_bit(
    federation: Federation, undisturbed: str
) -> None:
    run, sites = begin(federation, count=3)
    for _ in range(18):
        busy = [site for site in sites.values() if site.work()]
        federation.restart()
        federation.run_due()
        if not busy:
            break
    done = federation.finish(run, sites)
    assert (done.status, done.model) == ("completed", undisturbed)
    assert federation.coordinator.verify_audit().ok


def test_an_accepted_update_survives_a_crash(federation: Federation, undisturbed: str) -> None:
    run, sites = begin(federation, count=3)
    sites["hospital-b"].work()
    federation.restart()
    assert federation.coordinator.show_run(run).took_part == 1
    assert federation.finish(run, sites).model == undisturbed
    starts = [
        event.record["d"]
        for event in federation.coordinator.audit_events(ADMIN, limit=500)
        if event.record["action"] == "coordinator.start"
    ]
    assert [(s["clean"], s["unfinished"]) for s in starts] == [(True, []), (False, [run])]  # type: ignore[index]  # JSON


def test_a_crash_between_the_models_file_and_its_row_is_repeated(
    federation: Federation, undisturbed: str
) -> None:
    run, sites = begin(federation, count=3)
    for site in sites.values():
        site.work()
    context = federation.coordinator.context
    job = aggregation._load(context, run)
    assert job is not None
    aggregation._compute(context, job)  # the blob is written, then the process is killed
    federation.restart()
    assert federation.coordinator.show_run(run).phase == "train aggregating"
    assert federation.finish(run, sites).model == undisturbed


def test_combining_twice_commits_once(federation: Federation) -> None:
    run, sites = begin(federation)
    for site in sites.values():
        site.work()
    context = federation.coordinator.context
    aggregation.aggregate(context, run)
    first = federation.coordinator.show_run(run)
    aggregation.aggregate(context, run)
    assert federation.coordinator.show_run(run) == first


def test_an_upload_goes_on_under_the_next_fence_after_a_restart(federation: Federation) -> None:
    _, sites = begin(federation)
    site = sites["hospital-a"]
    task = site.peek()
    assert task is not None
    data = b"".join(encode(site.train(task)))
    site.upload(task, data[:60])
    federation.restart()
    again = site.peek()
    assert again is not None
    state = federation.coordinator.upload_state(site.name, again.task, fence=again.fence)
    assert (again.fence, state.received_bytes) == (2, 60)
    assert site.send(again, site.train(again)).accepted


def test_leftovers_are_removed_at_start(federation: Federation) -> None:
    run, sites = begin(federation)
    sites["hospital-a"].work()
    kept = {p.name for p in (federation.folder / "updates").iterdir()}
    for name in (
        "uploads/task-0123456789-1",
        "updates/task-0123456789-1",
        "tmp/0123456789abcdef-0",
        "uploads/x",
    ):
        (federation.folder / name).write_bytes(b"left")
    federation.restart()
    left = {
        p.name
        for name in ("uploads", "updates", "tmp")
        for p in (federation.folder / name).iterdir()
    }
    assert left == kept
    assert federation.finish(run, sites).status == "completed"


def test_a_lost_update_is_trained_again_not_ignored(federation: Federation) -> None:
    run, sites = begin(federation, count=1)
    for site in sites.values():
        site.work()
    shutil.rmtree(federation.folder / "updates")
    Path(federation.folder / "updates").mkdir()
    assert federation.finish(run, sites).status == "completed"
    attempts = federation.coordinator.show_round(run, 1).attempts
    assert attempts[0].reason is not None
    assert attempts[0].reason.startswith("update-lost")


def test_pausing_while_models_are_combined_loses_no_round(federation: Federation) -> None:
    run, sites = begin(federation)
    for site in sites.values():
        site.work()
    context = federation.coordinator.context
    job = aggregation._load(context, run)
    assert job is not None
    outcome = aggregation._compute(context, job)
    federation.coordinator.pause_run(ADMIN, run)
    federation.clock.now += 1
    federation.coordinator.resume_run(ADMIN, run)
    aggregation._end(context, job, outcome)
    assert federation.coordinator.show_run(run).phase == "evaluate open"


def test_selecting_ends_at_its_deadline_however_early_a_timer_fires(federation: Federation) -> None:
    run, _ = begin(federation, deadline_s=100, attempts=2)
    federation.clock.now += 50
    for site in ("hospital-b", "hospital-c"):
        federation.coordinator.revoke_site(ADMIN, site)
    assert federation.coordinator.show_run(run).phase == "train selecting"
    federation.clock.now += 51  # the first attempt's timer
    federation.run_due()
    assert federation.coordinator.show_run(run).phase == "train selecting"
    federation.clock.now += 50
    federation.run_due()
    assert federation.coordinator.show_run(run).status == "failed"


def test_a_lease_does_not_wake_the_scheduler(federation: Federation) -> None:
    run, sites = begin(federation)
    notifier = federation.coordinator.notifier
    seen = notifier.version("jobs")
    assert sites["hospital-a"].peek() is not None  # its deadline is later than the known timer
    assert notifier.version("jobs") == seen
    federation.coordinator.pause_run(ADMIN, run)
    federation.coordinator.resume_run(ADMIN, run)
    assert notifier.version("jobs") == seen


def test_the_plan_of_a_run_is_read_once(federation: Federation) -> None:
    run = federation.prepare()
    with federation.store.reading() as connection:
        record = run_steps.get(connection, run)
        plan = run_steps.plan_of_run(connection, record)
        assert document_digest(plan) == record.plan
        assert run_steps.plan_of_run(connection, record) is plan


def test_a_late_second_combination_leaves_the_next_ones_job_alone(federation: Federation) -> None:
    run, sites = begin(federation)
    for site in sites.values():
        site.work()
    context = federation.coordinator.context
    job = aggregation._load(context, run)
    assert job is not None
    outcome = aggregation._compute(context, job)  # its lease ends while it is at work
    aggregation.aggregate(context, run)
    for site in sites.values():
        site.work()
    assert federation.coordinator.show_run(run).phase == "evaluate aggregating"
    aggregation._end(context, job, outcome)
    assert federation.finish(run, sites).status == "completed"


def test_a_clock_that_is_set_back_holds_no_round(federation: Federation) -> None:
    run, sites = begin(federation, grace_s=10, deadline_s=100)
    for name in ("hospital-a", "hospital-b"):
        assert sites[name].work()
    federation.clock.now -= 3600
    scheduler.tick_open_runs(federation.coordinator.context)
    federation.clock.now += 10
    federation.run_due()
    assert federation.coordinator.show_run(run).phase == "evaluate open"
