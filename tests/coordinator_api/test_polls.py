import asyncio
from collections import Counter

import pytest

from fedward.coordinator.api.polls import Changes, PollDesk
from fedward.coordinator.notify import Notifier

pytestmark = pytest.mark.anyio


class Connection:
    """The peer's side: open until it is closed."""

    def __init__(self):
        self.closed = asyncio.Event()

    async def receive(self):
        await self.closed.wait()
        return {"type": "http.disconnect"}


class Tasks:
    """What agents look for, a counter of looks, and a desk in front of it."""

    def __init__(self, recheck_s=60.0):
        self.offered = set()
        self.looks = Counter()
        self.changes = 0
        self.change_looks = 0
        self.notifier = Notifier()
        self.stopping = asyncio.Event()
        self.looked_now = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.desk = PollDesk(
            self.notifier,
            changes=Changes(self.count_changes, fresh_s=recheck_s / 2),
            stopping=self.stopping,
            recheck_s=recheck_s,
        )

    def count_changes(self):
        self.change_looks += 1
        return self.changes

    def look(self, site):
        self.looks[site] += 1
        self.loop.call_soon_threadsafe(self.looked_now.set)
        return f"task of {site}" if site in self.offered else None

    def poll(self, site, *, wait_s=30.0, connection=None):
        receive = (connection or Connection()).receive
        wait = self.desk.wait_for(site, lambda: self.look(site), wait_s=wait_s, receive=receive)
        return asyncio.create_task(wait)

    async def looked(self, site, times=1):
        while self.looks[site] < times:
            self.looked_now.clear()
            if self.looks[site] < times:
                await self.looked_now.wait()


async def test_what_is_there_is_answered_at_once():
    tasks = Tasks()
    tasks.offered.add("a")
    assert await asyncio.wait_for(tasks.poll("a"), 5) == "task of a"
    assert tasks.desk.open_polls == 0


async def test_nothing_is_answered_after_the_wait():
    assert await asyncio.wait_for(Tasks().poll("a", wait_s=0.05), 5) is None


async def test_a_notification_wakes_only_its_site():
    tasks = Tasks()
    first, second = tasks.poll("a"), tasks.poll("b")
    await tasks.looked("a")
    await tasks.looked("b")
    tasks.offered |= {"a", "b"}
    tasks.notifier.notify("site:a")
    assert await asyncio.wait_for(first, 5) == "task of a"
    assert tasks.looks["b"] == 1
    second.cancel()


async def test_a_closed_connection_gets_no_task():
    tasks, connection = Tasks(), Connection()
    poll = tasks.poll("a", connection=connection)
    await tasks.looked("a")
    connection.closed.set()
    assert await asyncio.wait_for(poll, 5) is None
    assert (tasks.looks["a"], tasks.desk.open_polls) == (1, 0)


async def test_a_newer_poll_ends_the_older_which_looks_no_more():
    tasks = Tasks()
    older = tasks.poll("a")
    await tasks.looked("a")
    tasks.offered.add("a")
    newer = tasks.poll("a")
    assert await asyncio.wait_for(newer, 5) == "task of a"
    assert await asyncio.wait_for(older, 5) is None
    assert tasks.looks["a"] == 2


async def test_stopping_answers_all():
    tasks = Tasks()
    polls = [tasks.poll(f"site-{number}") for number in range(100)]
    await tasks.looked("site-99")
    assert tasks.desk.open_polls == 100
    tasks.stopping.set()
    assert await asyncio.wait_for(asyncio.gather(*polls), 10) == [None] * 100


async def test_a_change_by_another_process_is_found_by_looking_again():
    tasks = Tasks(recheck_s=0.02)
    poll = tasks.poll("a")
    await tasks.looked("a")
    tasks.offered.add("a")
    tasks.changes += 1  # as a table of another process would show; nobody notifies
    assert await asyncio.wait_for(poll, 5) == "task of a"


async def test_idle_agents_share_one_query():
    tasks = Tasks(recheck_s=0.1)
    polls = [tasks.poll(f"site-{number}", wait_s=0.5) for number in range(200)]
    await asyncio.wait_for(asyncio.gather(*polls), 20)
    assert max(tasks.looks.values()) == 2  # at the start and at the end
    assert tasks.change_looks < 30
