"""Death of a coordinator's node at each step of a transaction, in virtual time; ``OTTLA_DEATHS=20``: seeds of each."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sim.faults.transaction_steps import TransactionStep
from sim.scenarios.tests.test_single_node import run_module

SEEDS = int(os.environ.get("OTTLA_DEATHS", "0")) or 2


@pytest.mark.parametrize("step", [x.value for x in TransactionStep])
def test_coordinator_crash_at_step_unblocks_read_committed_readers_in_time(step: str) -> None:
    """Recovery within the transaction timeout and 10 s; with a live producer mostly within 3 s, over many seeds."""
    printed = run_module("sim.scenarios.coordinator_crash", "--step", step, "--seeds", str(SEEDS))
    assert printed.count(" ok\n") == SEEDS
    lines = [line for line in printed.splitlines() if line.startswith("seed") and "alone=False" in line]
    took_s = sorted(float(line.split("held_up_s ")[1].split()[0]) for line in lines)
    assert SEEDS < 10 or took_s[len(took_s) // 2] <= 3.0, printed


@pytest.mark.parametrize("step", ["open-written", "open"])
def test_coordinator_crash_with_records_in_next_segment_recovers(step: str) -> None:
    assert " ok\n" in run_module("sim.scenarios.coordinator_crash", "--step", step, "--seed", "4", "--seeds", "1")


SEEDED_RUN = """
from sim.tests.seeded_faults.transaction_faults import {bug} as sow
sow()
from sim.scenarios.coordinator_crash import simulate_crash
from sim.faults.transaction_steps import TransactionStep
print([name for seed in range(1, 3) for name, _ in simulate_crash(seed, TransactionStep.{step}).violations])
"""


@pytest.mark.parametrize(
    ("bug", "step"), [("forget_decided_transactions", "DECIDED"), ("skip_transaction_timeout", "DECIDED_WRITTEN")]
)
def test_planted_bug_in_coordinator_recovery_is_found(bug: str, step: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SEEDED_RUN.format(bug=bug, step=step)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "lso-stuck" in done.stdout, done.stdout
