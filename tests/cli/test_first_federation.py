"""README.md's first federation, command by command, with real processes on loopback.

Its coordinator runs where torch, ray and pandas cannot be imported.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedward.protocol.arrays import decode

from .federation import SITES, Federation, enrol_sites, running, write_plan

pytestmark = pytest.mark.flow


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with running(tmp_path_factory.mktemp("federation")) as started:
        enrol_sites(started)
        study = ["study", "create", "tumours", "--purpose", "test", "--legal-basis", "none"]
        named = [part for site in SITES for part in ("--site", site)]
        started.json(*study, *named, "--expires", "2099-12-31")
        for role in ("researcher", "auditor"):
            made = started.json("token", "create", f"a-{role}", "--role", role)
            started.tokens[role] = made["secret"]
        write_plan(started)
        yield started


@pytest.fixture(scope="module")
def finished(federation: Federation) -> dict[str, Any]:
    plan = federation.json("plan", "submit", "plan.toml", role="researcher")
    run = federation.json("run", "create", plan["digest"], "--start", role="researcher")
    watched = federation.run("run", "watch", run["run"], role="researcher")
    assert watched.returncode == 0, watched.stderr + watched.stdout
    return federation.json("run", "show", run["run"], role="researcher")


def test_both_sites_train_for_all_rounds(finished: dict[str, Any]) -> None:
    assert (finished["status"], finished["round"]) == ("completed", 2)
    assert finished["metrics"]["accuracy"] > 0.7


def test_the_final_model_is_downloaded_whole(
    federation: Federation, finished: dict[str, Any]
) -> None:
    model = ["model", "download", finished["model"], "--out", "m.safetensors"]
    federation.json(*model, role="researcher")
    arrays = decode((federation.folder / "m.safetensors").read_bytes())
    assert {name: array.shape for name, array in arrays.items()} == {
        "layers.0.weight": (1, 2),
        "layers.0.bias": (1,),
    }


def test_the_lineage_leads_back_to_the_first_model(
    federation: Federation, finished: dict[str, Any]
) -> None:
    versions = federation.json("model", "lineage", finished["model"])
    assert [version["round"] for version in versions] == [2, 1, None]


def test_every_round_says_who_took_part(federation: Federation, finished: dict[str, Any]) -> None:
    rounds = federation.json("run", "rounds", finished["run"])
    assert [entry["round"] for entry in rounds] == [0, 1, 2]
    for entry in rounds:
        for attempt in entry["attempts"]:
            assert sorted(attempt["took_part"]) == sorted(SITES)


def test_round_0_has_what_the_model_needs_to_be_used(
    federation: Federation, finished: dict[str, Any]
) -> None:
    prepared = federation.json("run", "rounds", finished["run"], "--round", "0")
    metrics = prepared["attempts"][-1]["metrics"]
    assert len(metrics["feature-mean"]) == len(metrics["feature-mean-square"]) == 2


def test_the_audit_log_verifies_and_proves_single_records(
    federation: Federation, finished: dict[str, Any]
) -> None:
    assert federation.json("audit", "verify")["ok"] is True
    proof = federation.json("audit", "proof", "3")
    assert proof["seq"] == 3
    records = federation.json("audit", "events", "--run", finished["run"], role="auditor")
    assert "attempt.commit" in {entry["record"]["action"] for entry in records}


def test_a_role_that_may_not_is_told_so(federation: Federation, finished: dict[str, Any]) -> None:
    done = federation.run("model", "download", finished["model"], "--out", "no.safetensors")
    assert done.returncode == 1
    assert "(403 " in done.stderr
    assert not (federation.folder / "no.safetensors").exists()


def test_a_plan_is_refused_with_all_its_reasons_at_once(federation: Federation) -> None:
    write_plan(federation, "bad.toml")
    file = federation.folder / "bad.toml"
    text = file.read_text().replace("quorum = 2", "quorum = 3").replace("fedavg", "fedfoo")
    file.write_text(text)
    done = federation.run("plan", "submit", "bad.toml", "--json", role="researcher")
    assert done.returncode == 1
    reasons = " ".join(json.loads(done.stderr)["reasons"])
    assert "quorum" in reasons
    assert "fedfoo" in reasons
    checked = federation.run("plan", "validate", "bad.toml", role="researcher")
    assert checked.returncode == 1


def test_a_site_sees_its_own_membership(federation: Federation) -> None:
    status = federation.json("agent", "status", "--config", "st-anna/agent.toml")
    site = federation.json("site", "show", "st-anna")
    assert status["site"] == "st-anna"
    assert status["key_id"] == site["key_id"]


def test_a_study_of_a_site_that_is_not_known_warns(federation: Federation) -> None:
    study = ["study", "create", "later", "--purpose", "test", "--legal-basis", "none"]
    done = federation.run(*study, "--site", "st-anna", "--site", "ghost", "--expires", "2099-12-31")
    assert done.returncode == 0
    assert done.stderr == "warning: no site ghost is known yet: fedward site invite ghost\n"


def test_a_new_token_stands_alone_on_its_line(federation: Federation) -> None:
    done = federation.run("token", "create", "a-person", "--role", "researcher")
    lines = done.stdout.splitlines()
    assert lines[1].startswith("fw_")
    assert federation.run("run", "list", "--token", lines[1]).returncode == 0


def test_lists_are_tables_for_people(federation: Federation, finished: dict[str, Any]) -> None:
    for command in ("site", "study", "plan", "run", "model", "token"):
        done = federation.run(command, "list")
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) >= 2
    assert finished["run"] in federation.run("run", "list").stdout


def test_a_wrong_token_and_a_dead_coordinator_are_told_apart(
    federation: Federation, tmp_path: Path
) -> None:
    assert "(401 " in federation.run("run", "list", role="nobody").stderr
    dead = federation.run("run", "list", "--url", "http://127.0.0.1:9")
    assert dead.returncode == 1
    assert "no answer from the coordinator" in dead.stderr
