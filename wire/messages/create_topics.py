"""CreateTopics (api 19): create topics.

Version 4 brings the broker's defaults (KIP-464), 5 settings in the answer (KIP-525), 6 throttling (KIP-599), 7 topic
ids (KIP-516).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import ZERO_UUID, Int16, Int32, Message, Spec, String, request, response, w


class CreatableReplicaAssignment(Message):
    partition_index: Int32 = 0
    broker_ids: A[list[int], w("[]int32")] = field(default_factory=list)


class CreatableTopicConfig(Message):
    name: String = ""
    value: A[str | None, w("string", nullable="0+")] = ""


class CreatableTopic(Message):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: A[list[CreatableReplicaAssignment], w("[]struct")] = field(default_factory=list)
    configs: A[list[CreatableTopicConfig], w("[]struct")] = field(default_factory=list)


class CreateTopicsRequest(Message):
    SPEC: ClassVar[Spec] = request(19, "2-7", "5+", "broker controller")
    topics: A[list[CreatableTopic], w("[]struct")] = field(default_factory=list)
    timeout_ms: Int32 = 60000
    validate_only: A[bool, w("bool", "1+")] = False


class CreatableTopicConfigs(Message):
    name: A[str, w("string", "5+")] = ""
    value: A[str | None, w("string", "5+", nullable="5+")] = ""
    read_only: A[bool, w("bool", "5+")] = False
    config_source: A[int, w("int8", "5+", ignorable=True)] = -1
    is_sensitive: A[bool, w("bool", "5+")] = False


class CreatableTopicResult(Message):
    name: String = ""
    topic_id: A[bytes, w("uuid", "7+", ignorable=True)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: A[str | None, w("string", "1+", nullable="0+", ignorable=True)] = ""
    topic_config_error_code: A[int, w("int16", "5+", tagged="5+", tag=0, ignorable=True)] = 0
    num_partitions: A[int, w("int32", "5+", ignorable=True)] = -1
    replication_factor: A[int, w("int16", "5+", ignorable=True)] = -1
    configs: A[list[CreatableTopicConfigs] | None, w("[]struct", "5+", nullable="5+", ignorable=True)] = field(
        default_factory=list
    )


class CreateTopicsResponse(Message):
    SPEC: ClassVar[Spec] = response(19, "2-7", "5+")
    throttle_time_ms: A[int, w("int32", "2+", ignorable=True)] = 0
    topics: A[list[CreatableTopicResult], w("[]struct")] = field(default_factory=list)
