"""`fedward serve`: one process, one port, the API and the scheduler together.

The shell that owns the clock, the randomness, the folder's lock, the socket and the signals.
Order at start: address, certificate, folder, lock, socket, store, key, application, and last the
first token, which is shown once: what can fail fails before it is made, and a second coordinator
on the same folder is refused before it touches anything. SIGTERM and SIGINT answer the open long
polls, end the event streams, let running requests end (`stop_timeout_s`) and return.
"""

import fcntl
import logging
import os
import secrets
import shutil
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

from fedward.coordinator.access import BOOTSTRAP_S
from fedward.coordinator.api.app import begin_stop, create_app
from fedward.coordinator.blobs import Blobs
from fedward.coordinator.clock import system_clock
from fedward.coordinator.errors import CoordinatorError, Unavailable
from fedward.coordinator.keys import load_or_create_seed
from fedward.coordinator.notify import Notifier
from fedward.coordinator.scheduler import Scheduler
from fedward.coordinator.service import Coordinator
from fedward.coordinator.settings import Settings, require_safe_address
from fedward.coordinator.store.unit_of_work import Store
from fedward.protocol.signatures import new_private_key
from fedward.protocol.timestamps import to_timestamp

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_BACKLOG = 2048
_KEEP_ALIVE_S = 75
"""Longer than a long poll's pause between two requests, so that agents keep their connection."""

_RESERVE_BYTES = 256 * 1024
"""Kept free for a start on a full disk: more than SQLite's index and log take to be opened."""


class CannotServe(CoordinatorError):
    """Folder, certificate or address cannot be used, or the start or the scheduler failed."""


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        InvalidSettings: plain HTTP on an address that other machines can reach.
        CannotServe: `tls-unusable`, `data-unusable`, `data-in-use`, `address-unavailable`,
            `start-failed`, or later `scheduler-ended`.
        InvalidKey: the key file cannot be trusted.
    """
    require_safe_address(settings)
    require_certificate(settings)
    logging.basicConfig(level=logging.WARNING, format=_LOG_FORMAT)
    with _data_usable(settings):
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked_folder(settings), listening(settings) as listener:
        with _data_usable(settings):
            coordinator = open_coordinator(settings)
        app = create_app(
            coordinator,
            Scheduler(coordinator),
            settings,
            clock=system_clock,
            on_fault=lambda: server.fail(),  # noqa: PLW0108  # it is made below
        )
        server = _Server(
            _uvicorn_config(app, settings),
            on_start=lambda: _announce(coordinator, settings, listener),
            on_stop=lambda: begin_stop(app),
        )
        with _signals_end(server):
            server.run(sockets=[listener])
        if server.failed:
            raise CannotServe("scheduler-ended", "the scheduler failed; the log above says why")
        if not server.started:
            raise CannotServe("start-failed", "the start failed; the log above says why")


def require_certificate(settings: Settings) -> None:
    """Load the certificate and its key, if TLS is served here.

    Raises:
        CannotServe: a file is missing, is no PEM, or the two do not belong together.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return
    for name, file in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        try:
            file.read_bytes()
        except OSError as error:
            raise CannotServe("tls-unusable", f"{name} {file}: {error.strerror}") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except (ssl.SSLError, OSError) as error:
        raise CannotServe(
            "tls-unusable",
            f"tls_cert {settings.tls_cert} with tls_key {settings.tls_key}: expected a PEM "
            f"certificate chain and its private key: {error}",
        ) from error


def open_coordinator(settings: Settings) -> Coordinator:
    """Open the store in the folder (migrated), the blobs and the key; the caller has the lock."""
    shutil.rmtree(settings.scratch, ignore_errors=True)
    settings.scratch.mkdir(mode=0o700)
    store = _open_store(settings)
    seed = load_or_create_seed(settings.key_path, token_bytes=secrets.token_bytes)
    return Coordinator(
        store,
        Blobs(settings.data),
        Notifier(),
        new_private_key(seed),
        system_clock,
        secrets.token_bytes,
    )


def _open_store(settings: Settings) -> Store:
    """Open the database. SQLite makes two files for it, so a full disk takes the reserve."""
    reserve = settings.data / "reserve"
    try:
        store = Store(settings.database_url)
    except Unavailable:
        if not reserve.exists():
            raise
        reserve.unlink()
        store = Store(settings.database_url)
    if not reserve.exists():
        _fill_reserve(reserve)
    return store


def _fill_reserve(reserve: Path) -> None:
    try:
        reserve.write_bytes(bytes(_RESERVE_BYTES))
    except OSError:  # no space for it now; the next start tries again
        reserve.unlink(missing_ok=True)


@contextmanager
def _data_usable(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotServe(
            "data-unusable",
            f"data folder {settings.data}: {error.strerror} ({error.filename}); expected a folder "
            "that this user may write",
        ) from error


@contextmanager
def locked_folder(settings: Settings) -> Iterator[None]:
    """Hold the folder for this process; the lock ends with the process, however it ends.

    Raises:
        CannotServe: another process holds it, or the folder cannot be written.
    """
    with _data_usable(settings):
        lock = settings.lock_path.open("a+", encoding="ascii")
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise CannotServe(
                "data-in-use", f"{settings.data} is used by another coordinator (process {holder})"
            ) from error
        file.truncate(0)
        with suppress(OSError):  # a full disk; the lock is held all the same
            os.write(file.fileno(), f"{os.getpid()}\n".encode())
        yield


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """Bind the address; port 0 takes a free one.

    Raises:
        CannotServe: the address does not exist here, or is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.create_server(
            address[:2], family=family, backlog=_BACKLOG, reuse_port=False
        )
    except OSError as error:
        raise CannotServe(
            "address-unavailable", f"cannot listen on {settings.host}:{settings.port}: {error}"
        ) from error
    with listener:
        yield listener


class _Server(uvicorn.Server):
    """uvicorn that says when it serves, and answers long polls before it waits for their end."""

    def __init__(
        self, config: uvicorn.Config, *, on_start: Callable[[], None], on_stop: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_start = on_start
        self._on_stop = on_stop
        self.failed = False

    def fail(self) -> None:
        """End because of a fault: timers no longer fire, so nothing may look alive."""
        self.failed = self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and only then say so."""
        await super().startup(sockets=sockets)
        if self.started:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wake everyone who waits, then shut down."""
        self._on_stop()
        await super().shutdown(sockets=sockets)


def _uvicorn_config(app: Any, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        proxy_headers=settings.behind_proxy,
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=settings.stop_timeout_s,
        timeout_keep_alive=_KEEP_ALIVE_S,
        backlog=_BACKLOG,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        log_config=None,  # ours, to standard error
        log_level="warning",
    )


@contextmanager
def _signals_end(server: uvicorn.Server) -> Iterator[None]:
    """Take SIGTERM and SIGINT while uvicorn does not: before it runs, and when it is done.

    uvicorn raises a signal again after its shutdown, which would end the process as if killed.
    """

    def end(*_: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(coordinator: Coordinator, settings: Settings, listener: socket.socket) -> None:
    """Say on standard output where to go, and once in the folder's life the first token."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if settings.tls_cert else "http"
    shown = f"[{host}]" if ":" in host else host
    url = f"{scheme}://{shown}:{port}"
    token = coordinator.bootstrap_token()
    if token is not None:
        sys.stdout.write(f"admin token, shown only this once: {token}\n")
        expires = to_timestamp(system_clock() + BOOTSTRAP_S)
        sys.stdout.write(
            f"  valid until {expires[:16].replace('T', ' ')} UTC; before then make another: "
            "fedward token create NAME --role admin --valid 90d\n"
        )
    sys.stdout.write(f"coordinator listening on {url} (documentation: {url}/docs)\n")
    sys.stdout.flush()
