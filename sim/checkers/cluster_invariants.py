"""Invariants of a cluster, checked in the memory of the running nodes.

``SingleLeaderPerEpoch``: an epoch of the quorum has at most one leader. ``MonotonicHighWatermark``: neither the offset
of the metadata that a node has published, nor the high watermark of a partition in one leader epoch, decreases.
``EnoughInSync``: the high watermark does not advance while the ISR is smaller than ``min.insync.replicas``.
``CommittedNeverLost``: all nodes have the same image at an offset of the metadata log, and the same epoch of a
committed record. ``PartitionLeaderPerEpoch``: at most one node leads a partition in a leader epoch. ``LeaderInIsr``:
the leader is in the ISR. ``StrongIsr``: each member of the ISR has all records below the leader's high watermark.

Names from the TLA+ models of Kafka's replication and of KRaft.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import trio

from ottla.controller.config.config_validation import MIN_ISR
from ottla.controller.metadata.image import RESOURCE_BROKER, MetadataImage

if TYPE_CHECKING:
    from ottla.broker.components.broker_components import BrokerComponents
    from ottla.controller.metadata.delta import MetadataDelta
    from ottla.controller.metadata.image import PartitionRegistration
    from ottla.controller.raft.state_machine.log_summary import LogSummary
    from sim.engine.simulation import Simulation

CHECK_INTERVAL_S = 0.05
MAX_COMMITTED_SAMPLES = 50
MAX_REPORTS = 5
"""Maximum number of reports of one violation in a run."""

LiveNodes = Mapping[int, "BrokerComponents"]
"""Components of the running nodes by id."""


class ClusterInvariants:
    """Periodic checks of invariants in the memory of all nodes."""

    def __init__(self, simulation: Simulation, living: Callable[[], LiveNodes]) -> None:
        self._simulation = simulation
        self._living = living
        self._watched: dict[BrokerComponents, None] = {}
        self._reported: dict[str, int] = {}
        self._raft_leaders: dict[int, int] = {}
        self._images: dict[int, MetadataImage] = {}
        self._newest = newest_image({})
        """Newest image of the run, also if all nodes that have published it are stopped.

        A change of an ISR takes effect at the leader when the active controller, which has published it, responds.
        """
        self._committed: dict[int, int] = {}
        """Epoch of committed records of the metadata log by offset; the newest `MAX_COMMITTED_SAMPLES` are kept."""
        self._published: dict[BrokerComponents, int] = {}
        self._partition_leaders: dict[tuple[bytes, int, int], int] = {}
        self._high: dict[tuple[BrokerComponents, bytes, int, int], int] = {}
        self._few: dict[tuple[BrokerComponents, bytes, int, int], int] = {}

    async def run(self) -> None:
        """Check every `CHECK_INTERVAL_S` until cancelled."""
        while True:
            self.check_once()
            await trio.sleep(CHECK_INTERVAL_S)

    def check_once(self) -> None:
        """Check all invariants once, and report each violation; subscribe to the images of nodes that are new."""
        living = self._living()
        for parts in living.values():
            if parts not in self._watched:
                self._watched[parts] = None
                parts.controller.subscribe(self._on_publish)
        for rule in RULES:
            for detail in rule(self, living):
                self.report(rule.__name__, detail)

    def report(self, rule: str, detail: str) -> None:
        """Report a violation of a rule, named by its function; at most `MAX_REPORTS` of each rule are recorded."""
        name = "".join(word.capitalize() for word in rule.split("_"))
        self._reported[name] = self._reported.get(name, 0) + 1
        if self._reported[name] <= MAX_REPORTS:
            self._simulation.trace_event(f"{name}: {detail}")
            self._simulation.ledger.report_violation(name, f"at {self._simulation.now_s():.3f} s: {detail}")

    def _on_publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Note a published image; compare it with that of the same offset at other nodes, and report a difference."""
        self._newest = max(self._newest, image, key=lambda x: x.offset)
        known = self._images.setdefault(image.offset, image)
        if known is not image and known != image:
            self.report(
                "committed_never_lost", f"two images of offset {image.offset}: {image_difference(known, image)}"
            )

    # ------------------------------------------------------------------ the rules

    def single_leader_per_epoch(self, living: LiveNodes) -> Iterator[str]:
        """Yield a text for each epoch of the quorum for which nodes have known two leaders."""
        for node_id, parts in living.items():
            epoch, leader = parts.controller.epoch, parts.controller.leader_id
            if leader >= 0 and self._raft_leaders.setdefault(epoch, leader) != leader:
                yield f"epoch {epoch}: {leader} by node {node_id}, {self._raft_leaders[epoch]} before"

    def committed_never_lost(self, living: LiveNodes) -> Iterator[str]:
        """Yield a text for each committed offset of the metadata log that has another epoch at another node.

        Committed offsets are sampled: the last one at each call.
        """
        for node_id, parts in living.items():
            raft = parts.controller._raft.machine
            known, last = raft.log_summary, raft.high_watermark - 1
            for offset, epoch in self._committed.items():
                here = leader_epoch_at(known, offset) if offset <= last else None
                if here not in (epoch, None):
                    yield f"{offset} of the metadata log by node {node_id}: epoch {here}, not {epoch}"
            ends = leader_epoch_at(known, last)
            if ends is not None and last not in self._committed:
                self._committed[last] = ends
                if len(self._committed) > MAX_COMMITTED_SAMPLES:
                    del self._committed[next(iter(self._committed))]

    def monotonic_high_watermark(self, living: LiveNodes) -> Iterator[str]:
        """Yield a text for each published metadata offset, and high watermark within a leader epoch, that decreased."""
        for node_id, parts in living.items():
            offset = parts.controller.image.offset
            if offset < self._published.get(parts, -1):
                yield f"node {node_id} went back from {self._published[parts]} to {offset} of the metadata"
            self._published[parts] = offset
            for replica in parts.replica_manager:
                if replica.is_leader:
                    key = (parts, replica.topic_id, replica.partition, replica.leader_epoch)
                    high = replica.log.high_watermark
                    if high < self._high.get(key, -1):
                        yield f"{replica.topic}-{replica.partition} by node {node_id}: {self._high[key]} to {high}"
                    self._high[key] = high

    def partition_leader_per_epoch(self, living: LiveNodes) -> Iterator[str]:
        """Yield a text for each partition with two leaders in one leader epoch, now or earlier in the run."""
        for node_id, parts in living.items():
            for replica in parts.replica_manager:
                if replica.is_leader:
                    key = (replica.topic_id, replica.partition, replica.leader_epoch)
                    known = self._partition_leaders.setdefault(key, node_id)
                    if known != node_id:
                        yield f"{replica.topic}-{replica.partition} epoch {replica.leader_epoch}: {known}, {node_id}"

    def leader_in_isr(self, living: LiveNodes) -> Iterator[str]:
        """Yield a text for each partition of which the leader is not in the ISR, in the image of any node."""
        for node_id, parts in living.items():
            for name, number, registration in iterate_partitions(parts.controller.image):
                if registration.leader >= 0 and registration.leader not in registration.isr:
                    yield f"{name}-{number} as node {node_id} knows it: {registration.leader} not in {registration.isr}"

    def enough_in_sync(self, living: LiveNodes) -> Iterator[str]:
        """Yield a text for each leader that advances its high watermark with an ISR below ``min.insync.replicas``.

        That is the cluster-wide default, not a topic's setting, and at most the number of replicas. Leaders that do not
        know the ISR of the image yet are skipped.
        """
        for node_id, parts in living.items():
            image = parts.controller.image
            least = int(image.config(RESOURCE_BROKER, "").get(MIN_ISR, "1"))
            for replica in parts.replica_manager:
                topic, state = image.topic_by_id(replica.topic_id), replica.state
                registration = None if topic is None else topic.partitions.get(replica.partition)
                if registration is None or getattr(state, "partition_epoch", -1) != registration.partition_epoch:
                    continue
                if not replica.is_leader or len(registration.isr) >= min(least, len(registration.replicas)):
                    continue
                high = replica.log.high_watermark
                before = self._few.setdefault(
                    (parts, replica.topic_id, replica.partition, registration.partition_epoch), high
                )
                if high > before:
                    at = f"{replica.topic}-{replica.partition}"
                    yield f"{at} by node {node_id}: {before} to {high}, {registration.isr}"

    def strong_isr(self, living: LiveNodes) -> Iterator[str]:
        """Yield a text for each member of an ISR that lacks records below the leader's high watermark.

        The ISR is that of the newest image that any node has published. Stopped nodes, those that have not registered
        since their start, and replicas in failed log directories are skipped.
        """
        image = self._newest = max(self._newest, newest_image(living), key=lambda x: x.offset)
        for name, number, registration in iterate_partitions(image):
            leading = (
                living[registration.leader].replica_manager.get(name, number) if registration.leader in living else None
            )
            if leading is None or not leading.is_leader or leading.leader_epoch != registration.leader_epoch:
                continue
            if leading.topic_id != image.topics[name].id:
                continue  # the topic was deleted and created again, and its leader does not know yet
            for member in registration.isr:
                parts = living.get(member)
                known = image.brokers.get(member)
                if parts is None or known is None or parts.lifecycle.broker_epoch != known.broker_epoch:
                    continue
                replica = parts.replica_manager.get(name, number)
                if (name, number) in parts.replica_manager.offline_partitions:
                    continue
                end = 0 if replica is None or replica.topic_id != leading.topic_id else replica.log.log_end_offset
                if end < leading.log.high_watermark:
                    yield f"{name}-{number}: {member} ends at {end}, committed to {leading.log.high_watermark}"


RULES = (
    ClusterInvariants.single_leader_per_epoch,
    ClusterInvariants.committed_never_lost,
    ClusterInvariants.monotonic_high_watermark,
    ClusterInvariants.partition_leader_per_epoch,
    ClusterInvariants.leader_in_isr,
    ClusterInvariants.enough_in_sync,
    ClusterInvariants.strong_isr,
)


def leader_epoch_at(chain: LogSummary, offset: int) -> int | None:
    """Return the epoch of the record at an offset of the metadata log; None if the log has no record there."""
    at = bisect_right(chain._epoch_start_offsets, offset) - 1
    return chain._epochs[at] if at >= 0 and chain.start_offset <= offset < chain.end_offset else None


def newest_image(living: LiveNodes) -> MetadataImage:
    """Return the metadata image with the highest offset on a running node; an empty one without nodes."""
    return max((x.controller.image for x in living.values()), key=lambda x: x.offset, default=MetadataImage())


def iterate_partitions(image: MetadataImage) -> Iterator[tuple[str, int, PartitionRegistration]]:
    """Yield topic, partition number and registration of every partition in an image."""
    for name in sorted(image.topics):
        for number, registration in image.topics[name].partitions.items():
            yield name, number, registration


def image_difference(image: MetadataImage, other_image: MetadataImage) -> str:
    """Return a text with the fields in which two images differ; each, with both values, is cut to 600 characters."""
    areas = [x for x in image.__dataclass_fields__ if getattr(image, x) != getattr(other_image, x)]
    return ", ".join(f"{x}: {getattr(image, x)} and {getattr(other_image, x)}"[:600] for x in areas)
