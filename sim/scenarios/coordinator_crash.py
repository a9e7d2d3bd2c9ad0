"""Kills of a transaction coordinator at each step, and the time that read_committed readers are blocked.

``python -m sim.scenarios.coordinator_crash --step decided --seeds 20``: each seed runs a cluster without other faults.
In every second one the producer is killed as well. Violations: ``lso-stuck`` (the last stable offset has not moved on
within the transaction's timeout and 10 s), ``torn-txn`` (some of a transaction is seen), ``lost-write``, ``G1a`` (an
uncommitted record is visible).
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

from sim.checkers.history import OperationOutcome
from sim.faults.node_lifecycle import NodeLifecycle
from sim.faults.transaction_steps import TransactionStep, observe_steps
from sim.scenarios.cluster import ClusterScenario
from sim.workload.clients import RetriableError, SimClient, create_topic
from sim.workload.isolation_reader import fetch_isolated
from sim.workload.transactional_clients import SOURCE, TRANSACTION_MS, TransactionalClient

TRANSACTIONAL_ID = "payments"
REPLICA_ASSIGNMENT = ([1, 2, 3], [2, 3, 1])
"""Replicas of the two partitions, with different leaders: each leader receives its own marker."""
STABLE_TIMEOUT_S = TRANSACTION_MS / 1000 + 10
SOON_S = 3.0
MAX_DOWNTIME_S = 20.0
POLL_INTERVAL_S = 0.05
WRITES_FOR_S = 0.3
"""Maximum pause of a producer between two records."""


class CoordinatorCrash(NamedTuple):
    """Result of a run: step of the kill, seed, time until all partitions were stable, violations."""

    step: TransactionStep
    seed: int
    held_up_s: float
    """Time from the kill until every partition was stable; about `STABLE_TIMEOUT_S` if it was not (``lso-stuck``)."""
    alone: bool
    """True if the producer was killed as well."""
    violations: list[tuple[str, str]]


class CoordinatorCrashScenario(ClusterScenario):
    """Run of a cluster in which the transaction coordinator is killed at a step."""

    def __init__(self, seed: int, step: TransactionStep) -> None:
        super().__init__(seed, transactions=2, only_late=True)
        self.fault_plan.fault_kinds = []
        self._step = step
        self._commits = seed % 4 < 2
        self.alone = seed % 2 == 1
        self._times = 1 + seed // 4 % 2 if step in (TransactionStep.OPEN_WRITTEN, TransactionStep.OPEN) else 1
        """Occurrence of the step at which to kill: a transaction opens again with each further partition."""
        self._died = trio.Event()
        self._outcome = OperationOutcome.INFO
        self.held_up_s = 0.0

    async def run(self) -> None:
        """Run one transaction, kill its coordinator at the step, and measure the time until partitions are stable."""
        async with trio.open_nursery() as everything:
            for lifecycle in self.lifecycles.values():
                everything.start_soon(self._run_node, lifecycle)
            await self.wait_until_full()
            await create_topic(self.simulation, SOURCE, service=self.service, placed=REPLICA_ASSIGNMENT)
            with observe_steps(self._on_step):
                await self._transact()
                assert self._died.is_set(), "nobody took the step"
                await self._wait_until_stable()
            everything.cancel_scope.cancel()

    async def _run_node(self, lifecycle: NodeLifecycle) -> None:
        while True:
            await lifecycle.run_once(None)
            await trio.sleep(self.simulation.rng.random() * MAX_DOWNTIME_S)

    def _on_step(self, node_id: int, name: str, step: TransactionStep) -> None:
        if name != TRANSACTIONAL_ID or step is not self._step or self._died.is_set():
            return
        self._times -= 1
        if not self._times:
            self._kill_coordinator(node_id)

    def _kill_coordinator(self, node_id: int) -> None:
        self._died.set()
        self._at_s = self.simulation.now_s()
        self.simulation.trace_event(f"n{node_id} dies: {self._step.value}")
        process = self.lifecycles[f"n{node_id}"].process
        assert process is not None
        process.kill()

    async def _transact(self) -> None:
        client = TransactionalClient(self.simulation, "producer", TRANSACTIONAL_ID, self.service, 2)

        async def body() -> None:
            for value in range(4):
                await client.write((SOURCE, value % 2), [value])
                await client.sleep(self.simulation.rng.random() * WRITES_FOR_S)

        async def work() -> None:
            await client.init()
            self._outcome = await client.transact(body, commit=self._commits, requested=lambda: None)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_producer, nursery.cancel_scope)
            await work()
            with trio.move_on_after(1.0):
                await self._died.wait()  # steps after the response
            nursery.cancel_scope.cancel()
        client.close_connections()

    async def _cancel_producer(self, scope: trio.CancelScope) -> None:
        """Kill the producer together with the coordinator, or cancel it after `STABLE_TIMEOUT_S`."""
        await self._died.wait()
        await trio.sleep(0 if self.alone else STABLE_TIMEOUT_S)
        scope.cancel()

    async def _wait_until_stable(self) -> None:
        """Wait until no partition has an open transaction; report what a read_committed reader should not see.

        Reports ``lso-stuck`` if that takes longer than `STABLE_TIMEOUT_S`.
        """
        reader, ledger = SimClient(self.simulation, "reader", self.service), self.simulation.ledger
        seen: set[int | None] = set()
        with trio.move_on_at(self._at_s + STABLE_TIMEOUT_S) as limit:
            for number in range(2):
                seen |= set(await reader.retry_until_done(partial(self._stable, reader, number)))
        self.held_up_s = self.simulation.now_s() - self._at_s
        reader.close_connections()
        if limit.cancelled_caught:
            ledger.report_violation("lso-stuck", f"{self._step.value}: for {self.held_up_s:.1f} s")
        elif seen and len(seen) < 4:
            ledger.report_violation("torn-txn", f"{self._step.value}: {seen}")
        elif self._outcome is OperationOutcome.OK and not seen:
            ledger.report_violation("lost-write", self._step.value)
        elif seen and not self._commits:
            ledger.report_violation("G1a", self._step.value)

    async def _stable(self, reader: SimClient, number: int) -> list[int | None]:
        """Return the values of all committed records of a partition.

        Raises:
            RetriableError: a transaction is open in it, or there is no response.
        """
        values: list[int | None] = []
        at, stable = 0, -1
        while at != stable:  # a fetch ends where a segment does
            seen = await fetch_isolated(reader, (SOURCE, number), at, 50, committed=True)
            if seen.last_stable_offset < seen.high_watermark or seen.next_offset == at < seen.last_stable_offset:
                await reader.sleep(POLL_INTERVAL_S)
                raise RetriableError("open")
            values += [value for _, value in seen.records]
            at, stable = seen.next_offset, seen.last_stable_offset
        return values


def simulate_crash(seed: int, step: TransactionStep) -> CoordinatorCrash:
    """Simulate a transaction with one seed, of which the coordinator is killed at ``step``; return the result."""
    run = CoordinatorCrashScenario(seed, step)
    run.simulation.run(run.run)
    return CoordinatorCrash(step, seed, run.held_up_s, run.alone, run.simulation.ledger.violations)


def main() -> int:
    """Run the seeds of the command line; print a line for each seed and each step; return the exit status."""
    parser = argparse.ArgumentParser("sim.scenarios.coordinator_crash", description=__doc__)
    parser.add_argument("--step", choices=[x.value for x in TransactionStep], help="step of the kill; by default all")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "sim.scenarios.coordinator_crash", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    logging.disable(logging.CRITICAL)
    bad = 0
    for step in [TransactionStep(options.step)] if options.step else list(TransactionStep):
        found = [simulate_crash(seed, step) for seed in range(options.seed, options.seed + options.seeds)]
        for one in found:
            bad += bool(one.violations)
            verdict = f"VIOLATION {one.violations}" if one.violations else "ok"
            print(f"seed {one.seed} {step.value} alone={one.alone} held_up_s {one.held_up_s:.2f} {verdict}", flush=True)
        for alone in (False, True):
            took = [one.held_up_s for one in found if one.alone is alone]
            soon = sum(x <= SOON_S for x in took)
            if took:
                text = f"median {statistics.median(took):.2f} s, worst {max(took):.2f} s, {soon} of {len(took)} soon"
                print(f"{step.value}, producer {'died, too' if alone else 'lived'}: {text}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
