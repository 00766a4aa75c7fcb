from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.client.frames import MAX_FRAME_BYTES, BrokenFrame, read_frame, write_frame

VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)


@given(st.lists(st.dictionaries(st.text(), VALUES | st.lists(VALUES), max_size=4), max_size=4))
def test_frames_come_back_in_order_and_then_the_end(messages):
    stream = BytesIO()
    for message in messages:
        write_frame(stream, message)
    stream.seek(0)
    assert [read_frame(stream) for _ in messages] == messages
    assert read_frame(stream) is None


@pytest.mark.parametrize("cut", [1, 3, 4, 9])
def test_a_stream_that_ends_inside_a_frame_is_broken(cut):
    stream = BytesIO()
    write_frame(stream, {"op": "load"})
    with pytest.raises(BrokenFrame, match="ended after"):
        read_frame(BytesIO(stream.getvalue()[:cut]))


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"[1]", "list, expected an object"), (b"{", "not JSON"), (b"\xff\xfe", "not JSON")],
)
def test_a_body_that_is_no_json_object_is_broken(body, reason):
    with pytest.raises(BrokenFrame, match=reason):
        read_frame(BytesIO(len(body).to_bytes(4, "big") + body))


def test_noise_on_the_pipe_is_not_taken_for_a_length():
    with pytest.raises(BrokenFrame, match="at most"):
        read_frame(BytesIO(b"Epoch 1/5: loss 0.3\n"))


def test_a_frame_holds_no_nan_and_has_a_limit():
    with pytest.raises(ValueError, match="Out of range"):
        write_frame(BytesIO(), {"loss": float("nan")})
    with pytest.raises(ValueError, match=f"at most {MAX_FRAME_BYTES}"):
        write_frame(BytesIO(), {"loss": "0" * MAX_FRAME_BYTES})
