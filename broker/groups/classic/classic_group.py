"""Soft state of a classic group: its state, its members, and their pending JoinGroup and SyncGroup requests.

Hard state is in the group metadata records, from which members and generation are restored after a failover; pending
requests and unused member ids are lost. Also `GroupRequest`, the event of a request to a group of any type, and
`subscribed_topics`.

Source: ``ClassicGroup.java``, ``ClassicGroupMember.java``, ``ClassicGroupState.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ottla.broker.coordinator.record_batches import decode_job
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import offset_records
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription

TOPICS_PER_STEP = 1_000
MEMBERS_PER_STEP = 200
CONSUMER_PROTOCOL_TYPE = "consumer"
"""Protocol type of consumers; other clients, such as Connect, have their own protocol types and metadata formats."""


class ClassicGroupState(Enum):
    """State of a classic group; the value is its name in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# Valid previous states of each state; another transition is a bug.
VALID_PREVIOUS_STATES: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}


class GroupRequest(NamedTuple):
    """Event: request of a group member, such as JoinGroup or ConsumerGroupHeartbeat, with its API version and client.

    ``new_member_id``: random UUID for a member id that the coordinator assigns: its suffix in a classic group, else the
    whole id. Empty if the request has a member id.
    """

    pending_request: Any
    request: Any
    version: int
    client_id: str
    client_host: str
    new_member_id: str = ""
    can_describe: Callable[[str], bool] | None = None
    """Returns True for a topic that the client is authorized to describe; None if it may describe all."""


@dataclass(slots=True)
class ClassicGroupMember:
    """Member of a classic group: JoinGroup fields, assignment, and the requests that wait for the rebalance."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    awaiting_join: GroupRequest | None = None
    """Pending JoinGroup request, which completes with the next generation."""
    awaiting_sync: GroupRequest | None = None
    """Pending SyncGroup request, which completes with the leader's assignment."""
    is_new: bool = False

    @property
    def is_waiting(self) -> bool:
        """True for a member with a pending request: it cannot send heartbeats, and its session does not expire.

        That of a new member expires all the same, five minutes after its JoinGroup.
        """
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata_for(self, protocol: str) -> bytes:
        """Return the member's metadata for a protocol (assignor); empty if it does not support the protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class ClassicGroup:
    """Soft state of a classic group: state, generation, members, and member ids that were assigned but not used yet.

    ``leader`` is None without members, ``protocol`` before an assignor is selected, and ``protocol_type`` before the
    first member, such as in a simple group, which has only committed offsets.
    """

    id: str
    state: ClassicGroupState = ClassicGroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, ClassicGroupMember] = field(default_factory=dict)
    static_member_ids: dict[str, str] = field(default_factory=dict)
    pending_join_members: dict[str, None] = field(default_factory=dict)
    """Member ids that were assigned in MEMBER_ID_REQUIRED responses and have not joined yet."""
    pending_sync_members: dict[str, None] = field(default_factory=dict)
    remaining_initial_delay_ms: int | None = None
    """Remaining initial rebalance delay (ms), extended in steps while members join; None after the first join phase."""
    new_member_added: bool = False
    awaiting_join_count: int = 0
    """Number of members with a pending JoinGroup request."""
    protocol_counts: dict[str, int] = field(default_factory=dict)
    """Number of members that support each protocol."""
    state_since_ms: int = -1
    """Wall clock (ms) of the last change of ``state``; -1 if unknown."""

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        """Change the state and record the time; the current state must be a valid previous state of the new one."""
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.id}: {self.state} to {state}"
        self.state = state
        self.state_since_ms = now_ms

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest of the members' rebalance timeouts; 0 without members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def is_initial_rebalance(self) -> bool:
        """True during the initial rebalance delay, in which members join a group that was empty."""
        return self.remaining_initial_delay_ms is not None

    @property
    def has_all_members_joined(self) -> bool:
        """True if every member has a pending JoinGroup and no assigned member id is unused; also without members."""
        return not self.pending_join_members and self.awaiting_join_count == len(self.members)

    def set_awaiting_join(self, member: ClassicGroupMember, call: GroupRequest | None) -> GroupRequest | None:
        """Set or clear (None) the pending JoinGroup request of a member; return the previous one."""
        before, member.awaiting_join = member.awaiting_join, call
        self.awaiting_join_count += (call is not None) - (before is not None)
        return before

    def set_protocols(self, member: ClassicGroupMember, protocols: list[tuple[str, bytes]]) -> None:
        """Replace the protocols (name, metadata) of a member and adjust the number of members by protocol."""
        for name, _ in member.protocols:
            self.protocol_counts[name] -= 1
            if not self.protocol_counts[name]:
                del self.protocol_counts[name]
        member.protocols = protocols
        for name, _ in protocols:
            self.protocol_counts[name] = self.protocol_counts.get(name, 0) + 1

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return True if a member with this protocol type and these protocols may join the group.

        A group in state Empty requires only a type and a protocol; else the type must be the group's, and one of the
        protocols must be supported by all present members.
        """
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self.protocol_counts.get(n, 0) == everybody for n in names)

    @property
    def has_common_protocol(self) -> bool:
        """True if at least one protocol is supported by all members."""
        return any(count == len(self.members) for count in self.protocol_counts.values())

    def select_protocol(self) -> str:
        """Return the protocol with the most votes: each member votes for its first one that all members support.

        There must be such a protocol (`has_common_protocol`).
        """
        everybody = len(self.members)
        votes = Counter(
            next(n for n, _ in m.protocols if self.protocol_counts[n] == everybody) for m in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicGroupMember:
        """Return the member that a request names by member id and, if ``instance_id`` is not None, by instance id.

        Raises:
            ProtocolError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        if instance_id is not None:
            known = self.static_member_ids.get(instance_id)
            if known is None:
                raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise ProtocolError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def add(self, member: ClassicGroupMember) -> None:
        """Add a member and remove its id from the pending ids; a group without a leader gets it as the leader."""
        self.members[member.id] = member
        self.pending_join_members.pop(member.id, None)
        protocols, member.protocols = member.protocols, []
        self.set_protocols(member, protocols)
        self.awaiting_join_count += member.awaiting_join is not None
        if member.instance_id is not None:
            self.static_member_ids[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id; if it is the leader, the oldest other member becomes the leader.

        Pending requests of the member are not completed. Do nothing for an unknown id.
        """
        self.pending_join_members.pop(member_id, None)
        self.pending_sync_members.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self.set_protocols(member, [])
            self.awaiting_join_count -= member.awaiting_join is not None
            if member.instance_id is not None:
                self.static_member_ids.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace_static_member(self, old_id: str, new_id: str) -> ClassicGroupMember:
        """Replace the id of a static member (also as leader) and return its object; its requests stay pending."""
        member = self.members[old_id]
        self.members = {new_id if k == old_id else k: m for k, m in self.members.items()}
        self.pending_sync_members = {new_id if k == old_id else k: None for k in self.pending_sync_members}
        member.id = new_id
        member.is_new = False
        if member.instance_id is not None:
            self.static_member_ids[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def to_record_value(self, shares: Mapping[str, bytes] | None = None) -> offset_records.GroupMetadataValue:
        """Return the value of the group metadata record with the group's current state.

        ``shares``: assignments by member id to write instead of the current ones, empty for a member not in it.
        """
        protocol = self.protocol or ""
        return offset_records.GroupMetadataValue(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.state_since_ms,
            [
                offset_records.MemberMetadata(
                    m.id,
                    m.instance_id,
                    m.client_id,
                    m.client_host,
                    m.rebalance_timeout_ms,
                    m.session_timeout_ms,
                    m.metadata_for(protocol),
                    m.assignment if shares is None else shares.get(m.id, b""),
                )
                for m in self.members.values()
            ],
        )

    @classmethod
    def from_record_value(cls, group_id: str, value: offset_records.GroupMetadataValue) -> ClassicGroup:
        """Return a new group with the members of a GroupMetadata record, as `restore` initializes it."""
        group = cls(group_id)
        for _ in group.restore(value):
            pass
        return group

    def restore(self, value: offset_records.GroupMetadataValue) -> Iterator[None]:
        """Initialize this new group from its record: STABLE if it has members, else EMPTY, as a job.

        Clients may write to the log: of members with the same member id or instance id, the last one remains.
        """
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.state_since_ms = value.current_state_timestamp
        for number, stored in enumerate(value.members, 1):
            if number % MEMBERS_PER_STEP == 0:
                yield
            instance_id = stored.group_instance_id
            same_instance = None if instance_id is None else self.static_member_ids.get(instance_id)
            for named in (stored.member_id, same_instance):
                if named in self.members:
                    self.remove(named)
            rebalance = stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout
            self.add(
                ClassicGroupMember(
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
            self.state = ClassicGroupState.STABLE
            self.protocol = value.protocol
            self.leader = value.leader


def subscribed_topics(group: ClassicGroup) -> Generator[None, None, set[str] | None]:
    """Return the topics that the members of a classic group subscribe to, as a job; None if one cannot be parsed.

    A member's subscription is read from its metadata of the embedded consumer protocol.
    """
    out: set[str] = set()
    for member in list(group.members.values()):
        yield
        raw = member.metadata_for(group.protocol or "") or (member.protocols[0][1] if member.protocols else b"")
        if len(raw) < 2:
            return None
        try:  # later versions only add fields at the end
            subscription = yield from decode_job(ConsumerProtocolSubscription, 0, raw)
        except WireError:
            return None
        for first in range(0, len(subscription.topics), TOPICS_PER_STEP):
            out.update(subscription.topics[first : first + TOPICS_PER_STEP])
            if first:
                yield
    return out
