"""Members of a consumer group with the new protocol (KIP-848).

They subscribe by name or by regular expression; static members may leave temporarily and return.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_heartbeat
from sim.checkers.history import HistoryPartition
from sim.workload.clients import ClusterService, RetriableError
from sim.workload.groups.assigned_member import FENCED_ERRORS, AssignedGroupState, AssignedMember
from sim.workload.groups.member_slots import MemberEnded

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

REBALANCE_MS = 4_000
LEAVING, LEAVING_STATIC = -1, -2
ASSIGNORS = (None, None, "uniform", "range")


class Subscription(NamedTuple):
    """Subscription of a member: topic names, regular expression or None, and all topics by name or expression."""

    names: tuple[str, ...]
    regex: str | None
    topics: tuple[str, ...]
    """All subscribed topics."""


class SimConsumerMember(AssignedMember):
    """Member with the consumer protocol, from join to leave."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        service: ClusterService,
        shared: AssignedGroupState,
        choice: tuple[Subscription, ...],
        instance_id: str | None = None,
    ) -> None:
        """Create the member with a random subscription of ``choice``; ``instance_id`` None: a dynamic member."""
        super().__init__(simulation, name, service, shared, instance_id)
        self._choice = choice
        self.subscription = simulation.rng.choice(choice)
        self._assignor = simulation.rng.choice(ASSIGNORS)
        self._reported_state: tuple[Subscription, list[HistoryPartition]] | None = None
        """Subscription and partitions last reported to the coordinator; None if the full state must be sent."""

    def change_subscription(self) -> None:
        """Choose a random subscription, possibly the present one; the next heartbeat reports a change."""
        self.subscription = self.simulation.rng.choice(self._choice)

    def _reset_reported_state(self) -> None:
        self._reported_state = None

    def _is_state_reported(self) -> bool:
        return self._reported_state is None or self._reported_state[1] == sorted(self.positions)

    def _request(self) -> consumer_group_heartbeat.ConsumerGroupHeartbeatRequest:
        owned = sorted(self.positions)
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            self.group, self.id, self.epoch, self._instance_id
        )
        if self._reported_state is None or self._reported_state[0] != self.subscription:
            request.subscribed_topic_names = list(self.subscription.names)
            request.subscribed_topic_regex = self.subscription.regex or ""
        if self._reported_state is None:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.server_assignor = self._assignor
        if self._reported_state is None or self._reported_state[1] != owned:
            request.topic_partitions = self._topic_partitions(owned)
        return request

    def _topic_partitions(
        self, places: list[HistoryPartition]
    ) -> list[consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions]:
        by_name: dict[str, list[int]] = {}
        for topic, partition in places:
            by_name.setdefault(topic, []).append(partition)
        row = consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions
        return [row(topic_id, by_name[name]) for topic_id, name in self._shared.ids.items() if name in by_name]

    async def _beat(self) -> None:
        """Send a heartbeat and process the response.

        Raises:
            RetriableError: no response, or an error response; MemberEnded: another member has its instance id.
        """
        began, cuts = self._book.next_event(), self.simulation.ledger.power_cuts
        fields = (self.subscription, sorted(self.positions))
        if self.epoch == 0:
            self._book.on_join()
        answer = await self.call_coordinator(self._request(), 1)
        code = answer.error_code
        if code != ErrorCode.UNKNOWN_SERVER_ERROR or not self._book.may_be_uninitialized():
            self.check_expected_error(code, "heartbeat")
        if code in FENCED_ERRORS:
            self._abandon()
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise MemberEnded("another has its instance id")
        if code:
            raise RetriableError(ErrorCode(code).name)
        self._reported_state = fields
        self._on_epoch(answer.member_epoch, began, cuts)
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            places = [(self._shared.ids[row.topic_id], number) for row in rows for number in row.partitions]
            self._on_target(places, began, cuts)

    async def _leave_group(self, *, for_good: bool) -> None:
        """Leave, at random only temporarily if a static member and not ``for_good``. Raises MemberEnded always."""
        for_good = for_good or self._instance_id is None or self.simulation.rng.random() < 0.3
        epoch = LEAVING if for_good else LEAVING_STATIC
        self._book.on_member_removed(self.id)
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(self.group, self.id, epoch, self._instance_id)
        cuts = self.simulation.ledger.power_cuts
        with suppress(RetriableError):
            code = (await self.call_coordinator(request, 1)).error_code
            self.check_expected_error(code, "goodbye")
            if not code:
                await self._commit_after_leaving(cuts)
        raise MemberEnded(f"left with {epoch}")
