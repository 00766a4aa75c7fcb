"""JSON text that is no Unicode: a lone surrogate is refused wherever it stands, and told."""

import pytest

from fedward.coordinator.api.json_body import first_lone_surrogate
from fedward.coordinator.api.problems import problem_response, refused_input

pytestmark = pytest.mark.anyio
TASK = "task-" + "0" * 24
STUDY = (
    b'{"study": "s", "purpose": "p%s", "legal_basis": "l", "sites": ["a"],'
    b' "expires": "2099-01-01T00:00:00.000000Z"}'
)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("runs", b'{"plan": "\\ud800"}'),
        ("studies", b'{"\\ud800": 1}'),
        ("studies", STUDY % b"\\uDFFF"),
        ("studies", STUDY % b"\\\\\\udc00\\ud800"),
        ("studies", STUDY % b"\xed\xa0\x80"),
        ("plans/validate", b'{"app": {"config": {"a": ["\\ud83d \\ude00"]}}}'),
    ],
)
async def test_a_lone_surrogate_is_refused_as_malformed_text(http, token, problem, path, body):
    headers = token("operator") | {"content-type": "application/json"}
    answer = await http.post(f"/api/v1/{path}", content=body, headers=headers)
    problem(answer, "malformed-json", 400)


@pytest.mark.parametrize("metrics", [b'{"\\ud800": 1.0}', b'{"a": "\\ud800"}'])
async def test_a_lone_surrogate_in_a_result_is_refused_signed(enrolled, problem, metrics):
    agent = await enrolled("hospital-a")
    body = b'{"fence": 1, "model": "sha256:' + b"0" * 64 + b'", "metrics": ' + metrics + b"}"
    answer = await agent.send("POST", f"/agent/v1/tasks/{TASK}/result", body)
    shown = problem(answer, "malformed-json", 400)
    assert f"a lone surrogate at character {body.index(b'ud800') - 1}" in shown["detail"]


async def test_pairs_of_surrogates_and_escaped_backslashes_are_text(http, token):
    headers = token("operator") | {"content-type": "application/json"}
    body = STUDY % b"\\ud83d\\ude00 \\\\ud800 \xf0\x9f\x98\x80"
    answer = await http.post("/api/v1/studies", content=body, headers=headers)
    assert (answer.status_code, answer.json()["study"]["purpose"]) == (201, "p😀 \\ud800 😀")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r'"\ud800"', 1),
        (r'"\ud83d\ude00\uDC00"', 13),
        (r'"\ud83d\\ude00"', 1),
        (r'"\ud83d\ud83d\ude00"', 1),
        ('"\ud800"', 1),
        (r'"\\ud800"', None),
        (r'"é\ud83d\ude00"', None),
    ],
)
def test_the_first_lone_surrogate_is_found_where_it_stands(text, found):
    assert first_lone_surrogate(text) == found


def test_what_was_got_is_cleaned_before_it_is_told():
    error = {"type": "x", "loc": ("body", "\ud800"), "msg": "bad \ud801", "input": "\udfff"}
    answer = problem_response(refused_input([error]))
    assert answer.body.decode().count("?") >= 3
