"""Leader elections as a controller counts them."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.observability.election_metrics import LeaderElectionCounter
from ottla.broker.observability.metrics_builder import MetricsBuilder
from ottla.broker.observability.tests.metrics_fixture import samples
from ottla.controller.metadata.delta import MetadataDelta, TopicDelta
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.jobs.job import run_to_end


def topic(leader: int, isr: tuple[int, ...], topic_id: bytes = bytes(16)) -> TopicImage:
    partitions: Any = {0: PartitionRegistration((1, 2, 3), isr, leader, 1, 1)}
    return TopicImage("t", topic_id, partitions)


@pytest.mark.parametrize(
    ("new", "elections", "unclean"),
    [
        (topic(2, (2, 3)), 1, 0),
        (topic(3, (3,)), 1, 1),
        (topic(1, (1,)), 0, 0),
        (topic(-1, (1, 2)), 0, 0),
        (topic(3, (3,), b"\x01" * 16), 0, 0),
        (None, 0, 0),
    ],
    ids=["clean", "unclean", "same leader", "no leader", "another topic", "deleted"],
)
def test_election_is_unclean_where_the_leader_was_not_in_the_isr(
    new: TopicImage | None, elections: int, unclean: int
) -> None:
    counter, page = LeaderElectionCounter(), MetricsBuilder()
    delta = MetadataDelta({"t": TopicDelta(topic(1, (1, 2)), new, frozenset({0}))})
    counter.publish(MetadataImage(), delta)
    counter.add_metrics(page)
    found = samples(b"".join(run_to_end(page.finish())))
    assert found == {
        "kafka_controller_controllerstats_leaderelections_total": elections,
        "kafka_controller_controllerstats_uncleanleaderelections_total": unclean,
    }
