"""agent.toml: what is wrong is said by file and key; what is right is resolved."""

from pathlib import Path

import pytest

from fedward.client.errors import InvalidSettings
from fedward.client.settings import load_settings

GOOD = 'coordinator = "https://fl.example.org"\nsite = "north"\nstate = "state"\n'


def load(folder: Path, text: str):
    (folder / "agent.toml").write_text(text)
    return load_settings(folder / "agent.toml")


def test_defaults_accept_recipes_and_no_bundle(tmp_path):
    settings = load(tmp_path, GOOD)
    assert settings.accept.recipes == ["tabular"]
    assert settings.accept.apps == []
    assert settings.device == "auto"


def test_paths_count_from_the_files_folder(tmp_path):
    text = GOOD + '[network]\nca_file = "ca.pem"\n[datasets.ehr]\npath = "/data/ehr.csv"\n'
    settings = load(tmp_path, text)
    assert settings.state == tmp_path / "state"
    assert settings.network.ca_file == tmp_path / "ca.pem"
    assert settings.datasets["ehr"].path == Path("/data/ehr.csv")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD + "colour = 1", "colour: Extra inputs"),
        (GOOD.replace("north", "Nörth"), "site: String should match"),
        (GOOD + "[network]\npoll_s = 99", "network.poll_s: .*got 99"),
        (GOOD + "[datasets.ehr.node_config]\na = [1]", "datasets.ehr.node_config.a"),
        (GOOD + 'device = "tpu"', "device"),
        (GOOD.replace("https", "http"), "got plain http to fl.example.org, expected https"),
        (GOOD.replace("https://fl.example.org", "fl.example.org"), "expected an address like"),
        ("site = ", "agent.toml: Invalid value"),
    ],
)
def test_a_bad_key_is_named(tmp_path, text, told):
    with pytest.raises(
        InvalidSettings, match=f"(?s)agent.toml: .*{told}" if "agent" not in told else told
    ):
        load(tmp_path, text)


def test_all_bad_keys_are_told_at_once(tmp_path):
    with pytest.raises(InvalidSettings) as told:
        load(tmp_path, 'site = "?"\nlimits = {task_s = -1}')
    for key in ("coordinator", "site", "state", "limits.task_s"):
        assert f"agent.toml: {key}: " in str(told.value)


def test_plain_http_is_for_this_machine_or_on_purpose(tmp_path):
    for host in ("127.0.0.1:8470", "localhost", "[::1]:8470"):
        load(tmp_path, GOOD.replace("https://fl.example.org", f"http://{host}"))
    plain = GOOD.replace("https", "http") + "[network]\ninsecure_plain_http = true"
    assert load(tmp_path, plain).network.insecure_plain_http


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidSettings, match=r"agent\.toml"):
        load_settings(tmp_path / "agent.toml")
