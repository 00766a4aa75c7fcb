"""Whole runs through the service, with simulated sites on a real database file."""

from typing import Any

import numpy as np
import pytest

from fedward.coordinator.errors import InvalidInput
from fedward.protocol.documents import EvaluateRules, RoundRules, TaskKind

from .federation import ADMIN, Federation, first_model, simulated


def test_a_run_trains_evaluates_and_completes(federation: Federation) -> None:
    run = federation.prepare()
    sites = simulated(federation)
    federation.coordinator.start_run(ADMIN, run)
    done = federation.finish(run, sites)
    assert (done.status, done.round, done.rounds, done.waiting_for) == ("completed", 2, 2, [])
    assert all(site.kinds == [TaskKind.TRAIN, TaskKind.EVALUATE] * 2 for site in sites.values())
    assert done.participation == "3 of 3 took part"
    assert done.metrics_round == 2


def test_the_new_model_is_the_mean_weighted_by_examples(federation: Federation) -> None:
    run = federation.prepare(rounds=RoundRules(count=1, quorum=2))
    federation.coordinator.start_run(ADMIN, run)
    done = federation.finish(run, simulated(federation))
    model = federation.model(done.model)
    # Each site goes half way to its target: 1, 2, 3 with weights 0.1, 0.2, 0.7; mean target 2.6.
    np.testing.assert_allclose(model["w"], [[1.8, 2.3, 2.8]], rtol=1e-6)
    assert model["b"] == np.float32(1.3)
    assert (int(model["seen"]), model["seen"].dtype.name) == (3, "int64")  # the largest counter
    assert list(model) == ["w", "b", "seen"]


def test_metrics_are_weighted_and_kept_by_round(federation: Federation) -> None:
    run = federation.prepare()
    federation.coordinator.start_run(ADMIN, run)
    federation.finish(run, simulated(federation))
    rounds = federation.coordinator.list_rounds(run).items
    assert [[a.kind for a in r.attempts] for r in rounds] == [["train", "evaluate"]] * 2
    evaluated = rounds[0].attempts[1]
    assert evaluated.metrics["loss"] == pytest.approx(2.6)
    assert evaluated.metrics["num-examples"] == 1000
    assert evaluated.took_part == ["hospital-a", "hospital-b", "hospital-c"]
    assert rounds[0].attempts[0].model_after == rounds[1].attempts[0].model_before
    assert rounds[0].attempts[0].weight == 1000


def test_preparation_reaches_later_tasks(federation: Federation) -> None:
    run = federation.prepare(prepare="statistics", rounds=RoundRules(count=1, quorum=2))
    sites = simulated(federation)
    federation.coordinator.start_run(ADMIN, run)
    federation.finish(run, sites)
    site = sites["hospital-a"]
    assert site.kinds == [TaskKind.QUERY, TaskKind.TRAIN, TaskKind.EVALUATE]
    assert site.configs[0] == {"server-round": 0}
    assert site.configs[1]["prepared.mean"] == pytest.approx([2.6, 5.2])
    assert site.configs[1]["server-round"] == 1


def test_evaluation_goes_where_the_plan_says(federation: Federation) -> None:
    run = federation.prepare(
        rounds=RoundRules(count=3, quorum=2), evaluate=EvaluateRules(every=2, sites=["hospital-b"])
    )
    sites = simulated(federation)
    federation.coordinator.start_run(ADMIN, run)
    assert federation.finish(run, sites).status == "completed"
    kinds = [kind.value for kind in sites["hospital-b"].kinds]
    assert kinds == ["train", "train", "evaluate", "train", "evaluate"]
    assert TaskKind.EVALUATE not in sites["hospital-a"].kinds


def test_a_round_of_zero_examples_ends_no_data_and_the_run_goes_on(federation: Federation) -> None:
    run = federation.prepare()
    federation.coordinator.start_run(ADMIN, run)
    done = federation.finish(run, simulated(federation, (0, 0, 0)))
    assert done.status == "completed"
    assert done.model == federation.coordinator.show_plan(done.plan).plan.model
    trained = federation.coordinator.show_round(run, 1).attempts[0]
    assert (trained.status, trained.note, trained.model_after) == (
        "committed",
        "no-data",
        done.model,
    )
    assert federation.coordinator.list_models(run).items == []


def test_the_same_answers_in_another_order_give_the_same_bits(federation: Federation) -> None:
    digests = []
    run = federation.prepare()
    for order in (1, -1):
        federation.coordinator.start_run(ADMIN, run)
        sites = simulated(federation)
        done = federation.finish(run, {name: sites[name] for name in sorted(sites)[::order]})
        digests.append(done.model)
        run = federation.new_run()
    assert digests[0] == digests[1]


def test_lineage_leads_back_to_the_uploaded_model(federation: Federation) -> None:
    run = federation.prepare(rounds=RoundRules(count=3, quorum=2))
    federation.coordinator.start_run(ADMIN, run)
    done = federation.finish(run, simulated(federation))
    lineage = federation.coordinator.model_lineage(done.model)
    assert [(m.run, m.round) for m in lineage] == [(run, 3), (run, 2), (run, 1), (None, None)]
    assert [m.parent for m in lineage[:3]] == [m.digest for m in lineage[1:]]
    assert [m.round for m in federation.coordinator.list_models(run).items] == [1, 2, 3]


@pytest.mark.parametrize("after", ["9" * 20, "1" * 200, "\u0661", "-1", "1.0"])
def test_a_cursor_that_is_no_round_is_refused(federation: Federation, after: str) -> None:
    run = federation.prepare()
    with pytest.raises(InvalidInput, match="after: got"):
        federation.coordinator.list_models(run, after=after)


def test_local_arrays_are_neither_sent_nor_changed(federation: Federation) -> None:
    from fedward.protocol.documents import ArrayRules

    run = federation.prepare(
        rounds=RoundRules(count=1, quorum=2), arrays=ArrayRules(local=["b"], counted="keep")
    )
    federation.coordinator.start_run(ADMIN, run)
    model = federation.model(federation.finish(run, simulated(federation)).model)
    first = first_model()
    assert model["b"] == first["b"]
    assert model["seen"] == first["seen"]
    assert not np.array_equal(model["w"], first["w"])


def test_update_files_are_gone_after_the_round(federation: Federation) -> None:
    run = federation.prepare()
    federation.coordinator.start_run(ADMIN, run)
    done = federation.finish(run, simulated(federation))
    left = [
        p for name in ("uploads", "updates", "tmp") for p in (federation.folder / name).iterdir()
    ]
    assert left == []
    assert done.bytes_up > 0


def test_every_attempt_and_task_is_in_the_audit_log(federation: Federation) -> None:
    run = federation.prepare(rounds=RoundRules(count=1, quorum=2))
    federation.coordinator.start_run(ADMIN, run)
    federation.finish(run, simulated(federation))
    records: list[dict[str, Any]] = [
        event.record for event in federation.coordinator.run_events(run, limit=500)
    ]
    actions = [record["action"] for record in records]
    assert actions.count("task.accept") == 6
    assert actions[:2] == ["run.create", "run.start"]
    assert actions[-1] == "run.complete"
    commit = next(r for r in records if r["action"] == "attempt.commit")
    assert commit["d"]["took_part"] == ["hospital-a", "hospital-b", "hospital-c"]
    assert len(commit["d"]["updates"]) == 3
    assert federation.coordinator.verify_audit().ok
