"""Consumer, share and streams groups of a run: topics, producers, members, and verification.

After the faults each group becomes stable within `STABLE_TIMEOUT_S` and has read all records, otherwise it is
``group-unstable``. ``group-skip``: an offset was committed beyond a record that was not read.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.wire.messages import metadata
from sim.checkers.acquisition_locks import LiveNodesByHost
from sim.checkers.group_invariants import GroupInvariants
from sim.workload.clients import ClusterService, RetriableError, SimClient, SimProducer, create_topic, read_partition
from sim.workload.groups.consumer_group import ConsumerGroupWorkload
from sim.workload.groups.group_workload import GroupWorkload
from sim.workload.groups.member_slots import MemberSlot
from sim.workload.groups.share_group import DELIVERY_COUNT_LIMIT, STATE_PARTITIONS, ShareGroupWorkload
from sim.workload.groups.streams_group import StreamsGroupWorkload

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

FIRST_VALUE = 40_000_000
VALUES_EACH = 1_000_000
STABLE_TIMEOUT_S = 40.0
POLL_INTERVAL_S = 0.5
MAX_UPDATES = 60
MAX_INTERVAL_MS = 1500
PRODUCE_INTERVAL_S = 0.6
MAX_PRODUCED_RECORDS = 4


def node_settings(simulation: Simulation) -> dict[str, str]:
    """Return broker settings for groups with short timeouts and with random intervals of the simulation's seed."""
    interval = int(simulation.rng.random() * MAX_INTERVAL_MS)
    out: dict[str, str] = {}
    for kind in ("consumer", "share", "streams"):
        out |= {
            f"group.{kind}.session.timeout.ms": "5000",
            f"group.{kind}.min.session.timeout.ms": "5000",
            f"group.{kind}.heartbeat.interval.ms": "500",
            f"group.{kind}.min.heartbeat.interval.ms": "500",
            f"group.{kind}.assignment.interval.ms": str(interval),
        }
    lock_ms = 1000 + int(simulation.rng.random() * 2000)
    return out | {
        "group.streams.num.standby.replicas": str(int(simulation.rng.random() * 2)),
        "group.streams.initial.rebalance.delay.ms": str(int(simulation.rng.random() * 2000)),
        "group.share.record.lock.duration.ms": str(lock_ms),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.delivery.count.limit": str(DELIVERY_COUNT_LIMIT),
        "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
        "share.coordinator.snapshot.update.records.per.snapshot": str(int(simulation.rng.random() * MAX_UPDATES)),
    }


class GroupsWorkload:
    """Workload of the consumer, share and streams group of a run: topics, records and member slots."""

    def __init__(
        self, simulation: Simulation, service: ClusterService, counted: Counter[str], living: LiveNodesByHost
    ) -> None:
        self._simulation = simulation
        self._service = service
        self._counted = counted
        self._ids: dict[bytes, str] = {}
        self._watch = GroupInvariants(simulation, living)
        self.member_slots: list[MemberSlot] = []
        self.is_quiescent = False
        """True once no faults of members are injected."""
        self.groups: list[GroupWorkload] = [
            ConsumerGroupWorkload(simulation, service, self._ids),
            ShareGroupWorkload(simulation, service, self._ids, living),
            StreamsGroupWorkload(simulation, service, self._ids),
        ]
        self._topics = [topic for kind in self.groups for topic in kind.topics]

    @property
    def names(self) -> list[str]:
        """Ids of the groups."""
        return [kind.group for kind in self.groups]

    async def run(self) -> None:
        """Run members and producers until the simulation is draining, then without faults until groups are stable.

        A group that is not stable after `STABLE_TIMEOUT_S` is reported as ``group-unstable``.
        """
        simulation = self._simulation
        for topic in self._topics:
            await create_topic(simulation, topic, service=self._service)
        asker = SimClient(simulation, "group-asker", self._service)
        for topic in self._topics:
            self._ids[await asker.retry_until_done(partial(_id_of, asker, topic))] = topic
        for kind in self.groups:
            await asker.retry_until_done(partial(kind.prepare, asker))
        seats = self.member_slots
        seats += [
            MemberSlot(simulation, kind.group, make, self._counted)
            for kind in self.groups
            for make in kind.member_factories()
        ]
        for seat in seats if self.is_quiescent else ():
            seat.stop_faults()
        async with trio.open_nursery() as members:
            members.start_soon(self._watch.run)
            for seat in seats:
                members.start_soon(seat.run)
            await self._produce()
            for seat in seats:
                seat.stop_faults()
            simulation.trace_event("groups calm down")
            await self._wait_until_stable(asker, seats)
            members.cancel_scope.cancel()
        asker.close_connections()

    async def _produce(self) -> None:
        """Write batches of 1 to `MAX_PRODUCED_RECORDS` records to the topics until the simulation is draining."""
        simulation, service, rng = self._simulation, self._service, self._simulation.rng
        feeders = [
            SimProducer(simulation, f"feeder-{topic}", FIRST_VALUE, topic, service=service) for topic in self._topics
        ]
        nexts = dict.fromkeys(self._topics, FIRST_VALUE)
        async with trio.open_nursery() as nursery:

            async def one(feeder: SimProducer, topic: str) -> None:
                while not simulation.draining:
                    count = 1 + int(rng.random() * MAX_PRODUCED_RECORDS)
                    values = list(range(nexts[topic], nexts[topic] + count))
                    nexts[topic] += count
                    await feeder.send(int(rng.random() * service.partitions), values)
                    await feeder.sleep(rng.random() * PRODUCE_INTERVAL_S * len(feeders))
                feeder.close_connections()

            for feeder, topic in zip(feeders, self._topics, strict=True):
                nursery.start_soon(one, feeder, topic)

    async def _wait_until_stable(self, asker: SimClient, seats: list[MemberSlot]) -> None:
        """Wait until every group is stable; report those that are not within `STABLE_TIMEOUT_S`."""
        simulation, since = self._simulation, self._simulation.now_s()
        for kind in self.groups:
            while True:
                members = [seat.member for seat in seats if seat.member is not None and seat.group == kind.group]
                wrong = await kind.instability(asker, members)
                if not wrong:
                    break
                if simulation.now_s() > since + STABLE_TIMEOUT_S:
                    simulation.ledger.report_violation(
                        "group-unstable", f"{kind.group} after {STABLE_TIMEOUT_S:.0f} s: {wrong}"
                    )
                    break
                await trio.sleep(POLL_INTERVAL_S)
            simulation.trace_event(f"{kind.group} is at rest")

    async def verify(self) -> None:
        """Read all partitions once more, and verify their records and the results of the groups."""
        reader = SimClient(self._simulation, "group-reader", self._service)
        for topic in self._topics:
            for number in range(self._service.partitions):
                self._simulation.ledger.verify_partition((topic, number), await read_partition(reader, topic, number))
        for kind in self.groups:
            await kind.verify(reader)


async def _id_of(client: SimClient, topic: str) -> bytes:
    answer = await client.call(metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)], False), 12)
    if answer.topics[0].error_code:
        raise RetriableError("it is not known yet")
    return bytes(answer.topics[0].topic_id)
