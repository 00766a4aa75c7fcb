"""From a plan file to a plan document whose initial model lies on the coordinator."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fedward.client.errors import TaskFailed
from fedward.client.recipes.registry import Recipe, UnknownRecipe, recipe
from fedward.protocol.arrays import encode
from fedward.protocol.documents import Plan

from .errors import InvalidFile
from .http import Api
from .plan_file import (
    PLACEHOLDER,
    Initial,
    complete_plan,
    parse_initial,
    read_plan_file,
)
from .transfers import upload_model

CALL_LIMIT_S = 600.0
"""How long the researcher's own code may take to make the first model."""


def prepare_plan(api: Api, file: Path, *, initial: str | None, directory: Path) -> Plan:
    """Read a plan file, make and upload its first model, and return the plan.

    Args:
        initial: what `--initial` says; it goes before what the file says.
        directory: where the module of `--initial pkg.task:Net` is looked for.

    Raises:
        InvalidFile: the file, a setting of the recipe or the model cannot be used.
    """
    plan_file = read_plan_file(file)
    source = plan_file.initial
    if initial is not None:
        source = parse_initial(initial, directory=directory)
    draft = complete_plan(plan_file, model=PLACEHOLDER, prepare=None)
    prepare = None if draft.app.recipe is None else known_recipe(draft.app.recipe).prepare
    with tempfile.TemporaryDirectory() as folder:
        if source is not None and source.digest is not None:
            digest = source.digest
        else:
            model = make_initial_model(draft, source, target=Path(folder) / "initial.safetensors")
            digest = upload_model(api, model)["digest"]
    return complete_plan(plan_file, model=digest, prepare=prepare)


def make_initial_model(draft: Plan, source: Initial | None, *, target: Path) -> Path:
    """Return the file of the first model, made at `target` unless the researcher names one.

    Raises:
        InvalidFile: an uploaded app without a source, or a source that gives no model.
    """
    if source is not None and source.file is not None:
        return source.file
    if source is not None and source.call is not None:
        call_for_model(source.call, directory=source.directory, seed=draft.seed, target=target)
        return target
    if draft.app.recipe is None:
        raise InvalidFile(
            "an uploaded app needs its first model: give --initial pkg.task:Net or a file"
        )
    try:
        arrays = known_recipe(draft.app.recipe).initial_arrays(draft.app.config, draft.seed)
    except TaskFailed as error:
        raise InvalidFile(f"app.config: {error}") from error
    with target.open("wb") as out:
        for part in encode(arrays):
            out.write(part)
    return target


def known_recipe(name: str) -> Recipe:
    """Return the recipe of this name.

    Raises:
        InvalidFile: there is none; lists those that there are.
    """
    try:
        return recipe(name)
    except UnknownRecipe as error:
        raise InvalidFile(f"app.recipe: {error}") from error


def call_for_model(call: str, *, directory: Path, seed: int, target: Path) -> None:
    """Evaluate `package.module:name` in a process of its own and write its arrays to `target`.

    Raises:
        InvalidFile: the code failed; its own last line is in the message.
    """
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0"}
    command = [sys.executable, "-m", "fedward.cli.initial_process", call, str(seed), str(target)]
    try:
        done = subprocess.run(
            [*command, str(directory.resolve())],
            env=environment,
            capture_output=True,
            text=True,
            timeout=CALL_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidFile(f"{call}: no model after {CALL_LIMIT_S:.0f} s") from error
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise InvalidFile(f"{call} in {directory}: {last[0]}")
