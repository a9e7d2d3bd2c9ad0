"""Simulated members of a classic consumer group, which read their partitions and commit offsets."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import find_coordinator, heartbeat, join_group, offset_commit, offset_fetch, sync_group
from sim.checkers.history import OperationOutcome
from sim.workload.clients import (
    PAUSE_S,
    SINGLE_NODE,
    TIMEOUT_S,
    TOPIC,
    Address,
    ClusterService,
    RetriableError,
    SimClient,
    fetch_records,
)

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

GROUP = "g"
SESSION_MS = 6000
PAUSE_SHARE = 0.04
"""Share of commits, with several nodes, before which the member pauses for longer than its session timeout."""


class SimConsumer(SimClient):
    """Member of a classic group: joins, reads its partitions, commits their offsets."""

    def __init__(self, simulation: Simulation, name: str, service: ClusterService = SINGLE_NODE) -> None:
        super().__init__(simulation, name, service._replace(timeout_s=TIMEOUT_S))  # JoinGroup waits
        self._member = ""
        self._generation = -1
        self._mine: dict[int, int] = {}
        self._at: Address | None = None
        """Address of the group's coordinator; None if unknown."""
        self._away = random.Random(f"{simulation.seed} {name} is away")

    async def run(self) -> None:
        """Consume until cancelled; after an error, find the coordinator and join again."""
        while True:
            try:
                await self._coordinator()
                await self._join()
                while True:
                    await self._poll_once()
            except RetriableError:
                self._at = None
                self.invalidate_leaders()
                await self.sleep(PAUSE_S * (0.5 + self.simulation.rng.random()))

    async def _coordinator(self) -> None:
        answer = await self.call(find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        found = answer.coordinators[0]
        self._check(found.error_code)
        self._at = (found.host, found.port)

    def _check(self, code: int) -> None:
        if code:
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self._member = ""
            raise RetriableError(ErrorCode(code).name)

    async def _join(self) -> None:
        protocols = [join_group.JoinGroupRequestProtocol("halves", b"")]
        cuts = self.simulation.ledger.power_cuts
        request = join_group.JoinGroupRequest(GROUP, SESSION_MS, SESSION_MS, self._member, None, "consumer", protocols)
        answer = await self.call(request, 6, self._at)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = answer.member_id
            raise RetriableError("member id")
        self._check(answer.error_code)
        self._member, self._generation = answer.member_id, answer.generation_id
        shares = []
        if answer.leader == self._member:
            ids = [m.member_id for m in answer.members]
            for number, member in enumerate(ids):
                mine = bytes(p for p in range(self.service.partitions) if p % len(ids) == number)
                shares.append(sync_group.SyncGroupRequestAssignment(member, mine))
        sync = sync_group.SyncGroupRequest(GROUP, self._generation, self._member, None, assignments=shares)
        synced = await self.call(sync, 4, self._at)
        self._check(synced.error_code)
        self.simulation.ledger.record_generation(self._generation, cuts)
        self._mine = dict.fromkeys(synced.assignment, 0)
        for partition in self._mine:
            self.simulation.ledger.record_assignment((TOPIC, partition), self._generation, self._member)
        await self._positions()
        number = self.simulation.history.start(self.name, "subscribe", now_s=self.simulation.now_s())
        self.simulation.history.end(
            number, OperationOutcome.OK, self.simulation.now_s(), places=[(TOPIC, p) for p in self._mine]
        )

    async def _positions(self) -> None:
        topic, requested_at = (
            offset_fetch.OffsetFetchRequestTopic(TOPIC, list(self._mine)),
            dict(self.simulation.ledger.committed_to),
        )
        answer = await self.call(offset_fetch.OffsetFetchRequest(GROUP, [topic]), 7, self._at)
        self._check(answer.error_code)
        for row in answer.topics[0].partitions if answer.topics else ():
            place, offset = (TOPIC, row.partition_index), max(row.committed_offset, 0)
            self._mine[row.partition_index] = offset
            self.require_leader_epoch(TOPIC, row.partition_index, row.committed_leader_epoch)
            self.simulation.ledger.verify_committed_offset(place, offset, requested_at.get(place, 0))

    async def _poll_once(self) -> None:
        """Send a heartbeat, read each partition once, and commit the offsets after the records read.

        Raises:
            RetriableError: no response, or an error response, such as to rejoin.
        """
        alive = await self.call(heartbeat.HeartbeatRequest(GROUP, self._generation, self._member, None), 3, self._at)
        self._check(alive.error_code)
        for partition, position in list(self._mine.items()):
            records = await fetch_records(self, partition, position, 200)
            if records:
                self._mine[partition] = records[-1].offset + 1
                await self._commit(partition, records[-1].offset + 1)
        await self.sleep(0.1 + self.simulation.rng.random() * 0.3)

    async def _commit(self, partition: int, offset: int) -> None:
        part = offset_commit.OffsetCommitRequestPartition(partition, offset, self.leader_epoch(TOPIC, partition))
        topic = offset_commit.OffsetCommitRequestTopic(TOPIC, partitions=[part])
        if len(self.service.bootstrap) > 1 and self._away.random() < PAUSE_SHARE:
            await self.sleep(SESSION_MS / 1000 * (1.2 + self._away.random()))
        self.simulation.ledger.record_commit_attempt((TOPIC, partition), offset)
        cuts, newest = self.simulation.ledger.power_cuts, self.simulation.ledger.generation
        request = offset_commit.OffsetCommitRequest(GROUP, self._generation, self._member, None, topics=[topic])
        answer = await self.call(request, 7, self._at)
        self._check(answer.topics[0].partitions[0].error_code)
        self.simulation.ledger.verify_commit_generation(self._generation, newest, cuts)
        self.simulation.ledger.record_commit((TOPIC, partition), offset, cuts)
