"""One call: signed, proxied, encrypted, and never believed unless signed in return."""

import asyncio
import datetime
import http.client
import ipaddress
import os
import socket
import ssl
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from fedward.client import clock
from fedward.client.backoff import Backoff
from fedward.client.errors import CallRefused, InvalidSettings, Unreachable, UntrustedAnswer
from fedward.client.exchange import Exchange
from fedward.client.keys import key_id
from fedward.client.settings import Network
from fedward.client.transport import Identity, Transport
from fedward.protocol import signatures

KEY = signatures.new_private_key(b"k" * 32)


def call(coordinator, *, url=None, network=None, now=clock.now, trusted=None):
    """Ask once for work and return the answer."""
    coordinator.keys[key_id(KEY)] = signatures.public_bytes(KEY)

    async def scenario():
        transport = Transport(
            url or coordinator.url, network=network or Network(timeout_s=5),
            identity=Identity(KEY, key_id(KEY)), now=now, token_bytes=os.urandom,
        )  # fmt: skip
        key = trusted or signatures.public_bytes(coordinator.key)
        try:
            return await transport.call("GET", "/agent/v1/next?wait=0", trusted_key=key)
        finally:
            await transport.close()

    return asyncio.run(scenario())


def test_an_answer_of_another_key_is_not_believed(coordinator):
    with pytest.raises(UntrustedAnswer, match="does not verify"):
        call(coordinator, trusted=signatures.public_bytes(KEY))


def test_a_gateways_page_means_later(coordinator):
    coordinator.faults.append(coordinator.Fault("gateway", "GET", "/agent/v1/next"))
    with pytest.raises(Unreachable, match="from a gateway: status 504"):
        call(coordinator)


def test_a_wrong_clock_is_told_and_not_the_end(coordinator):
    with pytest.raises(Unreachable, match="invalid-signature"):
        call(coordinator, now=lambda: clock.now() + 600)


@pytest.mark.parametrize(("status", "error"), [(409, CallRefused), (503, Unreachable)])
def test_a_signed_problem_is_raised_by_its_name(coordinator, status, error):
    fault = coordinator.Fault("status", "GET", "/agent/v1/next", status=status, name="some-reason")
    coordinator.faults.append(fault)
    with pytest.raises(error, match=str(status)):
        call(coordinator)


def test_no_answer_at_all_is_unreachable(coordinator):
    with pytest.raises(Unreachable, match="ConnectError"):
        call(coordinator, url="http://127.0.0.1:9")


class ForwardProxy(BaseHTTPRequestHandler):
    """A plain HTTP proxy that remembers what it forwarded."""

    seen: list[str]

    def log_message(self, *args) -> None:
        pass

    def do_GET(self) -> None:
        self.server.seen.append(self.path)
        _, _, rest = self.path.partition("://")
        host, _, path = rest.partition("/")
        upstream = http.client.HTTPConnection(host)
        upstream.request("GET", f"/{path}", headers=dict(self.headers))
        answer = upstream.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.read())
        upstream.close()


def test_calls_go_through_the_proxy_that_agent_toml_names(coordinator):
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), ForwardProxy)
    proxy.seen = []
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        network = Network(proxy=f"http://127.0.0.1:{proxy.server_address[1]}")
        assert call(coordinator, network=network).status == 204
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
    assert proxy.seen == [f"{coordinator.url}/agent/v1/next?wait=0"]


@pytest.fixture
def own_ca(tmp_path, coordinator):
    """Put the coordinator behind TLS with a certificate of a CA that nobody knows."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test CA")])
    day, start = (
        datetime.timedelta(days=1),
        datetime.datetime.fromtimestamp(clock.now(), datetime.UTC),
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 7, start - day, start + day)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    (tmp_path / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
    coordinator.server.socket = context.wrap_socket(coordinator.server.socket, server_side=True)
    return tmp_path / "ca.pem"


def test_an_extra_ca_is_trusted_and_without_it_the_certificate_is_not(coordinator, own_ca):
    url = coordinator.url.replace("http:", "https:")
    assert call(coordinator, url=url, network=Network(ca_file=own_ca)).status == 204
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        call(coordinator, url=url)


def test_a_ca_file_that_is_none_is_named(coordinator, tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(InvalidSettings, match=r"network.ca_file: .*ca.pem"):
        call(coordinator, network=Network(ca_file=tmp_path / "ca.pem"))


def test_waits_double_up_to_the_cap_and_are_spread_by_half():
    early, late = Backoff(lambda: 0.0), Backoff(lambda: 0.999999)
    assert [early.delay_s(n) for n in (1, 2, 3)] == [0.25, 0.5, 1.0]
    assert early.delay_s(1000) == 15.0
    assert 29.9 < late.delay_s(1000) <= 30.0


def test_the_agent_tries_for_ever_with_growing_waits(coordinator):
    waits = []

    async def note(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 12:
            raise KeyboardInterrupt

    async def scenario() -> None:
        transport = Transport(
            "http://127.0.0.1:9", network=Network(), identity=Identity(KEY, "k"),
            now=clock.now, token_bytes=os.urandom,
        )  # fmt: skip
        backoff = Backoff(lambda: 0.0)
        exchange = Exchange(transport, coordinator_key=b"", backoff=backoff, sleep=note)
        try:
            await exchange.next_task(wait_s=0)
        finally:
            await transport.close()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(scenario())
    assert waits == [0.25, 0.5, 1, 2, 4, 8, 15, 15, 15, 15, 15, 15]


def test_a_cut_connection_is_told_in_words(coordinator):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset() -> None:
            connection, _ = server.accept()
            connection.recv(65536)
            # lingering for no time: the peer gets a reset, for which httpx has no text
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        thread = threading.Thread(target=reset)
        thread.start()
        with pytest.raises(Unreachable, match=r"the connection was cut before .* \(ReadError\)$"):
            call(coordinator, url=f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_silence_is_told_in_words(coordinator):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(Unreachable, match=r"no answer within .* \(ReadTimeout\)$"),
    ):
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        call(coordinator, url=url, network=Network(timeout_s=0.2))
