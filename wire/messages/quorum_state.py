"""The `quorum-state` file: epoch, leader and vote, stored as one line of JSON."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int32, Message, MessageSpec, data, wire_field


class Voter(Message):
    voter_id: A[int, wire_field("int32", "0")] = 0


class QuorumStateData(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "0-1", "0+")
    cluster_id: A[str, wire_field("string", "0")] = ""
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    voted_id: Int32 = -1
    voted_directory_id: A[bytes, wire_field("uuid", "1+")] = ZERO_UUID
    applied_offset: A[int, wire_field("int64", "0")] = 0
    current_voters: A[list[Voter] | None, wire_field("[]struct", "0", nullable="0")] = field(default_factory=list)
