"""Consumer group in the workload of a simulated run: topics, members of both protocols, and verification."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_describe
from sim.checkers.assignment_checker import AssignmentChecker
from sim.workload.clients import ClusterService, SimClient
from sim.workload.groups.assigned_member import AssignedGroupState
from sim.workload.groups.classic_member import SimClassicMember
from sim.workload.groups.consumer_member import SimConsumerMember, Subscription
from sim.workload.groups.group_workload import AssignedGroupWorkload

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation
    from sim.workload.groups.member_slots import SimGroupMember

GROUP = "readers"
TOPICS = ("k0", "k1", "k2")


class ConsumerGroupWorkload(AssignedGroupWorkload):
    """Workload of a consumer group, some members of which use the classic protocol."""

    group = GROUP
    topics = TOPICS
    subscriptions = (
        Subscription(TOPICS, None, TOPICS),
        Subscription(TOPICS[:2], None, TOPICS[:2]),
        Subscription(TOPICS[1:], None, TOPICS[1:]),
        Subscription((), "k[02]", (TOPICS[0], TOPICS[2])),
        Subscription(TOPICS[1:2], "k[0-1]", TOPICS[:2]),
        Subscription((), "k.*", TOPICS),
    )

    def __init__(self, simulation: Simulation, service: ClusterService, ids: Mapping[bytes, str]) -> None:
        super().__init__(simulation, service, ids)
        self._shared = AssignedGroupState(
            GROUP, AssignmentChecker(simulation.ledger, GROUP, simulation.now_s), ids, self._read
        )

    def member_factories(self) -> Iterator[Callable[[], SimGroupMember]]:
        """Yield the factories of static and dynamic members; in some runs one or two use the classic protocol."""
        classic = self._simulation.rng.choice(((), (), (1,), (0, 1)))
        for number, instance_id in enumerate((None, None, "somebody")):
            common = (self._simulation, f"reader-{number}", self._service, self._shared, self.subscriptions)
            if number in classic:
                yield partial(SimClassicMember, *common)
            else:
                yield partial(SimConsumerMember, *common, instance_id)

    async def _find_instability(self, asker: SimClient, members: Sequence[SimGroupMember]) -> str:
        here = [x for x in members if isinstance(x, SimConsumerMember | SimClassicMember)]
        at = await self._coordinator(asker)
        response = (await asker.call(consumer_group_describe.ConsumerGroupDescribeRequest([GROUP]), 1, at)).groups[0]
        if response.error_code or response.group_state != "Stable":
            return f"{ErrorCode(response.error_code).name} {response.group_state}"
        if {x.member_id for x in response.members} != {x.id for x in here}:
            return f"members {sorted(x.member_id for x in response.members)} are not {sorted(x.id for x in here)}"
        wanted = {(topic, n) for x in here for topic in x.subscription.topics for n in range(self._service.partitions)}
        return await self._find_unread(asker, at, wanted, here)
