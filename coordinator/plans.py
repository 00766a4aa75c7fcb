"""What must hold of a plan before it may run; all reasons are told at once.

`check_plan` is a function of the plan and of what the coordinator knows. Whether a site accepts
the plan is the site's own decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fedward.coordinator.views import PlanCheck
from fedward.protocol.arrays import Schema, classify, encoded_size, update_schema
from fedward.protocol.documents import Plan, Scalar, Study
from fedward.protocol.errors import InvalidArrays
from fedward.strategies.errors import StrategyInvalid
from fedward.strategies.registry import build

RECIPES = frozenset({"tabular"})
"""Apps that ship with every agent, by name."""
SERVER_ROUND = "server-round"
"""In every message's config, as Flower's own."""
PREPARED = "prepared."
"""Prefix of the preparation's metrics in a message's config."""


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What the coordinator knows about what a plan names; None where there is no such thing."""

    study: Study | None
    study_status: str | None
    """`open`, `closed` or `expired`."""
    app_config: Mapping[str, Scalar] | None
    """The bundle's own settings; None where the plan names a recipe or an unknown bundle."""
    schema: Schema | None
    model_bytes: int | None
    sites_enrolled: frozenset[str]


def check_plan(plan: Plan, facts: PlanFacts) -> PlanCheck:
    """Return why the plan would be refused (no reasons: it is accepted) and what it costs."""
    sites = list(plan.sites or (facts.study.sites if facts.study else []))
    reasons = [
        *_study_reasons(plan, facts),
        *_app_reasons(plan, facts),
        *_message_reasons(plan),
        *_round_reasons(plan, len(set(sites)) if facts.study or plan.sites else None),
        *_evaluate_reasons(plan, sites),
        *_strategy_reasons(plan),
        *_array_reasons(plan, facts),
    ]
    if plan.weights.missing is not None and plan.weights.missing > plan.weights.cap:
        reasons.append(
            f"weights.missing: got {plan.weights.missing}, "
            f"expected at most weights.cap ({plan.weights.cap})"
        )
    down, up = (None, None) if reasons else _bytes_per_round(plan, facts, len(sites))
    return PlanCheck(
        accepted=not reasons,
        reasons=reasons,
        warnings=_warnings(facts, sites),
        sites=sites,
        model_bytes=facts.model_bytes,
        bytes_down_per_round=down,
        bytes_up_per_round=up,
    )


def _study_reasons(plan: Plan, facts: PlanFacts) -> list[str]:
    if facts.study is None:
        return [f"study {plan.study!r}: unknown"]
    reasons = []
    if facts.study_status != "open":
        reasons.append(f"study {plan.study!r}: got {facts.study_status}, expected open")
    strangers = sorted(set(plan.sites or ()) - set(facts.study.sites))
    reasons += [f"site {site!r}: not of study {plan.study!r}" for site in strangers]
    if len(set(plan.sites or ())) != len(plan.sites or ()):
        reasons.append("sites: a site is named twice")
    return reasons


def _app_reasons(plan: Plan, facts: PlanFacts) -> list[str]:
    if plan.app.recipe is not None:
        if plan.app.recipe in RECIPES:
            return []
        known = ", ".join(sorted(RECIPES))
        return [f"app.recipe: got {plan.app.recipe!r}, expected one of {known}"]
    if facts.app_config is None:
        return [f"app.bundle {plan.app.bundle}: unknown"]
    unknown = sorted(set(plan.app.config) - set(facts.app_config))
    return [f"app.config: the app has no setting {name!r}" for name in unknown]


def _message_reasons(plan: Plan) -> list[str]:
    """Refuse settings of messages under the names that fedward itself fills in."""
    try:
        taken = {SERVER_ROUND, *build(plan.strategy).client_config()}
    except StrategyInvalid:  # told by its own reasons
        taken = {SERVER_ROUND}
    tables = {"train_config": plan.app.train_config, "evaluate_config": plan.app.evaluate_config}
    return [
        f"app.{table}: {name!r} is set by fedward"
        for table, config in tables.items()
        for name in sorted(config)
        if name in taken or name.startswith(PREPARED)
    ]


def _round_reasons(plan: Plan, sites: int | None) -> list[str]:
    rules, reasons = plan.rounds, []
    if rules.quorum < 2:
        reasons.append(
            f"rounds.quorum: got {rules.quorum}, one participating site, minimum 2 "
            "(its update could be read off the model)"
        )
    if sites is not None and rules.quorum > sites:
        reasons.append(f"rounds.quorum: got {rules.quorum}, expected at most {sites} (the sites)")
    if rules.cohort is not None and rules.cohort < rules.quorum:
        reasons.append(
            f"rounds.cohort: got {rules.cohort}, expected at least {rules.quorum} (the quorum)"
        )
    if rules.cohort is not None and sites is not None and rules.cohort > sites:
        reasons.append(f"rounds.cohort: got {rules.cohort}, expected at most {sites} (the sites)")
    return reasons


def _evaluate_reasons(plan: Plan, sites: list[str]) -> list[str]:
    wanted = plan.evaluate.sites or []
    reasons = [
        f"evaluate.sites: {site!r} is not one of the plan's sites"
        for site in sorted(set(wanted) - set(sites))
    ]
    if len(set(wanted)) != len(wanted):
        reasons.append("evaluate.sites: a site is named twice")
    return reasons


def _strategy_reasons(plan: Plan) -> list[str]:
    try:
        build(plan.strategy)
    except StrategyInvalid as error:
        return list(error.reasons)
    return []


def _array_reasons(plan: Plan, facts: PlanFacts) -> list[str]:
    if facts.schema is None:
        return [f"model {plan.model}: unknown"]
    try:
        classify(facts.schema, plan.arrays)
    except InvalidArrays as error:
        return [f"arrays: {part}" for part in str(error).split("; ")]
    return []


def _warnings(facts: PlanFacts, sites: list[str]) -> list[str]:
    warnings = []
    missing = [site for site in sites if site not in facts.sites_enrolled]
    if missing:
        warnings.append(f"not enrolled yet: {', '.join(missing)}")
    if len(sites) == 2:
        warnings.append("two sites: each can compute the other's update from the model")
    return warnings


def _bytes_per_round(plan: Plan, facts: PlanFacts, sites: int) -> tuple[int | None, int | None]:
    """Return the bytes sent to and by all sites in a round of training."""
    if facts.schema is None or facts.model_bytes is None:
        return None, None
    cohort = plan.rounds.cohort or sites
    update = encoded_size(update_schema(facts.schema, classify(facts.schema, plan.arrays)))
    return cohort * facts.model_bytes, cohort * update
