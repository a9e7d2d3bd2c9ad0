"""OffsetFetch (api 9): read a group's positions.

Version 5 brings leader epochs (KIP-320), 7 waits for open transactions (KIP-447), 8 asks for many groups (KIP-709), 9
brings members of the new protocol and 10 topic ids (KIP-848).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Message, MessageSpec, request, response, wire_field


class OffsetFetchRequestTopic(Message):
    name: A[str, wire_field("string", "0-7")] = ""
    partition_indexes: A[list[int], wire_field("[]int32", "0-7")] = field(default_factory=list)


class OffsetFetchRequestTopics(Message):
    name: A[str, wire_field("string", "8-9", ignorable=True)] = ""
    topic_id: A[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    partition_indexes: A[list[int], wire_field("[]int32", "8+")] = field(default_factory=list)


class OffsetFetchRequestGroup(Message):
    group_id: A[str, wire_field("string", "8+")] = ""
    member_id: A[str | None, wire_field("string", "9+", nullable="9+", ignorable=True)] = None
    member_epoch: A[int, wire_field("int32", "9+", ignorable=True)] = -1
    topics: A[list[OffsetFetchRequestTopics] | None, wire_field("[]struct", "8+", nullable="8+")] = field(
        default_factory=list
    )


class OffsetFetchRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(9, "1-10", "6+", "broker")
    group_id: A[str, wire_field("string", "0-7")] = ""
    topics: A[list[OffsetFetchRequestTopic] | None, wire_field("[]struct", "0-7", nullable="2-7")] = field(
        default_factory=list
    )
    groups: A[list[OffsetFetchRequestGroup], wire_field("[]struct", "8+")] = field(default_factory=list)
    require_stable: A[bool, wire_field("bool", "7+")] = False


class OffsetFetchResponsePartition(Message):
    partition_index: A[int, wire_field("int32", "0-7")] = 0
    committed_offset: A[int, wire_field("int64", "0-7")] = 0
    committed_leader_epoch: A[int, wire_field("int32", "5-7", ignorable=True)] = -1
    metadata: A[str | None, wire_field("string", "0-7", nullable="0-7")] = ""
    error_code: A[int, wire_field("int16", "0-7")] = 0


class OffsetFetchResponseTopic(Message):
    name: A[str, wire_field("string", "0-7")] = ""
    partitions: A[list[OffsetFetchResponsePartition], wire_field("[]struct", "0-7")] = field(default_factory=list)


class OffsetFetchResponsePartitions(Message):
    partition_index: A[int, wire_field("int32", "8+")] = 0
    committed_offset: A[int, wire_field("int64", "8+")] = 0
    committed_leader_epoch: A[int, wire_field("int32", "8+", ignorable=True)] = -1
    metadata: A[str | None, wire_field("string", "8+", nullable="8+")] = ""
    error_code: A[int, wire_field("int16", "8+")] = 0


class OffsetFetchResponseTopics(Message):
    name: A[str, wire_field("string", "8-9", ignorable=True)] = ""
    topic_id: A[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    partitions: A[list[OffsetFetchResponsePartitions], wire_field("[]struct", "8+")] = field(default_factory=list)


class OffsetFetchResponseGroup(Message):
    group_id: A[str, wire_field("string", "8+")] = ""
    topics: A[list[OffsetFetchResponseTopics], wire_field("[]struct", "8+")] = field(default_factory=list)
    error_code: A[int, wire_field("int16", "8+")] = 0


class OffsetFetchResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(9, "1-10", "6+")
    throttle_time_ms: A[int, wire_field("int32", "3+", ignorable=True)] = 0
    topics: A[list[OffsetFetchResponseTopic], wire_field("[]struct", "0-7")] = field(default_factory=list)
    error_code: A[int, wire_field("int16", "2-7", ignorable=True)] = 0
    groups: A[list[OffsetFetchResponseGroup], wire_field("[]struct", "8+")] = field(default_factory=list)
