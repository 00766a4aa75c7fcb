"""Following a run: what to fetch when, and a round's attempts as one row of a table."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from .errors import NotReachable, ProblemAnswer
from .http import Api

ENDED = frozenset({"completed", "failed", "stopped"})
WORTH_A_LOOK = ("attempt.", "run.")
"""Audit actions after which a table of rounds looks different; tasks alone do not change it."""
RECONNECTS = 20
"""Cut connections in a row, without an event between them, before giving up."""
LONGEST_WAIT_S = 15.0
FIRST_METRICS = ("loss", "accuracy", "auc")
METRICS_SHOWN = 4
METRIC = "metric:"
"""Before the name of a metric in a row's keys."""
AWAY_STATUSES = frozenset({502, 503, 504})
"""How a proxy, or a coordinator without its database, says that it will be back."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run and all its rounds at one moment, as the coordinator describes them.

    `away` says why the coordinator cannot be asked now; run and rounds are then the last known.
    """

    run: dict[str, Any]
    rounds: list[dict[str, Any]]
    away: str | None = None


def follow_run(api: Api, run: str) -> Iterator[Snapshot]:
    """Yield a snapshot now, after each change, and a last one when the run has ended.

    A cut stream is taken up again after the last event seen; while that fails, the last snapshot
    is yielded with `away`.

    Raises:
        NotReachable: no answer at first, or `RECONNECTS` cuts in a row, which takes minutes.
    """
    after: str | None = None
    cuts = 0
    snapshot: Snapshot | None = None
    while True:
        try:
            snapshot = take_snapshot(api, run, [] if snapshot is None else snapshot.rounds)
            yield snapshot
            if snapshot.run["status"] in ENDED:
                return
            for event in api.events(f"/runs/{run}/events", after=after):
                after, cuts = event.id or after, 0
                if is_worth_a_look(event.data):
                    break
            else:
                # The stream ended though the run goes on: a proxy, or the coordinator stops.
                cuts = _wait_after(cuts)
        except (NotReachable, ProblemAnswer) as error:
            if snapshot is None or cuts == RECONNECTS or not _will_be_back(error):
                raise
            yield replace(snapshot, away=str(error).partition("\n")[0])
            cuts = _wait_after(cuts)


def take_snapshot(api: Api, run: str, known: list[dict[str, Any]]) -> Snapshot:
    """Fetch the run, and its rounds from the last known one on."""
    view = api.get(f"/runs/{run}")
    settled = known[:-1]
    after = str(settled[-1]["round"]) if settled else None
    return Snapshot(view, [*settled, *api.get_all(f"/runs/{run}/rounds", start=after)])


def is_worth_a_look(data: Any) -> bool:
    """Tell whether an event's record changes the table of rounds."""
    record = data.get("record", data) if isinstance(data, dict) else {}
    return str(record.get("action", "")).startswith(WORTH_A_LOOK)


def round_rows(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row a round: who took part, metrics, bytes, seconds, in the rounds' order."""
    return [_round_row(view) for view in rounds]


def round_columns(rounds: list[dict[str, Any]]) -> dict[str, str]:
    """Return the columns that these rounds have something for."""
    rows = round_rows(rounds)
    columns = {"round": "round", "status": "status", "took_part": "took part"}
    columns |= {_metric_key(name): name for name in _metric_names(rounds)}
    columns |= {"bytes_up": "up", "seconds": "seconds"}
    if any(row["refused"] for row in rows):
        columns["refused"] = "not taken"
    return columns


def summary_line(run: dict[str, Any]) -> str:
    """Say in one line where a run stands."""
    parts = [f"{run['run']} {run['status']}", f"round {run['round']} of {run['rounds']}"]
    if run.get("phase"):
        parts.append(run["phase"])
    if run.get("participation"):
        parts.append(run["participation"])
    if run.get("reason"):
        parts.append(f"reason: {run['reason']}")
    waiting = [f"{who['site']} ({who['why']})" for who in run.get("waiting_for") or []]
    if waiting and run["status"] not in ENDED:
        parts.append("waiting for " + ", ".join(waiting))
    return ", ".join(parts)


def _will_be_back(error: NotReachable | ProblemAnswer) -> bool:
    return isinstance(error, NotReachable) or error.status in AWAY_STATUSES


def _wait_after(cuts: int) -> int:
    """Wait longer after each cut, and count this one."""
    time.sleep(min(LONGEST_WAIT_S, 0.5 * 2.0**cuts))
    return cuts + 1


def _metric_names(rounds: list[dict[str, Any]]) -> list[str]:
    """Return the metrics worth a column: the usual ones first, single numbers only."""
    found = {
        name
        for view in rounds
        for name, value in _metrics_of(view).items()
        if isinstance(value, int | float) and name != "num-examples"
    }
    usual = [name for name in FIRST_METRICS if name in found]
    return [*usual, *sorted(found - set(usual))][:METRICS_SHOWN]


def _metrics_of(view: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics of a round's committed evaluation, none before it."""
    evaluated = [
        attempt["metrics"]
        for attempt in view["attempts"]
        if attempt["kind"] == "evaluate" and attempt["status"] == "committed"
    ]
    return evaluated[-1] if evaluated else {}


def _metric_key(name: str) -> str:
    # value_at reads a dot as a way into a document; a metric's name may hold one.
    return f"{METRIC}{name.replace('.', '_')}"


def _round_row(view: dict[str, Any]) -> dict[str, Any]:
    attempts: list[dict[str, Any]] = view["attempts"]
    working = [attempt for attempt in attempts if attempt["kind"] != "evaluate"]
    last = (working or attempts)[-1]
    absent = [
        f"{entry['site']} ({entry['reason']})"
        for attempt in attempts
        for entry in [*attempt["refused"], *attempt["late"]]
    ]
    return {
        "round": view["round"],
        "status": last["status"] if last["kind"] == "train" else f"{last['kind']} {last['status']}",
        "took_part": f"{len(last['took_part'])} of {len(last['cohort'])}",
        **{_metric_key(name): value for name, value in _metrics_of(view).items()},
        "bytes_up": sum(attempt["bytes_up"] for attempt in attempts),
        "seconds": sum(attempt["duration_s"] or 0.0 for attempt in attempts),
        "refused": ", ".join(dict.fromkeys(absent)),
    }
