"""Seven scenarios of Kafka's Raft simulation. ``RAFT_SEEDS``: number of seeds of each.

Source: ``RaftEventSimulationTest.java`` (apache/kafka).
"""

from __future__ import annotations

import os

import pytest

from ottla.controller.raft.tests.simulated_quorum import SimulatedQuorum

SEEDS = int(os.environ.get("RAFT_SEEDS", "6"))


def start_quorum(seed: int, least: int = 1, most: int = 5) -> SimulatedQuorum:
    """Return running voters and observers drawn by the seed."""
    quorum = SimulatedQuorum(
        seed, least + seed % (most - least + 1), loss=0, observers=seed // 2 % 4, kraft_version=seed // 3 % 2
    )
    quorum.start_all()
    return quorum


def run_until_committed(quorum: SimulatedQuorum, end: int = 10) -> int:
    """Run until a host has committed to an offset; return the leader."""
    quorum.run_until(lambda: len(quorum.invariants.committed) >= end and len(quorum.leaders()) == 1)
    return quorum.leaders()[0]


def voters(quorum: SimulatedQuorum) -> list[int]:
    return [v.id for v in next(iter(quorum.hosts.values())).initial_keys]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_quorum_elects_first_leader(seed: int) -> None:
    quorum = start_quorum(seed)
    run_until_committed(quorum)
    quorum.run_until(lambda: quorum.reached(10))


@pytest.mark.parametrize("goes", ["is killed", "stops"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_quorum_elects_new_leader_after_stop_or_kill(seed: int, goes: str) -> None:
    quorum = start_quorum(seed, 3)
    first = run_until_committed(quorum)
    if goes == "stops":
        quorum.resign(first)
        quorum.run(quorum.now_ms + 200)
    quorum.crash(first)
    end = len(quorum.invariants.committed)
    quorum.run_until(lambda: quorum.reached(end + 10))
    quorum.start(first)
    quorum.run_until(lambda: quorum.reached(end + 30))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_quorum_majority_continues_after_all_were_killed(seed: int) -> None:
    quorum = start_quorum(seed)
    run_until_committed(quorum)
    end = len(quorum.invariants.committed)
    for number in quorum.hosts:
        quorum.crash(number)
    members = voters(quorum)
    for number in members[: len(members) // 2 + 1]:
        quorum.start(number)
    quorum.run_until(lambda: quorum.reached(end + 10))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_quorum_elects_new_leader_after_isolation(seed: int) -> None:
    quorum = start_quorum(seed, 3)
    first = run_until_committed(quorum)
    quorum.isolated_hosts = {first}
    end = len(quorum.invariants.committed)
    others = set(quorum.hosts) - {first}
    quorum.run_until(lambda: quorum.reached(end + 10, others))
    assert first not in quorum.leaders() or quorum.hosts[first].committed < len(quorum.invariants.committed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_quorum_larger_partition_continues(seed: int) -> None:
    quorum = start_quorum(seed, 5)
    run_until_committed(quorum)
    small, large = {1, 2}, {3, 4, 5}
    quorum.blocked_links = {(a, b) for a in small for b in large} | {(b, a) for a in small for b in large}
    end = len(quorum.invariants.committed)
    quorum.run_until(lambda: quorum.reached(end + 10, large))
    assert all(quorum.hosts[n].committed < end + 10 for n in small if n not in quorum.isolated_hosts)
    quorum.blocked_links.clear()
    end = len(quorum.invariants.committed)
    quorum.run_until(lambda: quorum.reached(end + 10))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_quorum_continues_after_isolation_of_two_leaders(seed: int) -> None:
    quorum = start_quorum(seed, 3)
    first = run_until_committed(quorum)
    quorum.isolated_hosts = {first}
    quorum.run_until(lambda: any(n != first for n in quorum.leaders()))
    (second,) = set(quorum.leaders()) - {first}
    quorum.isolated_hosts = {second}
    end = len(quorum.invariants.committed)
    others = set(quorum.hosts) - {second}
    quorum.run_until(lambda: quorum.reached(end + 10, others))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_quorum_single_lost_disk_loses_no_committed_record(seed: int) -> None:
    """As long as another leader is elected before the host with the empty disk is back."""
    quorum = start_quorum(seed, 3)
    run_until_committed(quorum)
    lost = voters(quorum)[quorum.random.randrange(len(voters(quorum)))]
    quorum.invariants.checks_majority = False
    quorum.wipe(lost)
    quorum.run_until(lambda: len(quorum.leaders()) == 1)
    end = len(quorum.invariants.committed)
    quorum.run_until(lambda: quorum.reached(end + 10))
    quorum.start(lost)
    quorum.run_until(lambda: quorum.reached(end + 30))
