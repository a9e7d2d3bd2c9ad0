"""DeleteTopics (API 20): delete topics."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, request, response, wire_field


class DeleteTopicState(Message):
    """Topic to delete, by name or by id (version 6 on)."""

    name: Annotated[str | None, wire_field("string", "6+", nullable="6+")] = None
    """Topic name, null to name the topic by id."""
    topic_id: Annotated[bytes, wire_field("uuid", "6+")] = ZERO_UUID
    """UUID of the topic, zero to name the topic by name. With both, or neither, the topic is rejected with
    INVALID_REQUEST.
    """


class DeleteTopicsRequest(Message):
    """Request to delete topics, by name or by id."""

    SPEC: ClassVar[MessageSpec] = request(20, "1-6", "4+", "broker controller")
    """Version 4 is flexible, 5 adds error messages and THROTTLING_QUOTA_EXCEEDED (KIP-599), 6 adds topic ids (KIP-516).
    Version 0 was removed in Apache Kafka 4.0.

    Flow: An admin client sends it to any broker, which forwards it to the active controller. The controller appends a
    RemoveTopicRecord; brokers rename the directories of the replicas and delete them after `file.delete.delay.ms`.
    """
    topics: Annotated[list[DeleteTopicState], wire_field("[]struct", "6+")] = field(default_factory=list)
    """Topics to delete, from version 6 on."""
    topic_names: Annotated[list[str], wire_field("[]string", "0-5", ignorable=True)] = field(default_factory=list)
    """Names of the topics to delete, up to version 5."""
    timeout_ms: Int32 = 0
    """Time in ms that the client waits. Ottla ignores it: the response follows once the deletion is committed. The
    brokers delete the files afterwards.
    """


class DeletableTopicResult(Message):
    """Error code of a topic in the request; 0 if it was deleted."""

    name: Annotated[str | None, wire_field("string", nullable="6+")] = ""
    """Topic name; null if the request named an id that the principal may not describe, or that does not exist."""
    topic_id: Annotated[bytes, wire_field("uuid", "6+", ignorable=True)] = ZERO_UUID
    """UUID of the topic, or the one in the request if it is unknown; zero for a name that does not exist."""
    error_code: Int16 = 0
    """0, or UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, TOPIC_DELETION_DISABLED (`delete.topic.enable`),
    TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST (topic twice, or in versions 1 and 2 deletion is disabled),
    THROTTLING_QUOTA_EXCEEDED (retry after the throttle time).
    """
    error_message: Annotated[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None
    """Text for the error, null if there is none."""


class DeleteTopicsResponse(Message):
    """Response to DeleteTopics: an error code for each topic, 0 if it was deleted."""

    SPEC: ClassVar[MessageSpec] = response(20, "1-6", "4+")
    throttle_time_ms: Annotated[int, wire_field("int32", "1+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    responses: Annotated[list[DeletableTopicResult], wire_field("[]struct")] = field(default_factory=list)
    """Results, one for each topic."""
