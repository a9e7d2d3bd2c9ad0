"""Control records of the quorum in the metadata log, by offset: KRaftVersionRecord and VotersRecord (R-201).

Source: ``KRaftControlRecordStateMachine.java``, ``VoterSetHistory.java`` (apache/kafka 4.3.1; KIP-853).
"""

from __future__ import annotations

from msgspec.structs import replace

from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.raft.state_machine.events import ReplicaKey
from ottla.controller.raft.state_machine.log_summary import VoterSetHistory, voter_keys, voter_needs_update
from ottla.wire.codec.schema import Message
from ottla.wire.messages.control_records import Endpoint, KRaftVersionRecord, VotersRecord

BOOTSTRAP_OFFSET = -1
"""Offset of records from the snapshot (0, 0), before any in the log."""


class QuorumRecords:
    """kraft.version and VotersRecords in snapshot and log by offset; the last ones are in force, committed or not."""

    def __init__(
        self, kraft_version: int = 0, voters: VotersRecord | None = None, offset: int = BOOTSTRAP_OFFSET
    ) -> None:
        self._kraft_versions = [(offset, kraft_version)]
        self._voters = [(offset, voters)]

    @property
    def kraft_version(self) -> int:
        """kraft.version: 0 if the voters are fixed by configuration, 1 if they are in a VotersRecord."""
        return self._kraft_versions[-1][1]

    @property
    def voters(self) -> VotersRecord | None:
        """Current VotersRecord, with endpoints; None while the voters are fixed by configuration."""
        return self._voters[-1][1]

    def as_of(self, end_offset: int) -> tuple[int, VotersRecord | None]:
        """Return kraft.version and VotersRecord (or None) below an offset, as a snapshot there has them (R-231)."""
        level = next((v for at, v in reversed(self._kraft_versions) if at < end_offset), self._kraft_versions[0][1])
        return level, next((v for at, v in reversed(self._voters) if at < end_offset), self._voters[0][1])

    def replay(self, offset: int, record: Message | None) -> None:
        """Replay a control record at ``offset``; only KRaftVersionRecord and VotersRecord have an effect."""
        match record:
            case KRaftVersionRecord():
                self._kraft_versions.append((offset, record.k_raft_version))
            case VotersRecord():
                self._voters.append((offset, record))

    def truncate(self, offset: int) -> None:
        """Remove records at and above ``offset``: the previous ones are in force again (R-224)."""
        self._kraft_versions = [x for x in self._kraft_versions if x[0] < offset] or self._kraft_versions[:1]
        self._voters = [x for x in self._voters if x[0] < offset] or self._voters[:1]

    def voter_history(self, fixed: list[ReplicaKey]) -> VoterSetHistory:
        """Return the voter sets for the Raft state machine; ``fixed`` are the voters until the first VotersRecord."""
        first = self._voters[0][1]
        out = VoterSetHistory(fixed if first is None else voter_keys(first), first, self._voters[0][0])
        for offset, record in self._voters[1:]:
            assert record is not None
            out.add(offset, voter_keys(record), record)
        return out

    def records_for_new_leader(self, me: ReplicaKey, endpoints: tuple[ListenerEndpoint, ...]) -> tuple[Message, ...]:
        """Return the control records that ``me`` appends after LeaderChangeMessage as a new leader (R-243), maybe none.

        These are kraft.version and voters while they are only in the bootstrap snapshot, or if this node's
        ``endpoints`` in the voters have changed.
        """
        offset, voters = self._voters[-1]
        if voters is None or self.kraft_version < 1:
            return ()
        here = [Endpoint(*e) for e in endpoints]
        mine = next((v for v in voters.voters if (v.voter_id, v.voter_directory_id) == me), None)
        moved = mine is not None and bool(here) and voter_needs_update([mine], replace(mine, endpoints=here))
        if offset != BOOTSTRAP_OFFSET and not moved:
            return ()
        rows = [replace(v, endpoints=here) if moved and v is mine else v for v in voters.voters]
        return KRaftVersionRecord(0, self.kraft_version), VotersRecord(voters.version, rows)
