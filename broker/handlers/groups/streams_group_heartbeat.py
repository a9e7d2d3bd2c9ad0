"""StreamsGroupHeartbeat (88), v0: join a streams group, stay in it, or leave it.

Behaviour: each member sends the topology when it joins, and the group keeps the first one; internal topics are created
in the background if the client is authorized, and the status of the response reports it. Static members, warm-up tasks,
task offsets and source topics by regular expression are INVALID_REQUEST, as in Kafka 4.3.1. If streams groups are
disabled (``group.coordinator.rebalance.protocols``, the feature streams.version) the error is UNSUPPORTED_VERSION.
`broker.groups.streams` has the state machine.

Source: ``KafkaApis.handleStreamsGroupHeartbeat``, ``GroupCoordinatorService.streamsGroupHeartbeat`` (apache/kafka
4.3.1).
From KIP-1071.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain

from ottla.broker.config.limits import MAX_STREAMS_TASKS, MAX_TOPOLOGY_WEIGHT, TOPOLOGY_TOPIC_WEIGHT
from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.state_machine import StreamsGroupCommand
from ottla.broker.groups.streams.configured_topology import ConfiguredInternalTopic
from ottla.broker.groups.streams.heartbeat import StreamsHeartbeatResult, heartbeat
from ottla.broker.groups.streams.status import StreamsGroupStatus
from ottla.broker.groups.streams.topology import topic_names_in
from ottla.broker.handlers.item_results import wait_for_success
from ottla.broker.requests.error_responses import with_error_response
from ottla.controller.control.create_and_delete_topics import topic_name_error
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig
from ottla.wire.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)

STATIC_LEAVE_EPOCH = -2
MAX_TOPICS_IN_MESSAGE = 3
"""Number of topics whose failed creation the status of a response reports by name."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def is_served(context: RequestContext) -> bool:
    """Return whether streams groups are enabled by configuration and streams.version."""
    protocols = context.services.config.text("group.coordinator.rebalance.protocols")
    return "streams" in protocols.split(",") and context.image.features.get("streams.version", 0) >= 1


def _require(holds: object, why: str) -> None:
    if not holds:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, why)


def validate(request: StreamsGroupHeartbeatRequest) -> None:
    """Check that the fields of a heartbeat are consistent and use no unsupported feature (C-237, C-238).

    Raises:
        ProtocolError: INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY.
    """
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    _require(request.instance_id is None, "Static membership is not yet supported.")
    _require(request.task_offsets is None, "TaskOffsets are not supported yet.")
    _require(request.task_end_offsets is None, "TaskEndOffsets are not supported yet.")
    _require(not request.warmup_tasks, "WarmupTasks are not supported yet.")
    for row in request.topology.subtopologies if request.topology is not None else ():
        _require(not row.source_topic_regex, "Regular expressions for source topics are not supported yet.")
    _require(request.member_id.strip(), "MemberId can't be empty.")
    _require(request.group_id.strip(), "GroupId can't be empty.")
    _require(request.rack_id is None or request.rack_id.strip(), "RackId can't be empty.")
    epoch = request.member_epoch
    if epoch == 0:
        _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        for name, rows in zip(("Active", "Standby", "Warmup"), tasks, strict=True):
            _require(rows == [], f"{name}Tasks must be empty when (re-)joining.")
        _require(request.topology is not None, "Topology must be non-null when (re-)joining.")
        validate_changelogs(request.topology or Topology())
    _require(epoch != STATIC_LEAVE_EPOCH, "InstanceId can't be null.")
    _require(epoch > STATIC_LEAVE_EPOCH, f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    _require(
        all(rows is None for rows in tasks) or None not in tasks,
        "If one task-type is non-null, all must be non-null.",
    )
    _require(epoch == 0 or request.topology is None, "Topology can only be provided when (re-)joining.")


def validate_changelogs(topology: Topology) -> None:
    """Check that the partition counts of changelog topics are 0: the coordinator determines them.

    Raises:
        ProtocolError: STREAMS_INVALID_TOPOLOGY.
    """
    for topic in (topic for row in topology.subtopologies for topic in row.state_changelog_topics):
        if topic.partitions != 0:
            why = (
                f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                f"{topic.partitions}."
            )
            raise ProtocolError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)


def _check_size(request: StreamsGroupHeartbeatRequest) -> Job[None]:
    """Check that tasks, client tags and topology are small enough to be processed without a yield, as a job.

    Raises:
        ProtocolError: INVALID_REQUEST for tasks or tags, STREAMS_INVALID_TOPOLOGY for the topology.
    """
    rows = chain(request.active_tasks or (), request.standby_tasks or (), request.warmup_tasks or ())
    weight = len(request.client_tags or ())
    for task_ids in rows:
        weight += 1 + len(task_ids.partitions)
        _require(weight <= 2 * MAX_STREAMS_TASKS, "There are too many tasks.")
        yield None
    _require(weight <= 2 * MAX_STREAMS_TASKS, "There are too many client tags.")
    weight = 0
    for row in request.topology.subtopologies if request.topology is not None else ():
        internal = (row.state_changelog_topics, row.repartition_source_topics)
        named = len(row.source_topics) + len(row.repartition_sink_topics) + sum(map(len, internal)) + 1
        weight += TOPOLOGY_TOPIC_WEIGHT * named + len(row.copartition_groups)
        if weight <= MAX_TOPOLOGY_WEIGHT:
            weight += sum(len(topic.topic_configs) for topic in chain(*internal))
            weight += sum(len(x.source_topics) + len(x.repartition_source_topics) for x in row.copartition_groups)
        if weight > MAX_TOPOLOGY_WEIGHT:
            why = "The topology is too large: the maximum is about 1000 topics with five configs each."
            raise ProtocolError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)
        yield None


def _check_topics(context: RequestContext, topology: Topology) -> Job[None]:
    """Check the names of the topology's topics, and that the client may describe them, as a job.

    Raises:
        ProtocolError: STREAMS_INVALID_TOPOLOGY, TOPIC_AUTHORIZATION_FAILED.
    """
    names = list(dict.fromkeys(topic_names_in(topology)))
    yield None
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        why = f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
        raise ProtocolError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)
    invalid = []
    for name in names:
        if topic_name_error(name) is not None:
            invalid.append(name)
        yield None
    if invalid:
        why = f"Topic names {','.join(invalid)} are not valid topic names."
        raise ProtocolError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)
    for name in names:
        if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        yield None


@with_error_response
def handle(context: RequestContext, request: StreamsGroupHeartbeatRequest) -> ResponseJob:
    """Submit the heartbeat to the group coordinator; start the creation of missing internal topics.

    An error of validation, authorization or the coordinator is the error code of the response.
    """
    if not is_served(context):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    if not context.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise ProtocolError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    yield from _check_size(request)
    if request.topology is not None:
        yield from _check_topics(context, request.topology)
    validate(request)
    call = GroupRequest(None, request, context.version, context.client_id, context.peer.host)
    rule = partial(heartbeat, call=call)
    answer = yield from wait_for_success(
        context.services.groups.submit(request.group_id, lambda own: StreamsGroupCommand(own, rule))
    )
    assert isinstance(answer, StreamsHeartbeatResult)
    if answer.internal_topics_to_create:
        _create(context, answer.response, answer.internal_topics_to_create)
    return answer.response


def _create(
    context: RequestContext, response: StreamsGroupHeartbeatResponse, topics: Mapping[str, ConfiguredInternalTopic]
) -> None:
    """Start the creation of ``topics`` in the background, if the client may create all of them (C-241).

    Topics in creation, or that failed recently, are left out. Missing authorizations, or else these failures, are
    added to the detail of the status MISSING_INTERNAL_TOPICS in ``response``; they are left out without this status.
    """
    denied = []
    if not context.may(AclOperation.CREATE, ResourceType.CLUSTER):
        denied = [name for name in topics if not context.may(AclOperation.CREATE, ResourceType.TOPIC, name)]
    if denied:
        _add_status(response, f"; Unauthorized to CREATE on topics {', '.join(denied)}.")
        return
    internal = context.services.controller_forwarder.streams_internal_topics(context.services.env.now_ms)
    internal.create(map(_creatable, topics.values()), 2 * response.heartbeat_interval_ms)
    failed = [f"{name} ({why})" for name in topics if (why := internal.failure(name)) is not None]
    if failed:
        more = f" and {len(failed) - MAX_TOPICS_IN_MESSAGE} more" if len(failed) > MAX_TOPICS_IN_MESSAGE else ""
        _add_status(response, f"; Creation failed: {', '.join(failed[:MAX_TOPICS_IN_MESSAGE])}{more}.")


def _add_status(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    rows: Iterable[Status] = response.status or ()
    for row in rows:
        if row.status_code == StreamsGroupStatus.MISSING_INTERNAL_TOPICS:
            row.status_detail += detail
            return


def _creatable(topic: ConfiguredInternalTopic) -> CreatableTopic:
    configs = [CreatableTopicConfig(key, value) for key, value in topic.configs]
    return CreatableTopic(topic.name, topic.partitions, topic.replication_factor or -1, configs=configs)
