"""Committed offsets of a partition of `__consumer_offsets`: replay, lookup and records.

Also the validation of commits to classic groups; for consumer and streams groups it is in `offset_validation`.

A committed offset is stored as packed bytes under group, topic and partition: a node may hold a million of them.

Source: ``OffsetMetadataManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.broker.groups.classic.classic_group import ClassicGroup, ClassicGroupState
from ottla.broker.groups.pending_offsets import GroupTopicPartition, PendingTransactionalOffsets
from ottla.broker.groups.records import GroupRecord
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import offset_records

INVALID_OFFSET = -1
_FIXED_FIELDS = struct.Struct(">qiqqq16s")
_RECORD_OFFSET = struct.Struct(">q")
_RECORD_OFFSET_POSITION = 28
_NONE: Mapping[int, bytes] = {}


class OffsetToCommit(NamedTuple):
    """Offset to commit for a partition, from an OffsetCommit or TxnOffsetCommit request, with its resolved topic id."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class OffsetAndMetadata(NamedTuple):
    """Committed offset. Times in ms since the epoch; ``expire_ms`` is -1 where `offsets.retention.minutes` applies."""

    offset: int
    leader_epoch: int
    """Leader epoch of the last consumed record; -1 if the client gave none."""
    commit_ms: int
    expire_ms: int
    record_offset: int
    """Offset of the commit's record in `__consumer_offsets`."""
    topic_id: bytes
    metadata: str


def pack_offset(value: offset_records.OffsetCommitValue, lies_at: int) -> bytes:
    """Return a committed offset packed in bytes; ``lies_at``: the offset of its record in `__consumer_offsets`."""
    times = value.commit_timestamp, value.expire_timestamp
    fixed = _FIXED_FIELDS.pack(value.offset, value.leader_epoch, *times, lies_at, value.topic_id)
    return fixed + value.metadata.encode("utf-8", "surrogatepass") if value.metadata else fixed


def unpack_offset(raw: bytes) -> OffsetAndMetadata:
    """Return the committed offset that `pack_offset` packed."""
    return OffsetAndMetadata._make(
        (*_FIXED_FIELDS.unpack_from(raw), raw[_FIXED_FIELDS.size :].decode("utf-8", "surrogatepass"))
    )


class CommittedOffsets:
    """Committed and pending transactional offsets of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._stored: dict[str, dict[str, dict[int, bytes]]] = {}
        self.pending = PendingTransactionalOffsets()

    def replay(
        self, offset: int, key: offset_records.OffsetCommitKey, value: offset_records.OffsetCommitValue | None
    ) -> None:
        """Replay an offset commit record: store the committed offset.

        None as ``value`` is a tombstone: committed and pending offsets of the partition are removed. ``offset``: the
        record's offset in the log.
        """
        if value is None:
            self._remove(key.group, key.topic, key.partition)
            self.pending.remove(GroupTopicPartition(key.group, key.topic, key.partition))
            return
        self._store(key.group, key.topic, key.partition, pack_offset(value, offset))

    def replay_pending(
        self,
        offset: int,
        producer_id: int,
        key: offset_records.OffsetCommitKey,
        value: offset_records.OffsetCommitValue | None,
    ) -> None:
        """Replay an offset commit record of an open transaction: store a pending offset of the producer.

        None as ``value`` is a tombstone, which takes effect at once, as in `replay`.
        """
        if value is None:
            self.replay(offset, key, None)
        else:
            self.pending.add(
                producer_id, GroupTopicPartition(key.group, key.topic, key.partition), pack_offset(value, offset)
            )

    def replay_end(self, producer_id: int, *, commits: bool) -> None:
        """Replay a transaction marker: on commit, store the producer's pending offsets; on abort, discard them.

        A pending offset is not stored where a later record committed another offset.
        """
        for where, raw in self.pending.pop(producer_id).items():
            known = self.topic_offsets(where.group, where.topic).get(where.partition)
            if commits and (known is None or _record_offset(known) < _record_offset(raw)):
                self._store(*where, raw)

    def _store(self, group: str, topic: str, partition: int, raw: bytes) -> None:
        topics = self._stored.get(group)
        if topics is None:
            topics = self._stored[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[sys.intern(topic)] = {}  # one string object for all groups that commit to the topic
        partitions[partition] = raw

    def _remove(self, group: str, topic: str, partition: int) -> None:
        topics = self._stored.get(group)
        partitions = topics.get(topic) if topics is not None else None
        if topics is None or partitions is None:
            return
        partitions.pop(partition, None)
        if partitions:
            return
        del topics[topic]
        if not topics:
            del self._stored[group]

    def get(self, group: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        """Return the offset that a group has committed for a partition, with its metadata; None if there is none."""
        raw = self.topic_offsets(group, topic).get(partition)
        return None if raw is None else unpack_offset(raw)

    def topic_offsets(self, group: str, topic: str) -> Mapping[int, bytes]:
        """Return a group's committed offsets in a topic: partition -> packed bytes (see `unpack_offset`).

        Empty if there are none. It is no copy: it changes with the state.
        """
        topics = self._stored.get(group)
        return _NONE if topics is None else topics.get(topic, _NONE)

    def group_offsets(self, group: str) -> Mapping[str, Mapping[int, bytes]]:
        """Return all committed offsets of a group: topic -> partition -> packed bytes (see `unpack_offset`).

        It is no copy: it changes with the state.
        """
        return self._stored.get(group, {})

    def groups(self) -> list[str]:
        """Return the ids of all groups with committed offsets."""
        return list(self._stored)

    def tombstones(self, group: str) -> Iterator[GroupRecord]:
        """Yield the tombstones of all offsets of a group, pending transactional ones included.

        Offsets may be removed while the iterator is in use.
        """
        for topic, partitions in list(self.group_offsets(group).items()):
            for partition in list(partitions):
                yield offset_tombstone(group, topic, partition)
        for topic, partition in self.pending.group_partitions(group):
            if partition not in self.topic_offsets(group, topic):
                yield offset_tombstone(group, topic, partition)

    def has_offset(self, group: str, topic: str, partition: int) -> bool:
        """Return True if the group has a committed or a pending transactional offset of the partition."""
        return partition in self.topic_offsets(group, topic) or partition in self.pending.producers_by_partition(
            group, topic
        )


def offset_tombstone(group: str, topic: str, partition: int) -> GroupRecord:
    """Return the record that deletes a group's committed offset of a partition, and pending transactional ones."""
    return GroupRecord(offset_records.OffsetCommitKey(group, topic, partition), None)


def _record_offset(raw: bytes) -> int:
    """Return the offset in `__consumer_offsets` of the record of a packed committed offset."""
    at: int = _RECORD_OFFSET.unpack_from(raw, _RECORD_OFFSET_POSITION)[0]
    return at


def validate_offset_commit(
    group: ClassicGroup | None,
    member_id: str,
    instance_id: str | None,
    generation: int,
    version: int,
    *,
    txn: bool = False,
) -> None:
    """Check that an OffsetCommit or, with ``txn``, a TxnOffsetCommit may commit offsets of a classic group.

    A request without a generation is a simple consumer's and allowed only while the group has no members. Within a
    transaction, an older producer may omit generation, member id and instance id; a pending rebalance is ignored there.

    Args:
        group: the group; None if it does not exist: it may then be created by a commit without a generation.
        member_id: member id of the request; may be empty.
        instance_id: ``group.instance.id`` of the request; None for a dynamic member.
        generation: generation of the request; negative if omitted.
        version: API version of the request, on which the error code for a missing group depends.
        txn: True for TxnOffsetCommit.

    Raises:
        ProtocolError: ILLEGAL_GENERATION, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
            REBALANCE_IN_PROGRESS while the leader's assignment is awaited: the error code of the response.
    """
    if group is None:
        if generation >= 0:
            known = version < 9 or txn
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION if known else ErrorCode.GROUP_ID_NOT_FOUND)
        return
    if generation < 0 and group.state is ClassicGroupState.EMPTY:
        return
    if generation >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        if generation != group.generation:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
    elif not txn:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is ClassicGroupState.COMPLETING_REBALANCE and not txn:
        raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)


def offset_commit_records(
    group_id: str, offsets: Iterable[OffsetToCommit], now_ms: int, expire_ms: int
) -> Iterator[GroupRecord]:
    """Yield the records of `__consumer_offsets` that commit offsets of a group, one for each partition.

    ``now_ms``: commit time; ``expire_ms``: time at which the offsets expire, -1 if `offsets.retention.minutes` applies
    (both in ms since the epoch).
    """
    for new in offsets:
        yield GroupRecord(
            offset_records.OffsetCommitKey(group_id, new.topic, new.partition),
            offset_records.OffsetCommitValue(
                new.offset,
                new.leader_epoch,
                new.metadata,
                now_ms,
                expire_ms,
                ZERO_UUID if expire_ms != -1 else new.topic_id,
            ),
        )
