"""The seven stories that Kafka's own simulation of raft tells, over these machines. ``RAFT_SEEDS``: how many each.

Source: ``RaftEventSimulationTest.java`` (apache/kafka).
"""

from __future__ import annotations

import os

import pytest

from ottla.controller.raft.tests.simulated_quorum import SimulatedQuorum

SEEDS = int(os.environ.get("RAFT_SEEDS", "6"))


def quorum(seed: int, least: int = 1, most: int = 5) -> SimulatedQuorum:
    """Voters and observers by the seed, all of them alive."""
    box = SimulatedQuorum(
        seed, least + seed % (most - least + 1), loss=0, observers=seed // 2 % 4, kraft_version=seed // 3 % 2
    )
    box.start_all()
    return box


def committing(box: SimulatedQuorum, end: int = 10) -> int:
    """Wait until somebody knows so much to be committed; gives who leads."""
    box.run_until(lambda: len(box.invariants.committed) >= end and len(box.leaders()) == 1)
    return box.leaders()[0]


def voters(box: SimulatedQuorum) -> list[int]:
    return [v.id for v in next(iter(box.hosts.values())).initial_keys]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_first_leader_is_elected(seed: int) -> None:
    box = quorum(seed)
    committing(box)
    box.run_until(lambda: box.reached(10))


@pytest.mark.parametrize("goes", ["is killed", "stops"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_another_leader_is_elected_when_the_first_is_gone(seed: int, goes: str) -> None:
    box = quorum(seed, 3)
    first = committing(box)
    if goes == "stops":
        box.resign(first)
        box.run(box.now_ms + 200)
    box.crash(first)
    end = len(box.invariants.committed)
    box.run_until(lambda: box.reached(end + 10))
    box.start(first)
    box.run_until(lambda: box.reached(end + 30))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_majority_goes_on_after_all_were_killed(seed: int) -> None:
    box = quorum(seed)
    committing(box)
    end = len(box.invariants.committed)
    for number in box.hosts:
        box.crash(number)
    members = voters(box)
    for number in members[: len(members) // 2 + 1]:
        box.start(number)
    box.run_until(lambda: box.reached(end + 10))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_another_leader_is_elected_when_the_first_is_cut_off(seed: int) -> None:
    box = quorum(seed, 3)
    first = committing(box)
    box.isolated_hosts = {first}
    end = len(box.invariants.committed)
    others = set(box.hosts) - {first}
    box.run_until(lambda: box.reached(end + 10, others))
    assert first not in box.leaders() or box.hosts[first].committed < len(box.invariants.committed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_larger_part_of_a_quorum_goes_on(seed: int) -> None:
    box = quorum(seed, 5)
    committing(box)
    small, large = {1, 2}, {3, 4, 5}
    box.blocked_links = {(a, b) for a in small for b in large} | {(b, a) for a in small for b in large}
    end = len(box.invariants.committed)
    box.run_until(lambda: box.reached(end + 10, large))
    assert all(box.hosts[n].committed < end + 10 for n in small if n not in box.isolated_hosts)
    box.blocked_links.clear()
    end = len(box.invariants.committed)
    box.run_until(lambda: box.reached(end + 10))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_it_goes_on_after_one_leader_after_the_other_is_lost(seed: int) -> None:
    box = quorum(seed, 3)
    first = committing(box)
    box.isolated_hosts = {first}
    box.run_until(lambda: any(n != first for n in box.leaders()))
    (second,) = set(box.leaders()) - {first}
    box.isolated_hosts = {second}
    end = len(box.invariants.committed)
    others = set(box.hosts) - {second}
    box.run_until(lambda: box.reached(end + 10, others))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_one_lost_disk_loses_nothing(seed: int) -> None:
    """As long as another leads before the one that forgot what it had is back."""
    box = quorum(seed, 3)
    committing(box)
    lost = voters(box)[box.random.randrange(len(voters(box)))]
    box.invariants.checks_majority = False
    box.wipe(lost)
    box.run_until(lambda: len(box.leaders()) == 1)
    end = len(box.invariants.committed)
    box.run_until(lambda: box.reached(end + 10))
    box.start(lost)
    box.run_until(lambda: box.reached(end + 30))
