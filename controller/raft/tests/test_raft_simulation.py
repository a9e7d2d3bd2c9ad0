"""Invariants of Raft under network and disk faults. ``RAFT_SEEDS=1000`` sets the number of seeds."""

from __future__ import annotations

import os

import pytest

from ottla.controller.raft.state_machine.epoch_states import RaftFollowerState, RaftLeaderState
from ottla.controller.raft.tests.simulated_quorum import SimulatedQuorum

SEEDS = int(os.environ.get("RAFT_SEEDS", "40"))
FAULTS_MS = 15_000


def test_single_voter_becomes_leader_and_commits_synced_records() -> None:
    quorum = SimulatedQuorum(1, 1, loss=0)
    quorum.accepts_proposals = False
    quorum.start(1)
    machine = quorum.hosts[1].machine
    assert machine is not None
    assert (machine.is_leader, machine.epoch, machine.leader_id) == (True, 1, 1)
    assert quorum.hosts[1].committed == -1, "no commit before the sync"
    quorum.run(100)
    assert quorum.hosts[1].committed == quorum.hosts[1].log.end_offset >= 1


def test_single_voter_uses_one_epoch_per_start() -> None:
    quorum = SimulatedQuorum(1, 1, loss=0)
    for epoch in (1, 2, 3):
        quorum.start(1)
        machine = quorum.hosts[1].machine
        assert machine is not None
        assert machine.epoch == epoch
        quorum.run(quorum.now_ms + 100)
        quorum.crash(1)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_healthy_quorum_keeps_its_leader(count: int) -> None:
    quorum = SimulatedQuorum(count, count, loss=0)
    quorum.start_all()
    quorum.run(20_000)
    machines = [h.machine for h in quorum.hosts.values() if h.machine is not None]
    (leader,) = [x for x in machines if x.is_leader]
    assert {x.leader_id for x in machines} == {leader.local_replica.id}
    assert len(quorum.invariants.leaders) <= 3, "no leader change without failures"
    before = dict(quorum.invariants.leaders)
    quorum.run(60_000)
    assert quorum.invariants.leaders == before
    assert quorum.reached(len(quorum.invariants.committed) - 40)


def check_recovery(quorum: SimulatedQuorum) -> None:
    """Remove the faults; check that one leader is elected and all hosts learn the committed records."""
    quorum.remove_faults()
    committed = len(quorum.invariants.committed)
    quorum.run_until(lambda: len(quorum.leaders()) == 1 and quorum.reached(committed + 20))
    machines = [h.machine for h in quorum.alive() if h.machine is not None]
    (leader,) = [x for x in machines if isinstance(x.state, RaftLeaderState)]
    assert leader.voters.is_voter(leader.local_replica)
    quorum.run_until(lambda: sum(isinstance(x.state, RaftFollowerState) for x in machines) == len(machines) - 1)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_invariants_hold_under_random_faults_and_quorum_recovers(seed: int) -> None:
    """Crashes, partitions, resignations, slow disks, snapshots, voter changes; messages lost, reordered, repeated."""
    quorum = SimulatedQuorum(
        seed,
        (5, 3, 3, 2, 1)[seed % 5],
        loss=0.05 * (seed % 4),
        repeats=0.1 * (seed % 3),
        observers=seed % 3,
        kraft_version=(seed // 2) % 2,
        torn=0.001 * (seed % 2),
        auto_join=seed % 7 == 0,
    )
    quorum.start_all()
    quorum.run(FAULTS_MS, fault_probability=(0.003, 0.01, 0.03)[seed % 3])
    check_recovery(quorum)


@pytest.mark.parametrize("seed", range(10))
def test_isolated_leader_resigns_and_others_elect_a_leader(seed: int) -> None:
    """Soon: a rejected pre-vote is repeated instead of following the isolated leader again."""
    quorum = SimulatedQuorum(seed, 3, loss=0)
    quorum.start_all()
    quorum.run(10_000)
    (old,) = quorum.leaders()
    quorum.isolated_hosts = {old}
    quorum.run(quorum.now_ms + 10_000)
    assert quorum.leaders()
    assert old not in quorum.leaders()
