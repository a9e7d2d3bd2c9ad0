"""The ``quorum-state`` file, both versions."""

from __future__ import annotations

import random

import pytest

from ottla.controller.raft.events import HardState, ReplicaKey
from ottla.controller.raft.quorum_state import QuorumStateFile
from ottla.log.checkpoints import CorruptFile
from ottla.world.memory_disk import MemoryDisk

ROWS = [
    QuorumStateFile(HardState(0), 1),
    QuorumStateFile(HardState(7, 3), 1),
    QuorumStateFile(HardState(7, -1, ReplicaKey(2, bytes([5] * 16))), 1),
    QuorumStateFile(HardState(7, -1, ReplicaKey(2)), 0, {"clusterId": "c", "appliedOffset": 4, "currentVoters": []}),
]


@pytest.mark.parametrize("file", ROWS)
def test_quorum_state_is_read_back(file: QuorumStateFile) -> None:
    session = MemoryDisk(random.Random(1), lambda: 0).session()
    session.makedirs("/d")
    file.write(session, "/d/quorum-state")
    assert QuorumStateFile.read(session, "/d/quorum-state") == file


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"leaderId":"x","leaderEpoch":1,"votedId":-1,"data_version":1}'])
def test_a_broken_quorum_state_is_refused(text: bytes) -> None:
    session = MemoryDisk(random.Random(1), lambda: 0).session()
    session.makedirs("/d")
    session.open("/d/quorum-state", create=True).pwrite(text, 0)
    with pytest.raises(CorruptFile):
        QuorumStateFile.read(session, "/d/quorum-state")
