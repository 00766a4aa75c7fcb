"""The site decides before any data is touched: code, data set, study."""

import os

import pytest

from fedward.client.errors import TaskFailed
from fedward.client.policy import accept_plan, policy_digest
from fedward.client.settings import AgentSettings
from fedward.protocol.documents import Plan, Task

BUNDLE = "sha256:" + "b" * 64


def plan(**parts):
    base = {
        "name": "p", "study": "s1", "app": {"recipe": "tabular"}, "model": "sha256:" + "a" * 64,
        "rounds": {"count": 1}, "dataset": "ehr",
    }  # fmt: skip
    return Plan.model_validate(base | parts)


TASK = Task.model_validate({
    "task": "task-000001", "kind": "train", "run": "run-000001", "study": "s1", "round": 1,
    "attempt": 1, "fence": 1, "plan": "sha256:" + "c" * 64, "model": "sha256:" + "a" * 64,
    "config": {}, "seed": 0, "lease_s": 60,
})  # fmt: skip


def settings(**parts):
    base = {
        "coordinator": "http://localhost", "site": "north", "state": "state",
        "datasets": {"ehr": {"path": "/data/ehr.csv", "node_config": {"partition-id": 2}}},
    }  # fmt: skip
    return AgentSettings.model_validate(base | parts)


def test_the_named_data_set_reaches_the_app_by_path_and_settings():
    accepted = accept_plan(plan(), TASK, settings=settings())
    assert accepted.node_config == {"data-path": "/data/ehr.csv", "partition-id": 2}
    assert (accepted.recipe, accepted.bundle) == ("tabular", None)


def test_a_plan_without_a_data_set_sees_none():
    accepted = accept_plan(plan(dataset=None), TASK, settings=settings())
    assert accepted.node_config == {}


def test_a_bundle_runs_only_where_its_digest_is_listed():
    wanted = plan(app={"bundle": BUNDLE})
    with pytest.raises(TaskFailed, match="app-not-accepted"):
        accept_plan(wanted, TASK, settings=settings())
    listed = settings(accept={"apps": [BUNDLE]})
    assert accept_plan(wanted, TASK, settings=listed).bundle == BUNDLE


@pytest.mark.parametrize(
    ("parts", "failure"),
    [
        ({"app": {"recipe": "other"}}, "app-not-accepted"),
        ({"dataset": "finance"}, "dataset-unknown"),
        ({"study": "s2"}, "plan-invalid"),
        ({"sites": ["south"]}, "plan-invalid"),
    ],
)
def test_what_the_site_does_not_allow_is_refused_by_name(parts, failure):
    with pytest.raises(TaskFailed) as refused:
        accept_plan(plan(**parts), TASK, settings=settings())
    assert refused.value.failure == failure


@pytest.mark.parametrize(
    "parts", [{"app": {"recipe": "other"}}, {"app": {"bundle": BUNDLE}}, {"dataset": "finance"}]
)
def test_a_refusal_by_agent_toml_says_when_a_change_counts(parts):
    with pytest.raises(TaskFailed, match=r"agent\.toml is read at start"):
        accept_plan(plan(**parts), TASK, settings=settings())


def test_the_policys_digest_changes_with_the_rules_and_not_with_the_data():
    one = policy_digest(settings())
    moved = settings(datasets={"ehr": {"path": "/other/ehr.csv"}})
    assert policy_digest(moved) == one
    assert policy_digest(settings(accept={"apps": [BUNDLE]})) != one


def test_nothing_is_read_when_the_plan_is_refused(coordinator, site):
    (site.folder / "rows.csv").unlink()
    os.mkfifo(site.folder / "rows.csv")  # whoever opened it would hang
    model = "sha256:" + "d" * 64  # not even this is fetched
    digest = coordinator.add_plan(model, app={"recipe": "other"})
    task = coordinator.offer(digest, model)
    site.work_until(lambda: coordinator.settled(task))
    assert coordinator.results[task]["failure"] == "app-not-accepted"
    assert [path for _, path in coordinator.requests if "blobs" in path] == [
        f"/agent/v1/blobs/{digest}"
    ]
    assert "plan.refuse" in [record["action"] for record in site.records()]
