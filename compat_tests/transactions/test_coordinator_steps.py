"""Coordinator that kills itself at a step of a transaction: the next one continues from the log.

Two of the steps by default; ``OTTLA_STEPS=all`` runs each.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from compat_tests.cluster.test_three_nodes import (
    WITHIN_S,
    OttlaFromFile,
    all_in_sync,
    combined_nodes,
    make_topic,
    running_nodes,
    wait_for,
)
from compat_tests.transactions.test_transactions import confluent, is_stable, read, write
from sim.faults.transaction_steps import TransactionStep

ID, TOPIC = "dies", "t"
TIMEOUT_MS = 10_000
LONGEST_S = TIMEOUT_MS / 1000 + 170
"""Time limit: 10 s, and minutes for a busy machine; the simulator measures exactly."""
STEPS = (
    list(TransactionStep)
    if os.environ.get("OTTLA_STEPS")
    else [TransactionStep.DECIDED_WRITTEN, TransactionStep.SOME_MARKERS_WRITTEN]
)


class OttlaExitingAtStep(OttlaFromFile):
    """Node that dies after a step of a transaction, unless another node has died already."""

    def __init__(self, node: OttlaFromFile, step: TransactionStep, mark: Path) -> None:
        super().__init__(node.file, node.data_dir, node.port)
        self._dying = [sys.executable, "-m", "compat_tests.transactions.coordinator_exit", step.value, ID, str(mark)]

    def command(self) -> list[str]:
        """Return the command line."""
        return [*self._dying, "serve", "--config", str(self.file)]

    def is_alive(self) -> bool:
        """Return True while the process runs."""
        return self._process is not None and self._process.poll() is None


def transact(producer: Producer) -> bool:
    """Run one transaction until its result is known; return True if it was committed."""
    try:
        producer.begin_transaction()
        write(producer, TOPIC, "a")
        producer.commit_transaction(WITHIN_S)
    except KafkaException as error:
        if error.args[0].fatal():
            raise
        producer.abort_transaction(WITHIN_S)
        return False
    return True


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.value)
def test_coordinator_death_at_step_lets_read_committed_consumers_continue(
    tmp_path: Path, step: TransactionStep
) -> None:
    mark = tmp_path / "dead"
    nodes = [OttlaExitingAtStep(node, step, mark) for node in combined_nodes(tmp_path)]
    with running_nodes(nodes):
        bootstrap = ",".join(node.bootstrap for node in nodes)
        make_topic(bootstrap, TOPIC, 2)
        confluent(bootstrap, "another")
        wait_for(lambda: all_in_sync(bootstrap, "__transaction_state"))
        producer = confluent(bootstrap, ID, **{"transaction.timeout.ms": TIMEOUT_MS})
        was_committed = transact(producer)
        wait_for(mark.exists)
        wait_for(lambda: is_stable(bootstrap, TOPIC), LONGEST_S)
        took_s = time.time() - mark.stat().st_mtime
        assert took_s <= LONGEST_S
        assert read(bootstrap, TOPIC) == (["a0", "a1"] if was_committed else [])
        print(f"{step.value}: stable again after {took_s:.1f} s")
        for node in nodes:
            if not node.is_alive():
                node.start()
        wait_for(lambda: all_in_sync(bootstrap, "__transaction_state"))
        assert transact(producer)
