"""A worker that speaks the real frames and trains by adding 1 to every number.

`config["do"]` makes it misbehave; `node_config["log"]` counts the trainings; its state counts
the messages that it has answered.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from fedward.client.frames import read_frame, write_frame
from fedward.protocol.arrays import decode, encode


def run(request: dict) -> dict:
    do = request["config"].get("do", "")
    log = Path(request["node_config"]["log"])
    with log.open("a") as file:
        file.write(f"{os.getpid()} {request['kind']} {do}\n")
    if do == "die-once" and len(log.read_text().splitlines()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "die":
        sys.stderr.write("last words")
        sys.stderr.flush()
        os._exit(3)
    if do == "hang":
        signal.pause()
    if do == "wait-for-file":
        wait_for(log.parent / "go-on")
    if do.startswith("print "):
        sys.stderr.write("x" * int(do.removeprefix("print ")))
        sys.stderr.flush()
        return {"ok": False, "failure": "app-raised", "message": "printed"}
    if do in {"raise", "old-number"}:
        return {"ok": False, "failure": "app-raised", "message": "Traceback ..."}
    return trained(request, do)


def wait_for(fifo: Path) -> None:
    """Block until the test opens the pipe for writing."""
    with fifo.open("rb") as file:
        file.read()


def trained(request: dict, do: str) -> dict:
    arrays = decode(Path(request["arrays_path"]).read_bytes())
    new = {name: np.asarray(array + np.ones((), array.dtype)) for name, array in arrays.items()}
    if do == "nan":
        new["w"] = np.full_like(new["w"], np.nan)
    if do == "shape":
        new["w"] = new["w"][:1]
    if do == "overflow":
        new["w"] = np.full_like(new["w"], np.finfo(new["w"].dtype).max)
    seen = state_of(request["state_path_in"]) + 1
    Path(request["state_path_out"]).write_text(str(seen))
    if request["kind"] == "train":
        data = b"garbage" if do == "garbage" else b"".join(encode(new))
        Path(request["reply_path"]).write_bytes(data)
    metrics = {
        "num-examples": 10,
        "seen": seen,
        "sum": float(np.nan_to_num(new["w"]).sum(dtype=np.float64)),
    }
    if do == "nan-metric":
        metrics = {"loss": [0.5, 1e999]}
    if do == "text-metric":
        metrics = {"accuracy": "high"}
    if do == "huge-metric":
        metrics = {"rows": 2**60}
    if do == "many-metrics":
        metrics = {"losses": [0.1] * 300_000}
    counted = None if do == "no-weight" else 10
    return {"ok": True, "metrics": metrics, "num_examples": counted, "arrays": True}


def state_of(path: str | None) -> int:
    return int(Path(path).read_text()) if path else 0


def main() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while (request := read_frame(requests)) is not None:
        answer = {"ok": True, "config": {}} if request["op"] == "load" else run(request)
        if answer.get("metrics", {}).get("loss"):  # json.dumps(allow_nan=True) is what a bug sends
            body = (
                b'{"ok":true,"metrics":{"loss":[0.5,Infinity]},"num_examples":1,"arrays":true,'
                b'"number":%d}' % request["number"]
            )
            answers.write(len(body).to_bytes(4, "big") + body)
            answers.flush()
            continue
        old = request.get("config", {}).get("do") == "old-number"
        write_frame(answers, answer | {"number": request["number"] - old})


if __name__ == "__main__":
    main()
