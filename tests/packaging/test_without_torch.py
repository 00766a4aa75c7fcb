"""The coordinator's code needs neither torch nor ray nor pandas.

That a whole run is served and aggregated by such a process is shown in
`tests/cli/test_first_federation.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ("protocol", "strategies", "privacy", "coordinator")
RUN_BY_OTHERS = frozenset({"__main__.py", "env.py"})
"""Scripts rather than modules: Python and alembic run them."""
SITECUSTOMIZE = Path(__file__).with_name("blocking_torch")


def run_blocked(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(SITECUSTOMIZE)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["torch", "ray", "pandas"])
def test_the_block_blocks(name: str) -> None:
    done = run_blocked(f"import {name}")
    assert done.returncode != 0
    assert f"{name} is blocked here" in done.stderr


def test_every_module_of_the_coordinator_imports_without_torch() -> None:
    modules = [
        ".".join(("fedward", *path.relative_to(ROOT).with_suffix("").parts))
        for part in CORE
        for path in sorted((ROOT / part).rglob("*.py"))
        if path.name not in RUN_BY_OTHERS
    ]
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name.removesuffix('.__init__'))\n"
    )
    done = run_blocked(program, *modules)
    assert done.returncode == 0, done.stderr[-2000:]


def test_updates_are_aggregated_without_torch() -> None:
    program = """
import numpy as np
from fedward.protocol.arrays import classify, schema_of, update_schema
from fedward.protocol.documents import ArrayRules, StrategySpec
from fedward.strategies.combiner import Combiner
from fedward.strategies.registry import build

model = {"w": np.array([1.0, 2.0], dtype=np.float32)}
classes = classify(schema_of(model), ArrayRules())
combiner = Combiner(update_schema(schema_of(model), classes), classes, counted="largest")
combiner.add({"w": np.array([1.0, 0.0], dtype=np.float32)}, weight=1.0)
combiner.add({"w": np.array([3.0, 4.0], dtype=np.float32)}, weight=3.0)
strategy = build(StrategySpec())
print(strategy.apply(strategy.init(model), combiner.result()).model["w"].tolist())
"""
    done = run_blocked(program)
    # Mean difference (1 * [1, 0] + 3 * [3, 4]) / 4 = [2.5, 3].
    assert done.stdout.strip() == "[3.5, 5.0]", done.stderr[-2000:]
