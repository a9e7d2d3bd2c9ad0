"""Transactions in a simulated cluster: who makes them, who reads them, and what must have come of them in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from sim.anomalies import check
from sim.atomicity import MOST_HELD_UP_S, check_copy, stuck_lso
from sim.book import Book
from sim.clients import Service, make_topic
from sim.committed import Reader
from sim.transactions import SOURCE, TARGET, Copier, TxnProducer

if TYPE_CHECKING:
    from sim.world import World

FIRST_VALUE = 20_000_000
VALUES_EACH = 1_000_000
PRODUCERS = 2
PATIENCE_S = MOST_HELD_UP_S + 2


class ExactlyOnce:
    """Producers, copiers and readers."""

    def __init__(self, world: World, service: Service, version: int) -> None:
        self._world = world
        self._service = service
        self._version = version
        """Of the protocol, as ``transaction.version``."""

    async def run(self) -> None:
        """Until the world says that it is enough."""
        world, service, version = self._world, self._service, self._version
        await make_topic(world, SOURCE, service=service)
        await make_topic(world, TARGET[0], service=service._replace(partitions=1))
        async with trio.open_nursery() as readers:
            for committed in (True, False):
                name = f"reader-{'committed' if committed else 'all'}"
                readers.start_soon(Reader(world, name, SOURCE, service, committed=committed).run)
            async with trio.open_nursery() as workers:
                for number in range(PRODUCERS):
                    first = FIRST_VALUE + number * VALUES_EACH
                    workers.start_soon(TxnProducer(world, f"txn-{number}", first, service, version).run)
                for number in range(service.partitions):
                    workers.start_soon(Copier(world, number, service, version, workers.start_soon).run)
            readers.cancel_scope.cancel()

    async def reckon(self) -> None:
        """Read it all once more, and judge it."""
        world, service = self._world, self._service
        last = Reader(world, "reader-last", SOURCE, service, committed=True)
        copied = Reader(world, "reader-copy", TARGET[0], service, committed=True)
        positions, source = {}, {}
        target = [value for _, value in await copied.to_the_end(TARGET[1], PATIENCE_S)]
        for number in range(service.partitions):
            place = (SOURCE, number)
            source[place] = await last.to_the_end(number, PATIENCE_S)
            asker = Copier(world, number, service, self._version)
            positions[place] = await asker.until_done(asker.position)
            world.note(f"{place} to {positions[place]}: {source[place]}")
        world.note(f"copied {target}")
        found = [x for x in check(world.history.ops(SOURCE)) if x.bad]
        held_up = stuck_lso(Book(world.history.ops(TARGET[0])))
        for anomaly in [*found, *held_up, *check_copy(source, target, positions)]:
            world.ledger.violation(anomaly.name, anomaly.detail)
