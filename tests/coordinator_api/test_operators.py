import re

import pytest

from fedward.coordinator.api import examples
from fedward.coordinator.api.app import ROUTERS
from fedward.coordinator.api.auth import PERMISSIONS, ROLES, permits
from fedward.coordinator.api.strict_route import OperatorRoute
from fedward.protocol.documents import Plan, Study

pytestmark = pytest.mark.anyio
DIGEST = "sha256:" + "0" * 64


def operator_routes():
    routes = [route for router in ROUTERS for route in router.routes]
    return [route for route in routes if isinstance(route, OperatorRoute)]


async def test_every_route_has_a_row_in_the_role_table_and_every_row_a_route():
    assert {route.name for route in operator_routes()} == set(PERMISSIONS)


async def test_every_operator_route_checks_roles(app):
    paths = {path for path in app.openapi()["paths"] if path.startswith("/api/v1")}
    assert paths == {route.path for route in operator_routes()}


@pytest.mark.parametrize("role", ROLES)
async def test_the_role_matrix_is_what_the_routes_do(app, http, token, role):
    headers = token(role)
    for route in operator_routes():
        url = route.path.format(
            study="none", digest=DIGEST, run="run-000000", site="none", token="tok-000000", number=1
        )
        for method in route.methods:
            answer = await http.request(method, url, headers=headers)
            denied = answer.status_code == 403
            assert denied != permits(route.name, role), (role, method, url, answer.text)


async def test_a_denial_names_the_roles_that_may(http, token, problem):
    answer = await http.get(f"/api/v1/models/{DIGEST}/content", headers=token("admin"))
    shown = problem(answer, "role-lacks-permission", 403)
    assert "operator, researcher, auditor" in shown["detail"]
    events = await http.get("/api/v1/audit/events", headers=token("auditor"))
    denials = [e for e in events.json()["items"] if e["record"]["outcome"] == "denied"]
    assert denials[-1]["record"]["reason"] == "role-lacks-permission"


async def test_nobody_may_use_a_route_without_a_row():
    assert [role for role in (*ROLES, None) if permits("a_new_route", role)] == []


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer"}, {"Authorization": "Basic eDp5"},
     {"Authorization": "Bearer fw_" + "x" * 43}, {"Authorization": "Bearer é"}],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/api/v1/studies", "/api/v1/no-such-route", "/api/v1"])
async def test_without_a_valid_token_nothing_is_learned(http, headers, path):
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    answer = await http.get(path, headers=encoded)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"


async def test_an_expired_token_is_refused(http, token, clock):
    headers = token("researcher", ttl_s=60.0)
    assert (await http.get("/api/v1/studies", headers=headers)).status_code == 200
    clock.now += 61
    assert (await http.get("/api/v1/studies", headers=headers)).status_code == 401


async def test_a_revoked_token_is_refused_at_once(http, token):
    admin = token("admin")
    wanted = {"name": "laptop", "role": "researcher", "ttl_s": 600}
    made = (await http.post("/api/v1/tokens", json=wanted, headers=admin)).json()
    headers = {"Authorization": f"Bearer {made['secret']}"}
    assert (await http.get("/api/v1/studies", headers=headers)).status_code == 200
    revoked = await http.post(f"/api/v1/tokens/{made['token']}/revoke", headers=admin)
    assert revoked.json()["revoked"]
    assert (await http.get("/api/v1/studies", headers=headers)).status_code == 401


async def test_a_secret_is_in_no_list(http, token):
    headers = token("admin")
    listed = (await http.get("/api/v1/tokens", headers=headers)).text
    assert headers["Authorization"].removeprefix("Bearer ") not in listed


async def test_malformed_json_is_refused_with_its_place(http, token, problem):
    answer = await http.post(
        "/api/v1/studies",
        content=b'{"study": "a",',
        headers=token("admin") | {"Content-Type": "application/json"},
    )
    assert "at character" in problem(answer, "malformed-json", 400)["detail"]


async def test_json_without_its_content_type_is_refused(http, token, problem):
    answer = await http.post("/api/v1/studies", content=b"{}", headers=token("admin"))
    problem(answer, "invalid-document", 422)


async def test_an_unknown_field_is_refused_and_nothing_changes(http, token, problem):
    headers = token("admin")
    answer = await http.post(
        "/api/v1/studies", json=examples.STUDY | {"colour": 1}, headers=headers
    )
    assert problem(answer, "invalid-document", 422)["reasons"] == ["colour: unknown field"]
    assert (await http.get("/api/v1/studies", headers=headers)).json()["items"] == []


async def test_not_a_number_is_refused(http, token, problem):
    body = b'{"site": "a", "organisation": "A", "ttl_s": NaN}'
    headers = token("admin") | {"Content-Type": "application/json"}
    answer = await http.post("/api/v1/sites/invite", content=body, headers=headers)
    assert answer.status_code in {400, 422}, answer.text


@pytest.mark.parametrize(
    ("path", "place"),
    [("/api/v1/studies?limit=0", "limit"), ("/api/v1/studies?limit=501", "limit"),
     ("/api/v1/runs/nonsense", "run"), ("/api/v1/models/sha256:12", "digest"),
     ("/api/v1/studies/UPPER", "study"), ("/api/v1/audit/proof?seq=0", "seq")],
)  # fmt: skip
async def test_a_parameter_out_of_range_is_named(http, token, problem, path, place):
    shown = problem(await http.get(path, headers=token("researcher")), "invalid-parameter", 422)
    assert shown["reasons"][0].startswith(f"{place}: ")


async def test_an_unknown_query_parameter_is_refused(http, token, problem):
    answer = await http.get("/api/v1/studies?colour=blue&limit=5", headers=token("researcher"))
    shown = problem(answer, "invalid-parameter", 422)
    assert (shown["got"], shown["expected"]) == (["colour"], ["after", "limit"])


async def test_unknown_routes_and_methods_are_problems(http, token, problem):
    headers = token("admin")
    problem(await http.get("/api/v1/nothing", headers=headers), "no-such-route", 404)
    problem(await http.get("/elsewhere"), "no-such-route", 404)
    problem(await http.get("/api/v1/studies/", headers=headers), "no-such-route", 404)
    shown = problem(
        await http.delete("/api/v1/studies", headers=headers), "method-not-allowed", 405
    )
    assert shown["got"] == "DELETE"


async def test_an_oversize_document_is_refused(http, token, problem):
    study = examples.STUDY | {"purpose": "x" * 200_000}
    answer = await http.post("/api/v1/studies", json=study, headers=token("admin"))
    problem(answer, "body-too-large", 413)


@pytest.mark.parametrize("path", ["/api/v1/apps", "/api/v1/models"])
@pytest.mark.parametrize("announced", [True, False])
async def test_an_oversize_file_is_refused_and_leaves_nothing(
    *, http, token, settings, problem, path, announced
):
    async def chunks():
        for _ in range(70):
            yield b"x" * 1000

    content = b"x" * 70_000 if announced else chunks()
    answer = await http.post(path, content=content, headers=token("researcher"))
    problem(answer, "body-too-large", 413)
    assert list(settings.scratch.iterdir()) == []


async def test_a_fault_of_ours_says_nothing_of_its_cause(http, token, problem, coordinator):
    coordinator.fault = RuntimeError("secret detail")
    answer = await http.get("/api/v1/studies", headers=token("admin"))
    problem(answer, "internal-error", 500)
    assert "secret detail" not in answer.text


async def test_the_documentation_shows_every_route_and_examples_that_are_valid(app, http):
    document = (await http.get("/openapi.json")).json()
    assert {route.path for route in operator_routes()} <= set(document["paths"])
    assert {"/agent/v1/next", "/agent/v1/uploads/{task}"} <= set(document["paths"])
    Study.model_validate(examples.STUDY)
    Plan.model_validate(examples.PLAN)


async def test_the_documentation_page_fetches_nothing_from_elsewhere(http):
    page = (await http.get("/docs")).text
    assert "http://" not in page and "https://" not in page
    linked = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(linked) == 3
    for path in linked:
        assert (await http.get(path)).status_code == 200, path


async def test_health_needs_no_token(http):
    assert (await http.get("/healthz")).json() == {"status": "ok"}
    assert (await http.get("/readyz")).json() == {"status": "ok"}
