"""From the app's reply to the update that leaves the site, and what stays here.

Everything is checked before a byte of it is stored for sending: names, dtypes and shapes as
received, no NaN, no infinity. Arrays of class `local` are cut out of the update, kept at the
site for the run, and put back into the next task's model.

Memory: the received model and the reply are mapped files; the update is the only copy.
"""

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedward.protocol.arrays import (
    Arrays,
    classify,
    decode,
    encode,
    require_finite,
    require_schema,
    schema_of,
    subtract,
)
from fedward.protocol.documents import ArrayClass, ArrayRules, TaskFailure, UpdateRef
from fedward.protocol.errors import InvalidArrays, NonFinite, SchemaMismatch

from .cache import BlobFolder
from .errors import TaskFailed


@dataclass(frozen=True, slots=True)
class FormedUpdate:
    """The stored update, and the digest of the arrays that stay here (None where none do)."""

    update: UpdateRef
    local: str | None


def prepare_model(model: Path, local: Path | None, *, rules: ArrayRules, target: Path) -> Path:
    """Return the file that the app receives: `model` with the arrays that stay here put back.

    Args:
        local: the arrays kept after the run's last training, None before it.
        target: where a file that differs from `model` is written.

    Raises:
        TaskFailed: model-invalid, or plan-invalid where a pattern matches no array.
    """
    received = _read(model, TaskFailure.MODEL_INVALID)
    _classes(received, rules)
    if local is None:
        return model
    kept = _read(local, TaskFailure.MODEL_INVALID)
    theirs = {name: received[name] for name in kept if name in received}
    _check_schema(kept, theirs, failure=TaskFailure.MODEL_INVALID)
    merged = {name: kept.get(name, array) for name, array in received.items()}
    with target.open("wb") as file:
        file.writelines(encode(merged))
    return target


def form_update(
    reply: Path, received: Path, *, rules: ArrayRules, kept: BlobFolder
) -> FormedUpdate:
    """Check the trained arrays against the received ones and store what they differ by.

    Raises:
        TaskFailed: reply-invalid, schema-mismatch or non-finite; nothing was stored.
    """
    base = _read(received, TaskFailure.MODEL_INVALID)
    trained = _read(reply, TaskFailure.REPLY_INVALID)
    classes = _classes(base, rules)
    _check_schema(trained, base, failure=TaskFailure.SCHEMA_MISMATCH)
    update = subtract(trained, base, classes)
    local = {n: trained[n] for n in base if classes[n] is ArrayClass.LOCAL}
    _check_finite(update | local)  # what is not finite in `trained` is not in the difference
    local_digest = kept.put(encode(local))[0] if local else None
    digest, size = kept.put(encode(update))
    return FormedUpdate(UpdateRef(digest=digest, size_bytes=size), local_digest)


def _read(file: Path, failure: TaskFailure) -> dict[str, Any]:
    try:
        with file.open("rb") as handle:
            mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        return decode(mapped)
    except (OSError, ValueError, InvalidArrays) as error:  # ValueError: the file is empty
        raise TaskFailed(failure, f"{file.name}: {error}") from error


def _classes(arrays: Arrays, rules: ArrayRules) -> dict[str, ArrayClass]:
    try:
        return classify(schema_of(arrays), rules)
    except InvalidArrays as error:
        raise TaskFailed(TaskFailure.PLAN_INVALID, str(error)) from error


def _check_schema(got: Arrays, expected: Arrays, *, failure: TaskFailure) -> None:
    try:
        require_schema(schema_of(got), schema_of(expected))
    except SchemaMismatch as error:
        raise TaskFailed(failure, str(error)) from error


def _check_finite(arrays: Arrays) -> None:
    try:
        require_finite(arrays)
    except NonFinite as error:
        raise TaskFailed(TaskFailure.NON_FINITE, f"after training: {error}") from error
