"""UpdateRaftVoter (api 82): a voter tells its endpoints and versions.

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


class KRaftVersionFeature(Message):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class UpdateRaftVoterRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(82, "0", "0+", "controller")
    cluster_id: A[str | None, wire_field("string", nullable="0+")] = ""
    current_leader_epoch: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: A[list[Listener], wire_field("[]struct")] = field(default_factory=list)
    k_raft_version_feature: A[KRaftVersionFeature, wire_field("struct")] = field(default_factory=KRaftVersionFeature)


class CurrentLeader(Message):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: String = ""
    port: Int32 = 0


class UpdateRaftVoterResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(82, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: A[CurrentLeader, wire_field("struct", tagged="0+", tag=0)] = field(default_factory=CurrentLeader)
