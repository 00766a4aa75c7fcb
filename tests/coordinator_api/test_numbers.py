"""Integers of paths, queries, headers and documents: in digits, and no larger than 2**53 - 1."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from fedward.coordinator.api.requests import Number
from fedward.protocol.arrays import encode

pytestmark = pytest.mark.anyio
TASK = "task-" + "0" * 24
RUN = "run-000000"
HUGE = [2**53, 2**63 - 1, 2**63, 10**400]
PLACES = [
    "runs/{run}/rounds?after={n}",
    "runs/{run}/rounds/{n}",
    "runs?limit={n}",
    "audit/events?after={n}",
    "audit/proof?seq={n}",
    "audit/proof?seq=1&size={n}",
    "audit/consistency?first={n}",
    "audit/consistency?first=1&second={n}",
]


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("place", PLACES)
async def test_a_huge_number_in_a_path_or_query_is_refused(http, token, problem, place, number):
    url = "/api/v1/" + place.format(run=RUN, n=number)
    problem(await http.get(url, headers=token("auditor")), "invalid-parameter", 422)


@pytest.mark.parametrize("number", HUGE)
async def test_a_huge_number_in_a_header_is_refused(http, token, enrolled, problem, number):
    headers = token("auditor") | {"Last-Event-ID": str(number)}
    answer = await http.get(f"/api/v1/runs/{RUN}/events", headers=headers)
    problem(answer, "invalid-parameter", 422)
    agent = await enrolled("hospital-a")
    url = f"/agent/v1/uploads/{TASK}"
    for fence, offset in ((number, 0), (1, number)):
        given = {"upload_fence": str(fence), "upload_offset": str(offset)}
        problem(await agent.send("PUT", url, b"x", **given), "invalid-parameter", 422)


@pytest.mark.parametrize("fence", ["1.0", "true", "1_0", "+1", " 1 0", "0x1", "", "-1"])
async def test_a_fence_in_a_header_is_written_in_digits(enrolled, problem, fence):
    agent = await enrolled("hospital-a")
    given = {"upload_fence": fence, "upload_offset": "0"}
    answer = await agent.send("PUT", f"/agent/v1/uploads/{TASK}", b"x", **given)
    problem(answer, "invalid-parameter", 422)


@pytest.mark.parametrize("fence", [True, 1.0, "1", 0, 2**53])
async def test_a_fence_in_a_document_is_an_integer(enrolled, problem, fence):
    agent = await enrolled("hospital-a")
    result = {"fence": fence, "model": "sha256:" + "0" * 64, "metrics": {}}
    for path, document in (("progress", {"fence": fence}), ("result", result)):
        body = json.dumps(document).encode()
        answer = await agent.send("POST", f"/agent/v1/tasks/{TASK}/{path}", body)
        problem(answer, "invalid-document", 422)


@pytest.mark.parametrize("text", ["0", "007", str(2**53 - 1)])
def test_digits_up_to_the_limit_are_taken(text):
    assert TypeAdapter(Number).validate_python(text) == int(text)
    with pytest.raises(ValidationError):
        TypeAdapter(Number).validate_python(f"{text}.0")


async def test_a_model_without_any_array_is_refused(http, token, problem):
    empty = b"".join(bytes(part) for part in encode({}))
    answer = await http.post("/api/v1/models", content=empty, headers=token("researcher"))
    shown = problem(answer, "invalid-arrays", 422)
    assert shown["detail"] == "model: got a file without any array, expected one at least"
