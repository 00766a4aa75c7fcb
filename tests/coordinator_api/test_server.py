"""The real process: lock, socket, first token, signals."""

import re
import signal
import socket
import threading
import time

import httpx
import pytest

pytestmark = pytest.mark.flow


def stop(process):
    """Send SIGTERM and return (exit status, seconds it took, what it wrote to stderr)."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    return process.returncode, time.monotonic() - began, errors


def test_the_first_token_is_shown_once_and_works(folder, serving):
    with serving(folder / "d") as (process, token, url):
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}/api/v1/studies", headers=headers).status_code == 200
        assert stop(process)[0] == 0
    with serving(folder / "d") as (_, again, url):
        assert again is None
        assert httpx.get(f"{url}/api/v1/studies", headers=headers).status_code == 200


def test_a_second_server_on_one_folder_is_refused(folder, serving):
    with serving(folder / "d") as (process, _, url):
        second = serving.start(folder / "d")
        _, errors = second.communicate(timeout=30)
        assert second.returncode == 1
        assert errors.startswith("data-in-use: ")
        assert str(process.pid) in errors
        assert httpx.get(f"{url}/readyz").status_code == 200


def test_the_lock_ends_with_a_killed_process(folder, serving):
    with serving(folder / "d") as (process, _, _url):
        process.kill()
        process.communicate()
    with serving(folder / "d") as (_, token, url):
        assert token is None
        assert httpx.get(f"{url}/readyz").status_code == 200


def test_plain_http_on_another_address_is_refused_before_anything_is_made(folder, serving):
    process = serving.start(folder / "d", host="0.0.0.0")  # noqa: S104
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.startswith("invalid-settings: plain HTTP on 0.0.0.0 is refused")
    assert not (folder / "d").exists()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_unusable_certificate_is_said_before_anything_is_made(folder, serving, content):
    files = {"tls_cert": folder / "cert.pem", "tls_key": folder / "key.pem"}
    if content is not None:
        for file in files.values():
            file.write_text(content)
    process = serving.start(folder / "d", **{name: str(file) for name, file in files.items()})
    shown, errors = process.communicate(timeout=30)
    assert (process.returncode, shown) == (1, "")
    assert errors.startswith("tls-unusable: tls_cert ")
    assert len(errors.splitlines()) == 1
    assert not (folder / "d").exists()


@pytest.mark.parametrize("name", ["a-file", "a-file/below"])
def test_a_data_folder_that_cannot_be_is_said(folder, serving, name):
    (folder / "a-file").write_text("")
    process = serving.start(folder / name)
    shown, errors = process.communicate(timeout=30)
    assert (process.returncode, shown) == (1, "")
    assert errors.startswith(f"data-unusable: data folder {folder / name}: ")
    assert len(errors.splitlines()) == 1


def test_the_first_token_is_shown_with_its_last_day(folder, serving):
    process = serving.start(folder / "d")
    lines = [process.stdout.readline() for _ in range(3)]
    process.terminate()
    process.communicate(timeout=20)
    assert lines[0].startswith("admin token, shown only this once: fw_")
    assert re.match(r"  valid until 2\d{3}-\d\d-\d\d \d\d:\d\d UTC; ", lines[1])
    assert lines[2].startswith("coordinator listening on ")


def test_a_taken_port_is_said(folder, serving):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = serving.start(folder / "d", port=taken.getsockname()[1])
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.startswith("address-unavailable: ")


def test_behind_a_proxy_only_https_is_served(folder, serving):
    with serving(folder / "d", behind_proxy=True) as (_, token, url):
        headers = {"Authorization": f"Bearer {token}"}
        path = f"{url}/api/v1/studies"
        plain = httpx.get(path, headers=headers)
        assert (plain.status_code, plain.json()["type"]) == (403, "/problems/https-required")
        secure = httpx.get(path, headers=headers | {"X-Forwarded-Proto": "https"})
        assert secure.status_code == 200
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_proxy_that_is_not_trusted_is_not_believed(folder, serving):
    with serving(folder / "d", behind_proxy=True, trusted_proxies=["10.9.9.9"]) as (_, token, url):
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-Proto": "https"}
        assert httpx.get(f"{url}/api/v1/studies", headers=headers).status_code == 403


def test_the_port_answers_only_http_1(folder, serving):
    with serving(folder / "d") as (_, _, url):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            raw.sendall(b"nonsense\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 400")


def test_sigterm_with_no_one_waiting_is_quick_and_quiet(folder, serving):
    with serving(folder / "d") as (process, _, _url):
        status, took_s, errors = stop(process)
    assert (status, errors) == (0, "")
    assert took_s < 3


def test_sigterm_ends_an_upload_that_hangs(folder, serving):
    with serving(folder / "d") as (process, token, url):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            head = f"POST /api/v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            raw.sendall(head.encode() + b"Content-Length: 1000\r\n\r\nabc")
            scratch = folder / "d" / "scratch"
            waiter = threading.Event()
            while not list(scratch.iterdir()):
                waiter.wait(0.02)
            status, took_s, _ = stop(process)
    assert status == 0
    assert took_s < 5
    assert list(scratch.iterdir()) == []
