"""What an app prints: passed on to the agent's own standard error, so much for each message.

A worker's standard error is a pipe that the agent empties at all times: an app that prints
without end is not held up, and does not fill the disk that holds the site's log.
"""

import asyncio
import contextlib
import logging
import os

PRINTED_LIMIT_BYTES = 2**20
_BLOCK_BYTES = 2**16
_BLOCKS_AT_ONCE = 32
"""More than a pipe holds; a thread of the app may go on printing while we read."""
_STDERR = 2
_log = logging.getLogger(__name__)


class PrintedText:
    """The pipe of one worker after another, read by the running event loop."""

    def __init__(self, *, limit_bytes: int = PRINTED_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._pipe: int | None = None
        self._got_bytes = 0

    def open(self) -> int:
        """Return the end for a new worker to write to; the caller closes it."""
        self.close()
        self._pipe, end = os.pipe()
        os.set_blocking(self._pipe, False)
        asyncio.get_running_loop().add_reader(self._pipe, self._pass_on)
        return end

    def begin(self) -> None:
        """Count anew: a message begins."""
        self._empty()
        self._got_bytes = 0

    def end(self) -> None:
        """Say how much of the message's text was cut, if any was."""
        self._empty()
        cut_bytes = self._got_bytes - self._limit_bytes
        if cut_bytes > 0:
            _write(b"\n")
            _log.warning(
                "the app printed %d bytes for one message: the last %d bytes were cut",
                self._got_bytes,
                cut_bytes,
            )

    def close(self) -> None:
        """Pass on what is left in the pipe, then close it."""
        self._empty()
        if self._pipe is not None:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = None

    def _empty(self) -> None:
        for _ in range(_BLOCKS_AT_ONCE):
            if not self._pass_on():
                return

    def _pass_on(self) -> bool:
        """Read one block; say whether there may be more."""
        if self._pipe is None:
            return False
        try:
            data = os.read(self._pipe, _BLOCK_BYTES)
        except BlockingIOError:
            return False
        if not data:  # nobody can write any more; the loop would call for ever
            asyncio.get_running_loop().remove_reader(self._pipe)
            return False
        room_bytes = max(0, self._limit_bytes - self._got_bytes)
        self._got_bytes += len(data)
        _write(data[:room_bytes])
        return True


def _write(data: bytes) -> None:
    with contextlib.suppress(OSError):  # a log that cannot be written stops no work
        while data:
            data = data[os.write(_STDERR, data) :]
