"""The real agent with the behaving worker, as a process: `agent_process.py agent.toml`."""

import asyncio
import signal
import sys
from pathlib import Path

from fedward.client.agent import work_until
from fedward.client.settings import load_settings

WORKER = [sys.executable, str(Path(__file__).parent / "behaving_worker.py")]


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await work_until(stop, load_settings(Path(sys.argv[1])), command=WORKER)


asyncio.run(main())
