"""Validation of the member epoch in heartbeats of consumer groups.

Source: ``GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.groups.consumer.consumer_group import ConsumerGroupMember, PartitionEpochs
from ottla.broker.groups.consumer.reconciliation import OwnedPartitions
from ottla.broker.groups.member_epochs import check_member_epoch


def check_epoch(member: ConsumerGroupMember, epoch: int, owned: OwnedPartitions) -> None:
    """Check that the epoch of a heartbeat is the member's, or 0 (the member joins again).

    The previous epoch is also valid if the member reports a subset of its assigned partitions: it missed a response.

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH.
    """
    if epoch != 0:
        check_member_epoch("consumer", member, epoch, lambda: _is_part(owned, member.assigned))


def _is_part(owned: OwnedPartitions, assigned: PartitionEpochs) -> bool:
    if owned is None:
        return False
    return all(row.topic_id in assigned and assigned[row.topic_id].keys() >= set(row.partitions) for row in owned)
