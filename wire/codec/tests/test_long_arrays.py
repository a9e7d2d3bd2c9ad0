"""Long arrays without objects: arrays of a request are decoded again at each iteration, those of a response are encoded
while they grow; values and bytes are those of plain lists.
"""

from __future__ import annotations

import random
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest

from ottla.wire.codec import compiler
from ottla.wire.codec.compiler import response_array
from ottla.wire.codec.decode_budget import DecodeBudget
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.lazy_array import EAGER_ELEMENTS, ELEMENTS_PER_YIELD, LARGE_ELEMENT_BYTES, LazyArray
from ottla.wire.codec.response_array import PENDING_ROWS, changeable_array
from ottla.wire.codec.tests.test_codec_jobs import encoded, run_and_count_yields
from ottla.wire.errors import WireError
from ottla.wire.limits import BUDGET_FREE_BYTES, BUDGET_FREE_RETAINED_BYTES, BUDGET_LAZY_ELEMENT_BYTES
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

# ---------------------------------------------------------------- lazy arrays


def names(count: int) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=f"t{n}") for n in range(count)])


def read(message: Any, version: int, *, keeps: bool = False) -> Any:
    raw = compiler.encode(message, version)
    steps = compiler.decode_job(type(message), version, raw, 0, DecodeBudget(len(raw), keeps=keeps))
    (out, pos), _ = run_and_count_yields(steps)
    assert pos == len(raw)
    return out


def fetch(*counts: int) -> FetchRequest:
    return FetchRequest(
        topics=[
            FetchTopic(f"t{number}", partitions=[FetchPartition(n, 1, n * 7) for n in range(count)])
            for number, count in enumerate(counts)
        ]
    )


@pytest.mark.parametrize("count", [0, 1, EAGER_ELEMENTS, EAGER_ELEMENTS + 1, 5000])
def test_decode_array_longer_than_eager_elements_is_lazy_array(count: int) -> None:
    out = read(names(count), 12)
    assert isinstance(out.topics, LazyArray) == (count > EAGER_ELEMENTS)
    assert len(out.topics) == count
    plain = names(count).topics
    assert list(out.topics) == list(out.topics) == plain, "repeated iteration gives equal elements"
    for part in (slice(3), slice(2, 300, 7), slice(None, None, -1), slice(-2, None)):
        assert out.topics[part] == plain[part]
    for place in (0, count - 1, -1, -count) if count else ():
        assert out.topics[place] == plain[place]
    for place in (count, -count - 1):
        with pytest.raises(IndexError):
            _ = out.topics[place]
    assert out == names(count)
    assert names(count) == out
    assert (out == names(count + 1)) is False


def test_decode_with_keep_option_returns_list() -> None:
    out = read(names(5000), 12, keeps=True)
    assert isinstance(out.topics, list)
    assert out == names(5000)


@pytest.mark.parametrize(
    ("counts", "outer", "inner"),
    [
        ((5000,), list, LazyArray),
        ((1,) * 5000, LazyArray, list),
        ((2, EAGER_ELEMENTS + 40) * 150, list, LazyArray),
        ((100,) * 300, LazyArray, list),
        ((EAGER_ELEMENTS + 1,) * 300, list, LazyArray),
    ],
    ids=["one long", "many short", "many, some long", "many of a hundred", "many long"],
)
def test_decode_nested_long_arrays_makes_only_the_innermost_lazy(
    counts: tuple[int, ...], outer: type, inner: type
) -> None:
    """Otherwise a request with one topic and a million partitions would be decoded again in one piece."""
    assert (EAGER_ELEMENTS + 1) * 30 > LARGE_ELEMENT_BYTES > 100 * 30
    out = read(fetch(*counts), 12)
    assert type(out.topics) is outer
    assert inner in {type(topic.partitions) for topic in out.topics}
    assert out == fetch(*counts)


def test_decode_job_malformed_element_of_lazy_array_raises_wire_error() -> None:
    raw = bytearray(compiler.encode(fetch(3000), 12))
    raw[-30:] = b"\xff" * 30
    with pytest.raises(WireError):
        run_and_count_yields(compiler.decode_job(FetchRequest, 12, raw, 0, DecodeBudget(len(raw))))


def cost(message: Any, version: int, *, keeps: bool = False) -> int:
    raw = compiler.encode(message, version)
    budget, whole = DecodeBudget(len(raw), keeps=keeps), DecodeBudget(len(raw), keeps=keeps)
    run_and_count_yields(compiler.decode_job(type(message), version, raw, 0, budget))
    return whole.remaining_bytes + whole.remaining_early_bytes - budget.remaining_bytes - budget.remaining_early_bytes


def test_decode_charges_fixed_budget_per_lazy_element() -> None:
    assert cost(names(2000), 12) == 2000 * BUDGET_LAZY_ELEMENT_BYTES < cost(names(2000), 12, keeps=True)
    assert cost(DescribeGroupsRequest(["x" * 100] * 2000), 5) == 2000 * BUDGET_LAZY_ELEMENT_BYTES
    few = cost(names(EAGER_ELEMENTS), 12)
    assert few == cost(names(EAGER_ELEMENTS), 12, keeps=True) > EAGER_ELEMENTS * BUDGET_LAZY_ELEMENT_BYTES, (
        "short arrays are decoded to objects"
    )
    long = fetch(*(200,) * 300)
    assert cost(long, 12) > 300 * 200 * BUDGET_LAZY_ELEMENT_BYTES, "nested long arrays are charged too"


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (fetch(*(1,) * 100_000), 12),
        (CreateTopicsRequest([CreatableTopic(f"t{n}", 1, 1) for n in range(200_000)]), 7),
        (DescribeConfigsRequest([DescribeConfigsResource(2, f"t{n}") for n in range(200_000)]), 4),
    ],
    ids=["Fetch", "CreateTopics", "DescribeConfigs"],
)
def test_decode_job_request_of_200000_elements_fits_its_budget(message: Any, version: int) -> None:
    raw = compiler.encode(message, version)
    run_and_count_yields(compiler.decode_job(type(message), version, raw, 0, DecodeBudget(len(raw))))


def test_decode_job_too_many_lazy_elements_raises_wire_error() -> None:
    raw = compiler.encode(DescribeGroupsRequest([""] * 400_000), 5)
    with pytest.raises(WireError, match="far more memory"):
        run_and_count_yields(compiler.decode_job(DescribeGroupsRequest, 5, raw, 0, DecodeBudget(len(raw))))


def test_decode_budget_of_retained_message_is_smaller() -> None:
    assert (
        DecodeBudget(1000).remaining_bytes - DecodeBudget(1000, keeps=True).remaining_bytes
        == BUDGET_FREE_BYTES - BUDGET_FREE_RETAINED_BYTES
    )
    assert DecodeBudget(1000).remaining_early_bytes > DecodeBudget(1000, keeps=True).remaining_early_bytes == 0
    assert BUDGET_FREE_RETAINED_BYTES > 10_000 * 200, "a group of 10,000 members fits"


def test_decode_job_long_request_takes_less_than_50_kb() -> None:
    raw = compiler.encode(fetch(20_000), 12)
    read(fetch(1), 12)  # The codec is compiled at its first use, which takes more memory than a request.
    tracemalloc.start()
    try:
        (out, _), stops = run_and_count_yields(compiler.decode_job(FetchRequest, 12, raw, 0, DecodeBudget(len(raw))))
        total = sum(part.fetch_offset for part in out.topics[0].partitions)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == sum(n * 7 for n in range(20_000))
    assert peak < 50_000
    assert stops >= 20_000 // 64


@pytest.mark.parametrize("version", [2, 5])
def test_decode_long_array_of_strings_is_lazy_and_checks_lengths(version: int) -> None:
    texts = ["", "a", "ü" * 100, "x" * 4000] + [f"g{n}" for n in range(500)]
    out = read(DescribeGroupsRequest(texts), version)
    assert isinstance(out.groups, LazyArray)
    assert list(out.groups) == texts
    raw = bytearray(compiler.encode(DescribeGroupsRequest([f"g{n:03}" for n in range(500)]), version))
    at = raw.index(b"g499")
    for length in (b"\x00", b"\x05", b"\xff", b"\x80") if version == 5 else (b"\xff", b"\x05", b"\x80"):
        raw[at - 1 : at] = length
        if version == 2:
            raw[at - 2] = 0xFF if length > b"\x0f" else 0
        with pytest.raises(WireError):
            run_and_count_yields(
                compiler.decode_job(DescribeGroupsRequest, version, raw[: at + 4], 0, DecodeBudget(len(raw)))
            )


# ---------------------------------------------------------------- response arrays


def answer(rows: list[Any]) -> ListOffsetsResponse:
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", rows), ListOffsetsTopicResponse("u", [])])


@pytest.mark.parametrize("version", [1, 5, 6, 9])
@pytest.mark.parametrize("count", [0, 1, PENDING_ROWS, PENDING_ROWS + 1, 5000])
def test_response_array_encodes_same_bytes_as_list(count: int, version: int) -> None:
    plain = [ListOffsetsPartitionResponse(n, 0, timestamp=n * 3, offset=n * 5) for n in range(count)]
    grown: Any = response_array(ListOffsetsResponse, version)
    for row in plain:
        grown.append(row)
    assert (len(grown), bool(grown)) == (count, count > 0)
    if count <= PENDING_ROWS:
        assert list(grown) == plain
    else:
        with pytest.raises(TypeError, match="encoded"):
            list(grown)
    assert grown.pending == plain[-PENDING_ROWS:]
    raw = compiler.encode(answer(plain), version)
    assert compiler.encode(answer(grown), version) == raw
    assert compiler.has_more_elements_than(answer(grown), count + 1)
    assert not compiler.has_more_elements_than(answer(grown), count + 2)
    assert b"".join(encoded(answer(grown), version)[0]) == raw


def test_response_array_encoded_by_a_job_frees_its_rows_one_after_the_other() -> None:
    rows: Any = changeable_array()
    rows.extend(ListOffsetsPartitionResponse(n) for n in range(5000))
    left = [len(rows.pending) for _ in compiler.encode_job(answer(rows), 5)]
    assert left == sorted(left, reverse=True)
    assert max(before - after for before, after in pairwise([5000, *left])) <= 2 * ELEMENTS_PER_YIELD


@pytest.mark.parametrize("first", [0, 1, PENDING_ROWS + 3])
@pytest.mark.parametrize("second", [0, 1, PENDING_ROWS + 3, 3000])
def test_response_array_append_array_encodes_the_rows_of_both_in_order(first: int, second: int) -> None:
    plain = [ListOffsetsPartitionResponse(n) for n in range(first + second)]
    rows: Any = response_array(ListOffsetsResponse, 5)
    other: Any = response_array(ListOffsetsResponse, 5)
    rows.extend(plain[:first])
    other.extend(plain[first:])
    rows.append_array(other)
    assert len(rows) == first + second
    assert compiler.encode(answer(rows), 5) == compiler.encode(answer(plain), 5)


def test_changeable_array_keeps_every_row_as_object() -> None:
    plain = [ListOffsetsPartitionResponse(n) for n in range(1000)]
    rows: Any = changeable_array()
    rows.extend(plain)
    plain[0].timestamp = 7
    assert list(rows) == plain
    assert compiler.encode(answer(rows), 5) == compiler.encode(answer(plain), 5)


def test_response_array_pending_rows_can_change_and_encoded_rows_cannot() -> None:
    grown: Any = response_array(ListOffsetsResponse, 5)
    rows = [ListOffsetsPartitionResponse(n) for n in range(PENDING_ROWS + 10)]
    for row in rows:
        grown.append(row)
    for row in rows:
        row.error_code = 3
    out, _ = compiler.decode(ListOffsetsResponse, 5, compiler.encode(answer(grown), 5))
    assert [row.error_code for row in out.topics[0].partitions] == [0] * 10 + [3] * PENDING_ROWS


def test_response_array_of_rows_with_records_keeps_their_chunks() -> None:
    rng = random.Random(4)
    plain = [PartitionData(n, records=rng.randbytes(5000)) for n in range(PENDING_ROWS * 2)]
    inner: list[Any] = response_array(FetchResponse, 12)
    for row in plain:
        inner.append(row)
    outer: list[Any] = response_array(FetchResponse, 12)
    outer.append(FetchableTopicResponse("t", partitions=inner))
    chunks = compiler.encode_chunks(FetchResponse(responses=outer), 12)
    whole = FetchResponse(responses=[FetchableTopicResponse("t", partitions=plain)])
    assert b"".join(chunks) == compiler.encode(whole, 12)
    given = {id(row.records) for row in plain}
    assert sum(id(chunk) in given for chunk in chunks) == len(plain)


def test_response_array_nested_encodes_same_bytes_as_lists() -> None:
    for topics, parts in ((PENDING_ROWS * 3, 2), (3, PENDING_ROWS * 3)):
        outer: list[Any] = response_array(ListOffsetsResponse, 6)
        plain = []
        for number in range(topics):
            rows = [ListOffsetsPartitionResponse(n, offset=number) for n in range(parts)]
            inner: list[Any] = response_array(ListOffsetsResponse, 6)
            for row in rows:
                inner.append(row)
            outer.append(ListOffsetsTopicResponse(f"t{number}", inner))
            plain.append(ListOffsetsTopicResponse(f"t{number}", rows))
        raw = compiler.encode(ListOffsetsResponse(topics=plain), 6)
        assert compiler.encode(ListOffsetsResponse(topics=outer), 6) == raw


def test_response_array_invalid_row_raises_wire_error_when_encoded() -> None:
    assert spec_of(ListOffsetsResponse).versions.high >= 4
    grown: Any = response_array(ListOffsetsResponse, 4)
    wrong: Any = "not a number"
    for _ in range(PENDING_ROWS):
        grown.append(ListOffsetsPartitionResponse(wrong))
    with pytest.raises(WireError):
        grown.append(ListOffsetsPartitionResponse(wrong))


def test_response_array_of_10000_rows_takes_three_times_its_bytes_at_most() -> None:
    tracemalloc.start()
    try:
        grown: Any = response_array(ListOffsetsResponse, 9)
        for n in range(10_000):
            grown.append(ListOffsetsPartitionResponse(n, offset=n))
        size = len(compiler.encode(answer(grown), 9))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * size + 200_000


def test_many_short_response_arrays_take_little_memory() -> None:
    """A response has one for each of very many topics: their encoder is shared, and none has a list of its own."""
    make = lambda: [response_array(ListOffsetsResponse, 5) for _ in range(1000)]  # noqa: E731
    make()
    tracemalloc.start()
    try:
        arrays = make()
        assert tracemalloc.get_traced_memory()[0] < 200 * len(arrays)
    finally:
        tracemalloc.stop()
