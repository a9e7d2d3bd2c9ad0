"""Clients that fetch several partitions at once, with random limits, isolation level, version and session.

`sim.checkers.response_checks` checks the responses when they leave the node. Other readers request one partition, and
more bytes than a run ever writes.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages import fetch
from ottla.wire.record_batch.batch_header import iterate_batches
from sim.workload.clients import (
    PAUSE_S,
    SINGLE_NODE,
    TOPIC,
    ClusterService,
    RetriableError,
    SimClient,
    log_start_offset,
)

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

VERSIONS = (4, 6, 9, 11, 12)
"""Versions without topic ids, which do not affect limits."""
PARTITION_BYTES = (0, 1, 100, 300, 1000, 1 << 20)
RESPONSE_BYTES = (0, 1, 200, 700, 3000, 1 << 24)
ROUNDS = 12
"""Number of requests between two lookups of the leaders."""


class SimFetcher(SimClient):
    """Client that sends random Fetch requests for several partitions to one node at a time."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        topics: tuple[str, ...] = (TOPIC,),
        service: ClusterService = SINGLE_NODE,
    ) -> None:
        super().__init__(simulation, name, service)
        self._topics = topics
        self._rng = random.Random(f"{simulation.seed} {name}")
        self._offsets: dict[tuple[str, int], int] = {}
        self._session = 0
        self._epoch = 0

    async def run(self) -> None:
        """Fetch until cancelled; after an error or `ROUNDS` requests, go on with the leader of a random partition."""
        while True:
            try:
                for topic in self._topics:
                    await self._reset_offsets(topic)
                at = await self.leader(TOPIC, int(self._rng.random() * self.service.partitions))
                self._session = self._epoch = 0
                for _ in range(ROUNDS):
                    await self._fetch(at)
                    await self.sleep(self._rng.random() * 0.2)
            except RetriableError:
                self.invalidate_leaders()
                await self.sleep(PAUSE_S * (0.5 + self._rng.random()))

    async def _reset_offsets(self, topic: str) -> None:
        """Set a random 40 % of the partitions, and new ones, to their log start offset, to read records again."""
        for number in range(self.service.partitions):
            if self._rng.random() < 0.4 or (topic, number) not in self._offsets:
                self._offsets[topic, number] = await log_start_offset(self, topic, number)

    async def _fetch(self, at: tuple[str, int]) -> None:
        dice, version = self._rng, self._rng.choice(VERSIONS)
        places = [place for place in self._offsets if dice.random() < 0.8]
        dice.shuffle(places)
        keeps = version >= 7 and dice.random() < 0.7
        session, epoch = (self._session, self._epoch) if keeps else (0, -1)
        each = dice.choice(PARTITION_BYTES)
        request = fetch.FetchRequest(
            max_wait_ms=int(dice.random() * 150),
            min_bytes=dice.choice((0, 1, 500, 1 << 20)),
            max_bytes=dice.choice(RESPONSE_BYTES),
            isolation_level=dice.choice((0, 1)),
            session_id=session,
            session_epoch=epoch,
            topics=[
                fetch.FetchTopic(
                    topic, partitions=[fetch.FetchPartition(number, -1, self._offsets[topic, number], -1, -1, each)]
                )
                for topic, number in places
            ],
        )
        answer = await self.call(request, version, at)
        if keeps:
            known = answer.error_code == 0 and answer.session_id != 0
            self._session, self._epoch = (answer.session_id, epoch + 1) if known else (0, 0)
        for topic in answer.responses:
            for row in topic.partitions:
                self._advance(topic.topic, row)

    def _advance(self, topic: str, row: fetch.PartitionData) -> None:
        """Advance the fetch offset of a partition to the end of the returned batches.

        An invalid batch is reported as ``bad-crc``.

        Raises:
            RetriableError: the response has an error for the partition.
        """
        if row.error_code:
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._offsets.pop((topic, row.partition_index), None)
            raise RetriableError(ErrorCode(row.error_code).name)
        offset = self._offsets.get((topic, row.partition_index), 0)
        try:
            last = max((header.next_offset for _, header in iterate_batches(row.records or b"")), default=offset)
        except WireError as error:
            self.simulation.ledger.report_violation("bad-crc", str(error))
            return
        self._offsets[topic, row.partition_index] = max(offset, last)
