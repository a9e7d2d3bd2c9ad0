"""Client that moves partitions between log directories of their nodes, and checks the results.

Whatever the response, no acknowledged record may be lost. After the faults each move completes: ``moves-on`` if a
future log remains; ``twice`` if a partition is in two directories.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.handlers.admin.metadata import INTERNAL_TOPICS
from ottla.broker.replication.alter_log_dirs.future_replica_copier import ALTER_LOG_DIRS_RATE_KEY
from ottla.controller.metadata.image import RESOURCE_BROKER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import alter_replica_log_dirs, describe_log_dirs, incremental_alter_configs
from sim.workload.admin_client import NAMES
from sim.workload.clients import TOPIC, ClusterService, RetriableError, SimClient, UnknownOutcome

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

PAUSE_S = 0.8
SLOWEST = 200
"""Minimum copy rate in bytes per second."""
SLOW_TIMES = 4
_SET, _DELETE = 0, 1
MAX_CONCURRENT_MOVES = 3
MAX_PARTITIONS = 2
MOVE_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.5


class SimLogDirMover(SimClient):
    """Client that moves partitions between directories."""

    def __init__(self, simulation: Simulation, service: ClusterService, paths: list[str], compacted: str) -> None:
        """Create the client; ``paths``: log directories of each node, to which one that does not exist is added."""
        super().__init__(simulation, "relocator", service)
        self._rng = random.Random(f"directories {simulation.seed}")
        self._paths = [*paths, "/nowhere"]
        self._topics = [TOPIC, compacted, *sorted(INTERNAL_TOPICS), *NAMES]
        self.moves = 0
        """Number of accepted moves."""

    async def run(self) -> None:
        """Send random moves until the simulation is draining; in half of the runs copies are throttled."""
        slow = self._rng.random() < 0.5
        if slow:
            await self.retry_until_done(
                partial(self._set_throttle, str(SLOWEST + int(self._rng.random() * SLOWEST * 5)))
            )
        while not self.simulation.draining:
            await self.sleep(self._rng.random() * PAUSE_S * (SLOW_TIMES if slow else 1))
            try:
                await self._move()
            except UnknownOutcome:
                self.invalidate_leaders()
        self.close_connections()

    async def _move(self) -> None:
        request = alter_replica_log_dirs.AlterReplicaLogDirsRequest()
        for _ in range(1 + int(self._rng.random() * MAX_CONCURRENT_MOVES)):
            number = int(self._rng.random() * MAX_PARTITIONS)
            row = alter_replica_log_dirs.AlterReplicaLogDirTopic(self._rng.choice(self._topics), [number])
            request.dirs.append(alter_replica_log_dirs.AlterReplicaLogDir(self._rng.choice(self._paths), [row]))
        answer = await self.call(request, 2, self._rng.choice(self.service.bootstrap))
        self.moves += sum(not p.error_code for topic in answer.results for p in topic.partitions)

    async def _set_throttle(self, rate: str | None) -> None:
        """Set the copy rate of all nodes in bytes per second; None: unlimited.

        Raises:
            RetriableError: no response, or an error response.
        """
        config = incremental_alter_configs.AlterableConfig(
            ALTER_LOG_DIRS_RATE_KEY, _DELETE if rate is None else _SET, rate
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(RESOURCE_BROKER, "", [config])]
        )
        code = (await self.call(request, 1)).responses[0].error_code
        if code:
            raise RetriableError(ErrorCode(code).name)

    async def verify(self) -> None:
        """Remove the throttle and wait for the end of all moves; report ``moves-on`` and ``twice``.

        Raises:
            RetriableError: no response, or an error response.
        """
        await self._set_throttle(None)
        for address in self.service.bootstrap:
            rows: Counter[tuple[str, int]] = Counter()
            for _ in range(int(MOVE_TIMEOUT_S / POLL_INTERVAL_S)):
                answer = await self.call(describe_log_dirs.DescribeLogDirsRequest(None), 4, address)
                parts = [(x.name, p) for d in answer.results for x in d.topics for p in x.partitions]
                coming = [f"{name}-{p.partition_index}: {p}" for name, p in parts if p.is_future_key]
                rows = Counter((name, p.partition_index) for name, p in parts)
                if not coming:
                    break
                await self.sleep(POLL_INTERVAL_S)
            else:
                self.simulation.ledger.report_violation("moves-on", f"{address[0]}: {', '.join(coming)}")
                continue
            for (name, number), count in rows.items():
                if count > 1:
                    self.simulation.ledger.report_violation("twice", f"{address[0]}: {name}-{number}")
