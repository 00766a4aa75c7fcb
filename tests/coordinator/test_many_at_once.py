"""Threads that call the service at the same time: nothing lost, nothing counted twice."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedward.coordinator.errors import NotAuthenticated
from fedward.protocol.arrays import encode
from fedward.protocol.canonical import sha256_digest
from fedward.protocol.documents import AppRef, ResultReceipt, RoundRules, StrategySpec, UpdateRef

from .federation import ADMIN, START, Federation, simulated
from .test_bundles import pack


def test_sites_that_work_at_the_same_time_give_the_bits_of_sites_in_turn(
    federation: Federation,
) -> None:
    run = federation.prepare()
    federation.coordinator.start_run(ADMIN, run)
    model = federation.finish(run, simulated(federation)).model
    run = federation.new_run()
    federation.coordinator.start_run(ADMIN, run)
    sites = simulated(federation)
    with ThreadPoolExecutor(3) as threads:
        while federation.coordinator.show_run(run).status == "running":
            list(threads.map(lambda site: site.work(), sites.values()))
            federation.run_due()
    assert federation.coordinator.show_run(run).model == model
    assert federation.coordinator.verify_audit().ok


def test_one_answer_sent_twice_at_the_same_time_is_taken_once(federation: Federation) -> None:
    run = federation.prepare()
    federation.coordinator.start_run(ADMIN, run)
    site = simulated(federation)["hospital-a"]
    task = site.peek()
    assert task is not None
    data = b"".join(encode(site.train(task)))
    site.upload(task, data)
    ref = UpdateRef(digest=sha256_digest(data), size_bytes=len(data))
    together = threading.Barrier(4)

    def send(_: int) -> ResultReceipt:
        together.wait(10)
        return site.submit(task, update=ref, metrics={})

    with ThreadPoolExecutor(4) as threads:
        receipts = list(threads.map(send, range(4)))
    assert all(receipt.accepted for receipt in receipts)
    actions = [e.record["action"] for e in federation.coordinator.run_events(run, limit=500)]
    assert actions.count("task.accept") == 1


def test_one_request_sent_twice_at_the_same_time_is_admitted_once(federation: Federation) -> None:
    key_id = federation.enrol("hospital-a")
    together = threading.Barrier(4)

    def admit(_: int) -> bool:
        together.wait(10)
        try:
            federation.coordinator.admit(key_id, "nonce", created=START)
        except NotAuthenticated:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(admit, range(4))) == [False, False, False, True]


def test_a_bundle_and_the_strategys_settings_reach_the_sites(federation: Federation) -> None:
    app = federation.coordinator.add_app(ADMIN, pack())
    run = federation.prepare(
        app=AppRef(bundle=app.digest, config={"local-epochs": 3}),
        strategy=StrategySpec(name="fedprox", parameters={"proximal-mu": 0.5}),
        rounds=RoundRules(count=1, quorum=2),
    )
    federation.coordinator.start_run(ADMIN, run)
    task = simulated(federation)["hospital-a"].peek()
    assert task is not None
    assert task.config == {"server-round": 1, "proximal-mu": 0.5}
    path = federation.coordinator.open_blob("hospital-a", app.digest)
    assert path.read_bytes() == pack()


@pytest.mark.parametrize("stops", [1, 2])
def test_a_second_run_of_a_site_gets_its_turn(federation: Federation, stops: int) -> None:
    runs = [federation.prepare(), federation.new_run()]
    for run in runs:
        federation.coordinator.start_run(ADMIN, run)
    if stops == 1:
        federation.coordinator.stop_run(ADMIN, runs[0])
    federation.finish(runs[1], simulated(federation))
    ended = [federation.coordinator.show_run(run).status for run in runs]
    assert ended == ["stopped" if stops == 1 else "completed", "completed"]
