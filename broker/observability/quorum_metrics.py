"""The numbers of the quorum as each node sees it, and of the cluster as a controller sees it, for the metrics page.

A controller that stands by has them too: from its own image. Looking costs a walk over the partitions, in steps.

Source: the beans of ``KafkaRaftMetrics.java``, ``ControllerMetadataMetrics.java``, ``ControllerMetricsChanges.java``
and ``QuorumControllerMetrics.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from ottla.controller.metadata.image import NO_LEADER, MetadataImage
from ottla.controller.raft.state_machine.epoch_states import (
    CandidateState,
    ProspectiveState,
    RaftFollowerState,
    RaftLeaderState,
    ResignedState,
    UnattachedState,
)
from ottla.controller.raft.state_machine.events import NO_NODE_ID
from ottla.jobs.job import Job

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
MetricRow = tuple[str, str, int]
"""Name, what it is, value."""


class QuorumMetricsSource(Protocol):
    """The controller in this process: `ottla.controller.quorum_controller.QuorumController`."""

    @property
    def image(self) -> MetadataImage:
        """The newest committed image."""

    @property
    def is_active(self) -> bool:
        """True if it is the active one."""

    @property
    def raft(self) -> Any:
        """The raft machine, to be looked at."""


def raft_state_name(raft: Any) -> str:
    """One of `RAFT_STATES`: who follows and has no vote is an observer."""
    name = _STATE_NAMES[type(raft.state)]
    return "observer" if name in ("follower", "unattached") and not raft.voters.is_voter(raft.local_replica) else name


def quorum_metrics(controller: QuorumMetricsSource) -> Iterator[MetricRow]:
    """What each node knows of the quorum."""
    raft, name = controller.raft, "kafka_server_raft_metrics"
    state = raft.state
    if isinstance(state, RaftLeaderState | CandidateState):
        voted = raft.local_replica.id
    else:
        voted = NO_NODE_ID if raft.hard_state.voted_key is None else raft.hard_state.voted_key.id
    voters = raft.voters.current
    observers = [x for x in state.replicas if x not in voters] if isinstance(state, RaftLeaderState) else []
    yield f"{name}_current_leader", "Who leads the quorum; -1 where that is not known.", raft.leader_id
    yield f"{name}_current_vote", "Whom this node gave its vote; -1 for nobody.", voted
    yield f"{name}_current_epoch", "The quorum's epoch.", raft.epoch
    yield f"{name}_high_watermark", "Up to where the metadata is committed; -1 where not known.", raft.high_watermark
    yield f"{name}_log_end_offset", "End of the metadata log here.", raft.log_summary.end_offset
    yield f"{name}_log_end_epoch", "Epoch of its last record.", raft.log_summary.last_epoch
    yield f"{name}_number_of_voters", "Controllers that vote.", len(voters)
    yield f"{name}_number_of_observers", "Others that fetch the metadata log, as its leader knows.", len(observers)
    uncommitted = raft.voters.offset >= max(raft.high_watermark, 0)
    yield f"{name}_uncommitted_voter_change", "Whether a change of who votes is not committed yet.", int(uncommitted)


def raft_state_metrics(controller: QuorumMetricsSource) -> Iterator[str]:
    """The state this node is in, a line for each there is."""
    name, now = "kafka_server_raft_metrics_current_state", raft_state_name(controller.raft)
    yield f"# HELP {name} 1 for the state this node is in.\n# TYPE {name} gauge\n"
    for state in RAFT_STATES:
        yield f'{name}{{state="{state}"}} {int(state == now)}\n'


def cluster_metrics(controller: QuorumMetricsSource) -> Job[list[MetricRow]]:
    """What a controller knows of the cluster, in steps of so many partitions."""
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
    fenced = sum(b.fenced for b in brokers)
    return [
        (f"{name}_activecontrollercount", "1 on the controller that decides.", int(controller.is_active)),
        (f"{name}_activebrokercount", "Brokers that are registered and not fenced.", len(brokers) - fenced),
        (f"{name}_fencedbrokercount", "Brokers that are registered and fenced.", fenced),
        (
            f"{name}_controlledshutdownbrokercount",
            "Brokers that are about to stop.",
            sum(b.in_controlled_shutdown for b in brokers),
        ),
        (f"{name}_globaltopiccount", "Topics.", len(image.topics)),
        (f"{name}_globalpartitioncount", "Partitions.", partitions),
        (f"{name}_offlinepartitionscount", "Partitions nobody leads.", offline),
        (f"{name}_preferredreplicaimbalancecount", "Partitions that another than the first replica leads.", elsewhere),
        (f"{name}_lastcommittedrecordoffset", "The last record of the metadata that is committed.", image.offset),
    ]
