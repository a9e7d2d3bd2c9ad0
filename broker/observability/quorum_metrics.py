"""Metrics of the KRaft quorum as each node knows it, and of the cluster as each controller knows it.

An inactive controller exports the cluster metrics too, from its own metadata image. Partitions are counted in time
slices.

Source: the MBeans of ``KafkaRaftMetrics.java``, ``ControllerMetadataMetrics.java``, ``ControllerMetricsChanges.java``
and ``QuorumControllerMetrics.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ottla.broker.observability.metrics_builder import MetricsBuilder, labels
from ottla.controller.metadata.image import NO_LEADER
from ottla.controller.raft.state_machine.epoch_states import (
    CandidateState,
    ProspectiveState,
    RaftFollowerState,
    RaftLeaderState,
    ResignedState,
    UnattachedState,
)
from ottla.controller.raft.state_machine.events import NO_NODE_ID
from ottla.env.hosts import format_address
from ottla.jobs.job import Job

if TYPE_CHECKING:
    from ottla.controller.quorum_controller import QuorumController
    from ottla.wire.messages.metadata_records import RegisterBrokerRecord

RAFT_STATES = ("leader", "candidate", "prospective", "follower", "unattached", "resigned", "observer")
_STATE_NAMES = {
    RaftLeaderState: "leader",
    CandidateState: "candidate",
    ProspectiveState: "prospective",
    RaftFollowerState: "follower",
    UnattachedState: "unattached",
    ResignedState: "resigned",
}
PARTITIONS_PER_STEP = 100


def raft_state_name(raft: Any) -> str:
    """Return the Raft state of a node, one of `RAFT_STATES`.

    A follower or unattached node that is no voter is an ``observer``.
    """
    name = _STATE_NAMES[type(raft.state)]
    return "observer" if name in ("follower", "unattached") and not raft.voters.is_voter(raft.local_replica) else name


def add_quorum_metrics(page: MetricsBuilder, controller: QuorumController) -> None:
    """Add the KRaft quorum metrics of this node to the metrics page."""
    raft, name, current = controller.raft, "kafka_server_raft_metrics", raft_state_name(controller.raft)
    state = raft.state
    if isinstance(state, RaftLeaderState | CandidateState):
        voted = raft.local_replica.id
    else:
        voted = NO_NODE_ID if raft.hard_state.voted_key is None else raft.hard_state.voted_key.id
    voters = raft.voters.current
    observers = [x for x in state.replicas if x not in voters] if isinstance(state, RaftLeaderState) else []
    for suffix, value in (
        ("current_leader", raft.leader_id),
        ("current_vote", voted),
        ("current_epoch", raft.epoch),
        ("high_watermark", raft.high_watermark),
        ("log_end_offset", raft.log_summary.end_offset),
    ):
        page.add(f"{name}_{suffix}", value)
        page.add(f"kafka_server_raftmetrics_{suffix}", value)
    page.add(f"{name}_log_end_epoch", raft.log_summary.last_epoch)
    page.add(f"{name}_number_of_voters", len(voters))
    page.add(f"{name}_number_of_observers", len(observers))
    page.add(f"{name}_uncommitted_voter_change", int(raft.voters.offset >= max(raft.high_watermark, 0)))
    for each in RAFT_STATES:
        page.add(f"{name}_current_state", int(each == current), labels(state=each))
    page.add("kafka_server_raftmetrics_current_state", 1, labels(current_state=current))


def add_cluster_metrics(page: MetricsBuilder, controller: QuorumController) -> Job[None]:
    """Add the cluster metrics of a controller to the metrics page, as a job."""
    image, name = controller.image, "kafka_controller_kafkacontroller"
    partitions = offline = elsewhere = 0
    for topic in list(image.topics.values()):
        for p in topic.partitions.values():
            partitions += 1
            offline += p.leader == NO_LEADER
            elsewhere += p.leader != p.replicas[0]
            if partitions % PARTITIONS_PER_STEP == 0:
                yield None
    brokers = list(image.brokers.values())
    if controller.is_active:
        _add_broker_info(page, brokers)
    fenced = sum(b.fenced for b in brokers)
    for suffix, value in (
        ("activecontrollercount", int(controller.is_active)),
        ("activebrokercount", len(brokers) - fenced),
        ("fencedbrokercount", fenced),
        ("controlledshutdownbrokercount", sum(b.in_controlled_shutdown for b in brokers)),
        ("globaltopiccount", len(image.topics)),
        ("globalpartitioncount", partitions),
        ("offlinepartitionscount", offline),
        ("preferredreplicaimbalancecount", elsewhere),
        ("lastcommittedrecordoffset", image.offset),
    ):
        page.add(f"{name}_{suffix}", value)


def _add_broker_info(page: MetricsBuilder, brokers: Iterable[RegisterBrokerRecord]) -> None:
    """Add the samples of brokers that are not fenced, as kafka_exporter names them."""
    live = [broker for broker in brokers if not broker.fenced]
    page.add("kafka_brokers", len(live))
    for broker in live:
        address = format_address(broker.end_points[0].host, broker.end_points[0].port) if broker.end_points else ""
        page.add("kafka_broker_info", 1, labels(id=broker.broker_id, address=address))
