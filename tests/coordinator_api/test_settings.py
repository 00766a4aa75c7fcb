import os
from pathlib import Path

import pytest

from fedward.coordinator.keys import InvalidKey, load_or_create_seed
from fedward.coordinator.settings import (
    InvalidSettings,
    Settings,
    load_settings,
    require_safe_address,
)


def test_flags_win_over_environment_and_environment_over_file(tmp_path):
    file = tmp_path / "coordinator.toml"
    file.write_text('data = "from-file"\nport = 1\nhost = "127.0.0.2"\n')
    env = {"FEDWARD_PORT": "2", "FEDWARD_HOST": "127.0.0.3", "FEDWARD_URL": "http://ignored"}
    settings = load_settings(file, env=env, flags={"port": 3, "data": None})
    assert (settings.data, settings.port, settings.host) == (Path("from-file"), 3, "127.0.0.3")


def test_a_bad_value_is_named_with_its_source_and_key(tmp_path):
    file = tmp_path / "coordinator.toml"
    file.write_text('data = "d"\nport = 70000\ncolour = "blue"\n')
    with pytest.raises(InvalidSettings) as caught:
        load_settings(file, env={}, flags={})
    assert f"{file}: port: " in caught.value.detail
    assert f"{file}: colour: unknown setting" in caught.value.detail


def test_a_file_that_is_no_toml_is_named(tmp_path):
    file = tmp_path / "coordinator.toml"
    file.write_text("data = ")
    with pytest.raises(InvalidSettings, match=str(file)):
        load_settings(file, env={}, flags={})
    with pytest.raises(InvalidSettings, match="absent"):
        load_settings(tmp_path / "absent", env={}, flags={})


def test_a_missing_data_folder_is_said():
    with pytest.raises(InvalidSettings, match="data: "):
        load_settings(env={}, flags={})


def test_half_a_tls_setting_is_refused():
    with pytest.raises(InvalidSettings, match="tls_cert and tls_key belong together"):
        load_settings(env={}, flags={"data": "d", "tls_cert": "c.pem"})


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "::", "hospital.example"])  # noqa: S104
def test_plain_http_on_an_address_that_others_reach_is_refused(host):
    with pytest.raises(InvalidSettings, match="plain HTTP on"):
        load_settings(env={}, flags={"data": "d", "host": host})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_plain_http_on_loopback_is_served(host):
    require_safe_address(Settings(data=Path("d"), host=host))


def test_tls_or_a_proxy_makes_another_address_safe():
    require_safe_address(Settings(data=Path("d"), host="192.168.0.7", behind_proxy=True))
    require_safe_address(
        Settings(data=Path("d"), host="192.168.0.7", tls_cert=Path("c"), tls_key=Path("k"))
    )


def test_trusted_proxies_come_as_a_list_from_the_environment():
    env = {"FEDWARD_TRUSTED_PROXIES": "10.0.0.1,10.0.0.2", "FEDWARD_DATA": "d"}
    assert load_settings(env=env, flags={}).trusted_proxies == ("10.0.0.1", "10.0.0.2")


def test_the_key_is_made_once_and_is_readable_by_the_owner_only(tmp_path):
    path = tmp_path / "keys" / "coordinator.key"
    first = load_or_create_seed(path, token_bytes=lambda size: b"k" * size)
    again = load_or_create_seed(path, token_bytes=lambda size: b"x" * size)
    assert first == again == b"k" * 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [child.name for child in path.parent.iterdir()] == ["coordinator.key"]


def test_a_key_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "coordinator.key"
    load_or_create_seed(path, token_bytes=os.urandom)
    path.chmod(0o640)
    with pytest.raises(InvalidKey, match="got mode 640, expected 600"):
        load_or_create_seed(path, token_bytes=os.urandom)


@pytest.mark.parametrize("content", ["", "zz", "ab" * 31, "ab" * 33])
def test_a_malformed_key_is_refused_and_not_replaced(tmp_path, content):
    path = tmp_path / "coordinator.key"
    path.touch(mode=0o600)
    path.write_text(content)
    with pytest.raises(InvalidKey, match="expected"):
        load_or_create_seed(path, token_bytes=os.urandom)
    assert path.read_text() == content
