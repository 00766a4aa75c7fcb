import asyncio
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedward.coordinator.actors import Actor
from fedward.coordinator.api.app import create_app
from fedward.coordinator.scheduler import Scheduler

pytestmark = pytest.mark.anyio
ADMIN = Actor("user", "test-admin", "admin")


class FailingScheduler(Scheduler):
    """Ends by an error as soon as it is started."""

    async def run(self):
        raise RuntimeError("no disk")


async def test_the_scheduler_lives_as_long_as_the_application(coordinator, settings, clock, token):
    faults = []
    app = create_app(
        coordinator,
        Scheduler(coordinator),
        settings,
        clock=clock,
        on_fault=lambda: faults.append(1),
    )
    async with app.router.lifespan_context(app):
        while not coordinator.audit_head().size:
            await asyncio.to_thread(coordinator.check_ready)
    auditor = Actor("user", "a", "auditor")
    actions = [e.record["action"] for e in coordinator.audit_events(auditor)]
    assert actions == ["coordinator.start", "coordinator.stop"]
    assert faults == []


async def test_a_scheduler_that_fails_is_told_to_the_process(coordinator, settings, clock):
    faulted = asyncio.Event()
    scheduler = FailingScheduler(coordinator)
    app = create_app(coordinator, scheduler, settings, clock=clock, on_fault=faulted.set)
    with pytest.raises(RuntimeError, match="no disk"):
        async with app.router.lifespan_context(app):
            await asyncio.wait_for(faulted.wait(), 5)


@pytest.fixture
def model_url(coordinator, folder, model_file):
    (folder / "m").write_bytes(model_file)
    digest = coordinator.add_model(ADMIN, folder / "m").digest
    return f"/api/v1/models/{digest}/content"


async def test_a_download_goes_on_where_it_was_cut(http, token, model_url, model_file):
    headers = token("researcher")
    whole = await http.get(model_url, headers=headers)
    assert whole.content == model_file
    tag = whole.headers["etag"]
    rest = await http.get(model_url, headers=headers | {"Range": "bytes=10-", "If-Range": tag})
    assert (rest.status_code, rest.content) == (206, model_file[10:])
    other = await http.get(model_url, headers=headers | {"Range": "bytes=10-", "If-Range": '"x"'})
    assert (other.status_code, other.content) == (200, model_file)


@pytest.mark.parametrize(
    ("span", "status"), [("bytes=99999-", 416), ("bytes=0-1,3-4", 400), ("nonsense", 400)]
)
async def test_a_bad_range_is_a_problem(*, http, token, model_url, problem, span, status):
    answer = await http.get(model_url, headers=token("researcher") | {"Range": span})
    problem(answer, "invalid-range", status)


async def test_an_uploaded_model_is_kept_and_its_scratch_file_is_not(
    http, token, settings, model_file
):
    headers = token("researcher")
    first = await http.post("/api/v1/models", content=model_file, headers=headers)
    again = await http.post("/api/v1/models", content=model_file, headers=headers)
    assert (first.status_code, again.json()) == (201, first.json())
    assert list(settings.scratch.iterdir()) == []


async def test_a_file_that_is_no_model_or_app_is_refused(http, token, problem):
    headers = token("researcher")
    answer = await http.post("/api/v1/models", content=b"nonsense", headers=headers)
    problem(answer, "invalid-arrays", 422)
    problem(
        await http.post("/api/v1/apps", content=b"nonsense", headers=headers), "invalid-app", 422
    )


def certificate(folder):
    """Write a certificate for 127.0.0.1, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "coordinator")])
    now = datetime.now(UTC)  # noqa: TID251  # what TLS compares with
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1)).add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    )
    return {"tls_cert": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}


@pytest.mark.flow
def test_tls_is_served_with_a_certificate(folder, serving):
    tls = certificate(folder)
    context = ssl.create_default_context(cafile=tls["tls_cert"])
    with serving(folder / "d", **tls) as (_, token, url):
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.get(f"{url}/api/v1/studies", headers=headers, verify=context)
        assert (url.startswith("https://"), answer.status_code) == (True, 200)
