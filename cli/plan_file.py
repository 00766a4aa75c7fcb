"""Plan files: the TOML that a researcher writes, and the plan document that is made of it.

A plan file has the fields of a plan (`docs/protocol.md`) except `model`, `format` and `prepare`:
the model comes from `initial`, the rest from the recipe. `complete_plan` checks the whole, so
that a mistake names the file and the key before anything is sent.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedward.protocol.documents import Plan

from .errors import InvalidFile

PLACEHOLDER = "sha256:" + "0" * 64
"""Stands for the model while the rest of a plan is checked."""

APP_TABLES = {"train-config": "train_config", "evaluate-config": "evaluate_config"}
"""Tables under [app] with a hyphen in the file, as Flower writes keys, and their plan fields."""


@dataclass(frozen=True, slots=True)
class Initial:
    """Where the first model comes from: exactly one of the three.

    `call` is `package.module:name`, evaluated in `directory` on this machine.
    """

    digest: str | None = None
    file: Path | None = None
    call: str | None = None
    directory: Path = Path()


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan file's content: the plan's fields as written, and the initial model."""

    path: Path
    fields: dict[str, Any]
    initial: Initial | None


def read_plan_file(path: Path) -> PlanFile:
    """Read a plan file; `complete_plan` checks its fields.

    Raises:
        InvalidFile: it cannot be read, is no TOML, or says two things about the model or a table.
    """
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidFile(f"{path}: {error}") from error
    _rename_app_tables(path, fields)
    given = fields.pop("initial", None)
    model = fields.pop("model", None)
    if given is not None and model is not None:
        raise InvalidFile(f"{path}: got both model and initial, expected one of them")
    if model is not None:
        return PlanFile(path, fields, Initial(digest=str(model)))
    if given is None:
        return PlanFile(path, fields, None)
    return PlanFile(path, fields, _read_initial(path, given))


def parse_initial(text: str, *, directory: Path) -> Initial:
    """Read `--initial`: a digest, an existing file, or `package.module:name`.

    Raises:
        InvalidFile: none of these.
    """
    if text.startswith("sha256:"):
        return Initial(digest=text)
    if Path(text).is_file():
        return Initial(file=Path(text))
    module, colon, name = text.partition(":")
    if colon and name.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return Initial(call=text, directory=directory)
    raise InvalidFile(
        f"--initial: got {text!r}, expected a safetensors file, package.module:name or sha256:…"
    )


def complete_plan(plan_file: PlanFile, *, model: str, prepare: str | None) -> Plan:
    """Return the plan document.

    Args:
        model: digest of the initial model.
        prepare: the recipe's preparing query, used where the file names none.

    Raises:
        InvalidFile: names every key that is missing, unknown or wrong.
    """
    fields = {**plan_file.fields, "model": model}
    if prepare is not None:
        fields.setdefault("prepare", prepare)
    try:
        return Plan.model_validate(fields)
    except ValidationError as error:
        raise InvalidFile(describe_invalid(plan_file.path, error)) from error


def describe_invalid(path: Path, error: ValidationError) -> str:
    """Write one line for each wrong key of a file."""
    lines = []
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"]) or "(whole file)"
        got = "" if item["type"] == "missing" else f", got {item['input']!r:.80}"
        lines.append(f"{path}: {key}: {item['msg']}{got}")
    return "\n".join(lines)


def _rename_app_tables(path: Path, fields: dict[str, Any]) -> None:
    app = fields.get("app")
    if not isinstance(app, dict):
        return
    for written, field in APP_TABLES.items():
        if written in app and field in app:
            raise InvalidFile(f"{path}: app: got both {written} and {field}, expected one of them")
        if written in app:
            app[field] = app.pop(written)


def _read_initial(path: Path, given: object) -> Initial:
    keys = set(given) if isinstance(given, dict) else set()
    if not isinstance(given, dict) or not (
        keys == {"file"} or keys in ({"call"}, {"call", "directory"})
    ):
        raise InvalidFile(
            f'{path}: initial: got {given!r:.80}, expected file = "…", '
            'or call = "package.module:name" and directory = "…"'
        )
    if "file" in given:
        return Initial(file=path.parent / str(given["file"]))
    directory = path.parent / str(given.get("directory", "."))
    return Initial(call=str(given["call"]), directory=directory)
