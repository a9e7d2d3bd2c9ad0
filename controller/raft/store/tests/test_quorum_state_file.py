"""``quorum-state`` file, both versions."""

from __future__ import annotations

import random

import pytest

from ottla.controller.raft.state_machine.events import HardState, ReplicaKey, VoterState
from ottla.controller.raft.store.quorum_state_file import QuorumStateFile
from ottla.env.disk import read_file
from ottla.env.memory_disk import MemoryDisk
from ottla.log.checkpoints.checkpoint_files import CorruptFile

ROWS = [
    QuorumStateFile(HardState(0), 1),
    QuorumStateFile(HardState(7, 3), 1),
    QuorumStateFile(HardState(7, -1, ReplicaKey(2, bytes([5] * 16))), 1),
    QuorumStateFile(HardState(7, -1, ReplicaKey(2)), 0, {"clusterId": "c", "appliedOffset": 4, "currentVoters": []}),
    QuorumStateFile(HardState(7, 3, None, VoterState.RECOVERING), 1),
    QuorumStateFile(HardState(1, -1, ReplicaKey(2), VoterState.EMPTY_LOG), 1),
]


@pytest.mark.parametrize("file", ROWS)
def test_quorum_state_survives_round_trip(file: QuorumStateFile) -> None:
    session = MemoryDisk(random.Random(1), lambda: 0).session()
    session.makedirs("/d")
    file.write(session, "/d/quorum-state")
    assert QuorumStateFile.read(session, "/d/quorum-state") == file


def test_quorum_state_of_normal_voter_has_no_state_field() -> None:
    """Equal to the file of Kafka, which ignores unknown fields."""
    session = MemoryDisk(random.Random(1), lambda: 0).session()
    session.makedirs("/d")
    for age, there in ((VoterState.NORMAL, False), (VoterState.RECOVERING, True)):
        QuorumStateFile(HardState(7, 3, None, age)).write(session, "/d/quorum-state")
        assert (b"age" in read_file(session, "/d/quorum-state")) is there


@pytest.mark.parametrize(
    ("state", "stored"), [(VoterState.EMPTY_LOG, b"newborn"), (VoterState.RECOVERING, b"learning")]
)
def test_quorum_state_keeps_stored_value_of_voter_state(state: VoterState, stored: bytes) -> None:
    """Files of earlier versions stay readable."""
    session = MemoryDisk(random.Random(1), lambda: 0).session()
    session.makedirs("/d")
    QuorumStateFile(HardState(7, 3, None, state)).write(session, "/d/quorum-state")
    assert b'"ottla.age":"%s"' % stored in read_file(session, "/d/quorum-state")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"leaderId":"x","leaderEpoch":1,"votedId":-1,"data_version":1}',
        b'{"leaderId":-1,"leaderEpoch":1e999,"votedId":-1,"data_version":1}',
        b'{"leaderId":-1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":7,"data_version":1}',
        b"[" * 100_000,
    ],
)
def test_quorum_state_malformed_raises_corrupt_file(text: bytes) -> None:
    session = MemoryDisk(random.Random(1), lambda: 0).session()
    session.makedirs("/d")
    session.open("/d/quorum-state", create=True).pwrite(text, 0)
    with pytest.raises(CorruptFile):
        QuorumStateFile.read(session, "/d/quorum-state")


@pytest.mark.parametrize(
    "age", [b'"old"', b'""', b"1", b"null", b"true", b"[]", b"{}", b"1e999", b'"' + b"x" * 9_000 + b'"']
)
def test_quorum_state_invalid_age_raises_corrupt_file_with_field_name(age: bytes) -> None:
    session = MemoryDisk(random.Random(1), lambda: 0).session()
    session.makedirs("/d")
    text = b'{"leaderId":-1,"leaderEpoch":1,"votedId":-1,"ottla.age":%s,"data_version":1}' % age
    session.open("/d/quorum-state", create=True).pwrite(text, 0)
    with pytest.raises(CorruptFile, match=r"^/d/quorum-state: .*ottla\.age") as caught:
        QuorumStateFile.read(session, "/d/quorum-state")
    assert len(str(caught.value)) < 120
    assert "\n" not in str(caught.value)
