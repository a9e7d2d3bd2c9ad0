"""Prepared Produce: its responses and logs equal those of the handler, byte for byte, for any requests."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.prepared_request import REPETITIONS
from ottla.broker.handlers.produce import prepared_produce
from ottla.broker.handlers.produce.tests.produce_comparison import NEWEST, ProduceComparison, request
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.tests.handler_fixture import NOW_MS, HandlerFixture, topic_id_of
from ottla.controller.metadata.image import MetadataImage, TopicImage
from ottla.log.log_config import LogConfig
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_batch.batch_header import TIMESTAMP_TYPE_BIT, pack_batch, parse_header
from ottla.wire.record_batch.compression import CompressionType


def changed(raw: bytes | bytearray, **fields: int) -> bytes:
    """Return a batch with other header fields and the checksum of these."""
    return pack_batch(parse_header(raw)._replace(**fields), memoryview(raw)[61:])


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("version", range(3, NEWEST + 1))
def test_prepared_produce_serves_repeated_request_in_each_version(version: int, acks: int) -> None:
    nodes = ProduceComparison()
    nodes.repeat(version, acks=acks)
    for count in (1, 2, 3, 10, 100, 1000, 1):
        row = nodes.produce(request(make_batch(0, count), acks=acks), version).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (
            0,
            nodes.nodes[0].fixture.hosted.get("t", 0).log.log_end_offset - count,
        )
    assert nodes.prepared == 8


def test_prepared_produce_serves_batches_of_each_size() -> None:
    nodes = ProduceComparison()
    nodes.repeat()
    base = make_batch(0, 1)
    for size in [*range(60), *range(120, 135), *range(16_300, 16_400)]:
        raw = pack_batch(parse_header(base), bytes(base[61:]) + bytes(size))
        nodes.produce(request(raw))
        nodes.produce(request(make_batch(0, 1 + size % 7)))
    assert nodes.prepared > 150


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("version", [3, 6, 7, NEWEST])
def test_prepared_produce_serves_compressed_batches(codec: CompressionType, version: int) -> None:
    nodes = ProduceComparison()
    nodes.repeat(version)
    nodes.produce(request(make_batch(0, 5, codec)), version)
    assert nodes.prepared == 1 + (codec is not CompressionType.ZSTD or version >= 7)


def test_large_request_is_not_copied_to_prepare_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_produce, "MAX_FRAME_BYTES", 300)
    nodes = ProduceComparison()
    for _ in range(2 * REPETITIONS):
        nodes.produce(request(make_batch(0, 100)))
    assert nodes.prepared == 0
    nodes.repeat()
    nodes.produce(request(make_batch(0, 100)))
    assert nodes.prepared == 2


def test_records_that_need_validation_are_left_to_the_handler_from_the_second_request_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = ProduceComparison(LogConfig(compact=True))
    nodes.repeat()
    replica = nodes.nodes[0].fixture.hosted.replicas["t", 0]
    append, calls, counts = HostedPartition.append, [], []

    def count(self: HostedPartition, *args: Any, **options: Any) -> Any:
        calls.extend([self] * (self is replica))
        return append(self, *args, **options)

    monkeypatch.setattr(HostedPartition, "append", count)
    for _ in range(4):
        nodes.produce(request(make_batch(0, 1000)))
        counts.append(len(calls))
        calls.clear()
    assert counts == [3, 2, 2, 2]
    nodes.change(use_settings(segment_bytes=10_000_000))
    nodes.produce(request(make_batch(0)))
    assert nodes.prepared == 2


BATCHES = [
    pytest.param(None, id="null records"),
    pytest.param(b"", id="no batch"),
    pytest.param(bytes(make_batch(0))[:60], id="less than a header"),
    pytest.param(bytes(make_batch(0))[:-1], id="its last byte missing"),
    pytest.param(bytes(make_batch(0))[:-1] + b"x", id="a bad checksum"),
    pytest.param(bytes(make_batch(0)) + bytes(11), id="bytes behind it"),
    pytest.param(bytes(make_batch(0)) * 2, id="two batches"),
    pytest.param(bytes(make_batch(0))[:16] + b"\x01" + bytes(make_batch(0))[17:], id="magic 1"),
    pytest.param(changed(make_batch(0), base_offset=5), id="a base offset"),
    pytest.param(changed(make_batch(0), attributes=5), id="no such codec"),
    pytest.param(changed(make_batch(0), attributes=0x10, producer_id=5, producer_epoch=0, base_sequence=0), id="txn"),
    pytest.param(
        changed(make_batch(0), attributes=0x10 - 32768, producer_id=5, producer_epoch=0, base_sequence=0),
        id="a transaction under a negative number",
    ),
    pytest.param(changed(make_batch(0), attributes=0x20), id="control"),
    pytest.param(changed(make_batch(0), attributes=TIMESTAMP_TYPE_BIT), id="append time"),
    pytest.param(changed(make_batch(0), attributes=0x40), id="a delete horizon"),
    pytest.param(changed(make_batch(0), attributes=-32768), id="a negative number of attributes"),
    pytest.param(changed(make_batch(0), records_count=2), id="fewer records than offsets"),
    pytest.param(changed(make_batch(0), producer_id=5, producer_epoch=0), id="no sequence"),
    pytest.param(changed(make_batch(0), max_timestamp=NOW_MS + 4_000_000), id="a time far ahead"),
    pytest.param(bytes(make_batch(0, 40_000)), id="a batch above the limit"),
]


@pytest.mark.parametrize("raw", BATCHES)
@pytest.mark.parametrize("version", [8, NEWEST])
def test_prepared_produce_leaves_refused_batch_to_the_handler(raw: bytes | None, version: int) -> None:
    nodes = ProduceComparison()
    nodes.repeat(version)
    nodes.produce(request(raw), version)
    nodes.produce(request(make_batch(0)), version)
    assert nodes.prepared >= 2


def test_prepared_produce_returns_offsets_of_duplicate_idempotent_batch() -> None:
    nodes = ProduceComparison()
    nodes.repeat()
    batch = [make_batch(0, producer_id=5, producer_epoch=0, base_sequence=3 * n) for n in range(8)]
    before = nodes.prepared
    offsets = []
    for number in (0, 1, 1, 2, 0, 3, 4, 5, 7, 6):
        row = nodes.produce(request(batch[number])).responses[0].partition_responses[0]
        offsets.append((row.error_code, row.base_offset))
    assert offsets[1] == offsets[2]
    assert offsets[8][0] != 0
    assert nodes.prepared == before + 9


def move_leader(fixture: HandlerFixture) -> None:
    fixture.hosted.replicas["t", 0].is_leader = False


def remove_replica(fixture: HandlerFixture) -> None:
    del fixture.hosted.replicas["t", 0]


def next_epoch(fixture: HandlerFixture) -> None:
    fixture.hosted.replicas["t", 0].leader_epoch += 1


def change_topic_id(fixture: HandlerFixture) -> None:
    image = fixture.hosted.image
    old, other = image.topics["t"], topic_id_of("other")
    topics = {**image.topics, "t": TopicImage("t", other, old.partitions)}
    fixture.hosted.image = MetadataImage(topics=topics, topic_names={other: "t"})


def fail_writes(fixture: HandlerFixture) -> None:
    fixture.env.disk.fault = lambda call, path: OSError(5, "broken") if call == "pwrite" else None


def use_settings(**settings: Any) -> Callable[[HandlerFixture], None]:
    def change(fixture: HandlerFixture) -> None:
        log = fixture.hosted.replicas["t", 0].log
        log.update_config(replace(log.config, **settings))

    return change


def create_logs(fixture: HandlerFixture) -> None:
    fixture.services.log_creator = {("t", 2)}


CHANGES = [
    pytest.param(move_leader, False, id="another leader"),
    pytest.param(next_epoch, True, id="another leader epoch"),
    pytest.param(remove_replica, False, id="no replica here"),
    pytest.param(fail_writes, True, id="a disk that fails"),
    pytest.param(change_topic_id, False, id="a topic created anew"),
    pytest.param(create_logs, False, id="logs that are being created"),
    pytest.param(use_settings(max_message_bytes=100), False, id="a lower max.message.bytes"),
    pytest.param(use_settings(segment_bytes=100), False, id="a lower segment.bytes"),
    pytest.param(use_settings(segment_bytes=600), True, id="a segment that is full"),
    pytest.param(use_settings(log_append_time=True), False, id="append times"),
    pytest.param(use_settings(flush_messages=100), False, id="records that wait for the disk"),
    pytest.param(use_settings(compression_type=CompressionType.GZIP), True, id="another codec"),
    pytest.param(use_settings(min_insync_replicas=2), True, id="more replicas in sync"),
]


@pytest.mark.parametrize(("change", "prepared"), CHANGES)
def test_prepared_produce_notices_changes_of_the_node(
    change: Callable[[HandlerFixture], object], prepared: bool
) -> None:
    nodes = ProduceComparison()
    nodes.repeat()
    nodes.change(change)
    nodes.produce(request(make_batch(0)))
    assert nodes.prepared == 1 + prepared


OTHER_REQUESTS = [
    pytest.param({"acks": 1}, id="other acks"),
    pytest.param({"acks": 0}, id="no response"),
    pytest.param({"acks": 2}, id="acks that do not exist"),
    pytest.param({"index": 1}, id="another partition"),
    pytest.param({"index": 7}, id="a partition that does not exist"),
    pytest.param({"topic": "u"}, id="another topic"),
]


@pytest.mark.parametrize("more", OTHER_REQUESTS)
def test_prepared_produce_leaves_other_parameters_to_the_handler(more: dict[str, Any]) -> None:
    nodes = ProduceComparison()
    nodes.repeat()
    nodes.produce(request(make_batch(0), **more))
    assert nodes.prepared == 1


def test_prepared_produce_leaves_other_timeout_client_or_version_to_handler() -> None:
    nodes = ProduceComparison()
    nodes.repeat()
    other = request(make_batch(0))
    other.timeout_ms = 7
    nodes.produce(other)
    nodes.produce(request(make_batch(0)), client_id="clients")
    nodes.produce(request(make_batch(0)), client_id=None)
    nodes.produce(request(make_batch(0)), version=NEWEST - 1)
    assert nodes.prepared == 1


def test_prepared_produce_leaves_frame_with_other_end_to_the_handler() -> None:
    nodes = ProduceComparison()
    nodes.repeat()
    frame = encode_request(ApiKey.PRODUCE, NEWEST, 1, "client", request(make_batch(0)))
    prepared: Any = nodes.nodes[0].peer.prepared_request
    log = nodes.nodes[0].fixture.hosted.replicas["t", 0].log
    end = log.log_end_offset
    for at in (-1, -2, -3):
        other = bytearray(frame)
        other[at] = 1
        assert prepared.respond(memoryview(other), 4, len(other)) is None
    assert prepared.respond(memoryview(bytearray(frame)), 4, len(frame) - 1) is None
    assert log.log_end_offset == end
    assert prepared.respond(memoryview(bytearray(frame)), 4, len(frame)) is not None


def test_prepared_produce_leaves_delayed_requests_to_the_handler() -> None:
    for acks, attribute in ((-1, "is_sole_replica"), (-1, "is_flushing"), (1, "is_flushing")):
        nodes = ProduceComparison()
        nodes.repeat(acks=acks)

        def change(fixture: HandlerFixture, attribute: str = attribute) -> None:
            setattr(fixture.hosted.replicas["t", 0], attribute, attribute == "is_flushing")

        nodes.change(change)
        nodes.produce(request(make_batch(0), acks=acks))
        assert nodes.prepared == 1


def test_prepared_produce_below_high_watermark_is_left_to_the_handler() -> None:
    nodes = ProduceComparison()
    nodes.repeat()

    def append(fixture: HandlerFixture) -> None:
        fixture.hosted.replicas["t", 0].log.append_as_leader(make_batch(0), 3, NOW_MS)

    nodes.change(append)
    nodes.produce(request(make_batch(0)))
    assert nodes.prepared == 1


@pytest.mark.parametrize("writable", [True, False])
def test_prepared_produce_leaves_unwritable_topic_to_the_handler(writable: bool) -> None:
    nodes = ProduceComparison()
    nodes.repeat()
    authorizer = SimpleNamespace(may_write=lambda context, topic: False)
    for node in nodes.nodes:
        node.fixture.services.authorizer = authorizer
        node.peer.authorization_cache.writable_topics = {"t"} if writable else {"u"}
        node.peer.authorization_cache.readable_topics = {"t", "u"}
    row = nodes.produce(request(make_batch(0))).responses[0].partition_responses[0]
    assert (row.error_code == 0) == writable
    assert nodes.prepared == 1 + writable


def test_prepared_produce_leaves_requests_under_quotas_to_the_handler() -> None:
    nodes = ProduceComparison()
    nodes.repeat()
    quotas = SimpleNamespace(produce=SimpleNamespace(maybe_record_and_get_throttle_ms=lambda *values: 9))
    nodes.change(lambda fixture: setattr(fixture.services.quota_holder, "quotas", quotas))
    assert nodes.produce(request(make_batch(0))).throttle_time_ms == 9
    assert nodes.prepared == 1


def test_prepared_produce_is_not_built_for_internal_topics_or_several_partitions() -> None:
    nodes = ProduceComparison()
    nodes.change(lambda fixture: fixture.hosted.host("__consumer_offsets"))
    for _ in range(REPETITIONS + 1):
        nodes.produce(request(make_batch(0), topic="__consumer_offsets"), 12, "__admin_client")
    two = [PartitionProduceData(index, bytes(make_batch(0))) for index in (0, 1)]
    for _ in range(REPETITIONS + 1):
        nodes.produce(ProduceRequest(None, -1, 1000, [TopicProduceData("t", topic_id_of("t"), two)]))
    for _ in range(REPETITIONS + 1):
        topics = [TopicProduceData(name, topic_id_of(name), two[:1]) for name in ("t", "u")]
        nodes.produce(ProduceRequest(None, -1, 1000, topics))
    assert nodes.prepared == 0


def test_prepared_produce_is_not_built_for_failed_requests_or_acks_0() -> None:
    nodes = ProduceComparison()
    for _ in range(REPETITIONS + 1):
        nodes.produce(request(make_batch(0), acks=0))
    for _ in range(REPETITIONS + 1):
        nodes.produce(request(make_batch(0), topic="v"))
    for _ in range(REPETITIONS + 1):
        nodes.produce(request(changed(make_batch(0), base_offset=5)))
    assert nodes.prepared == 0


@pytest.mark.parametrize("seed", range(6))
def test_prepared_produce_random_requests_equal_the_handler(seed: int) -> None:
    rng = random.Random(seed)
    nodes = ProduceComparison()
    more: dict[str, Any] = {}
    version, sequence = NEWEST, 0
    good = [make_batch(0, count, codec) for count in (1, 3, 50) for codec in CompressionType]
    bad = [parameters.values[0] for parameters in BATCHES[:-1]]
    for _ in range(250):
        draw = rng.random()
        if draw < 0.02:
            version = rng.choice((3, 5, 7, 9, 11, 12, NEWEST))
        elif draw < 0.06:
            more = {"acks": rng.choice((-1, 1, 0)), "index": rng.randint(0, 1), "topic": rng.choice("tu")}
        elif draw < 0.08:
            nodes.change(use_settings(log_append_time=rng.random() < 0.3, segment_bytes=rng.choice((900, 1 << 20))))
        elif draw < 0.09:
            nodes.change(next_epoch)
        raw: Any = rng.choice(good if rng.random() < 0.8 else bad)
        if draw > 0.6:
            sequence += rng.choice((0, 3, 3, 3, 1))
            raw = make_batch(0, producer_id=5, producer_epoch=0, base_sequence=sequence)
        nodes.produce(request(raw, **more), version)
    assert nodes.prepared > 40
