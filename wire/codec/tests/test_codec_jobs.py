"""Decode and encode jobs of large messages: equal to the plain codecs, with a yield every 64 elements."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any, TypeVar

import pytest

from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.codec import compiler
from ottla.wire.codec.decode_budget import DecodeBudget
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.lazy_array import ELEMENTS_PER_YIELD
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages.catalogue import all_messages
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.list_transactions import ListTransactionsResponse
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.tests.random_messages import random_message

T = TypeVar("T")


def run_and_count_yields(steps: Generator[None, None, T]) -> tuple[T, int]:
    """Return the result of a job and the number of its yields."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def decoded(cls: type[Message], version: int, raw: bytes, budget: DecodeBudget | None = None) -> tuple[Any, int]:
    budget = DecodeBudget(len(raw)) if budget is None else budget
    (message, pos), stops = run_and_count_yields(compiler.decode_job(cls, version, raw, 0, budget))
    assert pos == len(raw)
    return message, stops


def encoded(message: Message, version: int) -> tuple[list[Any], int]:
    return run_and_count_yields(compiler.encode_job(message, version))


@pytest.mark.parametrize("cls", all_messages().values(), ids=lambda cls: cls.__name__)
def test_codec_jobs_all_messages_equal_plain_codecs(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    versions = spec_of(cls).versions
    for version in range(versions.low, versions.high + 1):
        message = random_message(rng, cls, version)
        raw = compiler.encode(message, version)
        assert decoded(cls, version, raw)[0] == message
        assert b"".join(encoded(message, version)[0]) == raw


def test_decode_job_damaged_message_equals_plain_decode() -> None:
    rng = random.Random(9)
    classes = [request_class(key) for key in ApiKey]
    for _ in range(3000):
        cls = rng.choice(classes)
        version = rng.randrange(spec_of(cls).versions.low, spec_of(cls).versions.high + 1)
        raw = bytearray(compiler.encode(random_message(rng, cls, version), version))
        if raw:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        del raw[rng.randrange(len(raw) + 1) :]
        outcomes = []
        for decode in (
            lambda: compiler.decode(cls, version, bytes(raw)),  # noqa: B023
            lambda: run_and_count_yields(compiler.decode_job(cls, version, bytes(raw), 0, DecodeBudget(10**9)))[0],  # noqa: B023
        ):
            try:
                outcomes.append(str(decode()[1]))
            except WireError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def partitions(count: int) -> OffsetCommitRequest:
    rows = [OffsetCommitRequestPartition(n, 1000 + n, -1, "m") for n in range(count)]
    return OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=rows)])


def test_codec_jobs_long_array_yield_every_64_elements() -> None:
    message = partitions(64 * 10)
    raw = compiler.encode(message, 8)
    assert decoded(OffsetCommitRequest, 8, raw)[1] == 10 + 1
    assert encoded(message, 8)[1] == 10 + 1


def test_decode_job_many_small_arrays_yields_between_arrays() -> None:
    topics = [FetchTopic("t", partitions=[FetchPartition(0)]) for _ in range(500)]
    raw = compiler.encode(FetchRequest(topics=topics), 12)
    assert decoded(FetchRequest, 12, raw)[1] >= 500 // ELEMENTS_PER_YIELD


def test_decode_job_array_of_integers_yields_every_4096() -> None:
    group = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=list(range(20_000)))])
    message = OffsetFetchRequest(groups=[group])
    got, stops = decoded(OffsetFetchRequest, 8, compiler.encode(message, 8))
    assert got == message
    assert stops == 5 + 2


def test_codec_jobs_array_of_strings_yield_every_64() -> None:
    message = FindCoordinatorRequest(coordinator_keys=[f"group-{n}" for n in range(640)])
    got, stops = decoded(FindCoordinatorRequest, 6, compiler.encode(message, 6))
    assert (got, stops) == (message, 10)
    assert encoded(message, 6)[1] == 10


def test_codec_jobs_message_without_arrays_never_yield() -> None:
    message = HeartbeatRequest("g", 3, "m")
    assert decoded(HeartbeatRequest, 4, compiler.encode(message, 4)) == (message, 0)
    assert encoded(message, 4)[1] == 0


def test_encode_job_small_chunks_are_joined_and_record_data_is_not_copied() -> None:
    data = memoryview(b"x" * 9)
    rows = [PartitionData(n, records=data if n == 3000 else b"") for n in range(5000)]
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=rows)])
    chunks = encoded(response, 12)[0]
    assert any(chunk is data for chunk in chunks)
    assert len(chunks) < 5000
    assert b"".join(chunks) == compiler.encode(response, 12)


def test_encode_job_short_message_keeps_its_chunks() -> None:
    response = FetchResponse(
        responses=[FetchableTopicResponse("t", partitions=[PartitionData(n, records=b"") for n in range(300)])]
    )
    assert len(encoded(response, 12)[0]) == len(compiler.encode_chunks(response, 12)) < 2048


@pytest.mark.parametrize(("size", "stays"), [(4095, False), (4096, True), (5000, True)])
def test_encode_job_chunks_of_4_kib_are_not_copied(size: int, *, stays: bool) -> None:
    data = bytes(size)
    rows = [PartitionData(n, records=data if n == 5 else b"") for n in range(5000)]
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=rows)])
    chunks = encoded(response, 12)[0]
    assert any(chunk is data for chunk in chunks) == stays
    assert b"".join(chunks) == compiler.encode(response, 12)


def test_encode_job_field_outside_version_raises_wire_error() -> None:
    for message in (MetadataRequest([], allow_auto_topic_creation=False), FindCoordinatorRequest("g", 0, [None])):  # type: ignore[list-item]
        with pytest.raises(WireError):
            encoded(message, 3)


def test_generated_source_sliced_contains_yield() -> None:
    text = compiler.generated_source(FetchRequest, 12, "decode", sliced=True)
    assert "def decode_slices_FetchRequest_v12(buf, pos, end, budget):" in text
    assert "yield" in text
    assert "yield" not in compiler.generated_source(FetchRequest, 12, "decode")


# ---------------------------------------------------------------- counting


def has_just(message: Message, count: int) -> bool:
    return compiler.has_more_elements_than(message, count - 1) and not compiler.has_more_elements_than(message, count)


def test_has_more_elements_than_counts_structs_and_strings_at_all_depths() -> None:
    aborted = [AbortedTransaction(), AbortedTransaction()]
    rows = [PartitionData(0, aborted_transactions=aborted), PartitionData(1, aborted_transactions=None)]
    response = FetchResponse(responses=[FetchableTopicResponse("a", partitions=rows), FetchableTopicResponse("b")])
    assert has_just(response, 2 + 2 + 2)
    assert has_just(ListTransactionsResponse(unknown_state_filters=["a", "b", "c"]), 3)
    cursor = DescribeTopicPartitionsRequest([TopicRequest("a")], 1, DescribeTopicPartitionsRequestCursor("a", 0))
    assert has_just(cursor, 1)
    for empty in (HeartbeatRequest(), MetadataRequest(None)):
        assert not compiler.has_more_elements_than(empty, 0)


@pytest.mark.parametrize("many", [65, 66, 10_000])
def test_decode_more_than_64_unknown_tags_raises_wire_error(many: int) -> None:
    """Unknown tags were retained without a limit (CVE-2026-111115)."""
    raw = compiler.encode(HeartbeatRequest(), 4)[:-1]
    tags = b"".join(bytes([0x80 | n & 0x7F, n >> 7 | 0x40, 1, 7]) for n in range(many))
    count = bytes([many]) if many < 128 else bytes([0x80 | many & 0x7F, many >> 7])
    with pytest.raises(WireError, match="count of tags"):
        compiler.decode(HeartbeatRequest, 4, raw + count + tags)
    fewer = bytes([64]) + tags[: 64 * 4]
    assert compiler.decode_exact(HeartbeatRequest, 4, raw + fewer) == HeartbeatRequest()
