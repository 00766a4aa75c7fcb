"""Settings, first model, standardisation and scores of the tabular recipe."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from fedward.client.errors import TaskFailed
from fedward.client.recipes import registry
from fedward.client.recipes.tabular.initial import initial_arrays
from fedward.client.recipes.tabular.scoring import area_under_curve, score
from fedward.client.recipes.tabular.settings import InvalidTabularSettings, parse_settings
from fedward.client.recipes.tabular.standardising import scale_from, standardise
from fedward.protocol.arrays import encode

CONFIG = {"target": "ill", "features": "age, bmi"}


def test_defaults_need_only_target_and_features():
    settings = parse_settings(CONFIG)
    assert settings.features == ("age", "bmi")
    assert settings.widths == (2, 1)
    assert parse_settings({**CONFIG, "model": "mlp", "hidden": "8, 4"}).widths == (2, 8, 4, 1)
    assert parse_settings({**CONFIG, "model": "mlp", "hidden": 8}).widths == (2, 8, 1)


def test_every_wrong_setting_is_named_at_once():
    config = {
        "features": "a, a", "model": "forest", "epochs": 0, "batch-size": 1.5, "momentum": 2,
        "learning-rate": "fast", "test-fraction": True, "lr": 0.1,
    }  # fmt: skip
    with pytest.raises(InvalidTabularSettings) as caught:
        parse_settings(config)
    named = sorted(reason.split(":")[0] for reason in caught.value.reasons)
    assert named == sorted([*config, "target"])
    assert caught.value.failure == "plan-invalid"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"features": "age, ill"}, "the target 'ill' is among them"),
        ({"model": "mlp", "hidden": "8,x"}, "expected widths"),
        ({"model": "mlp", "hidden": ""}, "expected widths"),
        ({"learning-rate": float("nan")}, "expected a number"),
    ],
)
def test_settings_that_cannot_work_are_refused(change, reason):
    with pytest.raises(InvalidTabularSettings, match=reason):
        parse_settings({**CONFIG, **change})


def test_the_first_model_depends_on_settings_and_seed_alone():
    logistic = initial_arrays(CONFIG, 3)
    assert {name: a.shape for name, a in logistic.items()} == {
        "layers.0.weight": (1, 2),
        "layers.0.bias": (1,),
    }
    assert not any(a.any() for a in logistic.values())
    mlp = {**CONFIG, "model": "mlp", "hidden": "3"}
    made = [b"".join(encode(initial_arrays(mlp, seed))) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    weight = initial_arrays(mlp, 1)["layers.1.weight"]
    assert weight.dtype == np.float32
    assert np.abs(weight).max() <= 1 / np.sqrt(3)


def test_the_registry_is_light_to_import_and_names_what_it_has():
    code = (
        "import sys, fedward.client.recipes.registry as r; print(r.names(), "
        "[m for m in ('torch', 'flwr', 'pandas', 'pyarrow', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['tabular'] []"
    assert registry.recipe("tabular").prepare == "statistics"
    with pytest.raises(registry.UnknownRecipe, match="'tabula', expected one of"):
        registry.recipe("tabula")


def test_scaling_by_hand():
    # Values 1 and 3: mean 2, mean square 5, variance 1. The second column never varies.
    config = {"prepared.feature-mean": [2.0, 7.0], "prepared.feature-mean-square": [5.0, 49.0]}
    scale = scale_from(config, features=2)
    assert scale.deviation.tolist() == [1.0, 1.0]
    rows = np.array([[1.0, 7.0], [3.0, 8.0], [np.nan, 7.0]])
    assert standardise(rows, scale).tolist() == [[-1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]


def test_rounding_in_a_large_constant_column_is_no_spread():
    mean = 1.7e9
    config = {
        "prepared.feature-mean": [mean],
        "prepared.feature-mean-square": [mean * mean * (1 + 1e-14)],
    }
    assert scale_from(config, features=1).deviation.tolist() == [1.0]


@pytest.mark.parametrize("config", [{}, {"prepared.feature-mean": [1.0]}])
def test_missing_statistics_say_what_the_plan_lacks(config):
    with pytest.raises(TaskFailed, match="prepare = 'statistics'") as caught:
        scale_from(config, features=2)
    assert caught.value.failure == "plan-invalid"


def test_scores_by_hand():
    labels = np.array([0, 0, 1, 1], dtype=np.float32)
    scores = score(np.array([-1.0, 1.0, 1.0, 2.0], dtype=np.float32), labels)
    # Pairs (negative, positive): (-1,1) (-1,2) (1,2) right, (1,1) a tie: 3.5 of 4.
    assert scores["auc"] == 0.875
    assert scores["accuracy"] == 0.75
    expected = np.log1p(np.exp([-1.0, 1.0, -1.0, -2.0])).mean()
    assert scores["loss"] == pytest.approx(expected)


def test_one_class_has_no_auc_and_huge_logits_no_overflow():
    scores = score(np.array([1e30, -1e30], dtype=np.float32), np.array([1, 1], dtype=np.float32))
    assert set(scores) == {"loss", "accuracy"}
    assert np.isfinite(scores["loss"])


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_auc_is_scikit_learns(pairs):
    scores = np.array([s for s, _ in pairs], dtype=np.float64)
    labels = np.array([label for _, label in pairs], dtype=np.float32)
    area = area_under_curve(scores, labels)
    if len(set(labels)) == 1:
        assert area is None
    else:
        assert area == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
