"""How values look to a person."""

import pytest

from fedward.cli.output import format_bytes, format_value, print_fields, print_table, value_at


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (3e15, "3e+03 TB")],
)
def test_sizes_have_three_digits(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("x", None, "-"),
        ("x", True, "yes"),
        ("size_bytes", 2000, "2 kB"),
        ("rounds", 2000, "2000"),
        ("loss", 0.123456, "0.1235"),
        ("sites", ["a", "b"], "a, b"),
        ("sites", [], "-"),
        ("metrics", {"loss": 0.5}, "loss 0.5"),
    ],
)
def test_values_are_written_for_people(key: str, value: object, text: str) -> None:
    assert format_value(key, value) == text


def test_a_dotted_key_reaches_into_a_row() -> None:
    row = {"plan": {"name": "p"}}
    assert value_at(row, "plan.name") == "p"
    assert value_at(row, "plan.name.more") is None
    assert value_at(row, "other") is None


def test_a_table_in_a_pipe_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    digest = "sha256:" + "0" * 64
    print_table([{"digest": digest, "n": 1}], {"digest": "digest", "n": "n"})
    assert capsys.readouterr().out.splitlines()[1].split() == [digest, "1"]


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([], {"digest": "digest"})
    assert capsys.readouterr().out == "none\n"


def test_nested_documents_are_indented(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"a": {"b": 1}, "list": [{"site": "x", "why": "late"}]})
    assert capsys.readouterr().out.splitlines() == [
        "a:",
        "  b: 1",
        "list:",
        "  - site x, why late",
    ]


def test_a_value_in_square_brackets_is_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"name": "[bold]a[/nonsense]"}], {"name": "name"})
    assert "[bold]a[/nonsense]" in capsys.readouterr().out


def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "80", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)


def test_on_a_narrow_terminal_a_digest_stands_whole_below_its_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow_terminal(monkeypatch)
    digests = [f"sha256:{number:064x}" for number in range(2)]
    rows = [{"digest": digest, "name": "n" * 30} for digest in digests]
    print_table(rows, {"name": "name", "digest": "digest"})
    lines = capsys.readouterr().out.splitlines()
    assert [lines[2], lines[4]] == [f"  {digest}" for digest in digests]
    assert len(lines) == 5


def test_a_column_of_numbers_stays_one_where_some_are_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table([{"n": None}, {"n": 12.5}], {"n": "n"})
    assert capsys.readouterr().out.splitlines() == ["   n", "   -", "12.5"]


def test_times_in_tables_are_to_the_second(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"t": "2026-11-30T22:27:35.552485Z"}], {"t": "time"})
    assert capsys.readouterr().out.splitlines()[1].strip() == "2026-11-30T22:27:35Z"


def test_a_long_item_of_a_list_is_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    item = {"kind": "train", "reason": None, "model": "x" * 70, "metrics": {"loss": 0.5}}
    print_fields({"attempts": [item]})
    assert capsys.readouterr().out.splitlines() == [
        "attempts:",
        "  - kind: train",
        f"    model: {'x' * 70}",
        "    metrics:",
        "      loss: 0.5",
    ]
