"""Summary of the metadata log for the Raft state machine: offsets, leader epochs, snapshots and voter sets.

The records themselves are stored by the driver.

Source: ``LeaderEpochFileCache.java``, ``RaftLog.java``, ``VoterSetHistory.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from ottla.controller.raft.state_machine.events import ReplicaKey
from ottla.wire.messages.control_records import VotersRecord, VotersRecordVoter


class LogSummary:
    """Start offset, end offset (exclusive), epoch start offsets and snapshots of the metadata log.

    ``epochs``: (epoch, offset of its first record), ascending; ``snapshots``: ids (end offset, epoch).
    """

    def __init__(
        self,
        end: int = 0,
        epochs: Iterable[tuple[int, int]] = (),
        start: int = 0,
        snapshots: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.start_offset = start
        self.end_offset = end
        self._epochs: list[int] = []
        self._epoch_start_offsets: list[int] = []
        for epoch, offset in epochs:
            self._epochs.append(epoch)
            self._epoch_start_offsets.append(offset)
        self.snapshots = sorted(s for s in snapshots if s[0] > 0)
        """Snapshot ids (end offset, epoch), oldest first; (0, 0) is never served to other nodes (R-236)."""

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record; else of the newest snapshot; 0 for an empty log without one (R-217, R-222)."""
        if self._epochs:
            return self._epochs[-1]
        return self.snapshots[-1][1] if self.snapshots else 0

    def append(self, epoch: int, count: int) -> int:
        """Count ``count`` records of ``epoch`` as appended; return the offset of the first one."""
        assert count > 0
        assert epoch >= self.last_epoch, "epochs never go back in a log"
        if not self._epochs or self._epochs[-1] < epoch:
            self._epochs.append(epoch)
            self._epoch_start_offsets.append(self.end_offset)
        first, self.end_offset = self.end_offset, self.end_offset + count
        return first

    def truncate(self, offset: int) -> None:
        """Drop all records at and above ``offset`` from the summary, and their epochs."""
        keep = bisect_left(self._epoch_start_offsets, offset)
        del self._epochs[keep:], self._epoch_start_offsets[keep:]
        self.end_offset = min(self.end_offset, offset)

    def truncate_to_snapshot(self, offset: int, epoch: int) -> None:
        """Drop all records: the log starts and ends at the end offset ``offset`` of a snapshot, the only one now."""
        self.start_offset = self.end_offset = offset
        self._epochs, self._epoch_start_offsets = [], []
        self.snapshots = [(offset, epoch)]

    def advance_start(self, start: int, snapshots: Iterable[tuple[int, int]]) -> None:
        """Set the log start offset after records were deleted below it, and the ids of existing snapshots (R-232)."""
        self.start_offset = start
        self.snapshots = sorted(s for s in snapshots if s[0] > 0)
        first = bisect_right(self._epoch_start_offsets, start) - 1
        if first > 0:
            del self._epochs[:first], self._epoch_start_offsets[:first]
        if self._epoch_start_offsets:
            self._epoch_start_offsets[0] = max(self._epoch_start_offsets[0], start)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, exclusive end offset) of the largest epoch in the log that is not above ``epoch``.

        If the log has none, the epoch is that of the newest snapshot with an epoch not above ``epoch`` (0 without one),
        and the offset that of the first record, or the log end offset of an empty log.
        """
        at = bisect_right(self._epochs, epoch)
        end = self._epoch_start_offsets[at] if at < len(self._epoch_start_offsets) else self.end_offset
        if at == 0:
            first = min(self._epoch_start_offsets[0], self.end_offset) if self._epoch_start_offsets else self.end_offset
            below = [s for s in self.snapshots if s[1] <= epoch]
            return (below[-1][1] if below else 0), first
        return self._epochs[at - 1], end

    def validate_offset_and_epoch(self, offset: int, last_epoch: int) -> tuple[str, tuple[int, int]]:
        """Compare a follower's log, which ends at ``offset`` in epoch ``last_epoch``, with this log (R-218).

        Returns:
            ("valid", ...); ("diverging", (epoch, end offset)) to which the follower truncates; or
                ("snapshot", (end offset, epoch)) that it loads.
        """
        if offset == 0 and self.snapshots:
            return "snapshot", self.snapshots[-1]
        if offset == 0 and self.start_offset == 0:
            return "valid", (0, 0)
        if self.snapshots:
            first_offset, first_epoch = self.snapshots[0]
            below = offset < self.start_offset or last_epoch < first_epoch
            if below or (offset == self.start_offset == first_offset and last_epoch != first_epoch):
                return "snapshot", self.snapshots[-1]
        epoch, end = self.end_offset_for_epoch(last_epoch)
        if epoch != last_epoch or end < offset:
            return "diverging", (epoch, end)
        return "valid", (epoch, end)


class VoterSetHistory:
    """Voter sets in the log by offset; the last one is in force, committed or not (R-201)."""

    def __init__(self, voters: Iterable[ReplicaKey], record: VotersRecord | None = None, offset: int = -1) -> None:
        """Create a history with one voter set.

        ``record``: its VotersRecord, None if the voters are from the settings. ``offset``: end offset of the snapshot
        with which the set is loaded, minus 1; -1 for the snapshot (0, 0) and without a snapshot.
        """
        self._sets: list[tuple[int, tuple[ReplicaKey, ...], VotersRecord | None]] = [(offset, tuple(voters), record)]

    @property
    def current(self) -> tuple[ReplicaKey, ...]:
        """Id and directory id of each voter in the latest voter set of the log, committed or not."""
        return self._sets[-1][1]

    @property
    def previous(self) -> tuple[ReplicaKey, ...]:
        """Voters before the last change, committed or not; empty without a change.

        Changes count since the last loaded snapshot, or since the voters of the settings.
        """
        return self._sets[-2][1] if len(self._sets) > 1 else ()

    @property
    def offset(self) -> int:
        """Offset in the log of the current VotersRecord, committed or not.

        For a set that was loaded with a snapshot (also voters from the settings) it is the snapshot's end offset - 1,
        so -1 for the bootstrap snapshot; -1 also for voters from the settings without a snapshot.
        """
        return self._sets[-1][0]

    @property
    def record(self) -> VotersRecord | None:
        """Current VotersRecord, with endpoints; None while the settings define the voters (kraft.version 0)."""
        return self._sets[-1][2]

    @property
    def kraft_version(self) -> int:
        """kraft.version: 1 if the voters are defined by a VotersRecord, else 0 (R-237)."""
        return 0 if self.record is None else 1

    @property
    def majority_size(self) -> int:
        """Number of voters in a majority (R-206)."""
        return len(self.current) // 2 + 1

    def add(self, offset: int, voters: Iterable[ReplicaKey], record: VotersRecord | None = None) -> None:
        """Add the voter set of a VotersRecord appended at ``offset``."""
        assert offset > self._sets[-1][0]
        self._sets.append((offset, tuple(voters), record))

    def truncate(self, offset: int) -> None:
        """Remove the voter sets at and above ``offset``: the previous one is in force again (R-224)."""
        while len(self._sets) > 1 and self._sets[-1][0] >= offset:
            self._sets.pop()

    def find_voter(self, replica_id: int) -> ReplicaKey | None:
        """Return the key of the voter with that node id; None if it is no voter."""
        return next((v for v in self.current if v.id == replica_id), None)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Return True if ``key`` is a voter in force; a voter without a directory id matches any directory."""
        return any(v.identifies(key) for v in self.current)


def voter_keys(record: VotersRecord) -> list[ReplicaKey]:
    """Return the replica key (node id and directory id) of each voter in a VotersRecord."""
    return [ReplicaKey(v.voter_id, v.voter_directory_id) for v in record.voters]


def voter_needs_update(voters: list[VotersRecordVoter], entry: VotersRecordVoter) -> bool:
    """Return True if the voter set's entry of a replica has other endpoints or kraft.versions than its own ``entry``.

    False if the replica is no voter. Source: ``VoterSet.voterNodeNeedsUpdate``.
    """
    key = ReplicaKey(entry.voter_id, entry.voter_directory_id)
    known = next((v for v in voters if ReplicaKey(v.voter_id, v.voter_directory_id).identifies(key)), None)
    return known is not None and _comparable(known) != _comparable(entry)


def _comparable(voter: VotersRecordVoter) -> tuple[bytes, object, dict[str, tuple[str, int]]]:
    places = {e.name.upper(): (e.host.lower(), e.port) for e in voter.endpoints}
    return voter.voter_directory_id, voter.k_raft_version_feature, places
