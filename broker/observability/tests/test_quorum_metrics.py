"""Metrics of the quorum on a node, and of the cluster on a controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.observability import quorum_metrics
from ottla.broker.observability.metrics_builder import MetricsBuilder
from ottla.broker.observability.tests.metrics_fixture import collect, samples
from ottla.controller.raft.state_machine.epoch_states import (
    CandidateState,
    EpochState,
    ProspectiveState,
    RaftFollowerState,
    RaftLeaderState,
    ReplicaProgress,
    ResignedState,
    UnattachedState,
)
from ottla.controller.raft.state_machine.events import HardState, ReplicaKey
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.controller.tests.test_controller_state_machine import create, machine, send_heartbeat
from ottla.jobs.job import run_to_end
from ottla.wire.messages import create_topics

ME = ReplicaKey(2, bytes([2]) * 16)
OTHER = ReplicaKey(1, bytes([1]) * 16)


def controller_in(
    state: EpochState, *voters: ReplicaKey, voted: ReplicaKey | None = None, at: int = 3, committed: int = 10
) -> Any:
    raft = SimpleNamespace(
        local_replica=ME,
        state=state,
        voters=VoterSetHistory(voters or (ME, OTHER), None, at),
        hard_state=HardState(5, -1, voted),
        log_summary=LogSummary(12, [(4, 0)]),
        leader_id=1,
        epoch=5,
        high_watermark=committed,
    )
    return SimpleNamespace(raft=raft)


def quorum_samples(controller: Any) -> dict[str, float]:
    page = MetricsBuilder()
    quorum_metrics.add_quorum_metrics(page, controller)
    found = samples(b"".join(run_to_end(page.finish())))
    return {name.removeprefix("kafka_server_raft_metrics_"): value for name, value in found.items()}


def cluster_samples(controller: Any) -> dict[str, float]:
    page = MetricsBuilder()
    found = collect(quorum_metrics.add_cluster_metrics(page, controller), page)
    return {name.removeprefix("kafka_controller_kafkacontroller_"): value for name, value in found.items()}


@pytest.mark.parametrize(
    ("state", "votes", "name"),
    [
        (RaftLeaderState(0, 0), True, "leader"),
        (CandidateState(0), True, "candidate"),
        (ProspectiveState(0), True, "prospective"),
        (RaftFollowerState(1, 0), True, "follower"),
        (RaftFollowerState(1, 0), False, "observer"),
        (UnattachedState(0), True, "unattached"),
        (UnattachedState(0), False, "observer"),
        (ResignedState(0), True, "resigned"),
    ],
)
def test_raft_state_has_its_metric_label(state: EpochState, votes: bool, name: str) -> None:
    controller = controller_in(state, *((ME, OTHER) if votes else (OTHER,)))
    found = quorum_samples(controller)
    assert [x for x, value in found.items() if x.startswith("current_state") and value] == [
        f"current_state{{state={name}}}"
    ]
    assert found[f"kafka_server_raftmetrics_current_state{{current_state={name}}}"] == 1


def test_current_vote_is_voted_node_or_minus_one() -> None:
    assert quorum_samples(controller_in(RaftFollowerState(1, 0)))["current_vote"] == -1
    assert quorum_samples(controller_in(RaftFollowerState(1, 0), voted=OTHER))["current_vote"] == 1
    assert quorum_samples(controller_in(RaftLeaderState(0, 0)))["current_vote"] == 2, "itself"
    assert quorum_samples(controller_in(CandidateState(0)))["current_vote"] == 2


def test_leader_reports_voters_observers_and_log_end() -> None:
    ends = {ME: ReplicaProgress(), OTHER: ReplicaProgress(), ReplicaKey(3, ME.directory_id): ReplicaProgress()}
    found = quorum_samples(controller_in(RaftLeaderState(0, 0, replicas=ends)))
    assert (found["number_of_voters"], found["number_of_observers"]) == (2, 1)
    assert (found["log_end_offset"], found["log_end_epoch"], found["current_epoch"]) == (12, 4, 5)


@pytest.mark.parametrize(("at", "committed", "open_"), [(3, 10, 0), (10, 10, 1), (9, 10, 0), (0, -1, 1), (-1, -1, 0)])
def test_uncommitted_voter_change_is_reported_until_committed(at: int, committed: int, open_: int) -> None:
    assert (
        quorum_samples(controller_in(RaftLeaderState(0, 0), at=at, committed=committed))["uncommitted_voter_change"]
        == open_
    )


def test_active_controller_reports_broker_and_partition_counts() -> None:
    made = machine(3)
    rows = [create_topics.CreatableReplicaAssignment(n, r) for n, r in enumerate([[1], [2], [3], [1]])]
    create(made, "t", -1, -1, assignments=rows)
    create(made, "u", -1, -1, assignments=[create_topics.CreatableReplicaAssignment(0, [2, 3])])
    send_heartbeat(made, 2, want_fence=True)
    controller: Any = SimpleNamespace(image=made.image, is_active=True)
    assert cluster_samples(controller) == {
        "activecontrollercount": 1,
        "activebrokercount": 2,
        "fencedbrokercount": 1,
        "controlledshutdownbrokercount": 0,
        "globaltopiccount": 2,
        "globalpartitioncount": 5,
        "offlinepartitionscount": 1,
        "preferredreplicaimbalancecount": 2,
        "lastcommittedrecordoffset": made.image.offset,
        "kafka_brokers": 2,
        "kafka_broker_info{id=1,address=}": 1,
        "kafka_broker_info{id=3,address=}": 1,
    }
    controller.is_active = False
    inactive = cluster_samples(controller)
    assert inactive["activecontrollercount"] == 0
    assert not [name for name in inactive if name.startswith("kafka_broker")]


def test_cluster_metrics_over_many_partitions_run_in_steps() -> None:
    made = machine(1)
    create(made, "t", 250, 1)
    controller: Any = SimpleNamespace(image=made.image, is_active=True)
    steps = quorum_metrics.add_cluster_metrics(MetricsBuilder(), controller)
    assert sum(1 for _ in steps) == 2
