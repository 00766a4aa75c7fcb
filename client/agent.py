"""Entry points of the site agent: `enrol`, `run` and `status`, on a state folder.

    agent.key      identity key, 0600          agent.lock   held by the running agent
    agent.db       journal and audit log       kept/        updates, app states, local arrays
    cache/         what can be fetched again   apps/        unpacked bundles
    scratch/       of the task at work; emptied at the start

This module builds the parts and connects them to the process: clock, environment, signals.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from fedward.protocol.documents import Membership
from fedward.protocol.signatures import public_hex

from . import clock, enrolment
from .audit import Event, Head
from .audit_events import AgentStarted, AgentStopped
from .backoff import Backoff
from .cache import BlobFolder
from .errors import AlreadyEnrolled, InvalidState, NotEnrolled
from .exchange import Exchange
from .journal import Journal, stored_membership
from .keys import key_id, load_key, load_or_create_key, locked
from .policy import policy_digest
from .settings import AgentSettings, Network, check_address
from .task_runner import TaskRunner, Workshop
from .transport import Identity, Transport
from .work import Agent
from .worker_process import WorkerProcess, worker_command, worker_environment


@dataclass(frozen=True, slots=True)
class Status:
    """What a state folder says about its agent."""

    membership: Membership
    public_key: str
    unfinished: int
    audit: Head


def enrol(url: str, invite: str, state: Path, *, network: Network | None = None) -> Membership:
    """Join the federation that `invite` names; the state folder then belongs to the site.

    Raises:
        EnrolmentRefused: wrong, used or expired invite, or not the invite's coordinator.
        AlreadyEnrolled: the folder has a membership.
        Unreachable: the coordinator does not answer; the same call may be made again.
        ValueError: `url` is none, or plain HTTP to another machine.
    """
    network = network or Network()
    check_address(url, network=network)
    with locked(state):
        return asyncio.run(_enrol(url, invite, state, network))


def run(settings: AgentSettings) -> None:
    """Work until SIGTERM or SIGINT.

    Raises:
        NotEnrolled, StateInUse, InvalidState: the state folder cannot be used.
        NotAdmitted, AgentOutdated: the coordinator ended the membership.
        sqlite3.Error: the journal cannot be written; nothing is sent then.
    """
    asyncio.run(_run(settings))


def status(state: Path) -> Status:
    """Read and verify a state folder; an agent may be running on it.

    Raises:
        NotEnrolled: it holds no membership.
        AuditBroken: its audit log does not verify.
        InvalidState: its key is missing or cannot be used.
    """
    membership = stored_membership(state / "agent.db")
    key = load_key(state / "agent.key")
    with contextlib.closing(_journal(state, membership, policy=None)) as journal:
        return Status(membership, public_hex(key), journal.unfinished(), journal.audit.verify())


async def work_until(
    stop: asyncio.Event, settings: AgentSettings, *, command: Sequence[str] | None = None
) -> None:
    """Work until `stop` is set; `command` starts a worker other than fedward's own.

    Raises:
        As `run`.
    """
    with locked(settings.state):
        membership = stored_membership(settings.state / "agent.db")
        if membership.site != settings.site:
            raise InvalidState(
                f"{settings.state}: got site {settings.site!r}, enrolled as {membership.site!r}"
            )
        policy = policy_digest(settings)
        async with contextlib.AsyncExitStack() as stack:
            journal = _journal(settings.state, membership, policy=policy)
            stack.callback(journal.close)
            transport = _transport(settings, membership)
            stack.push_async_callback(transport.close)
            worker = _worker(settings.state, command or worker_command())
            stack.push_async_callback(worker.close)
            agent = _build(
                settings, membership, journal=journal, transport=transport, worker=worker
            )
            await _work(agent, journal, stop)


async def _run(settings: AgentSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await work_until(stop, settings)


async def _work(agent: Agent, journal: Journal, stop: asyncio.Event) -> None:
    started = AgentStarted(agent_version=version("fedward"), unfinished=journal.unfinished())
    journal.record(Event(started), now=clock.now())
    work = asyncio.create_task(agent.work())
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = work.done()
        for task in (work, stopped):
            task.cancel()
        await asyncio.gather(work, stopped, return_exceptions=True)
        journal.record(Event(AgentStopped()), now=clock.now())
    if ended:
        await work


async def _enrol(url: str, invite: str, state: Path, network: Network) -> Membership:
    with contextlib.suppress(NotEnrolled):
        known = stored_membership(state / "agent.db")
        raise AlreadyEnrolled(f"{state}: enrolled already, as site {known.site}")
    key = load_or_create_key(state / "agent.key", token_bytes=clock.token_bytes)
    identity = Identity(key, key_id(key))
    transport = Transport(
        url, network=network, identity=identity, now=clock.now, token_bytes=clock.token_bytes
    )
    try:
        membership = await enrolment.join(
            transport,
            identity,
            invite=invite,
            agent_version=version("fedward"),
            backoff=Backoff(clock.fraction),
            sleep=asyncio.sleep,
        )
    finally:
        await transport.close()
    with contextlib.closing(_journal(state, membership, policy=None)) as journal:
        journal.join(membership, coordinator=url, now=clock.now())
    return membership


def _build(
    settings: AgentSettings,
    membership: Membership,
    *,
    journal: Journal,
    transport: Transport,
    worker: WorkerProcess,
) -> Agent:
    workshop = _workshop(settings.state)
    workshop.kept.clear_partial()
    workshop.kept.keep_only(journal.referenced())
    exchange = Exchange(
        transport,
        coordinator_key=bytes.fromhex(membership.coordinator_key),
        backoff=Backoff(clock.fraction),
        sleep=asyncio.sleep,
    )
    runner = TaskRunner(
        settings,
        exchange=exchange,
        workshop=workshop,
        journal=journal,
        worker=worker,
        now=clock.now,
        monotonic=clock.monotonic,
    )
    return Agent(
        settings,
        exchange=exchange,
        runner=runner,
        journal=journal,
        workshop=workshop,
        now=clock.now,
        backoff=Backoff(clock.fraction),
        sleep=asyncio.sleep,
    )


def _journal(state: Path, membership: Membership, *, policy: str | None) -> Journal:
    return Journal(
        state / "agent.db", site=membership.site, policy=policy, token_bytes=clock.token_bytes
    )


def _transport(settings: AgentSettings, membership: Membership) -> Transport:
    key = load_key(settings.state / "agent.key")
    return Transport(
        settings.coordinator,
        network=settings.network,
        identity=Identity(key, membership.key_id),
        now=clock.now,
        token_bytes=clock.token_bytes,
    )


def _workshop(state: Path) -> Workshop:
    apps, scratch = state / "apps", state / "scratch"
    apps.mkdir(exist_ok=True)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    return Workshop(BlobFolder(state / "cache"), BlobFolder(state / "kept"), apps, scratch)


def _worker(state: Path, command: Sequence[str]) -> WorkerProcess:
    folder = state / "worker"
    folder.mkdir(exist_ok=True)
    return WorkerProcess(command, folder=folder, environment=worker_environment(os.environ))
