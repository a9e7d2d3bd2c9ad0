"""What control batches hold: transaction markers, leader changes, snapshot ends, quorum membership."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    Uint16,
    Uuid,
    data,
    wire_field,
)


class ControlRecordTypeSchema(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "0", "none")
    type: Int16 = 0


class EndTxnMarker(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "0", "none")
    coordinator_epoch: Int32 = 0


class KRaftVersionRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "0", "0+")
    version: Int16 = 0
    k_raft_version: Int16 = 0


class LeaderChangeMessageVoter(Message):
    voter_id: Int32 = 0
    voter_directory_id: A[bytes, wire_field("uuid", "1+")] = ZERO_UUID


class LeaderChangeMessage(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "0-1", "0+")
    version: Int16 = 0
    leader_id: Int32 = 0
    voters: A[list[LeaderChangeMessageVoter], wire_field("[]struct")] = field(default_factory=list)
    granting_voters: A[list[LeaderChangeMessageVoter], wire_field("[]struct")] = field(default_factory=list)


class SnapshotFooterRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "0", "0+")
    version: Int16 = 0


class SnapshotHeaderRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "0", "0+")
    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


class Endpoint(Message):
    name: String = ""
    host: String = ""
    port: Uint16 = 0


class KRaftVersionFeature(Message):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class VotersRecordVoter(Message):
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    endpoints: A[list[Endpoint], wire_field("[]struct")] = field(default_factory=list)
    k_raft_version_feature: A[KRaftVersionFeature, wire_field("struct")] = field(default_factory=KRaftVersionFeature)


class VotersRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "0", "0+")
    version: Int16 = 0
    voters: A[list[VotersRecordVoter], wire_field("[]struct")] = field(default_factory=list)
