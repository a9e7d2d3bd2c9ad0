"""CreateTopics (api 19): create topics.

Version 4 brings the broker's defaults (KIP-464), 5 settings in the answer (KIP-525), 6 throttling (KIP-599), 7 topic
ids (KIP-516).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class CreatableReplicaAssignment(Message):
    partition_index: Int32 = 0
    broker_ids: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class CreatableTopicConfig(Message):
    name: String = ""
    value: A[str | None, wire_field("string", nullable="0+")] = ""


class CreatableTopic(Message):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: A[list[CreatableReplicaAssignment], wire_field("[]struct")] = field(default_factory=list)
    configs: A[list[CreatableTopicConfig], wire_field("[]struct")] = field(default_factory=list)


class CreateTopicsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(19, "2-7", "5+", "broker controller")
    topics: A[list[CreatableTopic], wire_field("[]struct")] = field(default_factory=list)
    timeout_ms: Int32 = 60000
    validate_only: A[bool, wire_field("bool", "1+")] = False


class CreatableTopicConfigs(Message):
    name: A[str, wire_field("string", "5+")] = ""
    value: A[str | None, wire_field("string", "5+", nullable="5+")] = ""
    read_only: A[bool, wire_field("bool", "5+")] = False
    config_source: A[int, wire_field("int8", "5+", ignorable=True)] = -1
    is_sensitive: A[bool, wire_field("bool", "5+")] = False


class CreatableTopicResult(Message):
    name: String = ""
    topic_id: A[bytes, wire_field("uuid", "7+", ignorable=True)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", "1+", nullable="0+", ignorable=True)] = ""
    topic_config_error_code: A[int, wire_field("int16", "5+", tagged="5+", tag=0, ignorable=True)] = 0
    num_partitions: A[int, wire_field("int32", "5+", ignorable=True)] = -1
    replication_factor: A[int, wire_field("int16", "5+", ignorable=True)] = -1
    configs: A[list[CreatableTopicConfigs] | None, wire_field("[]struct", "5+", nullable="5+", ignorable=True)] = field(
        default_factory=list
    )


class CreateTopicsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(19, "2-7", "5+")
    throttle_time_ms: A[int, wire_field("int32", "2+", ignorable=True)] = 0
    topics: A[list[CreatableTopicResult], wire_field("[]struct")] = field(default_factory=list)
