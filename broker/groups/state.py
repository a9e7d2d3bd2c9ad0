"""Soft state of a classic group: members, pending joins and syncs. Lost at failover by design; the rest is in records.

Source: ``ClassicGroup.java``, ``ClassicGroupMember.java``, ``ClassicGroupState.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ottla.broker.coordinator.batches import LARGE_VALUE_BYTES, decode_slices
from ottla.wire import compiler
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import offset_records as o
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER = "consumer"
"""The protocol type of consumers; others (Connect's, say) use the same machine with metadata of their own."""


class GroupState(Enum):
    """Where a group is between two generations; the value is what DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# From which states each may be entered; anything else is our bug.
VALID_PREVIOUS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class Call(NamedTuple):
    """A client's request on its way into the machine. ``fresh_id``: text for a member id, should one be needed."""

    ticket: Any
    request: Any
    version: int
    client_id: str
    client_host: str
    fresh_id: str = ""
    sees: Callable[[str], bool] | None = None
    """Which topics the client may describe; None where it may describe all."""


@dataclass(slots=True)
class Member:
    """One member."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    join: Call | None = None
    """The JoinGroup that waits for the next generation."""
    sync: Call | None = None
    """The SyncGroup that waits for the leader's assignment."""
    is_new: bool = False

    @property
    def is_waiting(self) -> bool:
        """A member whose request is held cannot send heartbeats and needs none."""
        return self.join is not None or self.sync is not None

    def matches(self, protocols: list[tuple[str, bytes]]) -> bool:
        """Whether a rejoin brings nothing new."""
        return self.protocols == protocols

    def metadata(self, protocol: str) -> bytes:
        """What the member said under a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class Group:
    """One group."""

    id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    """Member ids that were handed out (MEMBER_ID_REQUIRED) and have not joined yet."""
    pending_sync: dict[str, None] = field(default_factory=dict)
    initial_left_ms: int | None = None
    """What is left of an empty group's first wait, which goes in steps while members still come; None outside it."""
    new_member_added: bool = False
    waiting: int = 0
    """How many members wait in JoinGroup."""
    speakers: dict[str, int] = field(default_factory=dict)
    """How many members support each protocol."""
    state_since_ms: int = -1

    def become(self, state: GroupState, now_ms: int) -> None:
        """Go to a state that may follow this one."""
        assert self.state in VALID_PREVIOUS[state], f"{self.id}: {self.state} to {state}"
        self.state = state
        self.state_since_ms = now_ms

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest of the members' rebalance timeouts."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def is_initial(self) -> bool:
        """Whether an empty group's first wait is under way."""
        return self.initial_left_ms is not None

    @property
    def all_joined(self) -> bool:
        """Whether every member, and every one that was promised an id, is waiting in JoinGroup."""
        return not self.pending and self.waiting == len(self.members)

    def park(self, member: Member, call: Call | None) -> Call | None:
        """Hold a member's JoinGroup, or none; gives the one held before."""
        before, member.join = member.join, call
        self.waiting += (call is not None) - (before is not None)
        return before

    def speak(self, member: Member, protocols: list[tuple[str, bytes]]) -> None:
        """A member supports these now."""
        for name, _ in member.protocols:
            self.speakers[name] -= 1
            if not self.speakers[name]:
                del self.speakers[name]
        member.protocols = protocols
        for name, _ in protocols:
            self.speakers[name] = self.speakers.get(name, 0) + 1

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether someone who speaks these may join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self.speakers.get(n, 0) == everybody for n in names)

    @property
    def has_common_protocol(self) -> bool:
        """Whether all members support at least one protocol."""
        return any(count == len(self.members) for count in self.speakers.values())

    def select_protocol(self) -> str:
        """By vote: each member votes for the first protocol of its list that all support."""
        everybody = len(self.members)
        votes = Counter(next(n for n, _ in m.protocols if self.speakers[n] == everybody) for m in self.members.values())
        return votes.most_common(1)[0][0]

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member a request speaks for.

        Raises:
            ProtocolError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is None:
                raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise ProtocolError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def add(self, member: Member) -> None:
        """Take a member in; the first leads."""
        self.members[member.id] = member
        self.pending.pop(member.id, None)
        protocols, member.protocols = member.protocols, []
        self.speak(member, protocols)
        self.waiting += member.join is not None
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member_id: str) -> None:
        """Let a member go, or one that was only promised its id; the next member leads."""
        self.pending.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self.speak(member, [])
            self.waiting -= member.join is not None
            if member.instance_id is not None:
                self.static_ids.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, old_id: str, new_id: str) -> Member:
        """A static member goes on under a new id, in its old place; nobody waits for it any more."""
        member = self.members[old_id]
        self.members = {new_id if k == old_id else k: m for k, m in self.members.items()}
        self.pending_sync = {new_id if k == old_id else k: None for k in self.pending_sync}
        member.id = new_id
        member.is_new = False
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def stored(self, shares: Mapping[str, bytes] | None = None) -> o.GroupMetadataValue:
        """The group as its record has it; with ``shares`` as assignments where they are not in force yet."""
        protocol = self.protocol or ""
        return o.GroupMetadataValue(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.state_since_ms,
            [
                o.MemberMetadata(
                    m.id,
                    m.instance_id,
                    m.client_id,
                    m.client_host,
                    m.rebalance_timeout_ms,
                    m.session_timeout_ms,
                    m.metadata(protocol),
                    m.assignment if shares is None else shares.get(m.id, b""),
                )
                for m in self.members.values()
            ],
        )

    @classmethod
    def restored(cls, group_id: str, value: o.GroupMetadataValue) -> Group:
        """A group from its record: stable where it has members, else empty.

        Nobody vouches for what a log holds: of a member, or an instance, named twice the last row counts.
        """
        group = cls(group_id)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.state_since_ms = value.current_state_timestamp
        for stored in value.members:
            twin = group.static_ids.get(stored.group_instance_id) if stored.group_instance_id is not None else None
            for named in (stored.member_id, twin):
                if named in group.members:
                    group.remove(named)
            rebalance = stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout
            group.add(
                Member(
                    stored.member_id,
                    stored.group_instance_id,
                    stored.client_id,
                    stored.client_host,
                    rebalance,
                    stored.session_timeout,
                    [(value.protocol or "", stored.subscription)],
                    stored.assignment,
                )
            )
        if value.members:
            group.state = GroupState.STABLE
            group.protocol = value.protocol
            group.leader = value.leader
        return group


def subscribed_topics(group: Group) -> Generator[None, None, set[str] | None]:
    """Topics the members of a consumer group say they read; None where one of them cannot be understood.

    A step for each member, and more where it names very many topics.
    """
    out: set[str] = set()
    for member in list(group.members.values()):
        yield
        raw = member.metadata(group.protocol or "") or (member.protocols[0][1] if member.protocols else b"")
        if len(raw) < 2:
            return None
        try:  # every later version begins as version 0 does
            if len(raw) < LARGE_VALUE_BYTES:
                said = compiler.decode(ConsumerProtocolSubscription, 0, raw, 2)[0]
            else:
                said = yield from decode_slices(ConsumerProtocolSubscription, 0, raw)
            out.update(said.topics)
        except WireError:
            return None
    return out
