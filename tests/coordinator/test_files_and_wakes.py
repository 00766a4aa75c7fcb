"""Blobs, uploads, wake-ups, the scheduler's loop, and the schema."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from fedward.coordinator.blobs import Blobs
from fedward.coordinator.errors import NotFound, Unavailable
from fedward.coordinator.notify import Notifier
from fedward.coordinator.scheduler import Scheduler
from fedward.coordinator.service import Coordinator
from fedward.coordinator.store.tables import metadata
from fedward.protocol.arrays import encode
from fedward.protocol.canonical import sha256_digest
from fedward.protocol.documents import RoundRules
from fedward.protocol.errors import InvalidArrays, NonFinite
from fedward.protocol.timestamps import from_timestamp, to_timestamp

from .federation import ADMIN, Federation, simulated


def test_a_blob_is_found_by_its_digest(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    digest = blobs.put([b"one ", memoryview(b"two")])
    assert digest == sha256_digest(b"one two")
    assert blobs.put([b"one two"]) == digest
    assert blobs.path(digest).parent.name == digest[7:9]
    assert blobs.exists(digest)
    assert blobs.path(digest).read_bytes() == b"one two"
    blobs.path(digest).unlink()
    with pytest.raises(NotFound):
        blobs.path(digest)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)

    def chunks() -> object:
        yield b"half"
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        blobs.put(chunks())  # type: ignore[arg-type]  # a generator of bytes
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", InvalidArrays),
        (b"not arrays at all", InvalidArrays),
        (b"".join(encode({"w": np.array([np.inf], np.float32)})), NonFinite),
    ],
)
def test_a_model_that_is_none_is_refused(
    federation: Federation, data: bytes, error: type[Exception]
) -> None:
    path = federation.folder / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(error):
        federation.coordinator.add_model(ADMIN, path)
    assert federation.coordinator.list_models().items == []


def test_a_site_reads_only_files_of_its_own_runs(federation: Federation) -> None:
    run = federation.prepare(sites=("hospital-a", "hospital-b"))
    federation.coordinator.start_run(ADMIN, run)
    shown = federation.coordinator.show_run(run)
    for digest in (shown.plan, shown.model):
        assert federation.coordinator.open_blob("hospital-a", digest).is_file()
        with pytest.raises(NotFound):
            federation.coordinator.open_blob("hospital-c", digest)
    federation.coordinator.count_sent("hospital-a", shown.model, size_bytes=100)
    assert federation.coordinator.show_run(run).bytes_down == 100


def test_reading_a_model_is_recorded(federation: Federation) -> None:
    digest = federation.plan().model
    assert federation.coordinator.open_model(ADMIN, digest).is_file()
    last = federation.coordinator.audit_events(ADMIN, limit=500)[-1].record
    assert (last["action"], last["object"]) == (
        "model.read",
        {"digest": digest, "id": digest, "type": "model"},
    )


def test_a_wake_up_between_look_and_wait_is_not_lost() -> None:
    async def waits() -> tuple[bool, bool]:
        notifier = Notifier()
        seen = notifier.version("site:a")
        notifier.notify("site:a")
        early = await notifier.wait("site:a", 30, since=seen)
        return early, await notifier.wait("site:a", 0.01, since=notifier.version("site:a"))

    assert asyncio.run(waits()) == (True, False)


def test_a_wake_up_comes_from_any_thread() -> None:
    async def waits() -> bool:
        notifier = Notifier()
        waiting = asyncio.create_task(notifier.wait("runs", 30))
        await asyncio.sleep(0)
        await asyncio.to_thread(notifier.notify, "runs")
        return await waiting

    assert asyncio.run(waits())


def test_the_scheduler_carries_a_run_to_its_end(federation: Federation) -> None:
    run = federation.prepare(rounds=RoundRules(count=2, quorum=2))
    sites = list(simulated(federation).values())
    federation.coordinator.start_run(ADMIN, run)

    async def until_done() -> str:
        scheduler = Scheduler(federation.coordinator)
        running = asyncio.create_task(scheduler.run())
        notifier = federation.coordinator.notifier
        while True:
            seen = notifier.version(f"run:{run}")
            for site in sites:
                await asyncio.to_thread(site.work)
            status = (await asyncio.to_thread(federation.coordinator.show_run, run)).status
            if status != "running":
                break
            await notifier.wait(f"run:{run}", 10, since=seen)
        scheduler.stop()
        await running
        return status

    assert asyncio.run(until_done()) == "completed"
    last = federation.coordinator.audit_events(ADMIN, limit=500)[-1].record
    assert last["action"] == "coordinator.stop"


def test_a_failed_transaction_changes_nothing_and_wakes_nobody(federation: Federation) -> None:
    woken = []
    with pytest.raises(KeyError), federation.store.transaction() as work:
        work.after_commit(lambda: woken.append("x"))
        federation.coordinator.create_study(ADMIN, federation.study())
        raise KeyError
    assert federation.coordinator.list_studies().items == []
    assert woken == []


def test_a_database_that_cannot_be_written_is_unavailable(federation: Federation) -> None:
    with federation.store.transaction() as work:
        work.connection.exec_driver_sql("DROP TABLE audit_nodes")
    with pytest.raises(Unavailable):
        federation.coordinator.create_study(ADMIN, federation.study())
    assert federation.coordinator.list_studies().items == []


def test_the_migrations_make_the_tables(federation: Federation) -> None:
    with federation.store.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_times_go_to_text_and_back() -> None:
    assert to_timestamp(1_800_000_000.25) == "2027-01-15T08:00:00.250000Z"
    assert from_timestamp("2027-01-15T08:00:00.250000Z") == 1_800_000_000.25


def test_paging_shows_everything_once(federation: Federation) -> None:
    federation.prepare(rounds=RoundRules(count=3, quorum=2))
    runs = [federation.new_run() for _ in range(4)]
    federation.coordinator.start_run(ADMIN, runs[0])
    federation.finish(runs[0], simulated(federation))
    seen, after = [], None
    while True:
        page = federation.coordinator.list_runs(after=after, limit=2)
        seen += [view.run for view in page.items]
        if page.next is None:
            break
        after = page.next
    assert len(seen) == len(set(seen)) == 5
    rounds = federation.coordinator.list_rounds(runs[0], limit=1)
    assert (rounds.items[0].round, rounds.next) == (1, "1")


def test_a_stop_that_cannot_be_recorded_still_ends_the_scheduler(
    federation: Federation, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(Coordinator):
        def stop(self) -> None:
            raise Unavailable("storage-unavailable", "the disk is full")

    c = federation.coordinator.context
    coordinator = Full(c.store, c.blobs, c.notifier, c.key, c.clock, c.token_bytes)

    async def start_and_stop() -> None:
        scheduler = Scheduler(coordinator)
        running = asyncio.create_task(scheduler.run())
        await asyncio.to_thread(coordinator.check_ready)
        scheduler.stop()
        await running

    asyncio.run(start_and_stop())
    assert "could not be recorded" in caplog.text
    coordinator.check_ready()
