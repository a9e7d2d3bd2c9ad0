"""Members with the classic protocol in a consumer group, which is converted when such a member joins, and back again.

These members revoke all partitions before they rejoin. The leader of a generation assigns its partitions.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.groups.consumer import consumer_protocol
from ottla.wire.codec import compiler
from ottla.wire.codec.primitives import Buffer
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import heartbeat, join_group, leave_group, sync_group
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from sim.checkers.history import HistoryPartition
from sim.workload.clients import TIMEOUT_S, ClusterService, RetriableError
from sim.workload.groups.assigned_member import AssignedGroupState, AssignedMember
from sim.workload.groups.consumer_member import Subscription
from sim.workload.groups.member_slots import MemberEnded

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

SESSION_MS, REBALANCE_MS = 6_000, 4_000
ASSIGNOR = "range"
_VERSION = struct.Struct(">h")
EMBEDDED_VERSION = 1
M = TypeVar("M", bound=Message)


def _decode(cls: type[M], raw: Buffer) -> M:
    """Return the subscription or assignment in ``raw``, which begins with its version in two bytes."""
    return compiler.decode(cls, consumer_protocol.decode_version(bytes(raw[:2])), raw, 2)[0]


class SimClassicMember(AssignedMember):
    """Member with the classic protocol in a consumer group, from join to leave."""

    offset_commit_version = 8
    reads_with_member_epoch = False

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        service: ClusterService,
        shared: AssignedGroupState,
        choice: tuple[Subscription, ...],
    ) -> None:
        """Create the member with a random subscription of ``choice``; those by regular expression are left out."""
        super().__init__(simulation, name, service._replace(timeout_s=TIMEOUT_S), shared)  # JoinGroup waits
        self._choice = tuple(x for x in choice if x.regex is None)
        self.subscription = simulation.rng.choice(self._choice)
        self._joins = True
        self._is_member = False
        """True if the coordinator has assigned the member's id."""

    def change_subscription(self) -> None:
        """Choose a random subscription, possibly the present one, and join again with the next heartbeat."""
        self.subscription = self.simulation.rng.choice(self._choice)
        self._joins = True

    def _reset_reported_state(self) -> None:
        """Do nothing: this protocol always sends the full state."""

    def _is_state_reported(self) -> bool:
        return True

    def _abandon(self) -> None:
        super()._abandon()
        self._joins = True

    async def _beat(self) -> None:
        """Send a heartbeat, or join if the previous one or a new subscription requires it; errors as `_join`."""
        if self._joins:
            await self._join()
            return
        began, cuts = self._book.next_event(), self.simulation.ledger.power_cuts
        code = (await self.call_coordinator(heartbeat.HeartbeatRequest(self.group, self.epoch, self.id), 4)).error_code
        self.check_expected_error(code, "heartbeat")
        self._joins = code == ErrorCode.REBALANCE_IN_PROGRESS
        self._check(0 if self._joins else code)
        self._on_epoch(self.epoch, began, cuts)

    def _check(self, code: int) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            self._is_member = self._is_member and code == ErrorCode.ILLEGAL_GENERATION
            self._abandon()
        if code:
            raise RetriableError(ErrorCode(code).name)

    async def _join(self) -> None:
        """Commit and revoke all partitions, then join the next generation and get its assignment.

        Raises:
            RetriableError: no response, or an error response; MemberEnded: a commit had no response, so that it left.
        """
        for place in list(self.positions):
            await self._commit(place)
        self._abandon()
        wants, began, cuts = self.subscription, self._book.next_event(), self.simulation.ledger.power_cuts
        subscription = _VERSION.pack(EMBEDDED_VERSION) + compiler.encode(
            ConsumerProtocolSubscription(list(wants.topics)), EMBEDDED_VERSION
        )
        member_id = self.id if self._is_member else ""
        protocols = [join_group.JoinGroupRequestProtocol(ASSIGNOR, subscription)]
        request = join_group.JoinGroupRequest(
            self.group, SESSION_MS, REBALANCE_MS, member_id, None, "consumer", protocols
        )
        self._book.allow_epoch_reset()
        try:
            answer = await self.call_coordinator(request, 9)
        finally:
            self._book.allow_epoch_reset()
        self.check_expected_error(answer.error_code, "join")
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = self._identity = answer.member_id
            self._is_member = True
        self._check(answer.error_code)
        rows = self._compute_assignment(answer) if answer.leader == self.id else []
        sync = sync_group.SyncGroupRequest(
            self.group, answer.generation_id, self.id, None, answer.protocol_type, answer.protocol_name, rows
        )
        synced = await self.call_coordinator(sync, 5)
        self.check_expected_error(synced.error_code, "sync")
        self._check(synced.error_code)
        self._joins = self.subscription != wants
        self._on_epoch(answer.generation_id, began, cuts)
        raw = synced.assignment
        given = _decode(ConsumerProtocolAssignment, raw).assigned_partitions if raw else []
        self._on_target([(row.topic, number) for row in given for number in row.partitions], began, cuts)

    def _compute_assignment(self, answer: join_group.JoinGroupResponse) -> list[sync_group.SyncGroupRequestAssignment]:
        """Return an assignment of each partition to one of its subscribers, as leader of the generation."""
        wants = {x.member_id: _decode(ConsumerProtocolSubscription, x.metadata).topics for x in answer.members}
        dealt: dict[str, list[HistoryPartition]] = {member_id: [] for member_id in wants}
        for topic in sorted({topic for topics in wants.values() for topic in topics}):
            takers = [member_id for member_id, topics in wants.items() if topic in topics]
            for number in range(self.service.partitions):
                dealt[takers[number % len(takers)]].append((topic, number))
        row = ConsumerProtocolAssignmentTopicPartition
        out = []
        for member_id, places in dealt.items():
            rows = [row(topic, [n for name, n in places if name == topic]) for topic in dict(places)]
            raw = compiler.encode(ConsumerProtocolAssignment(rows), EMBEDDED_VERSION)
            out.append(sync_group.SyncGroupRequestAssignment(member_id, _VERSION.pack(EMBEDDED_VERSION) + raw))
        return out

    async def _leave_group(self, *, for_good: bool) -> None:
        """Send LeaveGroup; afterwards a commit must be rejected. Raises MemberEnded always."""
        self._book.on_member_removed(self.id)
        cuts = self.simulation.ledger.power_cuts
        with suppress(RetriableError):
            request = leave_group.LeaveGroupRequest(self.group, members=[leave_group.MemberIdentity(self.id)])
            answer = await self.call_coordinator(request, 5)
            if not answer.error_code and not answer.members[0].error_code:
                await self._commit_after_leaving(cuts)
        raise MemberEnded("left")
