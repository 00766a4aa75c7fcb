"""Everything a task can name wrongly is a typed failure; the agent goes on with the next one."""

import io
import zipfile

import numpy as np
import pytest

from fedward.client.errors import NotAdmitted
from fedward.protocol.canonical import canonical_bytes

W = np.arange(3, dtype=np.float32)


def failure_of(coordinator, site, plan: str, model: str, **config) -> str:
    task = coordinator.offer(plan, model, **config)
    site.work_until(lambda: coordinator.settled(task))
    return coordinator.results[task]["failure"]


@pytest.mark.parametrize(
    "data",
    [b"", b"no plan", canonical_bytes({"format": "fedward-plan/2"}), b" spaced"],
    ids=["empty", "text", "unknown-format", "not-canonical"],
)
def test_bytes_that_are_no_canonical_plan_are_refused(coordinator, site, data):
    model = coordinator.add_model(w=W)
    if data == b" spaced":
        data += coordinator.blobs[coordinator.add_plan(model)]
    assert failure_of(coordinator, site, coordinator.add_blob(data), model) == "plan-invalid"
    assert site.trainings == []


def test_a_local_pattern_that_matches_nothing_is_the_plans_fault(coordinator, site):
    model = coordinator.add_model(w=W)
    plan = coordinator.add_plan(model, arrays={"local": ["*.running_mean"]})
    assert failure_of(coordinator, site, plan, model) == "plan-invalid"


@pytest.mark.parametrize("data", [b"", b"no arrays", b"\x08" + b"\x00" * 7 + b"[1,2,3] "])
def test_a_model_that_is_no_arrays_file_is_refused(coordinator, site, data):
    model = coordinator.add_blob(data)
    assert failure_of(coordinator, site, coordinator.add_plan(model), model) == "model-invalid"
    assert site.trainings == []


def test_a_model_that_the_coordinator_does_not_have_is_refused(coordinator, site):
    model = "sha256:" + "e" * 64
    assert failure_of(coordinator, site, coordinator.add_plan(model), model) == "model-invalid"


def test_a_model_above_the_sites_limit_is_not_fetched(coordinator, site):
    site.write_settings("limits = {download_bytes = 5000000}")
    model = coordinator.add_model(w=np.zeros(4_000_000, np.float32))
    assert failure_of(coordinator, site, coordinator.add_plan(model), model) == "model-invalid"
    assert coordinator.bytes_sent[model] < 5_000_000


def test_data_that_is_not_there_is_unreadable(coordinator, site):
    (site.folder / "rows.csv").unlink()
    model = coordinator.add_model(w=W)
    plan = coordinator.add_plan(model)
    assert failure_of(coordinator, site, plan, model) == "dataset-unreadable"


@pytest.mark.parametrize("do", ["garbage", "text-metric", "huge-metric", "many-metrics"])
def test_a_reply_that_cannot_be_sent_is_invalid(coordinator, site, do):
    model = coordinator.add_model(w=W)
    plan = coordinator.add_plan(model)
    assert failure_of(coordinator, site, plan, model, do=do) == "reply-invalid"


def test_a_result_whose_form_is_refused_becomes_a_failure(coordinator, site):
    coordinator.dislikes = lambda result: result["failure"] is None
    model = coordinator.add_model(w=W)
    assert failure_of(coordinator, site, coordinator.add_plan(model), model) == "reply-invalid"
    assert len(site.trainings) == 1
    ends = [r["action"] for r in site.records() if r["action"].startswith("task.")]
    assert ends == ["task.receive", "task.finish", "task.fail"], "the log tells both"


def test_an_update_that_is_too_large_becomes_a_failure(coordinator, site):
    too_large = coordinator.Fault("status", "PUT", "/agent/v1/uploads/", 413, "update-too-large")
    coordinator.faults.append(too_large)
    model = coordinator.add_model(w=W)
    assert failure_of(coordinator, site, coordinator.add_plan(model), model) == "reply-invalid"


def bundle(*, manifest: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("pyproject.toml", manifest)
        archive.writestr("pkg/client_app.py", "app = None\n")
    return packed.getvalue()


@pytest.mark.parametrize(
    ("manifest", "failure"),
    [('[tool.flwr.app.components]\nclientapp = "pkg.client_app:app"\n', None), ("", "app-invalid")],
)
def test_a_listed_bundle_is_fetched_unpacked_and_run(coordinator, site, manifest, failure):
    digest = coordinator.add_blob(bundle(manifest=manifest))
    site.write_settings(f'accept = {{apps = ["{digest}"]}}')
    model = coordinator.add_model(w=W)
    plan = coordinator.add_plan(model, app={"bundle": digest})
    assert failure_of(coordinator, site, plan, model) == failure
    app = site.folder / "state" / "apps" / digest.removeprefix("sha256:")
    assert (app / "pkg" / "client_app.py").read_text() == "app = None\n"
    assert len(site.trainings) == (1 if failure is None else 0)


def test_a_folder_that_cannot_be_written_is_a_lack_of_resources(coordinator, site):
    model = coordinator.add_model(w=W)
    (site.folder / "state" / "kept").mkdir()
    blocked = {f"{n:02x}" for n in range(256)}
    for name in blocked:  # a file where the folder of an update would be
        (site.folder / "state" / "kept" / name).touch()
    plan = coordinator.add_plan(model)
    assert failure_of(coordinator, site, plan, model) == "resources"


def test_a_site_that_is_revoked_while_training_stops_at_once(coordinator, site):
    model = coordinator.add_model(w=W)
    task = coordinator.offer(coordinator.add_plan(model), model, do="hang")
    revoked = coordinator.Fault(
        "status", "POST", f"/agent/v1/tasks/{task}/progress", status=401, name="site-revoked"
    )
    coordinator.faults.append(revoked)
    with pytest.raises(NotAdmitted, match="site-revoked"):
        site.work_until(lambda: False)
    assert coordinator.results == {}
