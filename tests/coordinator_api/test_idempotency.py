import pytest

from fedward.coordinator.api import examples

pytestmark = pytest.mark.anyio
STUDY = examples.STUDY


@pytest.fixture
def headers(token):
    return token("admin") | {"Idempotency-Key": "key-1"}


async def test_a_repeat_answers_as_the_first_call_did(http, headers, clock):
    first = await http.post("/api/v1/studies", json=STUDY, headers=headers)
    clock.now += 5
    again = await http.post("/api/v1/studies", json=STUDY, headers=headers)
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert first.status_code == 201


async def test_another_body_under_the_same_key_is_a_conflict(http, headers, problem):
    await http.post("/api/v1/studies", json=STUDY, headers=headers)
    other = STUDY | {"study": "another"}
    answer = await http.post("/api/v1/studies", json=other, headers=headers)
    problem(answer, "idempotency-key-reused", 409)
    assert len((await http.get("/api/v1/studies", headers=headers)).json()["items"]) == 1


async def test_another_route_under_the_same_key_is_a_conflict(http, headers, problem):
    await http.post("/api/v1/studies", json=STUDY, headers=headers)
    answer = await http.post(f"/api/v1/studies/{STUDY['study']}/close", headers=headers)
    problem(answer, "idempotency-key-reused", 409)


async def test_another_caller_may_use_the_same_key(http, headers, token):
    await http.post("/api/v1/studies", json=STUDY, headers=headers)
    other = token("operator") | {"Idempotency-Key": "key-1"}
    answer = await http.post("/api/v1/studies", json=STUDY | {"study": "another"}, headers=other)
    assert answer.status_code == 201


async def test_a_refused_call_may_be_made_again_under_its_key(http, headers):
    path = f"/api/v1/studies/{STUDY['study']}/close"
    assert (await http.post(path, headers=headers)).status_code == 404
    await http.post("/api/v1/studies", json=STUDY, headers=headers | {"Idempotency-Key": "key-2"})
    assert (await http.post(path, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [("/api/v1/tokens", {"name": "n", "role": "auditor"}),
     ("/api/v1/sites/invite", {"site": "a", "organisation": "A"})],
)  # fmt: skip
async def test_a_secret_is_not_kept_for_a_repeat(*, http, headers, settings, problem, path, body):
    first = await http.post(path, json=body, headers=headers)
    problem(await http.post(path, json=body, headers=headers), "answer-shown-once", 409)
    secret = first.json().get("secret") or first.json()["invite"].rpartition("_")[0]
    for file in settings.data.glob("fedward.sqlite*"):
        assert secret.encode() not in file.read_bytes(), file


@pytest.mark.parametrize("key", ["", "with space", "x" * 201])
async def test_a_malformed_key_is_refused(http, headers, problem, key):
    answer = await http.post(
        "/api/v1/studies", json=STUDY, headers=headers | {"Idempotency-Key": key}
    )
    problem(answer, "invalid-parameter", 422)
