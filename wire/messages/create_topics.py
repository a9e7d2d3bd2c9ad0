"""CreateTopics (API 19): create topics."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class CreatableReplicaAssignment(Message):
    """Partition of the topic to create, with the brokers for its replicas."""

    partition_index: Int32 = 0
    """Index of the partition; the indexes of a topic go from 0 without gaps."""
    broker_ids: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of the replicas, the preferred leader first."""


class CreatableTopicConfig(Message):
    """Setting of the topic to create: name and value."""

    name: String = ""
    """Name of the setting, such as `cleanup.policy`. An unknown one is rejected with INVALID_CONFIG."""
    value: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Value as text. Null is rejected with INVALID_CONFIG."""


class CreatableTopic(Message):
    """Topic to create: name, number of partitions and replicas or their assignment, and settings."""

    name: String = ""
    """Topic name: letters, digits, `.`, `_` and `-`, at most 249 characters. A name that differs from an existing one
    only in `.` and `_` is rejected with INVALID_TOPIC_EXCEPTION.
    """
    num_partitions: Int32 = 0
    """Number of partitions; -1 for `num.partitions` of the controller, or with assignments."""
    replication_factor: Int16 = 0
    """Number of replicas of each partition; -1 for `default.replication.factor` of the controller, or with assignments.
    """
    assignments: Annotated[list[CreatableReplicaAssignment], wire_field("[]struct")] = field(default_factory=list)
    """Replicas of each partition; empty to let the controller choose them."""
    configs: Annotated[list[CreatableTopicConfig], wire_field("[]struct")] = field(default_factory=list)
    """Settings that differ from the defaults of the brokers."""


class CreateTopicsRequest(Message):
    """Request to create topics, each with its number of partitions, replicas and settings."""

    SPEC: ClassVar[MessageSpec] = request(19, "2-7", "5+", "broker controller")
    """Version 4 permits -1 for the defaults of the cluster (KIP-464), 5 is flexible and returns the settings (KIP-525),
    6 brings THROTTLING_QUOTA_EXCEEDED (KIP-599), 7 returns the topic id (KIP-516). Versions 0 and 1 were removed in
    Apache Kafka 4.0.

    Flow: An admin client sends it to any broker, which forwards it to the active controller. The controller chooses
    replicas, appends the records of the topics to the metadata log, and responds when they are committed. Leaders of
    the new partitions are known to a broker only when it has applied these records.
    """
    topics: Annotated[list[CreatableTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics to create, each with its own result."""
    timeout_ms: Int32 = 60000
    """Time in ms that the client waits. Ottla ignores it: the response follows once the topics are committed."""
    validate_only: Annotated[bool, wire_field("bool", "1+")] = False
    """True to check the request and create no topic."""


class CreatableTopicConfigs(Message):
    """Setting of a created topic in a CreateTopics response: name, value and its source."""

    name: Annotated[str, wire_field("string", "5+")] = ""
    """Name of the setting."""
    value: Annotated[str | None, wire_field("string", "5+", nullable="5+")] = ""
    """Value as text; null if it is sensitive."""
    read_only: Annotated[bool, wire_field("bool", "5+")] = False
    """Always false: all settings of a topic can be changed."""
    config_source: Annotated[int, wire_field("int8", "5+", ignorable=True)] = -1
    """Origin of the value: 1 the topic, 3 the dynamic default of all brokers, 5 the default of Kafka. Ottla leaves out
    the configuration files of brokers (4). -1 if unknown.
    """
    is_sensitive: Annotated[bool, wire_field("bool", "5+")] = False
    """True if the value is a secret; always false for a topic."""


class CreatableTopicResult(Message):
    """Created topic with its id, size and settings, or its error code."""

    name: String = ""
    """Topic name."""
    topic_id: Annotated[bytes, wire_field("uuid", "7+", ignorable=True)] = ZERO_UUID
    """UUID of the new topic; zero with an error."""
    error_code: Int16 = 0
    """0, or TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
    INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, THROTTLING_QUOTA_EXCEEDED (retry after the throttle time),
    INVALID_REQUEST (topic twice), POLICY_VIOLATION (too large), TOPIC_AUTHORIZATION_FAILED.
    """
    error_message: Annotated[str | None, wire_field("string", "1+", nullable="0+", ignorable=True)] = ""
    """Text for the error, null if there is none."""
    topic_config_error_code: Annotated[int, wire_field("int16", "5+", tagged="5+", tag=0, ignorable=True)] = 0
    """TOPIC_AUTHORIZATION_FAILED if the principal may not describe the settings; they are left out then. Else 0."""
    num_partitions: Annotated[int, wire_field("int32", "5+", ignorable=True)] = -1
    """Number of partitions of the new topic; -1 with an error, or if the settings are left out."""
    replication_factor: Annotated[int, wire_field("int16", "5+", ignorable=True)] = -1
    """Number of replicas of each partition; -1 with an error, or if the settings are left out."""
    configs: Annotated[
        list[CreatableTopicConfigs] | None, wire_field("[]struct", "5+", nullable="5+", ignorable=True)
    ] = field(default_factory=list)
    """All settings of the new topic; null or empty with an error, or if they are left out."""


class CreateTopicsResponse(Message):
    """Response to CreateTopics: for each topic an error code, or 0 with its id and settings."""

    SPEC: ClassVar[MessageSpec] = response(19, "2-7", "5+")
    throttle_time_ms: Annotated[int, wire_field("int32", "2+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    topics: Annotated[list[CreatableTopicResult], wire_field("[]struct")] = field(default_factory=list)
    """Results, one for each topic."""
