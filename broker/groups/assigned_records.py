"""Records of `__consumer_offsets` that consumer, share and streams groups write in the same form.

Source: ``GroupCoordinatorRecordHelpers.java``, ``StreamsCoordinatorRecordHelpers.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ottla.broker.groups.records import GroupRecord


class AssignedRecords(NamedTuple):
    """Key and value classes of the records of one group type, with functions for those that all types write alike.

    Member, target assignment and current assignment records differ by type; here they have only tombstones.
    """

    metadata_key: type[Any]
    metadata_value: type[Any]
    target_metadata_key: type[Any]
    target_metadata_value: type[Any]
    current_assignment_key: type[Any]
    target_assignment_key: type[Any]
    member_key: type[Any]

    def epoch_record(self, group_id: str, epoch: int, metadata_hash: int, *more: Any) -> GroupRecord:
        """Return the record of a group's epoch and metadata hash; ``more``: further fields of its value."""
        return GroupRecord(self.metadata_key(group_id), self.metadata_value(epoch, metadata_hash, *more))

    def target_assignment_epoch_record(self, group_id: str, epoch: int, at_ms: int) -> GroupRecord:
        """Return the target assignment metadata record: the assignment epoch, and its time (ms since the epoch)."""
        return GroupRecord(self.target_metadata_key(group_id), self.target_metadata_value(epoch, at_ms))

    def member_tombstones(self, group_id: str, member_id: str) -> list[GroupRecord]:
        """Return the tombstones of a member's current assignment, target assignment and metadata."""
        keys = self.current_assignment_key, self.target_assignment_key, self.member_key
        return [GroupRecord(key(group_id, member_id), None) for key in keys]

    def group_tombstones(self, group_id: str, members: Iterable[str], *more: GroupRecord) -> Iterator[GroupRecord]:
        """Yield the tombstones of a group and its ``members``, in Kafka's order.

        ``more``: further tombstones, which precede that of the group metadata (epoch).
        """
        names = list(members)
        yield from (GroupRecord(self.current_assignment_key(group_id, name), None) for name in names)
        yield from (GroupRecord(self.target_assignment_key(group_id, name), None) for name in names)
        yield GroupRecord(self.target_metadata_key(group_id), None)
        yield from (GroupRecord(self.member_key(group_id, name), None) for name in names)
        yield from more
        yield GroupRecord(self.metadata_key(group_id), None)
