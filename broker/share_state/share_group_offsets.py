"""Replayed state of one partition of `__share_group_state`: delivery states of share partitions.

A snapshot record has the whole state of a share partition, an update record the changes since. Snapshots make earlier
records obsolete: the log may be truncated below the lowest offset still needed.

Source: ``ShareCoordinatorShard.java``, ``ShareGroupOffset.java``, ``ShareCoordinatorOffsetsManager.java`` (apache/kafka
4.3.1), KIP-932.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.broker.share_state.records import ShareRecord
from ottla.broker.share_state.state_batches import PersisterStateBatch, combine_state_batches
from ottla.wire.messages import share_state_records

UNINITIALIZED = -1
"""Start offset, or number of final records, of a share partition for which no leader has written a start offset yet."""


class SharePartitionKey(NamedTuple):
    """Key of a share partition's state: group id, topic id and partition number."""

    group_id: str
    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """State of a share partition: epochs, start offset and delivery states; times in ms since the epoch."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[PersisterStateBatch, ...]
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0


UNINITIALIZED_OFFSET = ShareGroupOffset(0, 0, 0, UNINITIALIZED, UNINITIALIZED, ())
"""State of a share partition that was never initialized."""


class SharePartitionStates:
    """States of the share partitions of one shard; only changed by `replay`."""

    def __init__(self, updates_per_snapshot: int) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self.by_key: dict[SharePartitionKey, ShareGroupOffset] = {}
        self.leader_epochs: dict[SharePartitionKey, int] = {}
        """Highest leader epoch ever written, which fences older leaders.

        ``ShareGroupOffset.leader_epoch`` is the last written.
        """
        self.state_epochs: dict[SharePartitionKey, int] = {}
        self.updates_since_snapshot: dict[SharePartitionKey, int] = {}
        """Number of update records since the last snapshot that was due by this number; others do not reset it."""
        self._snapshot_offsets: dict[SharePartitionKey, int] = {}
        """Offset of the last snapshot of each share partition; records before the lowest of them are obsolete."""
        self._first_snapshot_offset: int | None = None

    def replay(self, offset: int, record: ShareRecord) -> None:
        """Apply a record of `__share_group_state` to the states; ``offset``: its offset in the log."""
        key, value = record
        at = SharePartitionKey(key.group_id, key.topic_id, key.partition)
        if isinstance(key, share_state_records.ShareSnapshotKey):
            assert value is None or isinstance(value, share_state_records.ShareSnapshotValue)
            self._replay_snapshot(at, offset, value)
        else:
            assert isinstance(value, share_state_records.ShareUpdateValue)
            self._replay_update(at, value)

    def _replay_snapshot(
        self, at: SharePartitionKey, offset: int, value: share_state_records.ShareSnapshotValue | None
    ) -> None:
        if self._first_snapshot_offset is None:
            self._first_snapshot_offset = offset
        if value is None:
            self.by_key.pop(at, None)
            for kept in (self.leader_epochs, self.state_epochs, self.updates_since_snapshot, self._snapshot_offsets):
                kept.pop(at, None)
            if not self._snapshot_offsets:
                self._first_snapshot_offset = offset
            return
        self._raise_epochs(at, value.leader_epoch, value.state_epoch)
        self.by_key[at] = ShareGroupOffset(
            value.snapshot_epoch,
            value.state_epoch,
            value.leader_epoch,
            value.start_offset,
            value.delivery_complete_count,
            to_state_batches(value.state_batches),
            value.create_timestamp,
            value.write_timestamp,
        )
        if self.updates_since_snapshot.get(at, 0) >= self._updates_per_snapshot:
            self.updates_since_snapshot[at] = 0
        self._snapshot_offsets[at] = offset

    def _replay_update(self, at: SharePartitionKey, value: share_state_records.ShareUpdateValue) -> None:
        self._raise_epochs(at, value.leader_epoch, None)
        new = to_state_batches(value.state_batches)
        old = self.by_key.get(at)
        if old is None:
            self.by_key[at] = ShareGroupOffset(
                value.snapshot_epoch, 0, value.leader_epoch, value.start_offset, value.delivery_complete_count, new
            )
        else:
            start = old.start_offset if value.start_offset == UNINITIALIZED else value.start_offset
            self.by_key[at] = replace(
                old,
                start_offset=start,
                delivery_complete_count=value.delivery_complete_count,
                leader_epoch=old.leader_epoch if value.leader_epoch == -1 else value.leader_epoch,
                batches=tuple(combine_state_batches(old.batches, new, start)),
            )
        self.updates_since_snapshot[at] = self.updates_since_snapshot.get(at, 0) + 1

    def _raise_epochs(self, at: SharePartitionKey, leader_epoch: int, state_epoch: int | None) -> None:
        self.leader_epochs[at] = max(leader_epoch, self.leader_epochs.get(at, leader_epoch))
        if state_epoch is not None:
            self.state_epochs[at] = max(state_epoch, self.state_epochs.get(at, state_epoch))

    def is_snapshot_due(self, key: SharePartitionKey) -> bool:
        """Return True if the next write of a share partition must be a snapshot: there are enough updates since one."""
        return self.updates_since_snapshot.get(key, 0) >= self._updates_per_snapshot

    def lowest_needed_offset(self) -> int | None:
        """Return the lowest offset of the log that is needed (oldest last snapshot); None if it is 0 or unknown."""
        lowest = min(self._snapshot_offsets.values(), default=self._first_snapshot_offset)
        return lowest if lowest else None


def to_state_batches(
    rows: list[share_state_records.ShareSnapshotValueStateBatch] | list[share_state_records.ShareUpdateValueStateBatch],
) -> tuple[PersisterStateBatch, ...]:
    """Return the state batches of a snapshot or update record as `PersisterStateBatch`."""
    return tuple(
        PersisterStateBatch(row.first_offset, row.last_offset, row.delivery_count, row.delivery_state) for row in rows
    )


def snapshot_record(key: SharePartitionKey, state: ShareGroupOffset) -> ShareRecord:
    """Return the snapshot record with the whole state of a share partition."""
    rows = [
        share_state_records.ShareSnapshotValueStateBatch(
            b.first_offset, b.last_offset, b.delivery_state, b.delivery_count
        )
        for b in state.batches
    ]
    value = share_state_records.ShareSnapshotValue(
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.delivery_complete_count,
        state.create_timestamp_ms,
        state.write_timestamp_ms,
        rows,
    )
    return ShareRecord(share_state_records.ShareSnapshotKey(*key), value)


def update_record(key: SharePartitionKey, state: ShareGroupOffset) -> ShareRecord:
    """Return an update record with the fields of ``state``, of which ``batches`` are only those to change."""
    rows = [
        share_state_records.ShareUpdateValueStateBatch(
            b.first_offset, b.last_offset, b.delivery_state, b.delivery_count
        )
        for b in state.batches
    ]
    value = share_state_records.ShareUpdateValue(
        state.snapshot_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count, rows
    )
    return ShareRecord(share_state_records.ShareUpdateKey(*key), value)


def tombstone_record(key: SharePartitionKey) -> ShareRecord:
    """Return the tombstone that deletes the state of a share partition."""
    return ShareRecord(share_state_records.ShareSnapshotKey(*key), None)
