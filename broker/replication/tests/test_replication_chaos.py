"""Random faults of three brokers: acknowledged records are kept, and all logs become equal."""

from __future__ import annotations

import os
import random

import pytest
import trio

from ottla.broker.replication.partition_state import LeaderState
from ottla.broker.replication.tests.broker_cluster import BrokerCluster, wait_until
from ottla.wire.errors import ErrorCode

SEEDS = int(os.environ.get("REPLICATION_SEEDS", "3"))
STEPS = 25


class ReplicationChaos:
    """Random test of replication from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.brokers = BrokerCluster(replica_lag_time_max_ms="3000", min_insync_replicas="2")
        self.acked: list[bytes] = []
        self.sent = 0
        self.down: set[int] = set()

    async def produce(self) -> None:
        """Produce records one by one, each after the result of the last."""
        while True:
            leader, value = self.brokers.leader, b"%d" % self.sent
            self.sent += 1
            if leader.is_up and leader.is_leader:
                with trio.move_on_after(3):
                    if await leader.produce(value, timeout_ms=2000) is ErrorCode.NONE and leader.is_up:
                        self.acked.append(value)
            await trio.sleep(0.01)

    def held(self) -> None:
        """Check that no leader commits a record that a member of the ISR lacks."""
        brokers = self.brokers
        for broker in brokers.all.values():
            state = broker.replica.state if broker.is_up and broker.is_leader else None
            if isinstance(state, LeaderState) and state.epoch == brokers.partition().leader_epoch:
                for member in brokers.partition().isr:
                    other = brokers[member]
                    if other.replicas.get("t", 0) is not None:
                        assert other.log.log_end_offset >= broker.log.high_watermark, (broker.id, member)

    async def step(self) -> None:
        """Cause or repair a fault."""
        brokers, number = self.brokers, self.rng.randrange(1, 4)
        match self.rng.randrange(5):
            case 0 | 1 if number not in self.down and not self.down and len(brokers.partition().isr) > 1:
                brokers[number].kill()
                self.down.add(number)
                brokers.cut.discard(number)
                if number in brokers.partition().isr:
                    brokers.fence(number)
                else:
                    brokers.register(fenced=(number,))
            case 2 if self.down:
                back = self.down.pop()
                brokers[back].start()
                brokers.register()
            case 3:
                brokers.cut ^= {number} - {brokers.partition().leader} - self.down
            case _:
                living = [i for i in brokers.partition().isr if i not in self.down | brokers.cut]
                if living:
                    brokers.commit_partition(leader=self.rng.choice(living))
        await trio.sleep(self.rng.random() * 2)
        self.held()

    async def scenario(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.produce)
            for _ in range(STEPS):
                await self.step()
            nursery.cancel_scope.cancel()
        brokers = self.brokers
        brokers.cut.clear()
        for number in self.down:
            brokers[number].start()
        brokers.register()
        brokers.commit_partition()  # isolated brokers receive the metadata now
        await wait_until(lambda: brokers.leader.is_leader)
        await wait_until(lambda: set(brokers.partition().isr) == {1, 2, 3}, 60)
        while await brokers.leader.produce(b"last") is not ErrorCode.NONE:  # noqa: ASYNC110
            await trio.sleep(0.1)
        logs = [brokers[number].values() for number in (1, 2, 3)]
        assert logs[0] == logs[1] == logs[2]
        kept = [value for value in logs[0] if value in set(self.acked)]
        assert kept == self.acked, "every one, once, in its order"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_faults_keep_acknowledged_records_and_equal_logs(seed: int) -> None:
    chaos = ReplicationChaos(seed)
    chaos.brokers.run(chaos.scenario)
    assert len(chaos.acked) > 30
