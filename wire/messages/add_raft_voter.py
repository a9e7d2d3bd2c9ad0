"""AddRaftVoter (api 80): add a controller to the quorum.

Made by KIP-853.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    MessageSpec,
    String,
    Uint16,
    Uuid,
    request,
    response,
    wire_field,
)


class Listener(Message):
    name: String = ""
    host: String = ""
    port: Uint16 = 0


class AddRaftVoterRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(80, "0-1", "0+", "controller broker")
    cluster_id: A[str | None, wire_field("string", nullable="0+")] = ""
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: A[list[Listener], wire_field("[]struct")] = field(default_factory=list)
    ack_when_committed: A[bool, wire_field("bool", "1+")] = True


class AddRaftVoterResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(80, "0-1", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+", ignorable=True)] = ""
