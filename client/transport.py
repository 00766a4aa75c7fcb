"""One signed HTTP call to the coordinator, and the check that it was the coordinator who answered.

The only module that imports httpx; the only way out of the agent. Every request is signed with
the site's key, every answer must be signed by the pinned coordinator key for just this request;
anything else (a proxy's error page, a captive portal, an impostor) is an UntrustedAnswer of
which nothing is believed. Redirects are not followed. Trying again is left to `exchange.py`.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import truststore
from pydantic import ValidationError

from fedward.protocol.documents import MAX_CHUNK_BYTES, PROTOCOL_VERSION, Problem
from fedward.protocol.errors import InvalidSignature
from fedward.protocol.signatures import PrivateKey, sign_request, verify_response

from .errors import (
    AgentOutdated,
    CallRefused,
    InvalidSettings,
    NotAdmitted,
    Unreachable,
    UntrustedAnswer,
)
from .settings import Network, is_loopback

MAX_ANSWER_BYTES = MAX_CHUNK_BYTES + 64 * 1024
"""Longest body of an answer; what is larger comes in pieces."""

_WORDS: Mapping[type[httpx.TransportError], str] = {
    httpx.ConnectTimeout: "no connection within network.timeout_s",
    httpx.ReadTimeout: "no answer within network.timeout_s",
    httpx.WriteTimeout: "the request could not be sent within network.timeout_s",
    httpx.ConnectError: "no connection",
    httpx.ReadError: "the connection was cut before the answer was complete",
    httpx.WriteError: "the connection was cut while the request was sent",
    httpx.RemoteProtocolError: "the connection was cut, or the answer is not HTTP",
}
_LATER = frozenset({408, 425, 429})
_NOT_ADMITTED = frozenset({"site-revoked", "unknown-site"})


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def means_later(self) -> bool:
        """Whether the coordinator asks to be called again later."""
        return self.status >= 500 or self.status in _LATER


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it was signed."""

    method: str
    target: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Identity:
    """The site's key and the name under which the coordinator knows it."""

    key: PrivateKey
    key_id: str


class Transport:
    """A connection to one coordinator.

    `now` returns seconds since the epoch, `token_bytes` secure random bytes (for nonces).
    """

    def __init__(
        self,
        address: str,
        *,
        network: Network,
        identity: Identity,
        now: Callable[[], float],
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self.address = address.rstrip("/")
        self._network = network
        self._identity = identity
        self._now = now
        self._token_bytes = token_bytes
        self._client = _http_client(address, network)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def call(
        self,
        method: str,
        target: str,
        *,
        trusted_key: bytes,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> Answer:
        """Make one call and return the verified answer; its status is below 400.

        Args:
            target: path and query, as the coordinator sees them.
            headers: names in lower case.
            trusted_key: the coordinator's public key.
            wait_s: how long the coordinator may take on purpose (long poll).

        Raises:
            Unreachable: no answer, or one that says "later".
            UntrustedAnswer: the answer is not signed by `trusted_key` for this request.
            CallRefused: the coordinator refuses; NotAdmitted and AgentOutdated end the agent.
        """
        sent, answer = await self.send(method, target, body=body, headers=headers, wait_s=wait_s)
        self.verify(sent, answer, trusted_key=trusted_key)
        if answer.means_later:
            raise _later(answer, f"{method} {target}")
        if answer.status >= 400:
            raise _refusal(answer)
        if answer.status >= 300:
            raise UntrustedAnswer(f"{method} {target}: got redirect {answer.status}")
        return answer

    async def send(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> tuple[Sent, Answer]:
        """Send a signed request and read the answer, which is not verified yet.

        Raises:
            Unreachable: no answer arrived.
            UntrustedAnswer: the answer is longer than any of the coordinator's.
        """
        signed = self._sign(method, target, body=body, headers=headers or {})
        timeout_s = self._network.timeout_s
        timeout = httpx.Timeout(timeout_s, read=timeout_s + wait_s)
        try:
            async with self._client.stream(
                method,
                self.address + target,
                headers=dict(signed.headers),
                content=body,
                timeout=timeout,
            ) as response:
                data = await _read(response)
        except httpx.TransportError as error:
            raise Unreachable(f"{method} {target}: {_what_happened(error)}") from error
        return signed, Answer(response.status_code, dict(response.headers), data)

    def verify(self, sent: Sent, answer: Answer, *, trusted_key: bytes) -> None:
        """Check that `trusted_key` signed this answer to this request.

        Raises:
            Unreachable: it is not signed and says "later": a gateway between us and them.
            UntrustedAnswer: it is not signed by that key.
        """
        try:
            verify_response(
                status=answer.status,
                headers=answer.headers,
                body=answer.body,
                request=(sent.method, sent.target, sent.headers),
                find_key=lambda _: trusted_key,
            )
        except InvalidSignature as error:
            where = f"{sent.method} {sent.target}"
            if answer.status in _LATER or answer.status in {407, 502, 503, 504}:
                raise _later(answer, f"{where}, from a gateway") from error
            raise UntrustedAnswer(f"{where}: status {answer.status}: {error}") from error

    def _sign(self, method: str, target: str, *, body: bytes, headers: Mapping[str, str]) -> Sent:
        plain = {
            "content-type": "application/json",
            "fedward-protocol": PROTOCOL_VERSION,
            "accept-encoding": "identity",  # the signature covers the bytes as they travel
            **headers,
        }
        added = sign_request(
            self._identity.key,
            key_id=self._identity.key_id,
            method=method,
            url=target,
            headers=plain,
            body=body,
            now=self._now(),
            nonce=self._token_bytes(16).hex(),
        )
        return Sent(method, target, plain | {name.lower(): v for name, v in added.items()})


def _http_client(address: str, network: Network) -> httpx.AsyncClient:
    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if network.ca_file is not None:
        try:
            context.load_verify_locations(network.ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise InvalidSettings(f"network.ca_file: {network.ca_file}: {error}") from error
    host = urlsplit(address).hostname or ""
    return httpx.AsyncClient(
        verify=context,
        proxy=network.proxy,
        # HTTPS_PROXY and NO_PROXY count, but no proxy of the environment leads to this machine
        trust_env=network.proxy is None and not is_loopback(host),
        follow_redirects=False,
    )


async def _read(response: httpx.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise UntrustedAnswer(f"got an answer of more than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _what_happened(error: httpx.TransportError) -> str:
    """Say it in words: a cut connection and most time limits come without any."""
    for kind, words in _WORDS.items():
        if isinstance(error, kind):
            return f"{words} ({type(error).__name__})" + (f": {error}" if str(error) else "")
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _later(answer: Answer, where: str) -> Unreachable:
    text = answer.headers.get("retry-after", "")
    seconds = float(text) if text.isascii() and text.isdigit() else 0.0
    return Unreachable(f"{where}: status {answer.status}", retry_after_s=min(seconds, 300.0))


def _refusal(answer: Answer) -> CallRefused | Unreachable:
    try:
        problem = Problem.model_validate_json(answer.body)
    except ValidationError:  # the answer to HEAD has no body
        name = f"/problems/http-{answer.status}"
        problem = Problem(type=name, title="", status=answer.status, detail="no details")
    refused = CallRefused(problem)
    if refused.name in _NOT_ADMITTED:
        return NotAdmitted(problem)
    if refused.name == "protocol-unsupported":
        return AgentOutdated(problem)
    if answer.status == 401:  # a clock that is wrong, a nonce that was seen: signed anew next time
        return Unreachable(f"{problem.type}: {problem.detail}")
    return refused
