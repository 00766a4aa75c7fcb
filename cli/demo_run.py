"""The demo's story, step by step: data, coordinator, hospitals, run, comparison, audit log."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fedward.client.agent import enrol

from .audit_check import check_inclusion
from .demo_data import TARGET, DemoData, write_demo_data
from .demo_processes import Children, children
from .errors import CliError, RunNotCompleted
from .http import Api
from .live import watch_run
from .output import format_bytes, make_table
from .submission import prepare_plan
from .transfers import download_model
from .watch import follow_run, summary_line

HOSPITALS = ("hospital-small", "hospital-medium", "hospital-large")
MARKER = "made-by-fedward-demo.txt"
SEED = 1
START_LIMIT_S = 30.0
SCORE_LIMIT_S = 120.0
ENVIRONMENT = {
    # Three workers share few cores; a second thread each would only wait.
    "OMP_NUM_THREADS": "1",
    "FEDWARD_TORCH_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}
PLAN = """\
name = "breast cancer, three hospitals"
study = "breast-cancer"
dataset = "patients"
seed = {seed}

[app]
recipe = "tabular"

[app.config]
target = "{target}"
features = "{features}"
model = "logistic"
epochs = 1
batch-size = 32
learning-rate = 0.1

[rounds]
count = {rounds}
quorum = 3

[strategy]
name = "fedavg"
"""
AGENT = """\
coordinator = "{url}"
site = "{site}"
state = "state"
device = "cpu"

[datasets.patients]
path = "patients.csv"
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo shows at its end."""

    run: dict[str, Any]
    scores: dict[str, Any]
    audit: dict[str, Any]


def run_demo(folder: Path, *, rounds: int, started: float) -> None:
    """Run it all in `folder`; `started` is the monotonic time that seconds count from.

    Raises:
        CliError: a step failed; everything is stopped and the folder stays.
    """
    folder = folder.absolute()
    _make_folder(folder)
    try:
        with children(folder, environment=ENVIRONMENT) as processes:
            outcome = _federate(processes, folder, rounds=rounds)
    except KeyboardInterrupt as error:
        raise CliError("stopped; everything that was started has ended") from error
    _tell_outcome(outcome, folder)
    print(json.dumps(_result(outcome, seconds=time.monotonic() - started)), flush=True)


def _federate(processes: Children, folder: Path, *, rounds: int) -> Outcome:
    data_dir = str(folder / "coordinator")
    log = processes.start("coordinator", "serve", "--data", data_dir, "--port", "0")
    # While it starts:
    data = write_demo_data(folder, HOSPITALS)
    _tell_data(data)
    print("\nStarting the coordinator …", flush=True)
    admin_token = processes.wait_for_line(
        log, "admin token, shown only this once:", limit_s=START_LIMIT_S
    )
    url = processes.wait_for_line(log, "coordinator listening on", limit_s=START_LIMIT_S).split()[0]
    with Api(url, admin_token) as admin:
        _wait_until_ready(admin, processes)
        _start_hospitals(admin, processes, folder)
        researcher = _researcher(admin)
    with Api(url, researcher) as api:
        run = _start_run(api, folder, data, rounds=rounds)
        last = watch_run(_guarded(api, run, processes), as_json=False)
        if last["status"] != "completed":
            raise RunNotCompleted(f"{summary_line(last)}; see the logs in {folder}")
        scores = _score(api, last, folder, data, rounds=rounds)
        audit = _verify_audit(api)
    return Outcome(last, scores, audit)


def _wait_until_ready(api: Api, processes: Children) -> None:
    until = time.monotonic() + START_LIMIT_S
    while True:
        try:
            api.get("/audit/head")
        except CliError:
            processes.check()
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def _start_hospitals(api: Api, processes: Children, folder: Path) -> None:
    for name in HOSPITALS:
        invitation = api.post(
            "/sites/invite",
            {"site": name, "organisation": name.replace("-", " ").title(), "ttl_s": 600},
        )
        home = folder / name
        enrol(api.url, invitation["invite"], home / "state")
        config = home / "agent.toml"
        config.write_text(AGENT.format(url=api.url, site=name), encoding="utf-8")
        processes.start(name, "agent", "run", "--config", str(config))
        print(f"{name} is enrolled and running in {home}", flush=True)
    api.post(
        "/studies",
        {
            "study": "breast-cancer",
            "purpose": "Demonstration: is a tumour malignant?",
            "legal_basis": "public data set of scikit-learn",
            "sites": list(HOSPITALS),
            "expires": "2099-12-31T23:59:59.000000Z",
        },
    )


def _researcher(api: Api) -> str:
    made = api.post("/tokens", {"name": "researcher", "role": "researcher", "ttl_s": 3600})
    return str(made["secret"])


def _start_run(api: Api, folder: Path, data: DemoData, *, rounds: int) -> str:
    plan_file = folder / "plan.toml"
    plan_file.write_text(
        PLAN.format(seed=SEED, target=TARGET, features=",".join(data.features), rounds=rounds),
        encoding="utf-8",
    )
    plan = prepare_plan(api, plan_file, initial=None, directory=folder)
    digest = api.post("/plans", plan.model_dump(mode="json"))["digest"]
    run = str(api.post("/runs", {"plan": digest})["run"])
    api.post(f"/runs/{run}/start")
    print(f"\n{rounds} rounds of FedAvg, plan {digest[:19]}…, run {run}", flush=True)
    return run


def _guarded(api: Api, run: str, processes: Children) -> Iterator[Any]:
    """Follow the run, but not beyond the death of a process."""
    for snapshot in follow_run(api, run):
        processes.check()
        yield snapshot


def _score(
    api: Api, run: dict[str, Any], folder: Path, data: DemoData, *, rounds: int
) -> dict[str, Any]:
    print("\nTraining on each hospital's rows alone, and on all rows in one place …", flush=True)
    model = folder / "federated-model.safetensors"
    download_model(api, run["model"], model)
    prepared = api.get(f"/runs/{run['run']}/rounds/0")["attempts"][-1]["metrics"]
    config = api.get(f"/plans/{run['plan']}")["plan"]["app"]["config"]
    request = {
        "sites": {name: str(file) for name, file in data.sites.items()},
        "held_out": str(data.held_out),
        "config": config,
        "rounds": rounds,
        "seed": SEED,
        "model": str(model),
        "scale": prepared,
    }
    done = subprocess.run(
        [sys.executable, "-m", "fedward.cli.demo_baselines"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=SCORE_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise CliError(f"the comparison failed: {done.stderr.strip()[-500:]}")
    scores: dict[str, Any] = json.loads(done.stdout)
    return scores


def _verify_audit(api: Api) -> dict[str, Any]:
    check: dict[str, Any] = api.get("/audit/verify")
    if not check["ok"]:
        raise CliError(f"audit log: record {check['first_bad_seq']}: {check['problem']}")
    proof = api.get("/audit/proof", seq=check["size"], size=check["size"])
    check_inclusion(proof, seq=check["size"], root=check["root"])
    return check


def _make_folder(folder: Path) -> None:
    """Start with an empty folder; an earlier demo's is replaced, another's is left alone."""
    if folder.exists():
        if not (folder / MARKER).is_file():
            raise CliError(f"{folder} exists and is not an earlier demo's: choose --folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARKER).write_text(
        "`fedward demo` made this folder and replaces it when it runs again.\n", encoding="utf-8"
    )


def _tell_data(data: DemoData) -> None:
    rows = [
        {
            "hospital": name,
            "rows": data.rows[name],
            "radius": "{:.1f} to {:.1f}".format(*data.sizes[name]),
            "malignant": f"{data.malignant[name]:.0%}",
        }
        for name in HOSPITALS
    ]
    print("Breast-cancer data, split by tumour size: no hospital sees the whole range.")
    headings = {"hospital": "hospital", "rows": "rows", "radius": "radius", "malignant": TARGET}
    Console().print(make_table(rows, headings))


def _tell_outcome(outcome: Outcome, folder: Path) -> None:
    scores = outcome.scores
    who = {
        **{f"{name} alone": scores["local"][name] for name in HOSPITALS},
        "federated": scores["federated"],
        "all rows in one place": scores["pooled"],
    }
    rows = [
        {"trained": name, "accuracy": f"{got['accuracy']:.3f}", "auc": f"{got['auc']:.3f}"}
        for name, got in who.items()
    ]
    print("\nOn the held-out rows, which nobody trained on:")
    Console().print(make_table(rows, {"trained": "trained", "accuracy": "accuracy", "auc": "AUC"}))
    run = outcome.run
    up, down = format_bytes(run["bytes_up"]), format_bytes(run["bytes_down"])
    print(f"\nMoved: {up} from the hospitals, {down} to them; no patient's row among it.")
    print(f"Audit log: {outcome.audit['size']} records verified, root {outcome.audit['root']}")
    print(f"Look around in {folder}. The API with its documentation:")
    print(f"  fedward serve --data {folder / 'coordinator'}   then open /docs at its address\n")


def _result(outcome: Outcome, *, seconds: float) -> dict[str, Any]:
    scores = outcome.scores
    return {
        "federated_accuracy": round(scores["federated"]["accuracy"], 4),
        "federated_auc": round(scores["federated"]["auc"], 4),
        "local_accuracy": [round(scores["local"][name]["accuracy"], 4) for name in HOSPITALS],
        "pooled_accuracy": round(scores["pooled"]["accuracy"], 4),
        "rounds": outcome.run["round"],
        "sites": len(HOSPITALS),
        "bytes_up": outcome.run["bytes_up"],
        "bytes_down": outcome.run["bytes_down"],
        "audit": "ok",
        "seconds": round(seconds, 1),
    }
