"""File `quorum-state` of the metadata log: epoch, leader and vote of a node, in JSON (KIP-595).

It is written before a message that depends on it is sent.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int32, Message, MessageSpec, data, wire_field


class Voter(Message):
    """Voter of the metadata quorum in version 0 of `quorum-state`."""

    voter_id: Annotated[int, wire_field("int32", "0")] = 0
    """Node id of the voter."""


class QuorumStateData(Message):
    """Content of `quorum-state`: leader, epoch and vote of a node, which must survive its restart."""

    SPEC: ClassVar[MessageSpec] = data("data", "0-1", "0+")
    """Version 0 is that of `kraft.version` 0. Version 1, of `kraft.version` 1, adds the directory id of the candidate
    and has no voters, since they are in voters records (KIP-853).
    """
    cluster_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the cluster, in version 0. Mostly empty, and not read."""
    leader_id: Int32 = -1
    """Node id of the leader of this epoch, -1 if it is unknown."""
    leader_epoch: Int32 = -1
    """Highest epoch that the node knows. It never decreases."""
    voted_id: Int32 = -1
    """Node id of the candidate that the node has voted for in this epoch, -1 if it has not voted. A node votes once in
    an epoch.
    """
    voted_directory_id: Annotated[bytes, wire_field("uuid", "1+")] = ZERO_UUID
    """Directory id of that candidate; zero if unknown or without a vote."""
    applied_offset: Annotated[int, wire_field("int64", "0")] = 0
    """Offset without use, in version 0; 0, and not read."""
    current_voters: Annotated[list[Voter] | None, wire_field("[]struct", "0", nullable="0")] = field(
        default_factory=list
    )
    """Voters from `controller.quorum.voters`, in version 0."""
