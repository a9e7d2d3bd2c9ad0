"""DeleteTopics (api 20): delete topics.

Version 5 brings throttling (KIP-599) and texts of errors, 6 topic ids (KIP-516).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, request, response, wire_field


class DeleteTopicState(Message):
    name: A[str | None, wire_field("string", "6+", nullable="6+")] = None
    topic_id: A[bytes, wire_field("uuid", "6+")] = ZERO_UUID


class DeleteTopicsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(20, "1-6", "4+", "broker controller")
    topics: A[list[DeleteTopicState], wire_field("[]struct", "6+")] = field(default_factory=list)
    topic_names: A[list[str], wire_field("[]string", "0-5", ignorable=True)] = field(default_factory=list)
    timeout_ms: Int32 = 0


class DeletableTopicResult(Message):
    name: A[str | None, wire_field("string", nullable="6+")] = ""
    topic_id: A[bytes, wire_field("uuid", "6+", ignorable=True)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", "5+", nullable="5+", ignorable=True)] = None


class DeleteTopicsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(20, "1-6", "4+")
    throttle_time_ms: A[int, wire_field("int32", "1+", ignorable=True)] = 0
    responses: A[list[DeletableTopicResult], wire_field("[]struct")] = field(default_factory=list)
