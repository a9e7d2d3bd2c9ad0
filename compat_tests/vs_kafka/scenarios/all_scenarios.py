"""Scenarios of several steps over raw connections: the response to each step is compared with Kafka's.

A scenario is a function of a `ScenarioSession`; the ids that a node assigns are named in the order they appear, so that
the responses of two nodes can be compared.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from compat_tests.support.raw_client import wait_until
from compat_tests.vs_kafka.scenarios.classic_group_scenarios import (
    commit,
    deleted_topic,
    old_versions,
    protocols,
    simple_consumers,
    static_members,
    two_members,
)
from compat_tests.vs_kafka.scenarios.consumer_group_scenarios import (
    consumer_handover,
    consumer_patterns,
    consumer_refusals,
    consumer_static,
)
from compat_tests.vs_kafka.scenarios.group_migration_scenarios import (
    consumer_and_classic,
    consumer_beside_foreign_groups,
)
from compat_tests.vs_kafka.scenarios.scenario_session import BASE_MS, ScenarioSession
from compat_tests.vs_kafka.scenarios.share_group_scenarios import (
    share_members,
    share_records,
    share_refusals,
    share_transactions,
)
from compat_tests.vs_kafka.scenarios.share_offset_scenarios import share_offsets, share_states
from compat_tests.vs_kafka.scenarios.streams_group_scenarios import streams_refusals, streams_tasks, streams_topics
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import delete_records, fetch, find_coordinator, list_offsets, produce
from ottla.wire.messages import offset_for_leader_epoch as ole
from ottla.wire.record_batch import records
from ottla.wire.record_batch.compression import CompressionType


def idempotence(stage: ScenarioSession) -> None:
    """Send repeated, missing and outdated batches of one producer."""
    stage.topic("idempotent")

    def batch(sequence: int, count: int = 2, epoch: int = 0, pid: int = 77) -> bytes:
        items = [records.NewRecord(b"k", b"v%d" % i, BASE_MS + i) for i in range(count)]
        return records.build_batch(items, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)

    for name, raw in (
        ("first", batch(0)),
        ("again", batch(0)),
        ("next", batch(2)),
        ("the first once more", batch(0)),
        ("a gap", batch(9)),
        ("part of one that is there", batch(1)),
        ("epoch 1 from 5", batch(5, epoch=1)),
        ("epoch 1 from 0", batch(0, epoch=1)),
        ("epoch 0 again", batch(2)),
        ("unknown producer in the middle", batch(40, pid=78)),
        ("and on", batch(42, pid=78)),
        ("near the end of the sequence", batch(2**31 - 2, pid=79)),
        ("over the end", batch(0, pid=79)),
    ):
        stage.produce(name, "idempotent", raw)
    for number in range(7):
        stage.produce(f"many {number}", "idempotent", batch(2 + 2 * number, epoch=1))
    stage.produce("one of the last five", "idempotent", batch(8, epoch=1))
    stage.produce("one before them", "idempotent", batch(2, epoch=1))
    stage.fetch("all of it", "idempotent", 0)


def _old_records(stage: ScenarioSession, version: int) -> Any:
    """Return the response to a new record and two expired ones. The first must not expire on its way."""
    for _ in range(20):
        now = int(time.time() * 1000)
        items = [
            records.NewRecord(b"k", b"fine", now),
            records.NewRecord(b"k", b"old", BASE_MS),
            records.NewRecord(b"k", b"older", 5),
        ]
        data = produce.TopicProduceData(
            "narrow", partition_data=[produce.PartitionProduceData(0, records.build_batch(items))]
        )
        answer = stage["a"].call(ApiKey.PRODUCE, version, produce.ProduceRequest(None, -1, 10_000, [data]))
        row = answer.responses[0].partition_responses[0]
        if not any(error.batch_index == 0 for error in row.record_errors):
            break
    return row


def rejected_records(stage: ScenarioSession) -> None:
    """Produce records that a topic's settings do not allow."""
    now = int(time.time() * 1000)
    stage.topic("narrow", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    for version in (7, 8, 11):
        row = _old_records(stage, version)
        texts = [re.sub(r"[0-9]{6,}", "N", e.batch_index_error_message or "") for e in row.record_errors]
        reported = [
            row.error_code,
            row.base_offset,
            row.error_message,
            [e.batch_index for e in row.record_errors],
            texts,
        ]
        stage.record(f"old records v{version}", reported)
    stage.topic("compacted", cleanup_policy="compact")
    stage.produce(
        "a null key",
        "compacted",
        records.build_batch([records.NewRecord(b"k", b"v", now), records.NewRecord(None, b"v", now)]),
    )
    stage.produce("only keys", "compacted", records.build_batch([records.NewRecord(b"k", None, BASE_MS)]))
    stage.topic("small", max_message_bytes="200")
    stage.produce("too large", "small", records.build_batch([records.NewRecord(b"k", b"v" * 300, BASE_MS)]))
    stage.produce("just right", "small", records.build_batch([records.NewRecord(b"k", b"v" * 50, BASE_MS)]))
    stage.topic("stamped", message_timestamp_type="LogAppendTime")
    stage.produce("stamped by the broker", "stamped", records.build_batch([records.NewRecord(b"k", b"v", BASE_MS)]))
    stage.topic("plain", compression_type="uncompressed")
    for codec in CompressionType:
        stage.produce(
            f"{codec.name} made plain",
            "plain",
            records.build_batch([records.NewRecord(b"k", b"v" * 99, BASE_MS)], codec=codec),
        )
    stage.fetch("made plain", "plain", 0)
    stage.topic("lonely", min_insync_replicas="2")
    for acks in (-1, 1, 0):
        if acks:
            stage.produce(
                f"too few replicas, acks {acks}",
                "lonely",
                records.build_batch([records.NewRecord(b"k", b"v", BASE_MS)]),
                acks,
            )
    stage.produce(
        "a control batch",
        "plain",
        records.build_batch([records.NewRecord(b"\x00\x00\x00\x00", b"v", BASE_MS)], attributes=0x20),
    )


def reading(stage: ScenarioSession) -> None:
    """Read offsets, times and epochs of a log whose start was deleted."""
    stage.topic("book")
    for number, codec in enumerate(CompressionType):
        items = [
            records.NewRecord(b"k", b"page %d.%d" % (number, i), BASE_MS + 1000 * number + 10 * i) for i in range(4)
        ]
        stage.produce(f"chapter {number}", "book", records.build_batch(items, codec=codec))
    for offset in (0, 1, 5, 19, 20, 21, -1):
        stage.fetch(f"from {offset}", "book", offset)
    stage.fetch("committed only", "book", 0, isolation_level=1)
    stage.fetch("one byte", "book", 0, session_id=0, session_epoch=-1)
    for when in (-1, -2, -3, BASE_MS, BASE_MS + 1, BASE_MS + 1031, BASE_MS + 4030, BASE_MS + 4031):
        topic = list_offsets.ListOffsetsTopic("book", [list_offsets.ListOffsetsPartition(0, -1, when)])
        stage.call(f"offset at {when}", ApiKey.LIST_OFFSETS, 10, list_offsets.ListOffsetsRequest(-1, 0, [topic]))
    part = delete_records.DeleteRecordsTopic("book", [delete_records.DeleteRecordsPartition(0, 6)])
    stage.call("delete below 6", ApiKey.DELETE_RECORDS, 2, delete_records.DeleteRecordsRequest([part], 10_000))
    for offset in (0, 5, 6, 7):
        stage.fetch(f"then from {offset}", "book", offset)
    for when in (-1, -2, -3, BASE_MS, BASE_MS + 1011, BASE_MS + 1031):
        topic = list_offsets.ListOffsetsTopic("book", [list_offsets.ListOffsetsPartition(0, -1, when)])
        stage.call(f"then offset at {when}", ApiKey.LIST_OFFSETS, 10, list_offsets.ListOffsetsRequest(-1, 0, [topic]))
    for epoch in (-1, 0, 1):
        topic_epoch = ole.OffsetForLeaderTopic("book", [ole.OffsetForLeaderPartition(0, -1, epoch)])
        request = ole.OffsetForLeaderEpochRequest(-1, [topic_epoch])
        stage.call(f"end of epoch {epoch}", ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request)


def sessions(stage: ScenarioSession) -> None:
    """Run a fetch session from its first request to its last."""
    stage.topic("session", 2)
    stage.produce("one batch", "session", records.build_batch([records.NewRecord(b"k", b"v", BASE_MS)]))

    def ask(label: str, ident: int, epoch: int, parts: dict[int, int], forget: tuple[int, ...] = ()) -> Any:
        rows = [fetch.FetchPartition(n, fetch_offset=at, partition_max_bytes=1 << 20) for n, at in parts.items()]
        request = fetch.FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=ident, session_epoch=epoch
        )
        request.topics = [fetch.FetchTopic("session", partitions=rows)] if rows else []
        request.forgotten_topics_data = [fetch.ForgottenTopic("session", partitions=list(forget))] if forget else []
        return stage.call(label, ApiKey.FETCH, 12, request)

    ident = ask("open", 0, 0, {0: 0, 1: 0}).session_id
    ask("nothing changed but the same again", ident, 1, {})
    ask("move on", ident, 2, {0: 1})
    ask("nothing new", ident, 3, {})
    ask("an old epoch", ident, 3, {})
    ask("beyond the end", ident, 4, {1: 50})
    ask("again beyond", ident, 5, {})
    ask("forget it", ident, 6, {}, (1,))
    ask("a partition that is not", ident, 7, {9: 0})
    ask("forget all", ident, 8, {}, (0, 9))
    ask("gone with its last partition", ident, 9, {})
    again = ask("open another", 0, 0, {0: 0}).session_id
    ask("close it", again, -1, {0: 0})
    ask("it is closed", again, 1, {})


INVALID_BROKER_CONFIGS: list[tuple[str, list[tuple[str, int, str | None]]]] = [
    ("read-only", [("broker.id", 0, "5")]),
    ("read-only too", [("log.dirs", 0, "/tmp/x")]),
    ("unknown", [("no.such.key", 0, "5")]),
    ("wrong type", [("log.retention.ms", 0, "soon")]),
    ("out of range", [("num.io.threads", 0, "0")]),
    ("twice", [("log.retention.ms", 0, "1"), ("log.retention.ms", 0, "2")]),
    ("appended to a number", [("log.retention.ms", 2, "5")]),
    ("null", [("log.retention.ms", 0, None)]),
]
INVALID_TOPIC_CONFIGS = [
    ("cleanup.policy", "shred"),
    ("cleanup.policy", ""),
    ("min.cleanable.dirty.ratio", "2"),
    ("min.cleanable.dirty.ratio", "-1"),
    ("min.cleanable.dirty.ratio", "x"),
    ("compression.type", "rar"),
    ("compression.gzip.level", "0"),
    ("compression.lz4.level", "99"),
    ("segment.bytes", "5"),
    ("max.compaction.lag.ms", "0"),
    ("retention.ms", "-2"),
    ("message.timestamp.type", "Never"),
    ("unclean.leader.election.enable", "perhaps"),
    ("segment.bytes", "99999999999"),
    ("min.insync.replicas", "0"),
]


def settings(stage: ScenarioSession) -> None:
    """Alter settings of topics, brokers and groups, from default to dynamic and back."""
    stage.topic("set", retention_ms="5000")

    watched = ("retention.ms", "segment.bytes", "max.message.bytes", "min.insync.replicas", "cleanup.policy")
    stage.describe_configs("topic at first", 2, "set", *watched)
    stage.alter_configs("broker default", 4, "", ("log.retention.ms", 0, "777"), ("message.max.bytes", 0, "900000"))
    stage.alter_configs("one broker", 4, "1", ("log.segment.bytes", 0, "5000000"))
    stage.describe_configs("topic then", 2, "set", *watched)
    stage.describe_configs(
        "broker then", 4, "1", "log.retention.ms", "message.max.bytes", "log.segment.bytes", "num.io.threads"
    )
    stage.describe_configs("broker default then", 4, "", "log.retention.ms", "message.max.bytes")
    stage.describe_configs("all that is set for all brokers", 4, "")
    for label, rows in INVALID_BROKER_CONFIGS:
        stage.alter_configs(f"broker: {label}", 4, "1", *rows)
    for name, value in INVALID_TOPIC_CONFIGS:
        stage.alter_configs(f"topic: {name}={value}", 2, "set", (name, 0, value))
    for rows in ([("min.insync.replicas", 0, "2")], [("ssl.keystore.location", 0, "x")], [("listeners", 0, "x")]):
        stage.alter_configs(f"broker: {rows}", 4, "1", *rows)
        stage.alter_configs(f"all brokers: {rows}", 4, "", *rows)
    stage.alter_configs("all brokers: no minimum", 4, "", ("min.insync.replicas", 1, None))
    stage.alter_configs("all brokers: minimum of one", 4, "", ("min.insync.replicas", 0, "1"))
    stage.set_oversized_value("too long", "set", "leader.replication.throttled.replicas", "1:1," * 9000 + "1:1")
    stage.alter_configs("dry", 2, "set", ("retention.ms", 0, "1"), dry=True)
    stage.alter_configs("back", 2, "set", ("retention.ms", 1, None))
    stage.describe_configs("topic without its own", 2, "set", *watched)
    stage.alter_configs("broker back", 4, "", ("log.retention.ms", 1, None), ("message.max.bytes", 1, None))
    stage.alter_configs("one broker back", 4, "1", ("log.segment.bytes", 1, None))
    stage.describe_configs("topic at last", 2, "set", *watched)


def other_settings(stage: ScenarioSession) -> None:
    """Alter settings of groups and client metrics, and of invalid resources."""
    stage.topic("set-too")
    stage.alter_configs("group", 32, "some", ("consumer.session.timeout.ms", 0, "50000"))
    stage.describe_configs("group then", 32, "some")
    stage.alter_configs("group: below the least", 32, "some", ("consumer.session.timeout.ms", 0, "5"))
    stage.alter_configs("group: unknown", 32, "some", ("no.such", 0, "5"))
    stage.alter_configs("group back", 32, "some", ("consumer.session.timeout.ms", 1, None))
    stage.alter_configs("client metrics", 16, "cm", ("interval.ms", 0, "10000"), ("metrics", 0, "org.apache"))
    stage.describe_configs("client metrics then", 16, "cm")
    stage.alter_configs("client metrics: wrong", 16, "cm", ("interval.ms", 0, "5"))
    stage.alter_configs("client metrics: unknown", 16, "cm", ("no.such", 0, "5"))
    stage.alter_configs("client metrics: bad pattern", 16, "cm", ("match", 0, "colour=red"))
    stage.alter_configs("client metrics: good pattern", 16, "cm", ("match", 0, "client_id=a.*"))
    stage.alter_configs("client metrics: no name", 16, "", ("interval.ms", 0, "10000"))
    stage.alter_configs("group: session below heartbeat", 32, "some", ("share.heartbeat.interval.ms", 0, "15000"))
    stage.alter_configs("group: all at once", 32, "some", ("consumer.session.timeout.ms", 0, "x"), ("no.such", 0, "1"))
    stage.alter_configs("unknown kind", 99, "some", ("a", 0, "1"))
    stage.alter_configs("unknown operation", 2, "set-too", ("retention.ms", 9, "1"))


SCENARIOS: list[Callable[[ScenarioSession], None]] = [
    two_members,
    old_versions,
    protocols,
    static_members,
    simple_consumers,
    deleted_topic,
    idempotence,
    rejected_records,
    reading,
    sessions,
    settings,
    other_settings,
    streams_refusals,
    streams_tasks,
    streams_topics,
    consumer_refusals,
    consumer_handover,
    consumer_static,
    consumer_patterns,
    consumer_and_classic,
    consumer_beside_foreign_groups,
    share_refusals,
    share_records,
    share_members,
    share_transactions,
    share_offsets,
    share_states,
]


ScenarioAnswers = dict[str, list[tuple[str, Any]]]


def run_scenarios(
    port: int, kind: Callable[[int, str], ScenarioSession] = lambda port, _: ScenarioSession(port)
) -> ScenarioAnswers:
    """Run every scenario, each on connections of its own.

    `kind` makes a session, from the port and the scenario's name.
    """
    first = ScenarioSession(port)
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["x"])
    wait_until(lambda: not first["a"].call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code)
    first.topic("stories-ready")
    warm_up = commit("warm-up", topic="stories-ready")
    wait_until(lambda: not first["a"].call(ApiKey.OFFSET_COMMIT, 9, warm_up).topics[0].partitions[0].error_code)
    out = {}
    for scenario in SCENARIOS:
        stage = kind(port, scenario.__name__)
        scenario(stage)
        out[scenario.__name__] = stage.answers
        for peer in stage.clients.values():
            peer.close()
    return out
