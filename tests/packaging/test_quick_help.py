"""`fedward --help` answers at once, because it imports next to nothing."""

import subprocess
import sys
from time import perf_counter

LIMIT_S = 0.4
HEAVY = ("httpx", "pydantic", "numpy", "sqlalchemy", "fastapi", "flwr", "torch", "cryptography")


def run_help(*prefix: str) -> subprocess.CompletedProcess[str]:
    program = "from fedward.cli import main; main()"
    return subprocess.run(
        [sys.executable, *prefix, "-c", program, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )


def test_help_answers_in_under_four_tenths_of_a_second() -> None:
    # The best of five: how long it takes, not how busy the machine is.
    times = []
    for _ in range(5):
        begin = perf_counter()
        run_help()
        times.append(perf_counter() - begin)
    assert min(times) < LIMIT_S


def test_help_imports_no_part_and_no_heavy_library() -> None:
    imported = {
        line.rsplit("|", 1)[-1].strip()
        for line in run_help("-X", "importtime").stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "typer" in imported
    assert [name for name in HEAVY if name in imported] == []
    parts = {name for name in imported if name.startswith("fedward.")}
    assert parts == {"fedward.cli", "fedward.cli.root"}
