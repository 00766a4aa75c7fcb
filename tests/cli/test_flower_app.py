"""An ordinary Flower app as a real federation runs it, operated by the command line alone."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedward.protocol.arrays import decode

from .federation import SITES, Federation, enrol_sites, running

pytestmark = pytest.mark.flow
APP = Path(__file__).parents[2] / "examples" / "flower-digits"


def accept(digest: str, text: str, number: int) -> str:
    """List the app in a site's agent.toml and give the site its part of the data."""
    changed = text.replace("apps = []", f'apps = ["{digest}"]')
    assert changed != text
    node = f"partition-id = {number}\nnum-partitions = 2\n"
    return f"{changed}\n[datasets.digits.node_config]\n{node}"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with running(tmp_path_factory.mktemp("flower")) as started:
        app = started.json("app", "upload", str(APP))
        enrol_sites(started, settings=partial(accept, str(app["digest"])))
        study = ["study", "create", "digits", "--purpose", "test", "--legal-basis", "none"]
        named = [part for site in SITES for part in ("--site", site)]
        started.json(*study, *named, "--expires", "2099-12-31")
        made = started.json("token", "create", "a-researcher", "--role", "researcher")
        started.tokens["researcher"] = made["secret"]
        plan = ["plan", "init", "digits.toml", "--study", "digits", "--dataset", "digits"]
        started.json(*plan, "--bundle", app["digest"])
        file = started.folder / "digits.toml"
        file.write_text(file.read_text().replace("count = 10", "count = 3"))
        yield started


@pytest.fixture(scope="module")
def plan(federation: Federation) -> str:
    initial = ["--initial", "flower_digits.task:Net", "--app-dir", str(APP)]
    submitted = federation.json("plan", "submit", "digits.toml", *initial, role="researcher")
    return str(submitted["digest"])


def run_once(federation: Federation, plan: str) -> dict[str, Any]:
    run = federation.json("run", "create", plan, "--start", role="researcher")
    watched = federation.run("run", "watch", run["run"], role="researcher")
    assert watched.returncode == 0, watched.stderr + watched.stdout
    shown: dict[str, Any] = federation.json("run", "show", run["run"])
    return shown


@pytest.fixture(scope="module")
def finished(federation: Federation, plan: str) -> dict[str, Any]:
    return run_once(federation, plan)


def test_the_app_learns_and_its_integer_counter_stays_one(
    federation: Federation, finished: dict[str, Any]
) -> None:
    assert (finished["status"], finished["round"]) == ("completed", 3)
    assert finished["metrics"]["eval_acc"] > 0.8
    federation.json("model", "download", finished["model"], "--out", "m.st", role="researcher")
    arrays = decode((federation.folder / "m.st").read_bytes())
    (counter,) = [a for name, a in arrays.items() if name.endswith("num_batches_tracked")]
    assert counter.dtype == np.int64
    assert counter.shape == ()
    assert counter > 0


def test_the_same_plan_gives_the_same_bits_again(
    federation: Federation, plan: str, finished: dict[str, Any]
) -> None:
    assert run_once(federation, plan)["model"] == finished["model"]


def test_a_setting_that_the_app_does_not_have_is_refused_at_submit(
    federation: Federation, plan: str
) -> None:
    model = federation.json("plan", "show", plan)["plan"]["model"]
    text = (federation.folder / "digits.toml").read_text()
    wrong = text.replace("# [app.config]", "[app.config]\nno-such-setting = 1 #", 1)
    assert wrong != text
    (federation.folder / "wrong.toml").write_text(wrong)
    done = federation.run("plan", "submit", "wrong.toml", "--initial", model, role="researcher")
    assert done.returncode == 1
    assert "no-such-setting" in done.stderr
