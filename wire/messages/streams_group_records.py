"""Records of streams groups in `__consumer_offsets` (KIP-1071): types 17 and 19 to 23, each a key and a value."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int8, Int16, Int32, Int64, Message, MessageSpec, String, Uint16, data, wire_field


class StreamsGroupCurrentMemberAssignmentKey(Message):
    """Key, type 22, of the current tasks of a member: group id and member id."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 22)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the streams group."""
    member_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the member in its group."""


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Message):
    """Tasks of a subtopology, by partition, that a member has now or still has to revoke."""

    subtopology_id: String = ""
    """Id of the subtopology in its topology."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Partitions of the source topics, a task for each."""
    assignment_epochs: Annotated[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=0)] = field(
        default_factory=list
    )
    """Member epoch in which each active task was assigned, in the order of `partitions`. Offset commits of an older
    epoch are rejected. Null or left out for other tasks, and in records of versions before 4.3; then the member epoch
    counts.
    """


class StreamsGroupCurrentMemberAssignmentValue(Message):
    """Value, type 22: tasks and epoch of a member now. A tombstone removes them."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 22)
    member_epoch: Int32 = 0
    """Member epoch that the next heartbeat must have."""
    previous_member_epoch: Int32 = 0
    """Member epoch before, also accepted from the member, in case the response with the new one was lost."""
    state: Int8 = 0
    """1 stable, 2 tasks are to be revoked by the member, 3 tasks are still to be released by other members. Other
    values count as unknown.
    """
    active_tasks: Annotated[list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Tasks that the member processes."""
    standby_tasks: Annotated[list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Tasks of which the member keeps a copy of the state."""
    warmup_tasks: Annotated[list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Tasks of which the member restores the state. Empty: not supported yet."""
    active_tasks_pending_revocation: Annotated[
        list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")
    ] = field(default_factory=list)
    """Active tasks that the member still has and must revoke."""
    standby_tasks_pending_revocation: Annotated[
        list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")
    ] = field(default_factory=list)
    """Standby tasks that the member still has and must revoke."""
    warmup_tasks_pending_revocation: Annotated[
        list[StreamsGroupCurrentMemberAssignmentValueTaskIds], wire_field("[]struct")
    ] = field(default_factory=list)
    """Warm-up tasks that the member still has and must revoke."""


class StreamsGroupMemberMetadataKey(Message):
    """Key, type 19, of a member of a streams group: group id and member id."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 19)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the streams group."""
    member_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the member in its group."""


class Endpoint(Message):
    """Endpoint of a member for Interactive Queries (`application.server`), in a value of type 19."""

    host: String = ""
    """Host of `application.server`."""
    port: Uint16 = 0
    """Port of `application.server`."""


class KeyValue(Message):
    """Client tag of a member, in a value of type 19: name and value."""

    key: String = ""
    """Name of the tag."""
    value: String = ""
    """Value of the tag."""


class StreamsGroupMemberMetadataValue(Message):
    """Value, type 19: client, endpoint and tags of a member. A tombstone removes the member."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 19)
    instance_id: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """`group.instance.id` of a static member. Null: static members are not supported yet."""
    rack_id: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """`client.rack` of the client, null if not set."""
    client_id: String = ""
    """`client.id` of the client."""
    client_host: String = ""
    """Address that the member connects from."""
    rebalance_timeout_ms: Int32 = -1
    """Time in ms that the member may take to revoke tasks."""
    topology_epoch: Int32 = 0
    """Epoch of the topology that the member sent when it joined."""
    process_id: String = ""
    """Id of the Kafka Streams instance; its threads are members with the same id."""
    user_endpoint: Annotated[Endpoint | None, wire_field("struct", nullable="0+")] = None
    """Endpoint for Interactive Queries, null if `application.server` is not set."""
    client_tags: Annotated[list[KeyValue], wire_field("[]struct")] = field(default_factory=list)
    """`client.tag.*` settings of the client, sorted."""


class StreamsGroupMetadataKey(Message):
    """Key, type 17, of the group epoch: group id of a streams group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 17)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the streams group."""


class LastAssignmentConfig(Message):
    """Setting of the assignor at the group epoch, in a value of type 17: name and value."""

    key: String = ""
    """Name of the setting, such as `num.standby.replicas`."""
    value: String = ""
    """Value of the setting as text."""


class StreamsGroupMetadataValue(Message):
    """Value, type 17: group epoch of a streams group. A tombstone deletes the group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 17)
    epoch: Int32 = 0
    """Group epoch, raised by each change of members, topics or assignment settings."""
    metadata_hash: Int64 = 0
    """Hash of the topics of the topology, their partitions and racks; if it changes, the group rebalances."""
    validated_topology_epoch: Annotated[int, wire_field("int32", tagged="0+", tag=0)] = -1
    """Epoch of the topology for which all topics exist with the right number of partitions. -1 while they do not; then
    the group is `NotReady`.
    """
    last_assignment_configs: Annotated[
        list[LastAssignmentConfig] | None, wire_field("[]struct", nullable="0+", tagged="0+", tag=1)
    ] = field(default_factory=list)
    """Settings of the assignor at this epoch; if they change, the group rebalances."""


class StreamsGroupTargetAssignmentMemberKey(Message):
    """Key, type 21, of the target assignment of a member: group id and member id."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 21)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the streams group."""
    member_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the member in its group."""


class StreamsGroupTargetAssignmentMemberValueTaskIds(Message):
    """Tasks of a subtopology, by partition, in the target assignment of a member."""

    subtopology_id: String = ""
    """Id of the subtopology in its topology."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Partitions of the source topics, a task for each."""


class StreamsGroupTargetAssignmentMemberValue(Message):
    """Value, type 21: tasks that a member is to have. A tombstone removes them."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 21)
    active_tasks: Annotated[list[StreamsGroupTargetAssignmentMemberValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Tasks that the member will process once other members have released them."""
    standby_tasks: Annotated[list[StreamsGroupTargetAssignmentMemberValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Tasks of which the member will keep a copy of the state."""
    warmup_tasks: Annotated[list[StreamsGroupTargetAssignmentMemberValueTaskIds], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Tasks of which the member will restore the state. Empty: not supported yet."""


class StreamsGroupTargetAssignmentMetadataKey(Message):
    """Key, type 20, of the epoch of a target assignment: group id of a streams group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 20)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the streams group."""


class StreamsGroupTargetAssignmentMetadataValue(Message):
    """Value, type 20: group epoch of the target assignment, written after its records of type 21."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 20)
    assignment_epoch: Int32 = 0
    """Group epoch that the target assignment was computed for."""
    assignment_timestamp: Annotated[int, wire_field("int64", tagged="0+", tag=0, ignorable=True)] = 0
    """Time when the computation ended, in ms since the epoch; 0 in records of versions before 4.3 (KIP-1263)."""


class StreamsGroupTopologyKey(Message):
    """Key, type 23, of the topology: group id of a streams group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 23)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the streams group."""


class TopicConfig(Message):
    """Configuration of an internal topic, in a value of type 23: name and value."""

    key: String = ""
    """Name of the topic configuration."""
    value: String = ""
    """Value of the topic configuration."""


class TopicInfo(Message):
    """Changelog or repartition topic in a value of type 23: size and configuration."""

    name: String = ""
    """Topic name, which starts with the `application.id`."""
    partitions: Int32 = 0
    """Number of partitions of a repartition topic, 0 if the coordinator derives it from the topics that are read. 0 for
    a changelog topic.
    """
    replication_factor: Int16 = 0
    """Replication factor to create the topic with, 0 for `default.replication.factor`."""
    topic_configs: Annotated[list[TopicConfig], wire_field("[]struct")] = field(default_factory=list)
    """Configuration to create the topic with."""


class CopartitionGroup(Message):
    """Topics of a subtopology that must have the same number of partitions, by their index in its lists."""

    source_topics: Annotated[list[int], wire_field("[]int16")] = field(default_factory=list)
    """Indexes into `source_topics` of the subtopology."""
    source_topic_regex: Annotated[list[int], wire_field("[]int16")] = field(default_factory=list)
    """Indexes into `source_topic_regex` of the subtopology."""
    repartition_source_topics: Annotated[list[int], wire_field("[]int16")] = field(default_factory=list)
    """Indexes into `repartition_source_topics` of the subtopology."""


class Subtopology(Message):
    """Part of the topology with its own tasks, one for each partition that it reads."""

    subtopology_id: String = ""
    """Id of the subtopology, unique in the topology and the same at all members."""
    source_topics: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Topics that it reads and that the application does not create."""
    source_topic_regex: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Regular expressions of topics that it reads. Empty: not supported yet."""
    state_changelog_topics: Annotated[list[TopicInfo], wire_field("[]struct")] = field(default_factory=list)
    """Changelog topics of its state stores, created by the coordinator."""
    repartition_sink_topics: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Repartition topics that it writes."""
    repartition_source_topics: Annotated[list[TopicInfo], wire_field("[]struct")] = field(default_factory=list)
    """Repartition topics that it reads, created by the coordinator."""
    copartition_groups: Annotated[list[CopartitionGroup], wire_field("[]struct")] = field(default_factory=list)
    """Topics that are joined and so must have the same number of partitions."""


class StreamsGroupTopologyValue(Message):
    """Value, type 23: topology of a streams group, as its first member sent it."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 23)
    epoch: Int32 = 0
    """Epoch of the topology, from the first member."""
    subtopologies: Annotated[list[Subtopology], wire_field("[]struct")] = field(default_factory=list)
    """Subtopologies of the application."""
