"""Calls a `flwr.clientapp.ClientApp` as Flower's own SuperNode would, and checks its reply.

Decides how arrays become records and back, which record names an app receives, and which replies
are accepted. Leaves the records' bytes to
`training/flower.py`, files and failures to `worker.py`, and to the agent whether trained arrays
are finite and of the model's schema.

Message-API apps receive the records `arrays` and `config`; apps built on a legacy `client_fn`
receive the records of Flower's compatibility layer. An app whose reply names its arrays by
position ("0", "1", … as `ArrayRecord(list_of_ndarrays)` does) gets the received names back.
"""

from __future__ import annotations

import importlib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.app.metadata import Metadata
from flwr.clientapp import ClientApp
from flwr.clientapp.client_app import LoadClientAppError
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.supercore.date import now as flower_now
from flwr.supercore.object_ref import load_app
from flwr.supercore.task_identity import TaskIdentity

from fedward.client.errors import TaskFailed
from fedward.client.training.flower import record_of, values_of
from fedward.protocol.arrays import Arrays
from fedward.protocol.documents import Scalar, TaskFailure, TaskKind

Config = Mapping[str, Scalar | list[float] | list[int] | list[str]]
Metrics = dict[str, int | float | list[int] | list[float]]

NUM_EXAMPLES = "num-examples"
MAX_METRICS = 256
"""As `protocol.documents.Metrics` allows; more would be refused centrally."""
MESSAGE_TTL_S = 30 * 86_400.0
"""Flower refuses nothing by this value here; replies derive theirs from it."""
LEGACY_PREFIX = {TaskKind.TRAIN: "fit", TaskKind.EVALUATE: "evaluate"}


# ---------------------------------------------------------------- apps and their settings


@dataclass(frozen=True, slots=True)
class LoadedApp:
    """A ClientApp and its own `[tool.flwr.app.config]`, flattened."""

    app: ClientApp
    config: dict[str, Scalar]


def load_bundle(directory: Path, *, clientapp: str | None) -> LoadedApp:
    """Import the ClientApp of a Flower app directory.

    Args:
        directory: absolute; holds pyproject.toml. It is put on `sys.path` for good.
        clientapp: "pkg.module:attribute"; None for the one that pyproject.toml names.

    Raises:
        TaskFailed: app-invalid. What the app's own import raises passes through.
    """
    try:
        text = (directory / "pyproject.toml").read_text(encoding="utf-8")
        section = tomllib.loads(text)["tool"]["flwr"]["app"]
        reference = clientapp or section["components"]["clientapp"]
        config = flatten(section.get("config", {}))
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise TaskFailed(
            TaskFailure.APP_INVALID, f"{directory}: pyproject.toml is no Flower app's: {error!r}"
        ) from error
    try:
        app = load_app(reference, LoadClientAppError, directory)
    except LoadClientAppError as error:
        raise TaskFailed(TaskFailure.APP_INVALID, f"{reference}: {error}") from error
    return LoadedApp(_require_client_app(app, reference), config)


def load_installed(reference: str, *, config: Mapping[str, Scalar]) -> LoadedApp:
    """Import a ClientApp that is installed here, such as a recipe's."""
    module, _, attribute = reference.partition(":")
    app = getattr(importlib.import_module(module), attribute, None)
    return LoadedApp(_require_client_app(app, reference), dict(config))


def _require_client_app(app: object, reference: str) -> ClientApp:
    if not isinstance(app, ClientApp):
        raise TaskFailed(
            TaskFailure.APP_INVALID,
            f"{reference}: got a {type(app).__name__}, expected a flwr.clientapp.ClientApp",
        )
    return app


def flatten(settings: Mapping[str, Any], *, prefix: str = "") -> dict[str, Scalar]:
    """Return nested settings under dotted names, as `flwr.common.config.flatten_dict` does.

    Written out because importing that module takes a fifth of the worker's start.

    Raises:
        ValueError: a value is neither a table nor a scalar.
    """
    flat: dict[str, Scalar] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            flat |= flatten(value, prefix=f"{prefix}{name}.")
        elif isinstance(value, bool | int | float | str):
            flat[prefix + name] = value
        else:
            raise ValueError(  # noqa: TRY004  as flwr's
                f"setting {prefix + name}: got {type(value).__name__}, "
                "expected bool, int, float, str or a table of those"
            )
    return flat


def fuse_config(
    defaults: Mapping[str, Scalar], overrides: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """Return the app's settings with the plan's in their place.

    An integer takes the place of a float default as a float: canonical JSON writes 1.0 as 1.

    Raises:
        TaskFailed: plan-invalid; the app has no such setting (Flower refuses that too).
    """
    unknown = sorted(set(overrides) - set(defaults))
    if unknown:
        raise TaskFailed(
            TaskFailure.PLAN_INVALID, f"got settings {unknown}, the app has {sorted(defaults)}"
        )
    fused = dict(defaults)
    for name, value in overrides.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        fused[name] = float(value) if whole and isinstance(defaults[name], float) else value
    return fused


# ---------------------------------------------------------------- calls and replies


@dataclass(frozen=True, slots=True)
class Call:
    """One message for the app; `action` is set for queries that name one."""

    kind: TaskKind
    action: str | None
    config: Config
    run_config: Mapping[str, Scalar]
    node_config: Mapping[str, Scalar]
    run_id: int
    node_id: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What the app answered. `arrays` is set for `train` only; values may be shared."""

    arrays: dict[str, np.ndarray] | None
    metrics: Metrics
    num_examples: int | float | None
    state: RecordDict


def call_app(app: ClientApp, call: Call, *, arrays: Arrays | None, state: RecordDict) -> Reply:
    """Send one message to the app and check its reply.

    Args:
        arrays: the model; not modified.
        state: the app's `context.state`; may be modified.

    Raises:
        TaskFailed: reply-invalid, non-finite, or app-raised where the reply is an error. What
            the app raises passes through.
    """
    context = Context(
        run_id=call.run_id,
        node_id=call.node_id,
        node_config=dict(call.node_config),
        state=state,
        run_config=dict(call.run_config),
    )
    TaskIdentity.task_id = 1
    TaskIdentity.run_id = call.run_id
    TaskIdentity.node_id = call.node_id
    legacy = app._call is not None and call.kind in LEGACY_PREFIX
    content = _legacy_content(call, arrays) if legacy else _content(call, arrays)
    message = app(_message(call, content), context)
    records = _records(message)
    metrics = _legacy_metrics(call.kind, records) if legacy else _metrics(call.kind, records)
    trained = None
    if call.kind is TaskKind.TRAIN:
        trained = _trained(records, received=arrays or {})
    return Reply(trained, metrics, _num_examples(metrics), context.state)


def _content(call: Call, arrays: Arrays | None) -> RecordDict:
    content = RecordDict()
    if arrays is not None:
        content["arrays"] = record_of(arrays)
    content["config"] = _config_record(call.config)
    return content


def _legacy_content(call: Call, arrays: Arrays | None) -> RecordDict:
    """Return the records that Flower's compatibility layer reads; it knows no lists."""
    prefix = f"{LEGACY_PREFIX[call.kind]}ins"
    scalars = {name: value for name, value in call.config.items() if not isinstance(value, list)}
    content = RecordDict()
    content[f"{prefix}.parameters"] = record_of(arrays or {})
    content[f"{prefix}.config"] = _config_record(scalars)
    return content


def _config_record(config: Config) -> ConfigRecord:
    record = ConfigRecord()
    for name, value in config.items():
        # Flower wants one type per list; JSON does not keep 1.0 and 1 apart.
        mixed = isinstance(value, list) and {type(item) for item in value} == {int, float}
        record[name] = [float(item) for item in value] if mixed else value  # type: ignore[union-attr]  # mixed implies a list
    return record


def _message(call: Call, content: RecordDict) -> Message:
    round_number = str(call.config.get("server-round", ""))
    name = call.kind.value if call.action is None else f"{call.kind.value}.{call.action}"
    metadata = Metadata(
        run_id=call.run_id,
        message_id=f"{call.run_id}-{name}-{round_number}",
        src_node_id=SUPERLINK_NODE_ID,
        dst_node_id=call.node_id,
        reply_to_message_id="",
        group_id=round_number,
        created_at=flower_now().timestamp(),
        ttl=MESSAGE_TTL_S,
        message_type=name,
    )
    return Message(content=content, metadata=metadata)  # type: ignore[call-overload, no-any-return]  # as flwr's make_message does


def _invalid(text: str) -> TaskFailed:
    return TaskFailed(TaskFailure.REPLY_INVALID, text)


def _records(message: object) -> RecordDict:
    if not isinstance(message, Message):
        raise _invalid(f"got a {type(message).__name__}, expected a flwr.app.Message")
    if message.has_error():
        raise TaskFailed(TaskFailure.APP_RAISED, f"the app replied with {message.error}")
    if not message.has_content():
        raise _invalid("the reply has no content")
    return message.content


def _metrics(kind: TaskKind, records: RecordDict) -> Metrics:
    found = [r for r in records.values() if isinstance(r, MetricRecord)]
    if len(found) > 1:
        raise _invalid(f"got {len(found)} MetricRecords in the {kind.value} reply, expected one")
    return _check_metrics(dict(found[0]) if found else {})


def _legacy_metrics(kind: TaskKind, records: RecordDict) -> Metrics:
    prefix = f"{LEGACY_PREFIX[kind]}res"
    status = records.config_records[f"{prefix}.status"]
    if status["code"] != 0:
        raise TaskFailed(
            TaskFailure.APP_RAISED, f"status {status['code']!r}: {status['message']!r}"
        )
    metrics: Metrics = {
        name: value
        for name, value in records.config_records[f"{prefix}.metrics"].items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    if kind is TaskKind.EVALUATE:
        metrics["loss"] = records.metric_records[f"{prefix}.loss"]["loss"]
    counted = records.metric_records[f"{prefix}.num_examples"]["num_examples"]
    return _check_metrics({**metrics, NUM_EXAMPLES: counted})


def _check_metrics(metrics: Metrics) -> Metrics:
    if len(metrics) > MAX_METRICS:
        raise _invalid(f"got {len(metrics)} metrics, at most {MAX_METRICS} expected")
    for name, value in metrics.items():
        if not 1 <= len(name) <= 200:
            raise _invalid(f"got a metric name of {len(name)} characters, expected 1 to 200")
        for item in value if isinstance(value, list) else [value]:
            if not math.isfinite(item):
                raise TaskFailed(TaskFailure.NON_FINITE, f"metric {name!r} is {item}")
    return metrics


def _num_examples(metrics: Metrics) -> int | float | None:
    value = metrics.get(NUM_EXAMPLES)
    if isinstance(value, list):
        raise _invalid(f"got a list as {NUM_EXAMPLES}, expected a number")
    return value


def _trained(records: RecordDict, *, received: Arrays) -> dict[str, np.ndarray]:
    found = [r for r in records.values() if isinstance(r, ArrayRecord)]
    if len(found) != 1:
        raise _invalid(f"got {len(found)} ArrayRecords in the train reply, expected one")
    trained: dict[str, np.ndarray] = {}
    for name, array in found[0].items():
        try:
            trained[name] = values_of(array)
        except ValueError as error:
            raise _invalid(f"array {name!r}: {error}") from error
    by_position = list(trained) == [str(index) for index in range(len(received))]
    if by_position and set(trained) != set(received):
        return dict(zip(received, trained.values(), strict=True))
    if set(trained) == set(received):
        return {name: trained[name] for name in received}
    return trained
