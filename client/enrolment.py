"""Joining a federation: prove the key, and believe only the coordinator that the invite names.

The invite ends with the first 32 hex digits of the SHA-256 of the coordinator's public key. It
reaches the site by another channel than the network, so an answer signed by any other key is
refused, whoever sits in between.
"""

import re
from collections.abc import Awaitable, Callable
from importlib.metadata import version

from pydantic import ValidationError

from fedward.protocol.documents import PROTOCOL_VERSION, Enrolment, Membership, Problem
from fedward.protocol.signatures import public_hex

from .backoff import Backoff
from .errors import EnrolmentRefused, Unreachable, UntrustedAnswer
from .keys import KEY_ID_DIGITS, key_id_of
from .transport import Answer, Identity, Transport

ATTEMPTS = 5
_LIBRARIES = ("flwr", "numpy", "torch")
_INVITE = re.compile(rf"fwi_[A-Za-z0-9_-]{{16,}}_([0-9a-f]{{{KEY_ID_DIGITS}}})")


def pinned_digits(invite: str) -> str:
    """Return the digits of the invite that name the coordinator's key.

    Raises:
        EnrolmentRefused: it does not have an invite's form.
    """
    match = _INVITE.fullmatch(invite)
    if match is None:
        raise EnrolmentRefused(
            f"invite: got {len(invite)} characters of another form, expected fwi_<secret>_<key>"
        )
    return match[1]


async def join(
    transport: Transport,
    identity: Identity,
    *,
    invite: str,
    agent_version: str,
    backoff: Backoff,
    sleep: Callable[[float], Awaitable[None]],
) -> Membership:
    """Announce the site's key under an invite and return the verified membership.

    Raises:
        EnrolmentRefused: the coordinator refuses, or is not the one that the invite names.
        Unreachable: no answer after `ATTEMPTS` attempts; the same call may be made again.
    """
    pinned = pinned_digits(invite)
    request = Enrolment(
        invite=invite,
        public_key=public_hex(identity.key),
        protocol=PROTOCOL_VERSION,
        agent_version=agent_version,
        library_versions=_library_versions(),
    )
    body = request.model_dump_json().encode()
    for attempt in range(1, ATTEMPTS):
        try:
            return await _ask(transport, body, pinned=pinned)
        except Unreachable:
            await sleep(backoff.delay_s(attempt))
    return await _ask(transport, body, pinned=pinned)


async def _ask(transport: Transport, body: bytes, *, pinned: str) -> Membership:
    sent, answer = await transport.send("POST", "/agent/v1/enrol", body=body)
    if answer.means_later:
        raise Unreachable(f"enrolment: status {answer.status}")
    if answer.status >= 300:
        raise EnrolmentRefused(f"enrolment: {_told(answer)}")
    try:
        membership = Membership.model_validate_json(answer.body)
    except ValidationError as error:
        raise EnrolmentRefused("enrolment: got an answer that is no membership") from error
    key = bytes.fromhex(membership.coordinator_key)
    if key_id_of(key) != pinned:
        raise EnrolmentRefused(
            f"coordinator key: got one that begins {key_id_of(key)}, the invite names {pinned}"
        )
    try:
        transport.verify(sent, answer, trusted_key=key)
    except UntrustedAnswer as error:
        raise EnrolmentRefused(f"enrolment: the answer is not signed: {error}") from error
    return membership


def _told(answer: Answer) -> str:
    """Return what a refusal says; nobody vouches for it, so it is only shown."""
    try:
        problem = Problem.model_validate_json(answer.body)
    except ValidationError:
        return f"status {answer.status}"
    return f"{problem.type}: {problem.detail[:500]}"


def _library_versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except ModuleNotFoundError:  # PackageNotFoundError is one
            continue
    return found
