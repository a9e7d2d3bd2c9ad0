"""Raft's promises, whatever the network and the disks do. ``RAFT_SEEDS=1000`` runs that many instead of a few."""

from __future__ import annotations

import os

import pytest

from ottla.controller.raft.state_machine.epoch_states import RaftFollowerState, RaftLeaderState
from ottla.controller.raft.tests.simulated_quorum import SimulatedQuorum

SEEDS = int(os.environ.get("RAFT_SEEDS", "40"))
TROUBLE_MS = 15_000


def test_a_lone_voter_leads_at_once_and_commits_what_it_has_synced() -> None:
    box = SimulatedQuorum(1, 1, loss=0)
    box.accepts_proposals = False
    box.start(1)
    machine = box.hosts[1].machine
    assert machine is not None
    assert (machine.is_leader, machine.epoch, machine.leader_id) == (True, 1, 1)
    assert box.hosts[1].committed == -1, "nothing is committed before it is on the disk"
    box.run(100)
    assert box.hosts[1].committed == box.hosts[1].log.end_offset >= 1


def test_each_start_of_a_lone_voter_costs_one_epoch() -> None:
    box = SimulatedQuorum(1, 1, loss=0)
    for epoch in (1, 2, 3):
        box.start(1)
        machine = box.hosts[1].machine
        assert machine is not None
        assert machine.epoch == epoch
        box.run(box.now_ms + 100)
        box.crash(1)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_healthy_quorum_elects_one_leader_and_keeps_it(count: int) -> None:
    box = SimulatedQuorum(count, count, loss=0)
    box.start_all()
    box.run(20_000)
    machines = [h.machine for h in box.hosts.values() if h.machine is not None]
    (leader,) = [x for x in machines if x.is_leader]
    assert {x.leader_id for x in machines} == {leader.local_replica.id}
    assert len(box.invariants.leaders) <= 3, "it does not change while it is heard"
    before = dict(box.invariants.leaders)
    box.run(60_000)
    assert box.invariants.leaders == before
    assert box.reached(len(box.invariants.committed) - 40)


def afterwards(box: SimulatedQuorum) -> None:
    """Once the trouble is over it goes on: one leads, all others follow, and everybody learns what is committed."""
    box.remove_faults()
    committed = len(box.invariants.committed)
    box.run_until(lambda: len(box.leaders()) == 1 and box.reached(committed + 20))
    machines = [h.machine for h in box.alive() if h.machine is not None]
    (leader,) = [x for x in machines if isinstance(x.state, RaftLeaderState)]
    assert leader.voters.is_voter(leader.local_replica)
    box.run_until(lambda: sum(isinstance(x.state, RaftFollowerState) for x in machines) == len(machines) - 1)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_trouble_breaks_a_promise_and_afterwards_it_goes_on(seed: int) -> None:
    """Crashes, cuts, resignations, slow disks, snapshots, changes of the voters; messages lost, reordered, repeated."""
    box = SimulatedQuorum(
        seed,
        (5, 3, 3, 2, 1)[seed % 5],
        loss=0.05 * (seed % 4),
        repeats=0.1 * (seed % 3),
        observers=seed % 3,
        kraft_version=(seed // 2) % 2,
        torn=0.001 * (seed % 2),
        auto_join=seed % 7 == 0,
    )
    box.start_all()
    box.run(TROUBLE_MS, trouble=(0.003, 0.01, 0.03)[seed % 3])
    afterwards(box)


@pytest.mark.parametrize("seed", range(10))
def test_a_cut_off_leader_resigns_and_the_rest_elects_another(seed: int) -> None:
    """Soon: who is refused because another still hears the old leader asks again, and does not follow it again."""
    box = SimulatedQuorum(seed, 3, loss=0)
    box.start_all()
    box.run(10_000)
    (old,) = box.leaders()
    box.isolated_hosts = {old}
    box.run(box.now_ms + 10_000)
    assert box.leaders()
    assert old not in box.leaders()
