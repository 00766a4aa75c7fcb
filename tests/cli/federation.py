"""A federation of real processes that is operated by the command line alone, as in README.md."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

COMMAND = (sys.executable, "-m", "fedward.cli")
WITHOUT_TORCH = Path(__file__).parents[1] / "packaging" / "blocking_torch"
PATIENCE_S = 60.0
SITES = ("st-anna", "charlotte")
PLAN_SETTINGS = {
    'target = "outcome"': 'target = "ill"',
    'features = "age,weight"': 'features = "age,pressure"',
    "count = 10": "count = 2",
}


@dataclass
class Federation:
    """Its folder, its coordinator's address, and the processes that `running` will stop."""

    folder: Path
    url: str = ""
    tokens: dict[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, *arguments: str, role: str = "admin") -> subprocess.CompletedProcess[str]:
        """Run `fedward ARGUMENTS` in the folder with the token of a role."""
        environment = {**os.environ, "FEDWARD_URL": self.url, "NO_COLOR": "1"}
        environment["FEDWARD_TOKEN"] = self.tokens.get(role, "fw_none")
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    def json(self, *arguments: str, role: str = "admin") -> Any:
        """Run a command that must succeed and return what `--json` printed."""
        done = self.run(*arguments, "--json", role=role)
        assert done.returncode == 0, f"fedward {' '.join(arguments)}: {done.stderr}"
        return json.loads(done.stdout)

    def start(self, name: str, *arguments: str, path: Path | None = None) -> Path:
        """Start `fedward ARGUMENTS` and return its log; `path` becomes its PYTHONPATH."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "FEDWARD_TORCH_THREADS": "1"}
        if path is not None:
            environment["PYTHONPATH"] = str(path)
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            self.processes[name] = subprocess.Popen(
                [*COMMAND, *arguments],
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        return log

    def stop(self, name: str) -> int:
        """Ask a process to end and return its exit code."""
        process = self.processes.pop(name)
        process.terminate()
        try:
            return process.wait(15)
        finally:
            process.kill()
            process.wait()


@contextmanager
def running(folder: Path) -> Iterator[Federation]:
    """Start a coordinator that cannot import torch; stop everything at the end."""
    federation = Federation(folder)
    try:
        log = federation.start(
            "coordinator", "serve", "--data", "data", "--port", "0", path=WITHOUT_TORCH
        )
        federation.tokens["admin"] = line_of(log, "admin token, shown only this once:")
        federation.url = line_of(log, "coordinator listening on").split()[0]
        yield federation
    finally:
        for process in federation.processes.values():
            process.terminate()
        for name in list(federation.processes):
            federation.stop(name)


def line_of(log: Path, start: str) -> str:
    """Wait for a line of a process's output and return the rest of it."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for line in log.read_text().splitlines():
            if line.startswith(start):
                return line.removeprefix(start).strip()
        time.sleep(0.05)
    raise AssertionError(f"no line {start!r} in {log.read_text()}")


def add_patients(text: str, _: int) -> str:
    """Name the site's own rows in its agent.toml."""
    return text + '\n[datasets.patients]\npath = "patients.csv"\n'


def enrol_sites(
    federation: Federation, *, settings: Callable[[str, int], str] = add_patients
) -> None:
    """Invite, enrol and start both sites; `settings` changes the n-th agent.toml."""
    for number, site in enumerate(SITES):
        invitation = federation.json("site", "invite", site, "--organisation", site.title())
        config = f"{site}/agent.toml"
        federation.json(
            "agent", "enrol", federation.url, "--invite", invitation["invite"], "--config", config
        )
        write_patients(federation.folder / site / "patients.csv", seed=number)
        file = federation.folder / config
        file.write_text(settings(file.read_text(), number))
        federation.start(site, "agent", "run", "--config", config)


def write_patients(file: Path, *, seed: int) -> None:
    """Write 80 rows in which older patients with a higher pressure are ill."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(loc=(60.0, 130.0), scale=(10.0, 20.0), size=(80, 2))
    ill = (rows[:, 0] - 60.0) / 10.0 + (rows[:, 1] - 130.0) / 20.0 > 0
    pairs = zip(rows.tolist(), ill.tolist(), strict=True)
    lines = [f"{age:.2f},{pressure:.2f},{int(label)}" for (age, pressure), label in pairs]
    file.write_text("\n".join(["age,pressure,ill", *lines]) + "\n")


def write_plan(federation: Federation, name: str = "plan.toml") -> None:
    """Write the template and fill it in."""
    federation.json("plan", "init", name, "--study", "tumours", "--dataset", "patients")
    file = federation.folder / name
    text = file.read_text()
    for before, after in PLAN_SETTINGS.items():
        assert before in text
        text = text.replace(before, after)
    file.write_text(text)
