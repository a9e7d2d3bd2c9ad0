"""AlterPartitionReassignments and ListPartitionReassignments on the active controller.

Source: ``ReplicationControlManager.alterPartitionReassignments``, ``listPartitionReassignments`` (apache/kafka 4.3.1);
KIP-455, KIP-860 (changes of the replication factor may be forbidden).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.limits import MAX_RECORDS_PER_REQUEST
from ottla.controller.metadata.directory_id import default_directory_id
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.controller.partitions.leader_and_isr_updates import leader_acceptor, topic_change_rules
from ottla.controller.partitions.partition_assignment import validate_manual_assignment
from ottla.controller.partitions.partition_change_builder import (
    PartitionChangeRules,
    PartitionElection,
    build_partition_change,
)
from ottla.controller.partitions.reassignment_state import (
    Reassignment,
    is_reassignment_in_progress,
    reassignment_to,
    revert_reassignment,
)
from ottla.jobs.sequences import sort_job
from ottla.wire.codec.compiler import response_array
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.wire.messages.metadata_records import PartitionChangeRecord


def alter_partition_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, version: int, static: Mapping[str, str]
) -> ControllerResultSteps:
    """Return the records and response of AlterPartitionReassignments, as a job: start, replace or cancel reassignments.

    Each partition has its own error, UNKNOWN_SERVER_ERROR beyond `MAX_RECORDS_PER_REQUEST`; the records of the valid
    ones are one batch (R-294). ``static``: settings of this node's configuration.
    """
    response = AlterPartitionReassignmentsResponse(
        responses=response_array(AlterPartitionReassignmentsResponse, version)
    )
    if not request.topics:
        return ControllerResult(response)
    response.error_message = None
    response.allow_replication_factor_change = request.allow_replication_factor_change
    records: list[Message] = []
    for requested in request.topics:
        yield None
        topic = image.topics.get(requested.name)
        rules = topic_change_rules(image, static, topic) if topic is not None else PartitionChangeRules()
        rows = response_array(AlterPartitionReassignmentsResponse, version)
        for wanted in requested.partitions:
            yield None
            row = ReassignablePartitionResponse(wanted.partition_index, 0, None)
            try:
                record = _decide_row(image, request, topic, requested.name, wanted, rules)
                if record is not None and len(records) == MAX_RECORDS_PER_REQUEST:
                    raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka's BoundedList is full
                if record is not None:
                    records.append(record)
            except ProtocolError as error:
                row.error_code, row.error_message = error.code, error.message
            rows.append(row)
        response.responses.append(ReassignableTopicResponse(requested.name, rows))
    return ControllerResult(response, records)


def _decide_row(
    image: MetadataImage,
    request: AlterPartitionReassignmentsRequest,
    topic: TopicImage | None,
    name: str,
    wanted: ReassignablePartition,
    rules: PartitionChangeRules,
) -> PartitionChangeRecord | None:
    number = wanted.partition_index
    if topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if number not in topic.partitions:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}.")
    at, p = (topic.id, number), topic.partitions[number]
    if wanted.replicas is None:
        return _cancel_reassignment(image, name, at, p, rules)
    keeps_factor = not request.allow_replication_factor_change
    return reassign_partition(image, at, p, wanted.replicas, rules, keeps_factor=keeps_factor)


def reassign_partition(
    image: MetadataImage,
    topic_id_partition: tuple[bytes, int],
    registration: PartitionRegistration,
    target: Sequence[int],
    rules: PartitionChangeRules,
    *,
    keeps_factor: bool = False,
) -> PartitionChangeRecord | None:
    """Return the record that starts or replaces the reassignment of a partition (R-295); None if there is no change.

    Args:
        image: Current metadata, with the registered brokers.
        topic_id_partition: Topic id and partition number.
        registration: Current state of the partition.
        target: Broker ids of the new replicas in order; the first is the preferred leader.
        rules: Rules of leader election for the topic.
        keeps_factor: True if the number of replicas must not change.

    Raises:
        ProtocolError: INVALID_REPLICA_ASSIGNMENT: no replica, a duplicate, or a broker that is not registered;
            INVALID_REPLICATION_FACTOR: another number of replicas than now, and ``keeps_factor`` forbids it.
    """
    validate_manual_assignment(image, target, None)
    now = len({*registration.replicas, *registration.adding} - {*registration.removing})
    if keeps_factor and len(target) != now:
        why = f"The replication factor is changed from {now} to {len(target)}"
        raise ProtocolError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
    new = {i: default_directory_id(image.brokers[i].log_dirs) for i in target if i not in registration.replicas}
    return build_partition_change(
        topic_id_partition,
        registration,
        leader_acceptor(image, registration),
        rules,
        election=PartitionElection.ONLINE,
        move=reassignment_to(registration, target),
        directories=new,
    )


def _cancel_reassignment(
    image: MetadataImage, name: str, at: tuple[bytes, int], p: PartitionRegistration, rules: PartitionChangeRules
) -> PartitionChangeRecord | None:
    """Return the record that cancels a reassignment and removes its adding replicas (R-297); None without a change.

    ``at``: topic id and partition number.

    Raises:
        ProtocolError: NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT if only adding replicas would remain, or
            an unclean election would be needed and is not allowed.
    """
    if not is_reassignment_in_progress(p):
        raise ProtocolError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    left = revert_reassignment(p)
    if left is None:
        why = "Invalid replica assignment: addingReplicas contains all replicas."
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    if left.unclean and not rules.allows_unclean_election:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {name}:{at[1]} because it would require an unclean leader "
            "election.",
        )
    return build_partition_change(
        at, p, leader_acceptor(image, p), rules, isr=left.isr, move=Reassignment(left.replicas)
    )


def list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest, version: int
) -> ControllerResultSteps:
    """Return the ListPartitionReassignments response, without records, for all or the requested topics, as a job.

    Topics and partitions that are unknown or have no ongoing reassignment are left out (R-298).
    """
    topics = response_array(ListPartitionReassignmentsResponse, version)
    queries: Iterable[tuple[str, Iterable[int] | None]]
    if request.topics is None:
        queries = ((name, None) for name in (yield from sort_job(image.topics)))
    else:
        queries = ((topic.name, topic.partition_indexes) for topic in request.topics)
    for name, numbers in queries:
        yield None
        topic = image.topics.get(name)
        if topic is None:
            continue
        rows = response_array(ListPartitionReassignmentsResponse, version)
        for number in topic.partitions if numbers is None else numbers:
            yield None
            p = topic.partitions.get(number)
            if p is not None and is_reassignment_in_progress(p):
                rows.append(OngoingPartitionReassignment(number, list(p.replicas), list(p.adding), list(p.removing)))
        if rows:
            topics.append(OngoingTopicReassignment(name, rows))
    return ControllerResult(ListPartitionReassignmentsResponse(error_message=None, topics=topics))
