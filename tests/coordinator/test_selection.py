"""Cohorts, task ids and seeds are functions of the plan's seed and nothing else."""

from collections import Counter

from fedward.coordinator.selection import select_cohort, task_id, task_seed
from fedward.protocol.documents import TaskKind

SITES = [f"site-{i}" for i in range(10)]


def cohort(seed: int, round_number: int, attempt: int = 1) -> tuple[str, ...]:
    return select_cohort(SITES, size=4, seed=seed, round_number=round_number, attempt=attempt)


def test_the_order_in_which_sites_are_given_does_not_matter() -> None:
    again = select_cohort(reversed(SITES), size=4, seed=1, round_number=2, attempt=1)
    assert again == cohort(1, 2) and list(again) == sorted(again) and len(again) == 4


def test_all_sites_are_taken_when_the_cohort_is_not_smaller() -> None:
    for size in (None, 10, 11):
        chosen = select_cohort(SITES, size=size, seed=1, round_number=1, attempt=1)
        assert chosen == tuple(sorted(SITES))


def test_seed_round_and_attempt_each_change_the_cohort() -> None:
    assert len({cohort(1, 1), cohort(2, 1), cohort(1, 2), cohort(1, 1, 2)}) == 4


def test_every_site_is_chosen_about_equally_often() -> None:
    # 10,000 rounds of 4 in 10: mean 4000, sd 49; 6 sd is passed by chance once in 10**8 tests.
    counts = Counter(site for n in range(10_000) for site in cohort(7, n))
    assert all(abs(counts[site] - 4000) < 300 for site in SITES)


def test_a_task_seed_does_not_depend_on_the_attempt_and_fits_63_bits() -> None:
    seeds = {
        task_seed(seed, round_number=n, site=site, kind=kind)
        for seed in (0, 1)
        for n in (1, 2)
        for site in ("a", "b")
        for kind in TaskKind
    }
    assert len(seeds) == 24 and all(0 <= s < 2**63 for s in seeds)


def test_known_seed_and_id_do_not_change_between_versions() -> None:
    # A change here would change the bits of every run that is repeated.
    assert task_seed(1, round_number=1, site="a", kind=TaskKind.TRAIN) == KNOWN_SEED
    got = task_id("run-1", kind=TaskKind.TRAIN, round_number=1, attempt=1, site="a")
    assert got == KNOWN_ID


KNOWN_SEED = 3582020519963157317
KNOWN_ID = "task-ffbf10ed9754bd35336915f0"
