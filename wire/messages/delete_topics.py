"""DeleteTopics (api 20): delete topics.

Version 5 brings throttling (KIP-599) and texts of errors, 6 topic ids (KIP-516).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import ZERO_UUID, Int16, Int32, Message, Spec, request, response, w


class DeleteTopicState(Message):
    name: A[str | None, w("string", "6+", nullable="6+")] = None
    topic_id: A[bytes, w("uuid", "6+")] = ZERO_UUID


class DeleteTopicsRequest(Message):
    SPEC: ClassVar[Spec] = request(20, "1-6", "4+", "broker controller")
    topics: A[list[DeleteTopicState], w("[]struct", "6+")] = field(default_factory=list)
    topic_names: A[list[str], w("[]string", "0-5", ignorable=True)] = field(default_factory=list)
    timeout_ms: Int32 = 0


class DeletableTopicResult(Message):
    name: A[str | None, w("string", nullable="6+")] = ""
    topic_id: A[bytes, w("uuid", "6+", ignorable=True)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: A[str | None, w("string", "5+", nullable="5+", ignorable=True)] = None


class DeleteTopicsResponse(Message):
    SPEC: ClassVar[Spec] = response(20, "1-6", "4+")
    throttle_time_ms: A[int, w("int32", "1+", ignorable=True)] = 0
    responses: A[list[DeletableTopicResult], w("[]struct")] = field(default_factory=list)
