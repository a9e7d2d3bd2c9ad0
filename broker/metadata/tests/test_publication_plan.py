"""Table of metadata deltas and the steps that this node takes for them."""

from __future__ import annotations

import pytest

from ottla.broker.metadata.publication_plan import (
    CreatePartitionLog,
    PartitionAction,
    RemovePartition,
    TopicPartition,
    UpdatePartition,
    UpdateTopicConfig,
    plan_actions,
)
from ottla.controller.metadata.delta import MetadataDelta, TopicDelta
from ottla.controller.metadata.image import PartitionRegistration, TopicImage

ME, OTHER = 1, 2
X, Y = b"x" * 16, b"y" * 16
MINE = PartitionRegistration((ME,), (ME,), ME, 0, 0)
THEIRS = PartitionRegistration((OTHER,), (OTHER,), OTHER, 0, 0)
BOTH = PartitionRegistration((OTHER, ME), (OTHER, ME), OTHER, 3, 5)
TOPIC, BROKER, GROUP = 2, 4, 32


def topic(name: str = "t", topic_id: bytes = X, *partitions: PartitionRegistration) -> TopicImage:
    return TopicImage(name, topic_id, dict(enumerate(partitions)))


def of(old: TopicImage | None, new: TopicImage | None, *numbers: int) -> MetadataDelta:
    some = new or old
    assert some is not None
    return MetadataDelta({some.name: TopicDelta(old, new, frozenset(numbers))})


# Columns: the delta, the open partitions, the steps.
ROWS: dict[str, tuple[MetadataDelta, dict[TopicPartition, bytes], list[PartitionAction]]] = {
    "a new topic's own partitions are made, in order": (
        of(None, topic("t", X, MINE, THEIRS, BOTH), 2, 1, 0),
        {},
        [CreatePartitionLog(("t", 0), X, MINE), CreatePartitionLog(("t", 2), X, BOTH)],
    ),
    "what is open is followed, not made again": (
        of(None, topic("t", X, MINE, MINE), 0, 1),
        {("t", 1): X},
        [UpdatePartition(("t", 1), MINE), CreatePartitionLog(("t", 0), X, MINE)],
    ),
    "only what changed": (
        of(topic("t", X, MINE, MINE, MINE), topic("t", X, MINE, BOTH, MINE), 1),
        {("t", n): X for n in range(3)},
        [UpdatePartition(("t", 1), BOTH)],
    ),
    "added partitions": (
        of(topic("t", X, MINE), topic("t", X, MINE, MINE), 1),
        {("t", 0): X},
        [CreatePartitionLog(("t", 1), X, MINE)],
    ),
    "a deleted topic goes with every partition that is this node's": (
        of(topic("t", X, MINE, THEIRS, BOTH), None),
        {("t", 0): X},
        [RemovePartition(("t", 0)), RemovePartition(("t", 2))],
    ),
    "a topic made again under its name: what was goes first, although its id is all that differs": (
        of(topic("t", X, MINE, MINE), topic("t", Y, MINE), 0),
        {("t", 0): X, ("t", 1): X},
        [RemovePartition(("t", 0)), RemovePartition(("t", 1)), CreatePartitionLog(("t", 0), Y, MINE)],
    ),
    "a replica that moved away is removed, the others stay": (
        of(topic("t", X, BOTH, BOTH), topic("t", X, THEIRS, BOTH), 0, 1),
        {("t", 0): X, ("t", 1): X},
        [RemovePartition(("t", 0)), UpdatePartition(("t", 1), BOTH)],
    ),
    "a replica that came here is made": (
        of(topic("t", X, THEIRS), topic("t", X, BOTH), 0),
        {},
        [CreatePartitionLog(("t", 0), X, BOTH)],
    ),
    "a partition of others is nothing to us": (
        of(topic("t", X, THEIRS), topic("t", X, THEIRS), 0),
        {},
        [],
    ),
    "all that is open is led before anything is made, over all topics": (
        MetadataDelta(
            {
                "a": TopicDelta(None, topic("a", X, MINE), frozenset({0})),
                "b": TopicDelta(None, topic("b", Y, MINE), frozenset({0})),
            }
        ),
        {("b", 0): Y},
        [UpdatePartition(("b", 0), MINE), CreatePartitionLog(("a", 0), X, MINE)],
    ),
    "all that goes goes before anything is followed": (
        MetadataDelta(
            {
                "a": TopicDelta(None, topic("a", X, MINE), frozenset({0})),
                "b": TopicDelta(topic("b", Y, MINE), None, frozenset()),
            }
        ),
        {("a", 0): X, ("b", 0): Y},
        [RemovePartition(("b", 0)), UpdatePartition(("a", 0), MINE)],
    ),
    "topics whose settings changed, and no others": (
        MetadataDelta(configs=frozenset({(TOPIC, "b"), (TOPIC, "a"), (GROUP, "g")})),
        {},
        [UpdateTopicConfig("a"), UpdateTopicConfig("b")],
    ),
    "settings of a topic that was just made come with it": (
        MetadataDelta({"t": TopicDelta(None, topic("t", X, MINE), frozenset({0}))}, frozenset({(TOPIC, "t")})),
        {},
        [CreatePartitionLog(("t", 0), X, MINE)],
    ),
    "settings of a topic that stays, changed with a partition of it": (
        MetadataDelta(
            {"t": TopicDelta(topic("t", X, MINE), topic("t", X, MINE), frozenset({0}))}, frozenset({(TOPIC, "t")})
        ),
        {("t", 0): X},
        [UpdatePartition(("t", 0), MINE), UpdateTopicConfig("t")],
    ),
    "settings of all brokers are every topic's": (
        MetadataDelta(configs=frozenset({(BROKER, ""), (TOPIC, "a")})),
        {},
        [UpdateTopicConfig(None)],
    ),
    "settings of this broker are every topic's": (
        MetadataDelta(configs=frozenset({(BROKER, str(ME))})),
        {},
        [UpdateTopicConfig(None)],
    ),
    "settings of another broker are nothing to us": (MetadataDelta(configs=frozenset({(BROKER, str(OTHER))})), {}, []),
    "nothing changed": (MetadataDelta(), {}, []),
}


@pytest.mark.behaviour("R-308")
@pytest.mark.parametrize("row", list(ROWS))
def test_plan_actions_of_delta_returns_steps(row: str) -> None:
    delta, hosted, expected = ROWS[row]
    there = dict(hosted)
    found = []
    for step in plan_actions(delta, ME, there.get):
        found.append(step)
        if isinstance(step, RemovePartition):
            there.pop(step.topic_partition, None)
    assert found == expected
