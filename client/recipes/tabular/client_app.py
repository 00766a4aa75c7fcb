"""The recipe as an ordinary Flower ClientApp.

`query.statistics` reports the training rows' means, `train` trains, `evaluate` scores the
held-out rows. The file is `context.node_config["data-path"]`; all else comes from the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedward.client.errors import TaskFailed
from fedward.client.recipes.tabular.network import evaluate as evaluate_rows
from fedward.client.recipes.tabular.network import fit
from fedward.client.recipes.tabular.settings import Settings, parse_settings
from fedward.client.recipes.tabular.standardising import scale_from, site_statistics
from fedward.client.recipes.tabular.table import InvalidTable, Table, load_table
from fedward.client.training.devices import choose_device
from fedward.client.training.flower import record_of, values_of
from fedward.protocol.arrays import Arrays
from fedward.protocol.documents import TaskFailure

app = ClientApp()


@app.query("statistics")
def statistics(message: Message, context: Context) -> Message:
    """Report means and mean squares of the features, for standardisation."""
    settings, path, table = _open(context)
    metrics = site_statistics(table.training, settings=settings, path=path)
    return _reply(message, MetricRecord(metrics))


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the site's training rows."""
    settings, _, table = _open(context)
    config = _config(message)
    trained, loss = fit(
        _arrays(message),
        table.training,
        settings=settings,
        scale=scale_from(config, features=len(settings.features)),
        proximal_mu=float(config.get("proximal-mu", 0.0)),
        device=_device(context),
    )
    metrics = MetricRecord({"num-examples": len(table.training.labels), "train-loss": loss})
    return _reply(message, metrics, arrays=record_of(trained))


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score the held-out rows."""
    settings, path, table = _open(context)
    if not len(table.held_out.labels):
        raise InvalidTable(path, f"test-fraction {settings.test_fraction:g} holds out no row")
    metrics = evaluate_rows(
        _arrays(message),
        table.held_out,
        settings=settings,
        scale=scale_from(_config(message), features=len(settings.features)),
        device=_device(context),
    )
    return _reply(message, MetricRecord({"num-examples": len(table.held_out.labels), **metrics}))


def _open(context: Context) -> tuple[Settings, Path, Table]:
    settings = parse_settings(context.run_config)
    path = context.node_config.get("data-path")
    if not isinstance(path, str) or not path:
        raise TaskFailed(
            TaskFailure.DATASET_UNREADABLE,
            f"got data-path {path!r}, expected a file; give the data set a path in agent.toml",
        )
    return settings, Path(path), load_table(Path(path), settings)


def _config(message: Message) -> Mapping[str, Any]:
    return message.content.config_records["config"]


def _arrays(message: Message) -> Arrays:
    record = message.content.array_records["arrays"]
    return {name: values_of(array) for name, array in record.items()}


def _device(context: Context) -> Any:
    return choose_device(str(context.node_config.get("device", "auto")))


def _reply(
    message: Message, metrics: MetricRecord, *, arrays: ArrayRecord | None = None
) -> Message:
    content = RecordDict({"metrics": metrics})
    if arrays is not None:
        content["arrays"] = arrays
    return Message(content, reply_to=message)
