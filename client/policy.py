"""Whether this site does what a plan asks; decided before any data is touched.

Decides: which training code may run and which data set it sees. Leaves to others: whether the
plan's bytes are the announced ones (`task_runner.py`) and what the code does with the data.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from fedward.protocol.canonical import canonical_bytes, sha256_digest
from fedward.protocol.documents import Plan, Scalar, Task, TaskFailure

from .errors import TaskFailed
from .settings import AgentSettings

_READ_AT_START = "agent.toml is read at start: restart the agent after a change"


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a task may use: exactly one of `recipe` and `bundle`, and the app's node settings."""

    recipe: str | None
    bundle: str | None
    dataset: str | None
    data_path: Path | None
    node_config: dict[str, Scalar]


def policy_digest(settings: AgentSettings) -> str:
    """Return the digest of the rules in force; every local audit record names it."""
    rules: dict[str, JsonValue] = {
        "accept": settings.accept.model_dump(mode="json"),
        "datasets": [*sorted(settings.datasets)],
        "limits": settings.limits.model_dump(mode="json"),
    }
    return sha256_digest(canonical_bytes(rules))


def accept_plan(plan: Plan, task: Task, *, settings: AgentSettings) -> Accepted:
    """Return what the task may use.

    Raises:
        TaskFailed: plan-invalid, app-not-accepted or dataset-unknown.
    """
    if plan.study != task.study:
        detail = f"task {task.task}: got study {task.study}, the plan says {plan.study}"
        raise TaskFailed(TaskFailure.PLAN_INVALID, detail)
    if plan.sites is not None and settings.site not in plan.sites:
        detail = f"plan {task.plan} does not name the site {settings.site}"
        raise TaskFailed(TaskFailure.PLAN_INVALID, detail)
    _check_app(plan, settings)
    if plan.dataset is None:
        return Accepted(plan.app.recipe, plan.app.bundle, None, None, {})
    dataset = settings.datasets.get(plan.dataset)
    if dataset is None:
        known = ", ".join(sorted(settings.datasets)) or "none"
        detail = f"got dataset {plan.dataset!r}, agent.toml has: {known}; {_READ_AT_START}"
        raise TaskFailed(TaskFailure.DATASET_UNKNOWN, detail)
    node_config: dict[str, Scalar] = dict(dataset.node_config)
    if dataset.path is not None:
        node_config["data-path"] = str(dataset.path)
    return Accepted(plan.app.recipe, plan.app.bundle, plan.dataset, dataset.path, node_config)


def _check_app(plan: Plan, settings: AgentSettings) -> None:
    accept, app = settings.accept, plan.app
    if app.recipe is not None and app.recipe not in accept.recipes:
        detail = f"got recipe {app.recipe}, accept.recipes has {accept.recipes}; {_READ_AT_START}"
        raise TaskFailed(TaskFailure.APP_NOT_ACCEPTED, detail)
    if app.bundle is not None and app.bundle not in accept.apps:
        detail = f"got bundle {app.bundle}, accept.apps has {accept.apps}; {_READ_AT_START}"
        raise TaskFailed(TaskFailure.APP_NOT_ACCEPTED, detail)
