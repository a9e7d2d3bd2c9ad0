"""Whether a member may speak in the epoch it names.

Source: ``GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.groups.consumer.consumer_group import ConsumerGroupMember, PartitionEpochs
from ottla.broker.groups.consumer.reconciliation import OwnedPartitions
from ottla.wire.errors import ErrorCode, ProtocolError


def check_epoch(member: ConsumerGroupMember, epoch: int, owned: OwnedPartitions) -> None:
    """Whether a member speaks of its present epoch, or joins, or has not heard of the last step.

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH.
    """
    if epoch in (0, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _is_part(owned, member.assigned):
        return
    than = "greater" if epoch > member.epoch else "smaller"
    why = (
        f"The consumer group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin."
    )
    raise ProtocolError(ErrorCode.FENCED_MEMBER_EPOCH, why)


def _is_part(owned: OwnedPartitions, assigned: PartitionEpochs) -> bool:
    if owned is None:
        return False
    return all(row.topic_id in assigned and assigned[row.topic_id].keys() >= set(row.partitions) for row in owned)
