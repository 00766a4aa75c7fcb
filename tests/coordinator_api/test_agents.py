import asyncio
import json
import os

import pytest

from fedward.coordinator.actors import Actor
from fedward.coordinator.errors import Unavailable
from fedward.protocol import signatures
from fedward.protocol.documents import MAX_CHUNK_BYTES, Membership
from fedward.protocol.errors import InvalidSignature

pytestmark = pytest.mark.anyio
ADMIN = Actor("user", "test-admin", "admin")
NEXT = "/agent/v1/next?wait=0"
TASK = "task-" + "0" * 24


async def test_an_enrolled_agent_polls_and_gets_nothing(enrolled):
    agent = await enrolled("hospital-a")
    assert (await agent.send("GET", NEXT)).status_code == 204


async def test_enrolment_answers_with_the_membership(new_agent, coordinator):
    agent = new_agent()
    invite = coordinator.invite_site(ADMIN, "hospital-a", organisation="A").invite
    member = Membership.model_validate_json((await agent.enrol(invite)).content)
    assert (member.site, member.key_id) == ("hospital-a", agent.key_id)
    assert member.coordinator_key == agent.coordinator_key.hex()


async def test_enrolment_with_another_announced_key_is_refused(new_agent, coordinator, problem):
    agent = new_agent()
    invite = coordinator.invite_site(ADMIN, "hospital-a", organisation="A").invite
    other = signatures.public_hex(signatures.new_private_key(os.urandom(32)))
    answer = await agent.enrol(invite, public_key=other)
    problem(answer, "invalid-signature", 401)
    assert coordinator.show_site("hospital-a").status == "invited"


async def test_an_unknown_invite_is_refused(new_agent):
    answer = await new_agent().enrol("fwi_" + "x" * 43 + "_" + "0" * 32)
    assert answer.status_code == 401


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"public_key": 5}', b"\xff\xfe"])
async def test_a_malformed_enrolment_is_refused_with_a_signed_problem(new_agent, body):
    answer = await new_agent().send("POST", "/agent/v1/enrol", body)
    assert answer.status_code in {400, 422}
    assert answer.headers["content-type"] == "application/problem+json"


async def test_an_unknown_key_is_told_by_name_in_a_signed_answer(new_agent, problem):
    problem(await new_agent().send("GET", NEXT), "unknown-key", 401)


async def test_a_revoked_site_is_told_so(enrolled, coordinator, problem):
    agent = await enrolled("hospital-a")
    coordinator.revoke_site(ADMIN, "hospital-a")
    problem(await agent.send("GET", NEXT), "site-revoked", 401)


async def test_a_replayed_request_is_refused(enrolled, problem):
    agent = await enrolled("hospital-a")
    headers = agent.signed("GET", NEXT)
    assert (await agent.send("GET", NEXT, headers=headers)).status_code == 204
    problem(await agent.send("GET", NEXT, headers=headers), "replayed-request", 401)


async def test_a_captured_signature_serves_no_other_path_query_method_or_body(enrolled, problem):
    agent = await enrolled("hospital-a")
    headers = agent.signed("GET", NEXT)
    for method, url in (("GET", "/agent/v1/next?wait=1"), ("POST", NEXT), ("GET", "/agent/v1/x")):
        problem(await agent.send(method, url, headers=headers), "invalid-signature", 401)
    problem(await agent.send("GET", NEXT, b"{}", headers=headers), "digest-mismatch", 401)


async def test_a_signature_of_another_key_is_refused(enrolled, new_agent, problem):
    agent, stranger = await enrolled("hospital-a"), new_agent()
    plain = {"content-type": "application/json", "fedward-protocol": "fedward/1"}
    added = signatures.sign_request(
        stranger.key, key_id=agent.key_id, method="GET", url=NEXT, headers=plain, body=b"",
        now=agent.clock(), nonce="n" * 32,
    )  # fmt: skip
    problem(await agent.send("GET", NEXT, headers=plain | added), "invalid-signature", 401)


async def test_a_request_without_a_signature_is_refused(http, problem):
    headers = {"fedward-protocol": "fedward/1"}
    problem(await http.get(NEXT, headers=headers), "invalid-signature", 401)


async def test_three_seconds_of_skew_are_accepted(enrolled, clock):
    agent = await enrolled("hospital-a")
    headers = agent.signed("GET", NEXT)
    clock.now -= 3
    assert (await agent.send("GET", NEXT, headers=headers)).status_code == 204


@pytest.mark.parametrize(("moved", "where"), [(-600, "ahead"), (600, "behind")])
async def test_a_wrong_clock_is_told_by_how_much(enrolled, clock, problem, moved, where):
    agent = await enrolled("hospital-a")
    headers = agent.signed("GET", NEXT)
    clock.now += moved
    shown = problem(await agent.send("GET", NEXT, headers=headers), "clock-skew", 401)
    assert shown["detail"].startswith(f"your clock is 600 s {where}")


@pytest.mark.parametrize("version", ["fedward/2", ""])
async def test_another_protocol_version_is_refused_clearly(enrolled, problem, version):
    agent = await enrolled("hospital-a")
    answer = await agent.send("GET", NEXT, fedward_protocol=version)
    assert problem(answer, "protocol-unsupported", 400)["expected"] == "fedward/1"


async def test_an_oversize_body_is_refused_with_a_signed_answer(enrolled, problem):
    agent = await enrolled("hospital-a")
    url = f"/agent/v1/tasks/{TASK}/result"
    problem(await agent.send("POST", url, b" " * 300_000), "body-too-large", 413)
    url = f"/agent/v1/uploads/{TASK}"
    problem(await agent.send("PUT", url, b" " * (MAX_CHUNK_BYTES + 65_537)), "body-too-large", 413)


async def test_documents_of_agents_refuse_malformed_json_and_unknown_fields(enrolled, problem):
    agent = await enrolled("hospital-a")
    url = f"/agent/v1/tasks/{TASK}/progress"
    problem(await agent.send("POST", url, b"{"), "malformed-json", 400)
    problem(await agent.send("POST", url, b'{"fence": 1, "x": 2}'), "invalid-document", 422)
    problem(await agent.send("GET", NEXT + "&x=1"), "invalid-parameter", 422)


async def test_unknown_agent_routes_and_methods_are_signed_problems(enrolled, problem):
    agent = await enrolled("hospital-a")
    problem(await agent.send("GET", "/agent/v1/nothing"), "no-such-route", 404)
    problem(await agent.send("DELETE", "/agent/v1/next"), "method-not-allowed", 405)


async def test_a_fault_of_ours_is_answered_signed(enrolled, problem, coordinator):
    agent = await enrolled("hospital-a")
    coordinator.fault = RuntimeError("secret detail")
    answer = await agent.send("GET", NEXT)
    problem(answer, "internal-error", 500)
    assert "secret detail" not in answer.text


async def test_a_database_that_is_away_is_no_wrong_signature(enrolled, problem, coordinator):
    agent = await enrolled("hospital-a")
    coordinator.fault = Unavailable("storage-unavailable", "no disk")
    answer = await agent.send("GET", NEXT)
    problem(answer, "storage-unavailable", 503)
    assert answer.headers["retry-after"] == "5"


async def test_an_answer_serves_no_other_request(enrolled):
    agent = await enrolled("hospital-a")
    first, second = agent.signed("GET", NEXT), agent.signed("GET", NEXT)
    answer = await agent.http.get(NEXT, headers=first)
    with pytest.raises(InvalidSignature):
        signatures.verify_response(
            status=answer.status_code, headers=dict(answer.headers), body=answer.content,
            request=("GET", NEXT, second), find_key=lambda _: agent.coordinator_key,
        )  # fmt: skip


async def test_a_site_gets_no_blob_of_others(enrolled, coordinator, tmp_path, model_file):
    agent = await enrolled("hospital-a")
    (tmp_path / "m").write_bytes(model_file)
    digest = coordinator.add_model(ADMIN, tmp_path / "m").digest
    assert (await agent.send("GET", f"/agent/v1/blobs/{digest}")).status_code == 404


async def test_a_newer_poll_of_the_same_site_ends_the_older_one(enrolled):
    agent = await enrolled("hospital-a")
    older = asyncio.create_task(agent.send("GET", "/agent/v1/next?wait=60"))
    desk = agent.http._transport.app.state.api.desk
    while not desk.open_polls:
        await asyncio.wait([older], timeout=0.01)
    newer = asyncio.create_task(agent.send("GET", "/agent/v1/next?wait=60"))
    assert (await asyncio.wait_for(older, 10)).status_code == 204
    assert not newer.done()
    newer.cancel()


async def test_failed_agent_logins_are_recorded(enrolled, new_agent, http, token):
    agent = await enrolled("hospital-a")
    await new_agent().send("GET", NEXT)
    await agent.send("GET", NEXT, b"", headers=agent.signed("GET", NEXT + "0"))
    events = (await http.get("/api/v1/audit/events", headers=token("auditor"))).json()["items"]
    reasons = [e["record"]["reason"] for e in events if e["record"]["outcome"] == "denied"]
    assert {"unknown-key", "invalid-signature"} <= set(reasons)
    assert json.dumps(events)
