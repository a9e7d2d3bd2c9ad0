"""Control records: transaction markers, and the records of KRaft about leaders, snapshots and voters."""

from __future__ import annotations

from typing import Annotated, ClassVar

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
    """Key of a control record, after a version of two bytes: the type, such as abort or commit."""

    SPEC: ClassVar[MessageSpec] = data("data", "0", "none")
    type: Int16 = 0
    """0 abort, 1 commit, 2 leader change, 3 snapshot header, 4 snapshot footer, 5 KRaft version, 6 voters. Readers skip
    unknown types.
    """


class EndTxnMarker(Message):
    """Value of an abort or commit marker: epoch of the transaction coordinator that ends the transaction."""

    SPEC: ClassVar[MessageSpec] = data("data", "0", "none")
    coordinator_epoch: Int32 = 0
    """Leader epoch of the transaction coordinator in `__transaction_state`. A marker with a lower one than that of the
    last is rejected with TRANSACTION_COORDINATOR_FENCED.
    """


class KRaftVersionRecord(Message):
    """Control record of the metadata log: level of `kraft.version` from here on (KIP-853)."""

    SPEC: ClassVar[MessageSpec] = data("data", "0", "0+")
    version: Int16 = 0
    """Version of this record's format; 0."""
    k_raft_version: Int16 = 0
    """0: the voters are fixed by `controller.quorum.voters`. 1: the voters are in voters records and can be changed."""


class LeaderChangeMessageVoter(Message):
    """Voter of the metadata quorum at the time of an election, in a LeaderChangeMessage."""

    voter_id: Int32 = 0
    """Node id of the voter."""
    voter_directory_id: Annotated[bytes, wire_field("uuid", "1+")] = ZERO_UUID
    """Directory id of the voter, zero if unknown."""


class LeaderChangeMessage(Message):
    """Control record of KRaft that a new leader appends first: its id and the voters of its epoch."""

    SPEC: ClassVar[MessageSpec] = data("data", "0-1", "0+")
    """Version 1 adds directory ids of voters (KIP-853)."""
    version: Int16 = 0
    """Version of this record's format; 0 or 1."""
    leader_id: Int32 = 0
    """Node id of the new leader. Its epoch is that of the batch."""
    voters: Annotated[list[LeaderChangeMessageVoter], wire_field("[]struct")] = field(default_factory=list)
    """Voters of the quorum at the election."""
    granting_voters: Annotated[list[LeaderChangeMessageVoter], wire_field("[]struct")] = field(default_factory=list)
    """Voters that granted their vote, the leader among them."""


class SnapshotFooterRecord(Message):
    """Control record at the end of a metadata snapshot; a file without it is incomplete."""

    SPEC: ClassVar[MessageSpec] = data("data", "0", "0+")
    version: Int16 = 0
    """Version of this record's format; 0."""


class SnapshotHeaderRecord(Message):
    """Control record at the start of a metadata snapshot: timestamp of the last log record it covers."""

    SPEC: ClassVar[MessageSpec] = data("data", "0", "0+")
    version: Int16 = 0
    """Version of this record's format; 0."""
    last_contained_log_timestamp: Int64 = 0
    """Append time of the last record that the snapshot covers, in ms since the epoch. Snapshots are deleted by this
    age.
    """


class Endpoint(Message):
    """Endpoint of a voter in a VotersRecord: listener name, host and port."""

    name: String = ""
    """Listener name. Other nodes use the endpoint with the name of their own controller listener."""
    host: String = ""
    """Host name or address of the endpoint."""
    port: Uint16 = 0
    """Port of the endpoint."""


class KRaftVersionFeature(Message):
    """Range of levels of `kraft.version` that a voter in a VotersRecord supports."""

    min_supported_version: Int16 = 0
    """Lowest supported level."""
    max_supported_version: Int16 = 0
    """Highest supported level."""


class VotersRecordVoter(Message):
    """Voter of the metadata quorum in a VotersRecord: node id, directory id and endpoints."""

    voter_id: Int32 = 0
    """Node id of the voter."""
    voter_directory_id: Uuid = ZERO_UUID
    """Id of the metadata log directory of the voter; node id and directory id together identify it."""
    endpoints: Annotated[list[Endpoint], wire_field("[]struct")] = field(default_factory=list)
    """Endpoints of the voter."""
    k_raft_version_feature: Annotated[KRaftVersionFeature, wire_field("struct")] = field(
        default_factory=KRaftVersionFeature
    )
    """Levels of `kraft.version` that the voter supports. An upgrade requires that all voters support the new level."""


class VotersRecord(Message):
    """Control record of KRaft with the complete voter set, valid as soon as it is appended (KIP-853)."""

    SPEC: ClassVar[MessageSpec] = data("data", "0", "0+")
    version: Int16 = 0
    """Version of this record's format; 0."""
    voters: Annotated[list[VotersRecordVoter], wire_field("[]struct")] = field(default_factory=list)
    """All voters of the quorum."""
