"""AlterPartition on the active controller: a partition leader's request to change the in-sync replicas.

Source: ``ReplicationControlManager.alterPartition`` (apache/kafka 4.3.1); KIP-497, KIP-841 (fenced brokers cannot
join), KIP-903 (nor brokers of another broker epoch), KIP-704 (recovery after an unclean election).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.metadata.image import (
    NO_LEADER_CHANGE,
    MetadataImage,
    PartitionRegistration,
    merge_partition_change,
)
from ottla.controller.partitions.leader_and_isr_updates import leader_acceptor, topic_change_rules
from ottla.controller.partitions.partition_change_builder import LEADER_RECOVERING, build_partition_change
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)

_RECOVERY_STATES = (0, LEADER_RECOVERING)
_ANY_EPOCH = -1


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, version: int, static: Mapping[str, str]
) -> ControllerResultSteps:
    """Return the records and response of AlterPartition, as a job (R-291, R-292).

    The row of a partition has the new leader, leader epoch, ISR and partition epoch, the current ones if nothing
    changes, or an error; NEW_LEADER_ELECTED if the change, which has a record then too, made another broker the leader.
    A sender that is not registered with its broker epoch gets STALE_BROKER_EPOCH for the request. ``static``: settings
    of this node's configuration.
    """
    if not request.topics:
        return ControllerResult(AlterPartitionResponse())
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return ControllerResult(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    response = AlterPartitionResponse()
    records: list[Message] = []
    for wanted in request.topics:
        yield None
        topic = image.topic_by_id(wanted.topic_id)
        rules = topic_change_rules(image, static, topic) if topic is not None else None
        rows = AlterPartitionResponseTopicData(wanted.topic_id)
        response.topics.append(rows)
        for partition in wanted.partitions:
            yield None
            row = AlterPartitionResponsePartitionData(partition.partition_index)
            rows.partitions.append(row)
            if topic is None or rules is None:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            p = topic.partitions.get(partition.partition_index)
            if version < 3 and p is not None:
                some = islice(partition.new_isr, len(p.replicas) + 1)  # a longer ISR is invalid anyway
                partition.new_isr_with_epochs = [BrokerState(i) for i in some]
            row.error_code = _error(image, request.broker_id, p, partition)
            if row.error_code != ErrorCode.NONE:
                continue
            assert p is not None
            at, isr = (topic.id, partition.partition_index), [i.broker_id for i in partition.new_isr_with_epochs]
            record = build_partition_change(
                at, p, leader_acceptor(image, p), rules, isr=isr, recovery=partition.leader_recovery_state
            )
            if record is not None:
                records.append(record)
                p = merge_partition_change(p, record)
                if record.leader not in (request.broker_id, NO_LEADER_CHANGE):
                    row.error_code = ErrorCode.NEW_LEADER_ELECTED
                    continue
            row.leader_id, row.leader_epoch, row.isr = p.leader, p.leader_epoch, list(p.isr)
            row.leader_recovery_state, row.partition_epoch = p.recovering, p.partition_epoch
    return ControllerResult(response, records)


def _error(
    image: MetadataImage, sender: int, p: PartitionRegistration | None, partition: AlterPartitionRequestPartitionData
) -> ErrorCode:
    """Return the error of a partition in AlterPartition, checked in Kafka's order (R-291); NONE for a valid change.

    ``sender``: broker id. ``p``: the partition in the image, None if unknown. NOT_CONTROLLER if the request has a newer
    leader or partition epoch than the image: there is a newer controller.
    """
    if p is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader_epoch > p.leader_epoch or partition.partition_epoch > p.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if partition.leader_epoch < p.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != p.leader:
        return ErrorCode.INVALID_REQUEST
    if partition.partition_epoch < p.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [i.broker_id for i in islice(partition.new_isr_with_epochs, len(p.replicas) + 1)]
    if not isr or len(set(isr)) < len(isr) or not set(isr) <= set(p.replicas) or p.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if partition.leader_recovery_state not in _RECOVERY_STATES:
        return ErrorCode.INVALID_REQUEST
    if partition.leader_recovery_state == LEADER_RECOVERING and (len(isr) > 1 or p.recovering != LEADER_RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, member) for member in partition.new_isr_with_epochs):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(image: MetadataImage, member: BrokerState) -> bool:
    broker = image.brokers.get(member.broker_id)
    if broker is None or broker.fenced or broker.in_controlled_shutdown:
        return False
    return member.broker_epoch in (_ANY_EPOCH, broker.broker_epoch)
