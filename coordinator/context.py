"""What every part of the service works with; made once by `Coordinator`."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fedward.coordinator.actors import Actor
from fedward.coordinator.blobs import Blobs
from fedward.coordinator.floods import Floods
from fedward.coordinator.notify import Notifier
from fedward.coordinator.store.unit_of_work import Store
from fedward.protocol.signatures import PrivateKey


@dataclass(frozen=True, slots=True)
class Denial:
    """What `actor` was not let do, and why; both are stable names."""

    actor: Actor
    action: str
    reason: str
    task: str | None = None
    study: str | None = None
    run: str | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """`clock` returns seconds since the epoch, `token_bytes` secure random bytes."""

    store: Store
    blobs: Blobs
    notifier: Notifier
    key: PrivateKey
    clock: Callable[[], float]
    token_bytes: Callable[[int], bytes]
    floods: Floods[Denial] = field(default_factory=Floods)
