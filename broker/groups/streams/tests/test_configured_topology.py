"""Topologies configured from topic metadata (C-240): tasks, internal topics and errors."""

from __future__ import annotations

import random

import pytest

from ottla.broker.groups.streams.configured_topology import ConfiguredTopology, configure_topology
from ottla.broker.groups.streams.partition_counts import PartitionCounts, repartition_topic_counts
from ottla.broker.groups.streams.status import StreamsGroupStatus
from ottla.broker.groups.streams.topology import StreamsTopology, from_request
from ottla.broker.tests.consumer_group_fixture import image_of
from ottla.broker.tests.streams_group_fixture import internal, subtopology, topology
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import streams_group_heartbeat, streams_group_records


def configure(topics: dict[str, int], *rows: streams_group_heartbeat.Subtopology) -> ConfiguredTopology:
    return configure_topology(from_request(topology(*rows)), image_of(topics))


def shape(configured: ConfiguredTopology) -> tuple[dict[str, int], dict[str, int]]:
    """Return the tasks by subtopology, and the partition counts of topics to create."""
    tasks = {name: one.task_count for name, one in (configured.subtopologies or {}).items()}
    return tasks, {name: topic.partitions for name, topic in configured.missing_internal_topics.items()}


def test_task_count_is_partition_count_of_largest_source() -> None:
    configured = configure({"a": 3, "b": 5}, subtopology("0", "a", "b"), subtopology("1", "a"))
    assert configured.is_ready
    assert shape(configured) == ({"0": 5, "1": 3}, {})


def test_missing_source_topics_detail_lists_at_most_three() -> None:
    configured = configure({"b": 1}, subtopology("0", "d", "a"), subtopology("1", "e", "c", "b"))
    assert configured.problem == (
        StreamsGroupStatus.MISSING_SOURCE_TOPICS,
        "Source topics a, c, d and 1 additional topics are missing.",
    )
    assert configured.subtopologies is None


@pytest.mark.parametrize(
    ("rows", "tasks", "made"),
    [
        ((subtopology("0", "a", changelogs=("s",)),), {"0": 3}, {"s": 3}),
        (  # as many partitions as the writers' largest source
            (
                subtopology("0", "a", "b", sinks=("r",)),
                subtopology("1", repartition=(internal("r"),), changelogs=("s",)),
            ),
            {"0": 5, "1": 5},
            {"r": 5, "s": 5},
        ),
        (
            (subtopology("0", "a", sinks=("r",)), subtopology("1", repartition=(internal("r", 7),))),
            {"0": 3, "1": 7},
            {"r": 7},
        ),
        (  # a chain in reverse order
            (
                subtopology("0", repartition=(internal("r2"),)),
                subtopology("1", repartition=(internal("r1"),), sinks=("r2",)),
                subtopology("2", "b", sinks=("r1",)),
            ),
            {"0": 5, "1": 5, "2": 5},
            {"r1": 5, "r2": 5},
        ),
        (  # joined with a source topic
            (
                subtopology("0", "a", sinks=("r",)),
                subtopology("1", "b", repartition=(internal("r"),), together=(([0], [0]),)),
            ),
            {"0": 3, "1": 5},
            {"r": 5},
        ),
        (  # joined with each other: the largest
            (
                subtopology("0", "a", sinks=("r1",)),
                subtopology("1", "b", sinks=("r2",)),
                subtopology("2", repartition=(internal("r1"), internal("r2")), together=(([], [0, 1]),)),
            ),
            {"0": 3, "1": 5, "2": 5},
            {"r1": 5, "r2": 5},
        ),
        (  # joined with one that has a fixed number of partitions
            (
                subtopology("0", "a", sinks=("r1", "r2")),
                subtopology("1", repartition=(internal("r1", 4), internal("r2")), together=(([], [0, 1]),)),
            ),
            {"0": 3, "1": 4},
            {"r1": 4, "r2": 4},
        ),
        ((), {}, {}),
    ],
)
def test_internal_topics_get_partition_count_of_their_sources(
    rows: tuple[streams_group_heartbeat.Subtopology, ...], tasks: dict[str, int], made: dict[str, int]
) -> None:
    configured = configure({"a": 3, "b": 5}, *rows)
    assert shape(configured) == (tasks, made)
    assert (configured.problem is not None) == bool(made)


def test_missing_internal_topics_carry_requested_configs() -> None:
    row = streams_group_heartbeat.Subtopology(
        "0",
        ["a"],
        [],
        [streams_group_heartbeat.TopicInfo("s", 0, 2, [streams_group_heartbeat.KeyValue("cleanup.policy", "compact")])],
    )
    configured = configure({"a": 3}, row)
    assert configured.problem == (StreamsGroupStatus.MISSING_INTERNAL_TOPICS, "Internal topics are missing: s")
    assert configured.missing_internal_topics["s"] == ("s", 3, 2, (("cleanup.policy", "compact"),))


@pytest.mark.parametrize(
    ("topics", "rows", "detail"),
    [
        (
            {"a": 3, "s": 4},
            (subtopology("0", "a", changelogs=("s",)),),
            "Existing topic s has different number of partitions: expected 3, found 4",
        ),
        (
            {"a": 3, "b": 5},
            (subtopology("0", "a", "b", together=(([0, 1], []),)),),
            "Following topics do not have the same number of partitions: [{a=3, b=5}]",
        ),
        (
            {"a": 3},
            (
                subtopology("0", "a", sinks=("r1", "r2")),
                subtopology("1", repartition=(internal("r1", 2), internal("r2", 4)), together=(([], [0, 1]),)),
            ),
            "Following topics do not have the same number of partitions: [{r1=2, r2=4}]",
        ),
        (
            {"a": 3},
            (subtopology("0", "a", repartition=(internal("r", 2),), together=(([0], [0]),)),),
            "Number of partitions [2] of repartition topic [r] doesn't match number of partitions [3] of the source "
            "topic.",
        ),
    ],
)
def test_incorrectly_partitioned_topics_are_reported(
    topics: dict[str, int], rows: tuple[streams_group_heartbeat.Subtopology, ...], detail: str
) -> None:
    assert configure(topics, *rows).problem == (StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)


LOOPS = (
    "Failed to compute number of partitions for all repartition topics. "
    "There may be loops in the topology that cannot be resolved."
)


@pytest.mark.parametrize(
    ("rows", "code", "message"),
    [
        ((subtopology("0", repartition=(internal("r"),), sinks=("r",)),), ErrorCode.STREAMS_INVALID_TOPOLOGY, LOOPS),
        ((subtopology("0", sinks=("r",)),), ErrorCode.STREAMS_INVALID_TOPOLOGY, LOOPS),
        (
            (subtopology("0", "a", repartition=(internal("r"),)),),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic.",
        ),
        ((subtopology("0"),), ErrorCode.STREAMS_INVALID_TOPOLOGY, "No source topics found for subtopology 0"),
        ((subtopology("0", "a", together=(([1], []),)),), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        ((subtopology("0", "a", together=(([-1], []),)),), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        ((subtopology("0", "a", together=(([], [0]),)),), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        ((subtopology("0", "a", repartition=(internal("r", -2),)),), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        ((subtopology("0", "a", changelogs=("s", "s")),), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        ((subtopology("0", "a"), subtopology("0", "a")), ErrorCode.UNKNOWN_SERVER_ERROR, None),
    ],
)
def test_invalid_topologies_are_refused(
    rows: tuple[streams_group_heartbeat.Subtopology, ...], code: ErrorCode, message: str | None
) -> None:
    with pytest.raises(ProtocolError) as refused:
        configure({"a": 3}, *rows)
    assert (refused.value.code, refused.value.message) == (code, message)


def test_topology_with_more_than_20000_tasks_is_refused() -> None:
    many = [subtopology(str(number), "a") for number in range(201)]
    with pytest.raises(ProtocolError, match="20100 tasks"):
        configure({"a": 100}, *many)
    assert configure({"a": 99}, *many).is_ready


def test_reverse_ordered_chain_is_resolved_in_linear_time() -> None:
    """Kafka resolves in rounds: here each subtopology is visited once for each topic it reads."""
    count = 1_000
    chain = [
        subtopology(f"{number:04}", repartition=(internal(f"r{number + 1}"),), sinks=(f"r{number}",))
        for number in range(count)
    ]
    known = from_request(topology(*chain, subtopology("last", "a", sinks=(f"r{count}",))))
    assert {
        topic.partitions for topic in configure_topology(known, image_of({"a": 3})).missing_internal_topics.values()
    } == {3}


def test_has_same_content_ignores_order_of_subtopologies() -> None:
    one, other = subtopology("0", "a"), subtopology("1", "b", changelogs=("s",))
    assert from_request(topology(one, other)).has_same_content(from_request(topology(other, one)))
    assert not from_request(topology(one)).has_same_content(from_request(topology(one, epoch=1)))
    assert not from_request(topology(one)).has_same_content(from_request(topology(subtopology("0", "b"))))


def test_topology_lists_sources_and_required_topics() -> None:
    known: StreamsTopology = from_request(
        topology(
            subtopology("0", "a", sinks=("r",)), subtopology("1", "b", repartition=(internal("r"),), changelogs=("s",))
        )
    )
    assert known.subtopology_by_source == {"a": "0", "b": "1", "r": "1"}
    assert known.required_topics == {"a", "b", "r", "s"}


def test_topology_with_negative_epoch_is_refused() -> None:
    with pytest.raises(ProtocolError) as refused:
        from_request(topology(subtopology("0", "a"), epoch=-1))
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def round_by_round(rows: list[streams_group_records.Subtopology], sizes: dict[str, int]) -> dict[str, int] | None:
    """Return repartition topic sizes by Kafka's rounds, or None where they cannot be resolved."""
    out: dict[str, int] = {}
    while True:
        waits = moved = False
        for row in rows:
            for sink in row.repartition_sink_topics:
                if sink in out:
                    continue
                known = [out.get(topic.name, 0) for topic in row.repartition_source_topics]
                known += [sizes[name] for name in row.source_topics]
                if max(known, default=0):
                    out[sink], moved = max(known), True
                else:
                    waits = True
        if not waits:
            return out
        if not moved:
            return None


def test_repartition_topic_counts_equals_kafkas_rounds() -> None:
    sizes = {"a": 2, "b": 3, "c": 7}
    looked = 0
    for seed in range(1_000):
        rng = random.Random(seed)
        names = [f"r{number}" for number in range(rng.randint(2, 6))]

        def some(of: list[str], rng: random.Random = rng) -> list[str]:
            return rng.sample(of, rng.choice([0, 1, 2]))

        fields = [
            subtopology(
                str(n), *some([*sizes]), sinks=tuple(some(names)), repartition=tuple(map(internal, some(names)))
            )
            for n in range(rng.randint(1, 7))
        ]
        rows = list(from_request(topology(*fields)).subtopologies.values())
        expected = round_by_round(rows, sizes)
        read = {topic.name for row in rows for topic in row.repartition_source_topics}
        if expected is None or not read <= expected.keys():
            with pytest.raises(ProtocolError):
                repartition_topic_counts(rows, PartitionCounts(image_of(sizes)))
            continue
        assert repartition_topic_counts(rows, PartitionCounts(image_of(sizes))) == expected, seed
        looked += 1
    assert looked > 200
