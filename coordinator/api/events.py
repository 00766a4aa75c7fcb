"""A run's audit records as server-sent events; `id` is the sequence number, so that a cut stream
goes on where it ended (`Last-Event-ID`).

Event `record` carries an AuditEventView. When the run has ended and all was sent, event `end`
follows and the stream is closed; whoever comes back after that gets 204, which tells a browser
to stop asking.
"""

from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool

from fedward.coordinator import views
from fedward.coordinator.api.polls import first_of
from fedward.coordinator.api.state import ApiState
from fedward.coordinator.run_state import ENDED

PAGE_EVENTS = 200


async def is_over(state: ApiState, run: str, after_seq: int) -> bool:
    """Tell whether the run has ended and nothing comes after `after_seq`.

    Raises:
        NotFound: no such run.
    """
    events, ended = await run_in_threadpool(_look, state, run, after_seq)
    return ended and not events


async def event_stream(state: ApiState, run: str, after_seq: int) -> AsyncIterator[bytes]:
    """Yield what has happened after `after_seq`, then what happens, until the run has ended."""
    topic, notifier = f"run:{run}", state.coordinator.notifier
    while not state.stopping.is_set():
        seen = notifier.version(topic)
        events, ended = await run_in_threadpool(_look, state, run, after_seq)
        for event in events:
            after_seq = event.seq
            yield _frame("record", event.model_dump_json(), event.seq)
        if events:
            continue
        if ended:
            yield _frame("end", "{}", after_seq)
            return
        await first_of(
            notifier.wait(topic, state.settings.sse_ping_s, since=seen), state.stopping.wait()
        )
        yield b": ping\n\n"


def _look(state: ApiState, run: str, after_seq: int) -> tuple[list[views.AuditEventView], bool]:
    # The status first: what is recorded with the end is then among the events.
    ended = state.coordinator.show_run(run).status in ENDED
    events = state.coordinator.run_events(run, after_seq=after_seq, limit=PAGE_EVENTS)
    return events, ended


def _frame(name: str, data: str, seq: int) -> bytes:
    return f"id: {seq}\nevent: {name}\ndata: {data}\n\n".encode()
