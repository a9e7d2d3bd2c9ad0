"""The ``quorum-state`` file of a Raft replica: epoch, leader and vote, durable before any message that depends on them.

Source: ``FileQuorumStateStore.java`` and its schema ``QuorumStateData`` (apache/kafka 4.3.1).

From KIP-595; without the voters from version 1 on: KIP-853.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ottla.controller.raft.state_machine.events import NO_NODE_ID, HardState, ReplicaKey, VoterState
from ottla.env.disk import Disk, read_file, write_file
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.wire.codec.primitives import uuid_from_string, uuid_to_string
from ottla.wire.codec.schema import ZERO_UUID

QUORUM_STATE = "quorum-state"
_VOTER_STATE_FIELD = "ottla.age"
"""Field with the voter state, present while it is not NORMAL; Kafka ignores the field, and does not write it again."""
_STORED_STATES = {VoterState.NORMAL: "grown", VoterState.EMPTY_LOG: "newborn", VoterState.RECOVERING: "learning"}
"""Value of the field for each state; the values stay, as they are in files of earlier versions."""
_PRESERVED_FIELDS = ("clusterId", "appliedOffset", "currentVoters")


def _voter_state_of(values: dict[str, Any]) -> VoterState:
    """Return the stored `VoterState` (recovery after the loss of a disk), by default NORMAL."""
    text = values.get(_VOTER_STATE_FIELD, _STORED_STATES[VoterState.NORMAL])
    found = next((state for state, stored in _STORED_STATES.items() if stored == text), None)
    if found is None:
        raise ValueError(f"{_VOTER_STATE_FIELD} is {str(text)[:40]!r}")
    return found


@dataclass(slots=True)
class QuorumStateFile:
    """Content of quorum-state; version 0 (kraft.version 0) has no directory ids, and its other fields are preserved.

    ``existed``: False if there was no file at start.
    """

    hard_state: HardState = field(default_factory=lambda: HardState(0))
    data_version: int = 1
    preserved_fields: dict[str, Any] = field(default_factory=dict)
    existed: bool = True

    @classmethod
    def read(cls, disk: Disk, path: str) -> QuorumStateFile:
        """Return the content of the file; without one, the epoch is 0 and ``existed`` is False.

        Raises:
            CorruptFile: the content is not a quorum-state.
        """
        if not disk.exists(path):
            return cls(existed=False)
        try:
            values = json.loads(read_file(disk, path))
            version = int(values["data_version"])
            voted = None
            if int(values["votedId"]) != NO_NODE_ID:
                directory = uuid_from_string(values["votedDirectoryId"]) if version > 0 else ZERO_UUID
                voted = ReplicaKey(int(values["votedId"]), directory)
            hard = HardState(int(values["leaderEpoch"]), int(values["leaderId"]), voted, _voter_state_of(values))
            return cls(hard, version, {k: values[k] for k in _PRESERVED_FIELDS if k in values})
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise CorruptFile(f"{path}: {error!r}") from None

    def update(self, hard: HardState, kraft_version: int, voter_ids: list[int]) -> None:
        """Set the content in memory for the next `write`; ``voter_ids`` are written for kraft.version 0 only."""
        self.hard_state, self.data_version = hard, min(kraft_version, 1)
        if self.data_version == 0:
            self.preserved_fields["currentVoters"] = [{"voterId": voter_id} for voter_id in voter_ids]

    def write(self, disk: Disk, path: str) -> None:
        """Write the file atomically: temporary file, fsync, rename; waits for the disk (R-202)."""
        hard = self.hard_state
        voted = ReplicaKey(NO_NODE_ID) if hard.voted_key is None else hard.voted_key
        values: dict[str, Any] = {"leaderId": hard.leader_id, "leaderEpoch": hard.epoch, "votedId": voted.id}
        if self.data_version == 0:
            values = {"clusterId": self.preserved_fields.get("clusterId", ""), **values}
            values["appliedOffset"] = self.preserved_fields.get("appliedOffset", 0)
            values["currentVoters"] = self.preserved_fields.get("currentVoters", [])
        else:
            values["votedDirectoryId"] = uuid_to_string(voted.directory_id)
        if hard.voter_state != VoterState.NORMAL:
            values[_VOTER_STATE_FIELD] = _STORED_STATES[hard.voter_state]
        values["data_version"] = self.data_version
        write_file(disk, path, json.dumps(values, separators=(",", ":")).encode())
