"""RemoveRaftVoter (api 81): remove a controller from the quorum.

Made by KIP-853.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, Uuid, request, response, wire_field


class RemoveRaftVoterRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(81, "0", "0+", "controller broker")
    cluster_id: A[str | None, wire_field("string", nullable="0+")] = ""
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID


class RemoveRaftVoterResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(81, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+", ignorable=True)] = ""
