"""The operator's connection, against a transport that behaves like a coordinator."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from fedward.cli.errors import CliError, NotReachable, ProblemAnswer
from fedward.cli.http import Api, parse_events

Handler = Callable[[httpx.Request], httpx.Response]


def api(handler: Handler) -> Api:
    return Api("http://127.0.0.1:1", "fw_x", transport=httpx.MockTransport(handler))


def ignore(_: int) -> None:
    """Nobody watches the progress."""


def test_a_paged_list_is_read_to_its_end() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        after = request.url.params.get("after")
        assert request.headers["Authorization"] == "Bearer fw_x"
        pages = {None: (["a", "b"], "b"), "b": (["c"], None)}
        items, following = pages[after]
        return httpx.Response(200, json={"items": items, "next": following})

    with api(handler) as connection:
        assert connection.get_all("/sites") == ["a", "b", "c"]


def test_a_limit_ends_a_paged_list_and_is_asked_for() -> None:
    asked = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["limit"])
        return httpx.Response(200, json={"items": ["a", "b"], "next": "b"})

    with api(handler) as connection:
        assert connection.get_all("/sites", limit=2) == ["a", "b"]
    assert asked == ["2"]


def test_every_post_has_an_idempotency_key_of_its_own() -> None:
    keys = []

    def handler(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["Idempotency-Key"])
        return httpx.Response(200, json={})

    with api(handler) as connection:
        connection.post("/runs", {"plan": "x"})
        connection.post("/runs", {"plan": "x"})
    assert len(set(keys)) == 2


def test_a_problem_is_told_with_what_was_got_expected_and_all_reasons() -> None:
    problem = {
        "type": "/problems/plan-refused",
        "title": "Plan refused",
        "detail": "one; two",
        "got": "1 site",
        "expected": "at least 2",
        "ids": {"study": "sepsis"},
        "reasons": ["one", "two"],
    }
    with (
        api(lambda _: httpx.Response(422, json=problem)) as connection,
        pytest.raises(ProblemAnswer) as caught,
    ):
        connection.post("/plans", {})
    assert str(caught.value).splitlines() == [
        "Plan refused (422 plan-refused)",
        "  got: 1 site",
        "  expected: at least 2",
        "  study: sepsis",
        "  - one",
        "  - two",
    ]
    assert caught.value.name == "plan-refused"


def test_an_error_that_is_no_problem_document_is_told_by_its_status() -> None:
    with (
        api(lambda _: httpx.Response(502, text="<html>")) as connection,
        pytest.raises(ProblemAnswer, match="Bad Gateway"),
    ):
        connection.get("/runs")


def test_a_dead_coordinator_is_not_reachable() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with api(handler) as connection, pytest.raises(NotReachable, match=r"127\.0\.0\.1:1"):
        connection.get("/runs")


def test_a_download_lands_whole_under_its_name(tmp_path: Path) -> None:
    data = b"0123456789" * 1000
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    moved: list[int] = []
    with api(lambda _: httpx.Response(200, content=data)) as connection:
        size = connection.download(
            "/models/x/content", tmp_path / "m", digest=digest, moved=moved.append
        )
    assert (tmp_path / "m").read_bytes() == data
    assert size == sum(moved) == len(data)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_download_with_another_digest_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"before")
    with (
        api(lambda _: httpx.Response(200, content=b"other")) as connection,
        pytest.raises(CliError, match="expected sha256:00"),
    ):
        connection.download("/x", tmp_path / "m", digest="sha256:00", moved=ignore)
    assert (tmp_path / "m").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_an_upload_announces_its_size_and_sends_the_file(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"abc")

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["Content-Length"] == "3"
        assert request.read() == b"abc"
        return httpx.Response(201, json={"digest": "d"})

    with api(handler) as connection:
        view = connection.upload(
            "/models", tmp_path / "m", media_type="application/octet-stream", moved=ignore
        )
    assert view == {"digest": "d"}


def test_events_are_parsed_as_the_standard_says() -> None:
    text = ': ping\n\nid: 7\nevent: audit\ndata: {"a":\ndata: 1}\n\ndata: "x"\n\ndata: "cut"'
    events = list(parse_events(iter(text.split("\n"))))
    assert [(event.id, event.name, event.data) for event in events] == [
        ("7", "audit", {"a": 1}),
        (None, "message", "x"),
    ]


def test_a_stream_goes_on_after_the_last_event_seen() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        body = f"id: 8\ndata: {json.dumps(request.headers['Last-Event-ID'])}\n\n"
        return httpx.Response(200, text=body)

    with api(handler) as connection:
        (event,) = connection.events("/runs/r/events", after="7")
    assert (event.id, event.data) == ("8", "7")
