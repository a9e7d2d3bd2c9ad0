"""Cluster and quorum in the simulator: equal traces from equal seeds, no violation, and planted bugs found."""

from __future__ import annotations

import os
import random

import pytest

from sim.engine.hosts import SimHost
from sim.scenarios.tests.test_single_node import run_module, run_sim
from sim.tests.seeded_faults.seeded_cluster import CI_FAULTS, SEEDED_FAULTS


def test_cluster_runs_with_equal_seeds_give_equal_digests() -> None:
    arguments = ("--cluster", "--seed", "40", "--seeds", "3", "--seconds", "8")
    first = run_sim(*arguments)
    assert first == run_sim(*arguments)
    assert len({line.split()[3] for line in first}) == 3


def test_quorum_runs_with_equal_seeds_give_equal_digests() -> None:
    arguments = ("--quorum", "--seed", "40", "--seeds", "5", "--seconds", "15")
    first = run_sim(*arguments)
    assert first == run_sim(*arguments)
    assert len({line.split()[3] for line in first}) == 5


def test_12_seeds_of_cluster_have_no_violation() -> None:
    lines = run_sim("--cluster", "--seed", "1025", "--seeds", "12", "--seconds", "20")
    assert len(lines) == 12
    assert all(line.endswith(" ok") for line in lines)
    assert any("replaced=" in line for line in lines), "and disks that were replaced are filled again"


def test_20_seeds_of_quorum_have_no_violation() -> None:
    lines = run_sim("--quorum", "--seed", "1000", "--seeds", "20", "--seconds", "15")
    assert len(lines) == 20
    assert all(line.endswith(" ok") for line in lines)
    assert len({line.split("nodes=")[1].split(",")[0].split()[0] for line in lines}) == 5
    assert sum(int(line.split("voters=")[1].split(",")[0]) for line in lines if "voters=" in line) >= 5
    assert sum(int(line.split("wiped=")[1].split()[0]) for line in lines if "wiped=" in line) >= 2
    assert sum(int(line.split("scenes=")[1].split(",")[0]) for line in lines if "scenes=" in line) >= 2


@pytest.mark.parametrize(
    "seed",
    [
        673,  # a third disk was emptied before a voter had persisted that it may vote again: a mistake of the simulator
        103,  # a node with a disk wiped while it was being added became a voter without a record
        1065,  # a replica covered by a snapshot was taken for an empty one
    ],
)
def test_former_failing_seeds_of_quorum_have_no_violation(seed: int) -> None:
    (line,) = run_sim("--quorum", "--seed", str(seed))
    assert line.endswith(" ok")


def test_3_seeds_with_transactions_have_no_violation() -> None:
    lines = run_sim("--cluster", "--seed", "2000", "--seeds", "3", "--seconds", "12", "--transactions", "2")
    assert len(lines) == 3
    assert all(line.endswith(" ok") for line in lines)


def late(version: int, seed: int, *, found: bool) -> str:
    arguments = ("--cluster", "--late", "--seconds", "20", "--transactions", str(version), "--seed", str(seed))
    (line,) = run_sim(*arguments, expect=int(found))
    return line


def test_late_requests_break_transactions_of_version_1_only() -> None:
    """Reason for KIP-890: a delayed commit or batch is applied to the transaction after its own.

    At the time of writing seed 6 finds a record that is read before its client requests the commit: the delayed commit
    of the transaction before reached the new one.
    """
    first = 6
    for seed in range(first, first + 20):
        try:
            line = late(1, seed, found=True)
        except AssertionError:
            continue
        break
    else:
        pytest.fail("twenty seeds of version 1 found nothing: does anything come late?")
    named = set(line.partition("VIOLATION ")[2].split(","))
    assert named <= {
        "torn-txn",
        "unseen",
        "lost-write",
        "G1a",
        "copy-twice",
        "copy-lost",
        "copy-ghost",
        "lso-stuck",
        "txn-refused",
        "undecided-read",
        "precommitted-read",
    }
    assert all(late(2, same, found=False).endswith(" ok") for same in range(first, seed + 1))


def test_producer_fenced_by_its_own_late_request_is_no_violation() -> None:
    assert late(2, 27, found=False).endswith(" ok")


def test_2_seeds_with_reassignments_between_brokers_have_no_violation() -> None:
    lines = run_sim(
        "--cluster", "--nodes", "4", "--apart", "3", "--moves", "--seed", "4000", "--seeds", "2", "--seconds", "10"
    )
    assert len(lines) == 2
    assert all(line.endswith(" ok") for line in lines)
    assert sum(int(line.split("moves=")[1].split(",")[0].split()[0]) for line in lines) >= 5


@pytest.mark.parametrize("bug", list(SEEDED_FAULTS) if os.environ.get("OTTLA_PLANTS") else CI_FAULTS)
def test_planted_bug_between_nodes_is_found(bug: str) -> None:
    run_module("sim.tests.seeded_faults.seeded_cluster", bug)


def test_power_cut_with_journaled_names_keeps_a_prefix_of_names() -> None:
    kept = set()
    for seed in range(40):
        host = SimHost("n1", random.Random(seed), lambda: 0.0)
        host.journaled = True
        session = host.disk.session()
        session.makedirs("/d")
        for name in ("a", "b", "c"):
            session.open(f"/d/{name}", create=True).pwrite(b"x", 0)
        host.lose_power()
        kept.add("".join(path[-1] for path in host.disk.files))
    assert kept == {"", "a", "ab", "abc"}
