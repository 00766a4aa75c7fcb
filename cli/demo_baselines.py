"""What each hospital gets alone, and what all rows in one place would give; with the recipe's code.

Runs as a process of its own (`python -m fedward.cli.demo_baselines`), since it loads torch.
Reads a JSON request on standard input and writes one JSON answer to standard output:

    {"sites": {name: file}, "held_out": file, "config": the plan's app.config, "rounds": 20,
     "seed": 1, "model": the federated model's file, "scale": the metrics of round 0}
    -> {"federated": {"accuracy", "auc", "loss"}, "pooled": {…}, "local": {name: {…}}}

Everyone trains on the rows that the sites train on, with the same settings, for as many rounds,
and is scored on the same held-out rows.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedward.client.recipes.tabular.initial import initial_arrays
from fedward.client.recipes.tabular.network import evaluate, fit
from fedward.client.recipes.tabular.settings import Settings, parse_settings
from fedward.client.recipes.tabular.standardising import (
    MEAN,
    MEAN_SQUARE,
    PREPARED,
    Scale,
    scale_from,
    site_statistics,
)
from fedward.client.recipes.tabular.table import Rows, load_table
from fedward.client.training.determinism import fix_algorithms, seed_torch
from fedward.client.training.devices import choose_device
from fedward.protocol.arrays import Arrays, decode


def score_all(request: Mapping[str, Any]) -> dict[str, Any]:
    """Train the baselines and score them and the federated model; see the module's docstring."""
    settings = parse_settings(request["config"])
    everything = parse_settings({**request["config"], "test-fraction": 0.0})
    held_out = load_table(Path(request["held_out"]), everything).training
    sites = {
        name: load_table(Path(file), settings).training for name, file in request["sites"].items()
    }
    pooled = Rows(
        np.concatenate([rows.features for rows in sites.values()]),
        np.concatenate([rows.labels for rows in sites.values()]),
    )

    def trained_on(rows: Rows) -> dict[str, float]:
        scale = _scale(site_statistics(rows, settings=settings, path=Path("rows")), settings)
        arrays = _train(rows, request, settings=settings, scale=scale)
        return _score(arrays, held_out, settings=settings, scale=scale)

    federated = decode(Path(request["model"]).read_bytes())
    return {
        "federated": _score(
            federated, held_out, settings=settings, scale=_scale(request["scale"], settings)
        ),
        "pooled": trained_on(pooled),
        "local": {name: trained_on(rows) for name, rows in sites.items()},
    }


def _train(rows: Rows, request: Mapping[str, Any], *, settings: Settings, scale: Scale) -> Arrays:
    arrays: Arrays = initial_arrays(request["config"], request["seed"])
    for round_number in range(1, request["rounds"] + 1):
        seed_torch(request["seed"] + round_number)
        arrays, _ = fit(
            arrays,
            rows,
            settings=settings,
            scale=scale,
            proximal_mu=0.0,
            device=choose_device("cpu"),
        )
    return arrays


def _score(arrays: Arrays, rows: Rows, *, settings: Settings, scale: Scale) -> dict[str, float]:
    return evaluate(arrays, rows, settings=settings, scale=scale, device=choose_device("cpu"))


def _scale(metrics: Mapping[str, Sequence[float]], settings: Settings) -> Scale:
    config = {PREPARED + name: metrics[name] for name in (MEAN, MEAN_SQUARE)}
    return scale_from(config, features=len(settings.features))


def main() -> None:
    """Answer the request on standard input."""
    request = json.load(sys.stdin)
    fix_algorithms(threads=1)
    json.dump(score_all(request), sys.stdout)


if __name__ == "__main__":
    main()
