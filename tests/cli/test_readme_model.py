"""README.md's lines of Python that use a downloaded model."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedward.client.recipes.tabular.network import evaluate
from fedward.client.recipes.tabular.settings import parse_settings
from fedward.client.recipes.tabular.standardising import scale_from, site_statistics
from fedward.client.recipes.tabular.table import load_table
from fedward.client.training.devices import choose_device
from fedward.protocol.arrays import encode

README = Path(__file__).parents[2] / "README.md"
TABLE = "demo-run/held-out.csv"
FEATURES = "mean radius,mean texture"
SHOW_ALL = "import numpy; numpy.set_printoptions(threshold=10**6, precision=9)\n"
ARRAYS = {
    "layers.0.weight": np.array([[0.7, -1.3]], dtype=np.float32),
    "layers.0.bias": np.array([0.2], dtype=np.float32),
}


def write_table(file: Path) -> None:
    rng = np.random.default_rng(5)
    file.parent.mkdir()
    rows = rng.normal(loc=(14.0, 19.0), scale=(3.0, 4.0), size=(50, 2)).tolist()
    lines = [f"{radius},{texture},{number % 2}" for number, (radius, texture) in enumerate(rows)]
    # One value is missing.
    file.write_text("\n".join([f"{FEATURES},malignant", *lines, "15.5,,1"]) + "\n")


def test_they_give_the_probabilities_that_the_recipe_gives(tmp_path: Path) -> None:
    write_table(tmp_path / TABLE)
    settings = parse_settings({"target": "malignant", "features": FEATURES, "test-fraction": 0.0})
    rows = load_table(tmp_path / TABLE, settings).training
    metrics = site_statistics(rows, settings=settings, path=tmp_path)
    (tmp_path / "round-0.json").write_text(json.dumps({"attempts": [{"metrics": metrics}]}))
    (tmp_path / "model.safetensors").write_bytes(b"".join(encode(ARRAYS)))
    code = README.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    command = [sys.executable, "-c", SHOW_ALL + code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = np.array(done.stdout.replace("[", "").replace("]", "").split(), dtype=np.float64)
    scale = scale_from({f"prepared.{key}": value for key, value in metrics.items()}, features=2)
    scored = evaluate(ARRAYS, rows, settings=settings, scale=scale, device=choose_device("cpu"))
    truth = np.array([number % 2 for number in range(50)] + [1])
    loss = -np.log(np.where(truth == 1, shown, 1.0 - shown)).mean()
    assert loss == pytest.approx(scored["loss"], rel=1e-5)
