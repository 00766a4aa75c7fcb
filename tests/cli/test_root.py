"""The command tree: lazy, complete, with an example everywhere."""

import click
import pytest
from typer.testing import CliRunner

from fedward.cli.root import COMMANDS, HIDDEN, app, load_command

VISIBLE = [name for name in COMMANDS if name not in HIDDEN]


def leaf_commands() -> list[tuple[str, click.Command]]:
    leaves: list[tuple[str, click.Command]] = []
    for name in COMMANDS:
        command = load_command(name)
        if isinstance(command, click.Group):
            leaves += [(f"{name} {sub}", leaf) for sub, leaf in command.commands.items()]
        else:
            leaves.append((name, command))
    return leaves


@pytest.mark.parametrize(("path", "command"), leaf_commands())
def test_every_command_shows_an_example_of_itself(path: str, command: click.Command) -> None:
    assert f"Example: fedward {path}" in (command.help or "")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_groups_help_shows_an_example_and_no_completion(name: str) -> None:
    command = load_command(name)
    assert f"Example: fedward {name}" in (command.help or "")
    options = {option for parameter in command.params for option in parameter.opts}
    assert not any("completion" in option for option in options)


def test_an_empty_token_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["run", "list", "--token", ""])
    assert result.exit_code == 2
    assert "--token (FEDWARD_TOKEN): it is empty" in result.stderr


@pytest.mark.parametrize(
    ("command", "looks_like"),
    [
        (["run", "show", "run-nope"], "run-01"),
        (["run", "create", "run-0k3f9a"], "64 hex digits"),
        (["model", "show", "sha256:abc"], "64 hex digits"),
        (["model", "list", "--run", "sha256:abc"], "run-01"),
    ],
)
def test_a_text_that_is_no_id_is_told_what_one_looks_like(
    command: list[str], looks_like: str
) -> None:
    result = CliRunner().invoke(app, [*command, "--token", "fw_x"])
    assert result.exit_code == 2
    assert looks_like in result.stderr


@pytest.mark.parametrize("name", VISIBLE)
def test_the_listing_says_what_the_command_itself_says(name: str) -> None:
    first = (load_command(name).help or "").splitlines()[0]
    assert first.split(";")[0].rstrip(".") == COMMANDS[name][1].rstrip(".")


def test_help_lists_the_commands_and_hides_the_demo() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for name in VISIBLE:
        assert f" {name} " in result.stdout
    assert " demo " not in result.stdout


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["fly"])
    assert result.exit_code == 2
    assert "fly" in result.stderr


@pytest.mark.parametrize(("path", "command"), leaf_commands())
def test_every_command_but_servers_prints_json(path: str, command: click.Command) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options
