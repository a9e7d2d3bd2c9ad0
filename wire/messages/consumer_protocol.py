"""Data inside fields of other messages: subscription and assignment of classic consumers, principal in an Envelope."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bool, Message, MessageSpec, String, data, wire_field


class ConsumerProtocolAssignmentTopicPartition(Message):
    """Topic with the partitions that the group leader assigned to a classic consumer."""

    topic: String = ""
    """Topic name."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the assigned partitions."""


class ConsumerProtocolAssignment(Message):
    """Assignment of a classic consumer, in a field of SyncGroup after a version of two bytes."""

    SPEC: ClassVar[MessageSpec] = data("data", "0-3", "none")
    """All versions have the same fields; the version follows that of the subscription. A reader takes a newer version
    as the highest one that it knows.
    """
    assigned_partitions: Annotated[list[ConsumerProtocolAssignmentTopicPartition], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partitions that the leader of the group assigned to the member."""
    user_data: Annotated[bytes | None, wire_field("bytes", nullable="0+")] = None
    """Data of the client-side assignor, null if it has none. The broker does not read it."""


class ConsumerProtocolSubscriptionTopicPartition(Message):
    """Topic with the partitions that a classic consumer owns when it joins again."""

    topic: Annotated[str, wire_field("string", "1+")] = ""
    """Topic name."""
    partitions: Annotated[list[int], wire_field("[]int32", "1+")] = field(default_factory=list)
    """Indexes of the owned partitions."""


class ConsumerProtocolSubscription(Message):
    """Subscription of a classic consumer, in a field of JoinGroup after a version of two bytes."""

    SPEC: ClassVar[MessageSpec] = data("data", "0-3", "none")
    """Version 1 adds owned partitions (KIP-429), 2 the generation of the owner (KIP-792), 3 the rack (KIP-881). A
    reader takes a newer version as the highest one that it knows.
    """
    topics: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Topics that the member subscribes to."""
    user_data: Annotated[bytes | None, wire_field("bytes", nullable="0+")] = None
    """Data of the client-side assignor, null if it has none. The broker does not read it."""
    owned_partitions: Annotated[
        list[ConsumerProtocolSubscriptionTopicPartition], wire_field("[]struct", "1+", ignorable=True)
    ] = field(default_factory=list)
    """Partitions that the member has before the rebalance, for a cooperative or sticky assignor."""
    generation_id: Annotated[int, wire_field("int32", "2+", ignorable=True)] = -1
    """Generation in which the member had its owned partitions, -1 if unknown. The assignor ignores those of an older
    generation.
    """
    rack_id: Annotated[str | None, wire_field("string", "3+", nullable="3+", ignorable=True)] = None
    """`client.rack` of the consumer, null if not set."""


class DefaultPrincipalData(Message):
    """Principal of the client, in a field of an Envelope request after a version of two bytes."""

    SPEC: ClassVar[MessageSpec] = data("data", "0", "0+")
    type: String = ""
    """Type of the principal; `User`, unless a custom principal builder sets another one."""
    name: String = ""
    """Name of the principal, such as the SASL user name or the subject of a certificate."""
    token_authenticated: Bool = False
    """True if the client logged in with a delegation token. Such a client may send no request about delegation tokens.
    """
