"""Counters of leader elections, from the metadata that a controller commits.

Source: ``ControllerMetricsChanges.java`` (apache/kafka 4.3.1): an election is unclean if the new leader was not in the
ISR.
"""

from __future__ import annotations

from ottla.broker.observability.metrics_builder import MetricsBuilder
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import NO_LEADER, MetadataImage


class LeaderElectionCounter:
    """Counters of partition leader elections that this controller has seen committed since its start."""

    def __init__(self) -> None:
        self.elections = 0
        self.unclean_elections = 0

    def publish(self, _: MetadataImage, delta: MetadataDelta) -> None:
        """Count the partitions that have another leader in a committed delta.

        Partitions of new topics, new partitions and those left without a leader are not counted.
        """
        for topic in delta.topics.values():
            if topic.old is None or topic.new is None or not topic.is_same_topic:
                continue
            for number in topic.partitions:
                old, new = topic.old.partitions.get(number), topic.new.partitions.get(number)
                if old is None or new is None or new.leader in (NO_LEADER, old.leader):
                    continue
                self.elections += 1
                self.unclean_elections += new.leader not in old.isr

    def add_metrics(self, page: MetricsBuilder) -> None:
        """Add the counts of all elections and of unclean ones to the metrics page."""
        page.add("kafka_controller_controllerstats_leaderelections_total", self.elections)
        page.add("kafka_controller_controllerstats_uncleanleaderelections_total", self.unclean_elections)
