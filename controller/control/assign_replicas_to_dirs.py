"""AssignReplicasToDirs: a broker's assignment of replicas to its log directories.

Source: ``ReplicationControlManager.handleAssignReplicasToDirs`` (apache/kafka 4.3.1; KIP-858).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.metadata.image import MetadataImage, TopicImage
from ottla.controller.partitions.leader_and_isr_updates import (
    leader_acceptor,
    leader_and_isr_updates,
    topic_change_rules,
)
from ottla.controller.partitions.partition_change_builder import PartitionElection, build_partition_change
from ottla.jobs.job import Job
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)


def _row_error(topic: TopicImage | None, number: int, broker_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if number not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in topic.partitions[number].replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def assign_replicas_to_dirs(
    image: MetadataImage, request: AssignReplicasToDirsRequest, static: Mapping[str, str]
) -> ControllerResultSteps:
    """Return the records and response of AssignReplicasToDirs, as a job (R-302); each partition has its own error.

    If a directory is not among the broker's online ones, the broker also leaves the ISR of the partitions there, except
    as the last member if ELRs are disabled and no unclean election replaces it; those that it leads get another leader,
    or none. A broker epoch that is not the current one gets STALE_BROKER_EPOCH for the request.
    """
    broker_id, broker = request.broker_id, image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return ControllerResult(AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    response = AssignReplicasToDirsResponse()
    records: list[Message] = []
    lost: set[tuple[bytes, int]] = set()
    for directory in request.directories:
        yield None
        out = AssignReplicasToDirsResponseDirectoryData(directory.id)
        response.directories.append(out)
        for wanted in directory.topics:
            yield None
            topic = image.topic_by_id(wanted.topic_id)
            rules = topic_change_rules(image, static, topic) if topic is not None else None
            rows = AssignReplicasToDirsResponseTopicData(wanted.topic_id)
            out.topics.append(rows)
            for part in wanted.partitions:
                yield None
                number = part.partition_index
                error = _row_error(topic, number, broker_id)
                rows.partitions.append(AssignReplicasToDirsResponsePartitionData(number, error))
                if error != ErrorCode.NONE:
                    continue
                assert topic is not None
                assert rules is not None
                p = topic.partitions[number]
                at = (topic.id, number)
                where = {broker_id: directory.id}
                record = build_partition_change(
                    at, p, leader_acceptor(image, p), rules, election=PartitionElection.ONLINE, directories=where
                )
                if record is not None:
                    records.append(record)
                if directory.id not in broker.log_dirs:
                    lost.add(at)
    records += yield from _remove_from_isr_records(image, static, broker_id, lost)
    return ControllerResult(response, records)


def _remove_from_isr_records(
    image: MetadataImage, static: Mapping[str, str], broker_id: int, lost: set[tuple[bytes, int]]
) -> Job[list[Message]]:
    """Return the records that remove a broker from the ISR of ``lost``, as a job, by `leader_and_isr_updates`.

    ``lost``: topic id and number of the partitions that the broker has assigned to an offline directory.
    """
    if not lost:
        return []
    found = {id(image.topics[image.topic_names[topic]].partitions[number]) for topic, number in lost}
    return (yield from leader_and_isr_updates(image, static, lambda p: id(p) in found, leaves=broker_id))
