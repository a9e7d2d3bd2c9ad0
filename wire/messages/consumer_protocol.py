"""The blobs that classic group members exchange through the coordinator, and the principal inside an envelope."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bool, Message, MessageSpec, String, data, wire_field


class ConsumerProtocolAssignmentTopicPartition(Message):
    topic: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class ConsumerProtocolAssignment(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "0-3", "none")
    assigned_partitions: A[list[ConsumerProtocolAssignmentTopicPartition], wire_field("[]struct")] = field(
        default_factory=list
    )
    user_data: A[bytes | None, wire_field("bytes", nullable="0+")] = None


class ConsumerProtocolSubscriptionTopicPartition(Message):
    topic: A[str, wire_field("string", "1+")] = ""
    partitions: A[list[int], wire_field("[]int32", "1+")] = field(default_factory=list)


class ConsumerProtocolSubscription(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "0-3", "none")
    topics: A[list[str], wire_field("[]string")] = field(default_factory=list)
    user_data: A[bytes | None, wire_field("bytes", nullable="0+")] = None
    owned_partitions: A[
        list[ConsumerProtocolSubscriptionTopicPartition], wire_field("[]struct", "1+", ignorable=True)
    ] = field(default_factory=list)
    generation_id: A[int, wire_field("int32", "2+", ignorable=True)] = -1
    rack_id: A[str | None, wire_field("string", "3+", nullable="3+", ignorable=True)] = None


class DefaultPrincipalData(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "0", "0+")
    type: String = ""
    name: String = ""
    token_authenticated: Bool = False
