"""Field dump: every byte of a frame belongs to a field with its position."""

from __future__ import annotations

import itertools
import struct

import pytest

from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.field_dump import (
    FieldSpan,
    batch_spans,
    describe_attributes,
    format_spans,
    message_spans,
    request_spans,
    response_spans,
)
from ottla.wire.framing import encode_request
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_batch.batch_header import parse_header
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.records import NewRecord, build_batch

BATCH = build_batch([NewRecord(b"k", b"v", 1000), NewRecord(None, b"w", 1007)])


def values_by_path(spans: list[FieldSpan]) -> dict[str, object]:
    return {span.path: span.value for span in spans}


def gapless(spans: list[FieldSpan], start: int, end: int) -> bool:
    """Return True if each span begins at the end of the previous one."""
    edges = [(start, start), *((s.start, s.stop) for s in spans), (end, end)]
    return all(one[1] == two[0] for one, two in itertools.pairwise(edges))


def test_request_spans_cover_frame_from_size_to_last_byte() -> None:
    raw = bytes(encode_request(ApiKey.API_VERSIONS, 3, 7, "me", ApiVersionsRequest("x", "1.0")))
    assert list(format_spans(request_spans(raw), raw)) == [
        "     0  00 00 00 14                            size = 20",
        "     4  00 12                                  header.request_api_key = 18",
        "     6  00 03                                  header.request_api_version = 3",
        "     8  00 00 00 07                            header.correlation_id = 7",
        "    12  00 02 6d 65                            header.client_id = 'me'",
        "    16  00                                     header.tags = 0",
        "    17  02 78                                  API_VERSIONS.client_software_name = 'x'",
        "    19  04 31 2e 30                            API_VERSIONS.client_software_version = '1.0'",
        "    23  00                                     API_VERSIONS.tags = 0",
    ]


def test_response_spans_include_trailing_bytes() -> None:
    answer = ApiVersionsResponse(0, [ApiVersion(18, 0, 4)], 0)
    raw = struct.pack(">ii", 22, 7) + compiler.encode(answer, 1) + b"??"
    assert list(format_spans(response_spans(ApiKey.API_VERSIONS, 1, raw), raw, 4)) == [
        "     0  00 00 00 16    size = 22",
        "     4  00 00 00 07    header.correlation_id = 7",
        "     8  00 00          API_VERSIONS.error_code = 0",
        "    10  00 00 00 01    API_VERSIONS.api_keys.count = 1",
        "    14  00 12          API_VERSIONS.api_keys[0].api_key = 18",
        "    16  00 00          API_VERSIONS.api_keys[0].min_version = 0",
        "    18  00 04          API_VERSIONS.api_keys[0].max_version = 4",
        "    20  00 00 00 00    API_VERSIONS.throttle_time_ms = 0",
        "    24  3f 3f          left over = ''",
    ]


def test_request_spans_of_produce_include_batch_fields_and_records() -> None:
    request = ProduceRequest(None, -1, 5, [TopicProduceData("t", partition_data=[PartitionProduceData(0, BATCH)])])
    raw = bytes(encode_request(ApiKey.PRODUCE, 3, 1, None, request))
    spans = request_spans(raw)
    assert gapless(spans, 0, len(raw))
    found = values_by_path(spans)
    records = "PRODUCE.topic_data[0].partition_data[0].records"
    assert found[records] == f"{len(BATCH)} bytes of batches"
    assert found[f"{records}.batch[0].records_count"] == 2
    assert found[f"{records}.batch[0].record[1]"] == {
        "offset": 1,
        "timestamp_ms": 1007,
        "key": None,
        "value": b"w",
        "headers": (),
    }


def test_request_spans_records_too_short_for_a_batch_stay_bytes() -> None:
    request = ProduceRequest(None, -1, 5, [TopicProduceData("t", partition_data=[PartitionProduceData(0, b"x" * 60)])])
    raw = bytes(encode_request(ApiKey.PRODUCE, 3, 1, None, request))
    assert values_by_path(request_spans(raw))["PRODUCE.topic_data[0].partition_data[0].records"] == b"x" * 60


def test_batch_spans_cover_every_header_field() -> None:
    two = bytes(BATCH) + bytes(BATCH)
    spans = list(batch_spans(two, prefix="p."))
    assert gapless(spans, 0, len(two))
    assert next(s.path for s in spans if s.start >= len(BATCH)) == "p.batch[1].base_offset"
    found = values_by_path(spans)
    header = parse_header(BATCH)
    assert found["p.batch[0].crc"] == f"{header.crc:#010x} (valid)"
    assert found["p.batch[0].attributes"] == "0x0000 (none)"
    assert (found["p.batch[0].base_timestamp"], found["p.batch[0].max_timestamp"]) == (1000, 1007)
    assert found["p.batch[0].last_offset_delta"] == 1
    damaged = bytearray(two)
    damaged[-2] ^= 1  # in the last value
    again = values_by_path(list(batch_spans(damaged)))
    assert str(again["batch[0].crc"]).endswith("(valid)")
    assert str(again["batch[1].crc"]).endswith("(INVALID)")


def test_batch_spans_compressed_records_are_only_counted() -> None:
    raw = build_batch([NewRecord(b"k", b"v", 1)] * 3, codec=CompressionType.GZIP)
    spans = list(batch_spans(raw))
    assert spans[-1][:4] == (61, len(raw), "batch[0].records", "3 records, compressed")
    assert values_by_path(spans)["batch[0].attributes"] == "0x0001 (gzip)"


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (0, "none"),
        (1, "gzip"),
        (2, "snappy"),
        (3, "lz4"),
        (4, "zstd"),
        (5, "codec?"),
        (0x08, "none, log append time"),
        (0x10, "none, transactional"),
        (0x34, "zstd, transactional, control"),
        (0x40, "none, delete horizon set"),
    ],
)
def test_describe_attributes_returns_flag_names(attributes: int, words: str) -> None:
    assert describe_attributes(attributes) == words


def test_format_spans_long_bytes_are_shortened() -> None:
    raw = b"abcd"
    assert list(format_spans([FieldSpan(0, 4, "x", raw)], raw, 4)) == ["     0  61 62 63 64    x = 61626364"]
    assert list(format_spans([FieldSpan(0, 4, "x", raw)], raw, 3)) == ["     0  61 62 63 .. x = 61626364"]


def test_message_spans_begin_at_the_given_position() -> None:
    spans, end = message_spans(ApiVersionsRequest, 3, b"..\x02a\x02b\x00", 2, "m.")
    assert (values_by_path(spans), end) == (
        {"m.client_software_name": "a", "m.client_software_version": "b", "m.tags": 0},
        7,
    )
