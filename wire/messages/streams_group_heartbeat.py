"""StreamsGroupHeartbeat (API 88): join a streams group, stay a member, and leave it (KIP-1071)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    Uint16,
    request,
    response,
    wire_field,
)


class KeyValue(Message):
    """Configuration of an internal topic, or client tag of the member: name and value."""

    key: String = ""
    """Name of the topic configuration or tag."""
    value: String = ""
    """Value of the topic configuration or tag."""


class TopicInfo(Message):
    """Changelog or repartition topic that the application needs: size and configuration."""

    name: String = ""
    """Topic name, which starts with the `application.id`."""
    partitions: Int32 = 0
    """Number of partitions of a repartition topic, 0 if the coordinator derives it from the topics that are read. Must
    be 0 for a changelog topic, else STREAMS_INVALID_TOPOLOGY.
    """
    replication_factor: Int16 = 0
    """Replication factor to create the topic with, 0 for `default.replication.factor`."""
    topic_configs: Annotated[list[KeyValue], wire_field("[]struct")] = field(default_factory=list)
    """Configuration to create the topic with."""


class CopartitionGroup(Message):
    """Topics of a subtopology that must have the same number of partitions, by their index in its lists."""

    source_topics: Annotated[list[int], wire_field("[]int16")] = field(default_factory=list)
    """Indexes into `source_topics` of the subtopology."""
    source_topic_regex: Annotated[list[int], wire_field("[]int16")] = field(default_factory=list)
    """Indexes into `source_topic_regex` of the subtopology. The coordinator ignores them."""
    repartition_source_topics: Annotated[list[int], wire_field("[]int16")] = field(default_factory=list)
    """Indexes into `repartition_source_topics` of the subtopology."""


class Subtopology(Message):
    """Part of the topology with its own tasks, one for each partition that it reads."""

    subtopology_id: String = ""
    """Id of the subtopology, unique in the topology and the same at all members."""
    source_topics: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Topics that it reads and that the application does not create. They must exist before tasks are assigned."""
    source_topic_regex: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Regular expressions of topics that it reads. Must be empty: not supported yet, INVALID_REQUEST."""
    state_changelog_topics: Annotated[list[TopicInfo], wire_field("[]struct")] = field(default_factory=list)
    """Changelog topics of its state stores. The coordinator creates those that are missing."""
    repartition_sink_topics: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Repartition topics that it writes."""
    repartition_source_topics: Annotated[list[TopicInfo], wire_field("[]struct")] = field(default_factory=list)
    """Repartition topics that it reads. The coordinator creates those that are missing."""
    copartition_groups: Annotated[list[CopartitionGroup], wire_field("[]struct")] = field(default_factory=list)
    """Topics that are joined and so must have the same number of partitions."""


class Topology(Message):
    """Topology of a Kafka Streams application, in the heartbeat of a member that joins."""

    epoch: Int32 = 0
    """Epoch of the topology. If it is lower than the topology epoch of the group, the status is STALE_TOPOLOGY."""
    subtopologies: Annotated[list[Subtopology], wire_field("[]struct")] = field(default_factory=list)
    """Subtopologies of the application."""


class StreamsGroupHeartbeatRequestTaskIds(Message):
    """Tasks of a subtopology, by partition, that the member owns at the time of its heartbeat."""

    subtopology_id: String = ""
    """Id of the subtopology. An unknown one is rejected with INVALID_REQUEST."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Partitions of the source topics, a task for each. One that does not exist is rejected with INVALID_REQUEST."""


class StreamsGroupHeartbeatRequestEndpoint(Message):
    """Endpoint of the member for Interactive Queries (`application.server`)."""

    host: String = ""
    """Host of `application.server`."""
    port: Uint16 = 0
    """Port of `application.server`."""


class TaskOffset(Message):
    """Sum of the offsets of a task in its changelog topics."""

    subtopology_id: String = ""
    """Id of the subtopology in its topology."""
    partition: Int32 = 0
    """Partition of the source topics, which identifies the task."""
    offset: Int64 = 0
    """Sum of the offsets in the changelog topics of the task."""


class StreamsGroupHeartbeatRequest(Message):
    """Heartbeat of a member of a streams group. Fields that have not changed are null or -1."""

    SPEC: ClassVar[MessageSpec] = request(88, "0", "0+", "broker")
    """Flow: An instance of Kafka Streams sends it to the group coordinator when it joins, with its topology, then every
    heartbeat interval, and with member epoch -1 when it leaves. The coordinator creates missing internal topics and
    assigns active and standby tasks.
    """
    group_id: String = ""
    """`application.id` of the application. An empty one is rejected with INVALID_REQUEST."""
    member_id: String = ""
    """Id of the member, generated by the client and kept until it is closed. An empty one is rejected with
    INVALID_REQUEST.
    """
    member_epoch: Int32 = 0
    """Member epoch of the last response; 0 to join, -1 to leave. -2, for static members, is rejected with
    INVALID_REQUEST. An epoch that is neither the current nor the previous one of the member is rejected with
    FENCED_MEMBER_EPOCH, and the member joins again.
    """
    endpoint_information_epoch: Int32 = 0
    """Endpoint epoch of the last response, -1 at first. If that of the group differs, the response has
    `partitions_by_user_endpoint`.
    """
    instance_id: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """`group.instance.id` of a static member. Must be null: not supported yet, INVALID_REQUEST."""
    rack_id: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """`client.rack` of the client. Null if not set, or if unchanged."""
    rebalance_timeout_ms: Int32 = -1
    """Time in ms that the member may take to revoke tasks (`max.poll.interval.ms`); after that it is removed. -1 if
    unchanged; required when joining.
    """
    topology: Annotated[Topology | None, wire_field("struct", nullable="0+")] = None
    """Topology of the application, only when joining. The first member sets that of the group; a different one with the
    same or a higher epoch is rejected with INVALID_REQUEST. Null otherwise.
    """
    active_tasks: Annotated[list[StreamsGroupHeartbeatRequestTaskIds] | None, wire_field("[]struct", nullable="0+")] = (
        None
    )
    """Tasks that the member processes. Null if unchanged, together with the other two lists; empty when joining. With a
    list, the member confirms that it has given up all other tasks, and the coordinator may assign them elsewhere.
    """
    standby_tasks: Annotated[
        list[StreamsGroupHeartbeatRequestTaskIds] | None, wire_field("[]struct", nullable="0+")
    ] = None
    """Tasks of which the member keeps a copy of the state. Null if unchanged."""
    warmup_tasks: Annotated[list[StreamsGroupHeartbeatRequestTaskIds] | None, wire_field("[]struct", nullable="0+")] = (
        None
    )
    """Tasks of which the member restores the state. Null if unchanged, else empty: not supported yet, INVALID_REQUEST.
    """
    process_id: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Id of the Kafka Streams instance, the same for all its threads: a standby task is put into another process than
    the active one. Null if unchanged.
    """
    user_endpoint: Annotated[StreamsGroupHeartbeatRequestEndpoint | None, wire_field("struct", nullable="0+")] = None
    """Endpoint for Interactive Queries (`application.server`). Null if not set, or if unchanged."""
    client_tags: Annotated[list[KeyValue] | None, wire_field("[]struct", nullable="0+")] = None
    """`client.tag.*` settings. Null if unchanged. Stored and returned by StreamsGroupDescribe; the assignor does not
    use them.
    """
    task_offsets: Annotated[list[TaskOffset] | None, wire_field("[]struct", nullable="0+")] = None
    """Positions of the tasks in their changelog topics. Must be null: not supported yet, INVALID_REQUEST."""
    task_end_offsets: Annotated[list[TaskOffset] | None, wire_field("[]struct", nullable="0+")] = None
    """End offsets of the changelog topics of the tasks. Must be null: not supported yet, INVALID_REQUEST."""
    shutdown_application: Bool = False
    """True to close all members of the application: the coordinator sends the status SHUTDOWN_APPLICATION to them."""


class Status(Message):
    """Condition of the streams group: code and text. Members log it or act on it."""

    status_code: Int8 = 0
    """0 STALE_TOPOLOGY, 1 MISSING_SOURCE_TOPICS, 2 INCORRECTLY_PARTITIONED_TOPICS, 3 MISSING_INTERNAL_TOPICS (the
    coordinator creates them), 4 SHUTDOWN_APPLICATION (the member closes), 5 ASSIGNMENT_DELAYED. With 1, 2 and 3 no
    tasks are assigned.
    """
    status_detail: String = ""
    """Text with the names of the topics or the member concerned."""


class StreamsGroupHeartbeatResponseTaskIds(Message):
    """Tasks of a subtopology, by partition, that are assigned to the member."""

    subtopology_id: String = ""
    """Id of the subtopology in its topology."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Partitions of the source topics, a task for each."""


class StreamsGroupHeartbeatResponseEndpoint(Message):
    """Endpoint of some member for Interactive Queries (`application.server`)."""

    host: String = ""
    """Host of `application.server`."""
    port: Uint16 = 0
    """Port of `application.server`."""


class TopicPartition(Message):
    """Topic with the partitions that can be queried at the endpoint of a member."""

    topic: String = ""
    """Name of a source topic."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions."""


class EndpointToPartitions(Message):
    """Endpoint of a member with the partitions for which it has active or standby tasks."""

    user_endpoint: Annotated[StreamsGroupHeartbeatResponseEndpoint, wire_field("struct")] = field(
        default_factory=StreamsGroupHeartbeatResponseEndpoint
    )
    """Endpoint of the member."""
    active_partitions: Annotated[list[TopicPartition], wire_field("[]struct")] = field(default_factory=list)
    """Source partitions of its active tasks."""
    standby_partitions: Annotated[list[TopicPartition], wire_field("[]struct")] = field(default_factory=list)
    """Source partitions of its standby tasks."""


class StreamsGroupHeartbeatResponse(Message):
    """Epoch and heartbeat interval of a streams group member, with its tasks if they have changed."""

    SPEC: ClassVar[MessageSpec] = response(88, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or UNKNOWN_MEMBER_ID and FENCED_MEMBER_EPOCH (join again), STREAMS_INVALID_TOPOLOGY, INVALID_REQUEST,
    GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, errors of the
    coordinator, or UNSUPPORTED_VERSION if streams groups are disabled.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""
    member_id: String = ""
    """Id of the member, as in the request. Empty with an error."""
    member_epoch: Int32 = 0
    """Member epoch for the next heartbeat and for offset commits; -1 after leaving."""
    heartbeat_interval_ms: Int32 = 0
    """Time in ms until the next heartbeat (`group.streams.heartbeat.interval.ms`, or that of the group)."""
    acceptable_recovery_lag: Int32 = 0
    """Lag in records up to which a warm-up task may be made active. Always 0: warm-up tasks are not supported yet."""
    task_offset_interval_ms: Int32 = 0
    """Time in ms between two reports of task offsets. Always 0: not supported yet."""
    status: Annotated[list[Status] | None, wire_field("[]struct", nullable="0+")] = field(default_factory=list)
    """Conditions of the group; empty or null if there are none."""
    active_tasks: Annotated[
        list[StreamsGroupHeartbeatResponseTaskIds] | None, wire_field("[]struct", nullable="0+")
    ] = None
    """Tasks that the member processes from now on; it revokes its others. Null if all three lists are unchanged."""
    standby_tasks: Annotated[
        list[StreamsGroupHeartbeatResponseTaskIds] | None, wire_field("[]struct", nullable="0+")
    ] = None
    """Tasks of which the member keeps a copy of the state from now on. Null if unchanged."""
    warmup_tasks: Annotated[
        list[StreamsGroupHeartbeatResponseTaskIds] | None, wire_field("[]struct", nullable="0+")
    ] = None
    """Tasks of which the member restores the state before they are moved to it. Null if unchanged, else empty."""
    endpoint_information_epoch: Int32 = 0
    """Endpoint epoch of the group, raised when the tasks of a member with an endpoint change."""
    partitions_by_user_endpoint: Annotated[list[EndpointToPartitions] | None, wire_field("[]struct", nullable="0+")] = (
        None
    )
    """Endpoints of all members that have one, for Interactive Queries. Null if the endpoint epoch of the request is
    current.
    """
