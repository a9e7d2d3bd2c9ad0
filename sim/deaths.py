"""A transaction whose coordinator's node dies at one of its steps: how long are readers of committed records held up?

``python -m sim.deaths --step decided --seeds 20``: each seed a cluster in which nothing else goes wrong. In every
second one the producer dies as well. Violations: ``lso-stuck`` (the last stable offset has not moved on within the
transaction's timeout and 10 s), ``torn-txn`` (some of a transaction is seen), ``lost-write``, ``G1a`` (what was not
committed is seen).
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
from functools import partial
from typing import NamedTuple

import trio

from sim.clients import Again, SimClient, make_topic
from sim.cluster import Cluster
from sim.committed import fetch_from
from sim.history import Outcome
from sim.lives import Lives
from sim.steps import Step, watched
from sim.transactions import SOURCE, TRANSACTION_MS, Transactional

ID = "payments"
PLACED = ([1, 2, 3], [2, 3, 1])
"""The partitions have two leaders: each gets its marker by itself."""
WITHIN_S = TRANSACTION_MS / 1000 + 10
SOON_S = 3.0
LONGEST_GONE_S = 20.0
LOOK_S = 0.05
WRITES_FOR_S = 0.3
"""How long a producer thinks between two records."""


class Death(NamedTuple):
    """What one run came to."""

    step: Step
    seed: int
    held_up_s: float
    """From the death until the end of the transaction, and of what was written, was stable in every partition."""
    alone: bool
    """Whether the producer had died as well."""
    violations: list[tuple[str, str]]


class CoordinatorDies(Cluster):
    """A run under way."""

    def __init__(self, seed: int, step: Step) -> None:
        super().__init__(seed, transactions=2, only_late=True)
        self.swarm.disturbances = []
        self._step = step
        self._commits = seed % 4 < 2
        self.alone = seed % 2 == 1
        self._times = 1 + seed // 4 % 2 if step in (Step.OPEN_WRITTEN, Step.OPEN) else 1
        """How often the step is taken: a transaction opens with its first partition, and again with the next."""
        self._died = trio.Event()
        self._outcome = Outcome.INFO
        self.held_up_s = 0.0

    async def run(self) -> None:
        """One transaction, one death, and how long it mattered."""
        async with trio.open_nursery() as everything:
            for lives in self.lives.values():
                everything.start_soon(self._live, lives)
            await self.full()
            await make_topic(self.world, SOURCE, service=self.service, placed=PLACED)
            with watched(self._reached):
                await self._transact()
                assert self._died.is_set(), "nobody took the step"
                await self._look()
            everything.cancel_scope.cancel()

    async def _live(self, lives: Lives) -> None:
        while True:
            await lives.one(None)
            await trio.sleep(self.world.rng.random() * LONGEST_GONE_S)

    def _reached(self, node_id: int, name: str, step: Step) -> None:
        if name != ID or step is not self._step or self._died.is_set():
            return
        self._times -= 1
        if not self._times:
            self._die(node_id)

    def _die(self, node_id: int) -> None:
        self._died.set()
        self._at_s = self.world.now_s()
        self.world.note(f"n{node_id} dies: {self._step.value}")
        process = self.lives[f"n{node_id}"].process
        assert process is not None
        process.kill()

    async def _transact(self) -> None:
        client = Transactional(self.world, "producer", ID, self.service, 2)

        async def body() -> None:
            for value in range(4):
                await client.write((SOURCE, value % 2), [value])
                await client.sleep(self.world.rng.random() * WRITES_FOR_S)

        async def work() -> None:
            await client.init()
            self._outcome = await client.transact(body, commit=self._commits, asks=lambda: None)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give_up, nursery.cancel_scope)
            await work()
            with trio.move_on_after(1.0):
                await self._died.wait()  # after the answer: the last steps
            nursery.cancel_scope.cancel()
        client.drop()

    async def _give_up(self, scope: trio.CancelScope) -> None:
        """The producer dies with the coordinator, or has been patient for long enough."""
        await self._died.wait()
        await trio.sleep(0 if self.alone else WITHIN_S)
        scope.cancel()

    async def _look(self) -> None:
        """Wait until all that is committed is stable, and judge what a reader sees then."""
        reader, ledger = SimClient(self.world, "reader", self.service), self.world.ledger
        seen: set[int | None] = set()
        with trio.move_on_at(self._at_s + WITHIN_S) as limit:
            for number in range(2):
                seen |= set(await reader.until_done(partial(self._stable, reader, number)))
        self.held_up_s = self.world.now_s() - self._at_s
        reader.drop()
        if limit.cancelled_caught:
            ledger.violation("lso-stuck", f"{self._step.value}: for {self.held_up_s:.1f} s")
        elif seen and len(seen) < 4:
            ledger.violation("torn-txn", f"{self._step.value}: {seen}")
        elif self._outcome is Outcome.OK and not seen:
            ledger.violation("lost-write", self._step.value)
        elif seen and not self._commits:
            ledger.violation("G1a", self._step.value)

    async def _stable(self, reader: SimClient, number: int) -> list[int | None]:
        """What is committed in a partition, once nothing there is open.

        Raises:
            Again: not yet, or no answer.
        """
        values: list[int | None] = []
        at, stable = 0, -1
        while at != stable:  # a fetch ends where a segment does
            seen = await fetch_from(reader, (SOURCE, number), at, 50, committed=True)
            if seen.stable < seen.high or seen.next_offset == at < seen.stable:
                await reader.sleep(LOOK_S)
                raise Again("open")
            values += [value for _, value in seen.records]
            at, stable = seen.next_offset, seen.stable
        return values


def die(seed: int, step: Step) -> Death:
    """Run one seed."""
    run = CoordinatorDies(seed, step)
    run.world.run(run.run)
    return Death(step, seed, run.held_up_s, run.alone, run.world.ledger.violations)


def main() -> int:
    """Run what was asked for; one line a seed, and one a step."""
    parser = argparse.ArgumentParser("sim.deaths", description=__doc__)
    parser.add_argument("--step", choices=[x.value for x in Step], help="one of them; else all")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    told = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "sim.deaths", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    logging.disable(logging.CRITICAL)
    bad = 0
    for step in [Step(told.step)] if told.step else list(Step):
        found = [die(seed, step) for seed in range(told.seed, told.seed + told.seeds)]
        for one in found:
            bad += bool(one.violations)
            verdict = f"VIOLATION {one.violations}" if one.violations else "ok"
            print(f"seed {one.seed} {step.value} alone={one.alone} held_up_s {one.held_up_s:.2f} {verdict}", flush=True)
        for alone in (False, True):
            took = [one.held_up_s for one in found if one.alone is alone]
            soon = sum(x <= SOON_S for x in took)
            if took:
                what = f"median {statistics.median(took):.2f} s, worst {max(took):.2f} s, {soon} of {len(took)} soon"
                print(f"{step.value}, producer {'died, too' if alone else 'lived'}: {what}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
