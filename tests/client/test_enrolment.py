"""An agent joins only the coordinator that its invite names."""

import os

import pytest

from fedward.client import agent
from fedward.client.errors import AlreadyEnrolled, EnrolmentRefused, InvalidState
from fedward.protocol import signatures


def enrol(coordinator, folder, invite=None):
    return agent.enrol(coordinator.url, invite or coordinator.invite, folder / "state")


def test_a_membership_is_kept_with_the_pinned_key(coordinator, tmp_path):
    membership = enrol(coordinator, tmp_path)
    status = agent.status(tmp_path / "state")
    assert status.membership == membership
    assert membership.coordinator_key == signatures.public_hex(coordinator.key)
    assert status.audit.size == 1
    assert (tmp_path / "state" / "agent.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_coordinator_with_another_key_is_refused(coordinator, tmp_path):
    invite = coordinator.invite
    coordinator.key = signatures.new_private_key(os.urandom(32))
    with pytest.raises(EnrolmentRefused, match="the invite names"):
        enrol(coordinator, tmp_path, invite)


def test_an_answer_that_only_quotes_the_right_key_is_refused(coordinator, tmp_path):
    coordinator.faults.append(coordinator.Fault("wrong-key", "POST", "/agent/v1/enrol"))
    with pytest.raises(EnrolmentRefused, match="not signed"):
        enrol(coordinator, tmp_path)
    assert not (tmp_path / "state" / "agent.db").exists()


def test_a_used_invite_is_told_as_the_coordinator_says_it(coordinator, tmp_path):
    other = coordinator.invite.replace(coordinator.secret, "A" * 32)
    with pytest.raises(EnrolmentRefused, match="invite-unknown"):
        enrol(coordinator, tmp_path, other)


def test_text_that_is_no_invite_is_refused_before_anything_is_sent(coordinator, tmp_path):
    with pytest.raises(EnrolmentRefused, match="expected fwi_"):
        enrol(coordinator, tmp_path, "fwi_short")
    assert coordinator.requests == []


def test_a_lost_answer_is_asked_for_again_with_the_same_key(coordinator, tmp_path):
    for kind in ("lost-answer", "gateway"):
        coordinator.faults.append(coordinator.Fault(kind, "POST", "/agent/v1/enrol"))
    enrol(coordinator, tmp_path)
    assert len(coordinator.keys) == 1


def test_a_folder_joins_once(coordinator, tmp_path):
    enrol(coordinator, tmp_path)
    with pytest.raises(AlreadyEnrolled, match="north"):
        enrol(coordinator, tmp_path)


def test_a_key_that_others_can_read_is_refused(coordinator, tmp_path):
    enrol(coordinator, tmp_path)
    (tmp_path / "state" / "agent.key").chmod(0o640)
    with pytest.raises(InvalidState, match="got mode 640"):
        agent.status(tmp_path / "state")


def test_asking_for_the_status_makes_no_new_key(coordinator, tmp_path):
    enrol(coordinator, tmp_path)
    (tmp_path / "state" / "agent.key").unlink()
    with pytest.raises(InvalidState, match="cannot prove who it is"):
        agent.status(tmp_path / "state")
    assert not (tmp_path / "state" / "agent.key").exists()


def test_plain_http_to_another_machine_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected https"):
        agent.enrol("http://fl.example.org", "fwi_x", tmp_path / "state")
