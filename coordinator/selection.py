"""Who takes part: the cohort of an attempt, task ids and seeds, all derived from the plan's seed.

Everything here is a function of its arguments, so that a restarted coordinator, a second one
and a simulation choose the same sites and hand out the same seeds.
"""

import hashlib
from collections.abc import Iterable

from fedward.protocol.documents import TaskKind


def select_cohort(
    sites: Iterable[str], *, size: int | None, seed: int, round_number: int, attempt: int
) -> tuple[str, ...]:
    """Choose `size` of the sites uniformly, all of them when None; sorted by name."""
    distinct = sorted(set(sites))
    if size is None or size >= len(distinct):
        return tuple(distinct)
    ranked = sorted(distinct, key=lambda site: _hash("cohort", seed, round_number, attempt, site))
    return tuple(sorted(ranked[:size]))


def task_seed(seed: int, *, round_number: int, site: str, kind: TaskKind) -> int:
    """Return the seed in [0, 2**63) of a site's work, the same for every attempt of a round."""
    return int.from_bytes(_hash("task", seed, round_number, site, kind.value)[:8], "big") >> 1


def task_id(run: str, *, kind: TaskKind, round_number: int, attempt: int, site: str) -> str:
    """Return the id of the one task that a site has in an attempt."""
    return f"task-{_hash('task-id', run, kind.value, round_number, attempt, site).hex()[:24]}"


def _hash(*parts: str | int) -> bytes:
    # Length-prefixed, so that ("a", "bc") and ("ab", "c") differ.
    encoded = [str(part).encode() for part in parts]
    return hashlib.sha256(b"".join(len(p).to_bytes(4, "big") + p for p in encoded)).digest()
