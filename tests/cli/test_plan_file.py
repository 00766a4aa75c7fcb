"""Plan files: every mistake is told with the file and the key."""

import re
from pathlib import Path

import pytest

from fedward.cli.errors import InvalidFile
from fedward.cli.plan_file import (
    PLACEHOLDER,
    Initial,
    complete_plan,
    parse_initial,
    read_plan_file,
)
from fedward.cli.plan_template import write_template

SMALL = """
name = "p"
study = "s"
[app]
recipe = "tabular"
[rounds]
count = 3
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "plan.toml"
    file.write_text(text)
    return file


def test_the_template_is_a_plan(tmp_path: Path) -> None:
    text = write_template(Path("plan.toml"), study="s", dataset="d", bundle=None)
    plan = complete_plan(
        read_plan_file(written(tmp_path, text)), model=PLACEHOLDER, prepare="statistics"
    )
    assert plan.rounds.count == 10
    assert plan.app.config["features"] == "age,weight"
    assert plan.prepare == "statistics"


def test_the_template_of_an_uploaded_app_has_none_of_the_recipes_settings(tmp_path: Path) -> None:
    text = write_template(Path("plan.toml"), study="s", dataset="d", bundle=PLACEHOLDER)
    file = read_plan_file(written(tmp_path, text))
    plan = complete_plan(file, model=PLACEHOLDER, prepare=None)
    assert (plan.app.bundle, plan.app.recipe, plan.app.config) == (PLACEHOLDER, None, {})
    assert file.initial is None
    # Each commented table is one that a plan has: without "# " it is a plan as well.
    filled = re.sub(r"^# (?=\[|[a-z-]+ = )", "", text, flags=re.MULTILINE)
    everything = read_plan_file(written(tmp_path, filled))
    assert everything.initial is not None
    plan = complete_plan(everything, model=PLACEHOLDER, prepare=None)
    assert plan.app.config == {"local-epochs": 2}
    assert plan.app.train_config == {"lr": 0.01}


def test_messages_to_the_app_have_their_own_settings(tmp_path: Path) -> None:
    tables = "[app.train-config]\nlr = 0.05\n[app.evaluate-config]\nfull = true\n"
    file = written(tmp_path, SMALL.replace("[rounds]", tables + "[rounds]"))
    plan = complete_plan(read_plan_file(file), model=PLACEHOLDER, prepare=None)
    assert (plan.app.train_config, plan.app.evaluate_config) == ({"lr": 0.05}, {"full": True})


def test_a_table_that_is_written_in_two_ways_is_refused(tmp_path: Path) -> None:
    tables = "[app.train-config]\nlr = 0.05\n[app.train_config]\nlr = 0.1\n"
    file = written(tmp_path, SMALL.replace("[rounds]", tables + "[rounds]"))
    with pytest.raises(InvalidFile, match="both train-config and train_config"):
        read_plan_file(file)


def test_a_file_may_choose_its_own_preparation(tmp_path: Path) -> None:
    file = read_plan_file(written(tmp_path, 'prepare = "mine"' + SMALL))
    assert complete_plan(file, model=PLACEHOLDER, prepare="statistics").prepare == "mine"


def test_all_wrong_keys_are_named_at_once(tmp_path: Path) -> None:
    text = SMALL.replace("count = 3", "count = 0\nquorom = 2").replace('name = "p"', "")
    file = read_plan_file(written(tmp_path, text))
    with pytest.raises(InvalidFile) as caught:
        complete_plan(file, model=PLACEHOLDER, prepare=None)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    for line, key in zip(lines, ("name", "rounds.count", "rounds.quorom"), strict=True):
        assert line.startswith(f"{file.path}: {key}: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('initial = {file = "m.safetensors"}', "file"),
        ('initial = {call = "a.b:Net", directory = "../app"}', "call"),
        (f'model = "{PLACEHOLDER}"', "digest"),
    ],
)
def test_the_first_model_comes_from_one_place(text: str, expected: str, tmp_path: Path) -> None:
    initial = read_plan_file(written(tmp_path, text + SMALL)).initial
    assert initial is not None
    given = [name for name in ("digest", "file", "call") if getattr(initial, name) is not None]
    assert given == [expected]


@pytest.mark.parametrize(
    "text",
    [
        'initial = "x"',
        'initial = {file = "x", call = "a:b"}',
        "initial = {}",
        f'initial = {{file = "x"}}\nmodel = "{PLACEHOLDER}"',
    ],
)
def test_an_unclear_first_model_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"plan\.toml: .*initial"):
        read_plan_file(written(tmp_path, text + "\n" + SMALL))


def test_initial_on_the_command_line_is_a_file_a_call_or_a_digest(tmp_path: Path) -> None:
    file = written(tmp_path, "x")
    assert parse_initial(str(file), directory=tmp_path) == Initial(file=file)
    call = parse_initial("pkg.task:Net", directory=tmp_path)
    assert call == Initial(call="pkg.task:Net", directory=tmp_path)
    assert parse_initial(PLACEHOLDER, directory=tmp_path) == Initial(digest=PLACEHOLDER)
    with pytest.raises(InvalidFile, match=r"got 'missing\.safetensors'"):
        parse_initial("missing.safetensors", directory=tmp_path)
