"""The real agent with the behaving worker, as a process: `agent_process.py agent.toml N`.

N > 0: it kills itself right after the N-th file got its final name.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from fedward.client.agent import work_until
from fedward.client.settings import load_settings

WORKER = [sys.executable, str(Path(__file__).parent / "behaving_worker.py")]
left = int(sys.argv[2])


def die_after_rename(event: str, _: tuple[object, ...]) -> None:
    """Count renames; die at the first file opened after the last one (the folder's flush)."""
    global left  # noqa: PLW0603  an audit hook has no other place
    if event == "os.rename":
        left -= 1
    elif event == "open" and left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    """Work until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await work_until(stop, load_settings(Path(sys.argv[1])), command=WORKER)


if left:
    sys.addaudithook(die_after_rename)
asyncio.run(main())
