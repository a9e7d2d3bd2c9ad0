"""Client that reassigns replicas, cancels reassignments, and elects preferred leaders.

Whatever the response, no acknowledged record may be lost, and at the end every ISR is full.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ottla.controller.metadata.image import MetadataImage
from ottla.wire.messages import alter_partition_reassignments, elect_leaders
from sim.workload.clients import ClusterService, SimClient, UnknownOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.engine.simulation import Simulation

PAUSE_S = 2.0
MAX_CONCURRENT_MOVES = 4
CANCEL_SHARE = 0.15
ELECT_SHARE = 0.2
PREFERRED = 0


class SimReplicaMover(SimClient):
    """Client that reassigns replicas, cancels reassignments and elects preferred leaders, one request at a time."""

    def __init__(
        self,
        simulation: Simulation,
        image: Callable[[], MetadataImage],
        brokers: list[int],
        topics: tuple[str, ...],
        service: ClusterService,
    ) -> None:
        """Create the client; ``image``: returns the newest image of the running nodes; ``topics``: topics to move."""
        super().__init__(simulation, "mover", service)
        self._image = image
        self._brokers = brokers
        self._topics = topics
        self._rng = random.Random(f"moves {simulation.seed}")
        self.moves = 0
        """Number of reassignments begun or cancelled."""

    async def run(self) -> None:
        """Send random requests until cancelled; error responses are ignored."""
        while True:
            await self.sleep(self._rng.random() * PAUSE_S)
            try:
                if self._rng.random() < ELECT_SHARE:
                    await self.call(elect_leaders.ElectLeadersRequest(PREFERRED, None, 5000), 2)
                else:
                    await self._move()
            except UnknownOutcome:
                self.invalidate_leaders()

    async def _move(self) -> None:
        image = self._image()
        there = [(n, i) for n in self._topics if n in image.topics for i in image.topics[n].partitions]
        if not there:
            return
        rows = [
            alter_partition_reassignments.ReassignableTopic(
                name, [alter_partition_reassignments.ReassignablePartition(number, self._target())]
            )
            for name, number in self._rng.sample(
                there, min(1 + int(self._rng.random() * MAX_CONCURRENT_MOVES), len(there))
            )
        ]
        answer = await self.call(alter_partition_reassignments.AlterPartitionReassignmentsRequest(5000, topics=rows), 0)
        self.moves += sum(not p.error_code for topic in answer.responses for p in topic.partitions)

    def _target(self) -> list[int] | None:
        if self._rng.random() < CANCEL_SHARE:
            return None
        return self._rng.sample(self._brokers, self.service.replicas)
