"""Raft's promises, whatever the network and the disks do."""

from __future__ import annotations

import pytest

from ottla.controller.raft.states import Follower, Leader
from ottla.controller.tests.quorum_in_a_box import Box


def test_a_lone_voter_leads_at_once_and_commits_what_it_has_synced() -> None:
    box = Box(1, 1, loss=0)
    box.start(1)
    machine = box.hosts[1].machine
    assert machine is not None
    assert (machine.is_leader, machine.epoch, machine.leader_id) == (True, 1, 1)
    assert box.hosts[1].committed == -1, "nothing is committed before it is on the disk"
    box.run(100)
    assert box.hosts[1].committed == len(box.hosts[1].log) >= 1


def test_each_start_of_a_lone_voter_costs_one_epoch() -> None:
    box = Box(1, 1, loss=0)
    for epoch in (1, 2, 3):
        box.start(1)
        machine = box.hosts[1].machine
        assert machine is not None
        assert machine.epoch == epoch
        box.run(box.now_ms + 100)
        box.crash(1)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_healthy_quorum_elects_one_leader_and_keeps_it(count: int) -> None:
    box = Box(count, count, loss=0)
    for number in box.hosts:
        box.start(number)
    box.run(20_000)
    machines = [h.machine for h in box.hosts.values() if h.machine is not None]
    (leader,) = [x for x in machines if x.is_leader]
    assert {x.leader_id for x in machines} == {leader.me.id}
    assert len(box.leaders) <= 3, "it does not change while it is heard"
    before = dict(box.leaders)
    box.run(60_000)
    assert box.leaders == before
    assert all(h.committed >= len(box.committed) - 40 for h in box.hosts.values())


@pytest.mark.parametrize("seed", range(40))
def test_no_trouble_breaks_a_promise_and_afterwards_it_goes_on(seed: int) -> None:
    """Crashes, cuts, resignations, messages lost, reordered and repeated: no two leaders, nothing committed lost."""
    box = Box(seed, (5, 3, 3, 2)[seed % 4], loss=0.05 * (seed % 5), repeats=0.1 * (seed % 3))
    for number in box.hosts:
        box.start(number)
    box.run(40_000, trouble=0.01 if seed % 2 else 0.002)
    box.heal()
    committed = len(box.committed)
    box.run(box.now_ms + 30_000)
    assert len(box.committed) > committed, "it commits again once the trouble is over"
    states = [h.machine.state for h in box.hosts.values() if h.machine is not None]
    assert sum(isinstance(s, Leader) for s in states) == 1
    assert sum(isinstance(s, Follower) for s in states) == len(box.hosts) - 1


@pytest.mark.parametrize("seed", range(10))
def test_a_cut_off_leader_resigns_and_the_rest_elects_another(seed: int) -> None:
    """Soon: who is refused because another still hears the old leader asks again, and does not follow it again."""
    box = Box(seed, 3, loss=0)
    for number in box.hosts:
        box.start(number)
    box.run(10_000)
    old = next(i for i, h in box.hosts.items() if h.machine is not None and h.machine.is_leader)
    box.cut = {old}
    box.run(box.now_ms + 10_000)
    machine = box.hosts[old].machine
    assert machine is not None
    assert not machine.is_leader
    assert any(h.machine is not None and h.machine.is_leader for h in box.hosts.values())
