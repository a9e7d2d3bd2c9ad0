"""BrokerHeartbeat (api 63): a broker keeps its lease.

Made by KIP-631; version 1 brings directories that are lost (KIP-858).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bool, Int16, Int32, Int64, Message, MessageSpec, request, response, wire_field


class BrokerHeartbeatRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(63, "0-2", "0+", "controller")
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: A[list[bytes], wire_field("[]uuid", "1+", tagged="1+", tag=0)] = field(default_factory=list)
    cordoned_log_dirs: A[list[bytes] | None, wire_field("[]uuid", "2+", nullable="2+", tagged="2+", tag=1)] = None


class BrokerHeartbeatResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(63, "0-2", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
