"""Transactional workload of a simulated cluster: producers, copiers, readers, and their verification."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from sim.checkers.anomalies import find_anomalies
from sim.checkers.observed_log import ObservedLog
from sim.checkers.transaction_anomalies import MAX_LSO_DELAY_S, check_copy, stuck_last_stable_offset
from sim.workload.clients import ClusterService, create_topic
from sim.workload.isolation_reader import IsolationReader
from sim.workload.transactional_clients import SOURCE, TxnProducer
from sim.workload.transactional_copier import TARGET, TransactionalCopier

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

FIRST_VALUE = 20_000_000
VALUES_EACH = 1_000_000
PRODUCERS = 2
STABLE_TIMEOUT_S = MAX_LSO_DELAY_S + 2


class ExactlyOnceWorkload:
    """Transactional producers, copiers and readers of a run."""

    def __init__(self, simulation: Simulation, service: ClusterService, version: int) -> None:
        self._simulation = simulation
        self._service = service
        self._version = version
        """Version of the transaction protocol, as ``transaction.version``."""

    async def run(self) -> None:
        """Create the topics, then run producers, copiers and readers until the simulation is draining."""
        simulation, service, version = self._simulation, self._service, self._version
        await create_topic(simulation, SOURCE, service=service)
        await create_topic(simulation, TARGET[0], service=service._replace(partitions=1))
        async with trio.open_nursery() as readers:
            for committed in (True, False):
                name = f"reader-{'committed' if committed else 'all'}"
                readers.start_soon(IsolationReader(simulation, name, SOURCE, service, committed=committed).run)
            async with trio.open_nursery() as workers:
                for number in range(PRODUCERS):
                    first = FIRST_VALUE + number * VALUES_EACH
                    workers.start_soon(TxnProducer(simulation, f"txn-{number}", first, service, version).run)
                for number in range(service.partitions):
                    workers.start_soon(
                        TransactionalCopier(simulation, number, service, version, workers.start_soon).run
                    )
            readers.cancel_scope.cancel()

    async def verify(self) -> None:
        """Read all partitions once more with read_committed; report the anomalies of transactions and of the copies."""
        simulation, service = self._simulation, self._service
        last = IsolationReader(simulation, "reader-last", SOURCE, service, committed=True)
        copied = IsolationReader(simulation, "reader-copy", TARGET[0], service, committed=True)
        positions, source = {}, {}
        target = [value for _, value in await copied.read_to_end(TARGET[1], STABLE_TIMEOUT_S)]
        for number in range(service.partitions):
            place = (SOURCE, number)
            source[place] = await last.read_to_end(number, STABLE_TIMEOUT_S)
            asker = TransactionalCopier(simulation, number, service, self._version)
            positions[place] = await asker.retry_until_done(asker.position)
            simulation.trace_event(f"{place} to {positions[place]}: {source[place]}")
        simulation.trace_event(f"copied {target}")
        found = [x for x in find_anomalies(simulation.history.operations(SOURCE)) if x.is_violation]
        held_up = stuck_last_stable_offset(ObservedLog(simulation.history.operations(TARGET[0])))
        for anomaly in [*found, *held_up, *check_copy(source, target, positions)]:
            simulation.ledger.report_violation(anomaly.name, anomaly.detail)
