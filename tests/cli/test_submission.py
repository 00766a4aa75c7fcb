"""The first model: from the recipe, from the researcher's own code, or refused with a reason."""

from pathlib import Path

import numpy as np
import pytest

from fedward.cli.errors import InvalidFile
from fedward.cli.plan_file import PLACEHOLDER, Initial
from fedward.cli.submission import call_for_model, make_initial_model
from fedward.protocol.arrays import decode
from fedward.protocol.documents import AppRef, Plan, RoundRules

NETWORK = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
"""
PLAIN = """
import numpy as np

def as_list():
    return [np.zeros((2, 3), dtype=np.float32), np.ones(2, dtype=np.float32)]

trained = {"w": np.arange(3.0)}
number = 7
def broken():
    raise ValueError("no data here")
"""


@pytest.fixture
def app_dir(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "task.py").write_text(NETWORK)
    (tmp_path / "pkg" / "plain.py").write_text(PLAIN)
    return tmp_path


def made(app_dir: Path, call: str, *, seed: int = 3) -> dict[str, np.ndarray]:
    target = app_dir / "out.safetensors"
    call_for_model(call, directory=app_dir, seed=seed, target=target)
    return decode(target.read_bytes())


def test_a_module_gives_its_state_dict_the_same_bits_for_the_same_seed(app_dir: Path) -> None:
    first, again = made(app_dir, "pkg.task:Net"), made(app_dir, "pkg.task:Net")
    other = made(app_dir, "pkg.task:Net", seed=4)
    assert list(first) == ["fc.weight", "fc.bias"]
    assert first["fc.weight"].tobytes() == again["fc.weight"].tobytes()
    assert first["fc.weight"].tobytes() != other["fc.weight"].tobytes()


def test_lists_and_dicts_of_arrays_are_models_too(app_dir: Path) -> None:
    assert list(made(app_dir, "pkg.plain:as_list")) == ["0", "1"]
    assert made(app_dir, "pkg.plain:trained")["w"].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("pkg.plain:number", "got a int"),
        ("pkg.plain:Missing", "Missing"),
        ("pkg.nothing:Net", r"pkg\.nothing"),
        ("pkg.plain:broken", "no data here"),
    ],
)
def test_code_that_gives_no_model_is_told_in_its_own_words(
    call: str, said: str, app_dir: Path
) -> None:
    with pytest.raises(InvalidFile, match=said):
        made(app_dir, call)


def plan(app: AppRef) -> Plan:
    return Plan(name="p", study="s", app=app, model=PLACEHOLDER, rounds=RoundRules(count=1))


def test_a_recipe_makes_its_first_model_from_the_settings(tmp_path: Path) -> None:
    config = {"target": "y", "features": "a,b"}
    file = make_initial_model(
        plan(AppRef(recipe="tabular", config=config)), None, target=tmp_path / "m"
    )
    shapes = {name: array.shape for name, array in decode(file.read_bytes()).items()}
    assert shapes == {"layers.0.weight": (1, 2), "layers.0.bias": (1,)}


def test_wrong_settings_of_a_recipe_are_told_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"app\.config: .*target"):
        make_initial_model(plan(AppRef(recipe="tabular")), None, target=tmp_path / "m")


def test_an_unknown_recipe_and_an_app_without_a_first_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"nothing.*tabular"):
        make_initial_model(plan(AppRef(recipe="nothing")), None, target=tmp_path / "m")
    with pytest.raises(InvalidFile, match="--initial"):
        make_initial_model(plan(AppRef(bundle=PLACEHOLDER)), None, target=tmp_path / "m")


def test_a_file_that_is_named_is_used_as_it_is(tmp_path: Path) -> None:
    source = Initial(file=tmp_path / "mine.safetensors")
    app = AppRef(bundle=PLACEHOLDER)
    assert make_initial_model(plan(app), source, target=tmp_path / "m") == source.file
