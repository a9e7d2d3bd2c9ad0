"""Record count of a batch, checked against its size without decompression."""

from __future__ import annotations

import pytest

from ottla.log.log_config import LogConfig
from ottla.log.log_validator import check_client_batch, parse_single_batch
from ottla.log.tests.log_fixtures import NOW
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import HEADER_BYTES, pack_batch, parse_header
from ottla.wire.record_batch.compression import CompressionType, compress
from ottla.wire.record_batch.crc import crc32c
from ottla.wire.record_batch.records import NewRecord, build_batch

PACKED = [codec for codec in CompressionType if codec is not CompressionType.NONE]
MOST = (1 << 31) - 2


def claiming(count: int, codec: CompressionType, data: bytes) -> bytes:
    header = parse_header(build_batch([NewRecord(None, None, 0)]))
    claimed = header._replace(attributes=int(codec), last_offset_delta=count - 1, records_count=count)
    return pack_batch(claimed, data)


def code_of(raw: bytes) -> ErrorCode:
    try:
        check_client_batch(bytearray(raw), parse_single_batch(raw), LogConfig(max_message_bytes=1 << 30), "t-0")
    except ProtocolError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("codec", PACKED)
def test_check_client_batch_impossible_record_count_raises_invalid_record(codec: CompressionType) -> None:
    """Kafka decompresses all records and returns the same error, INVALID_RECORD."""
    few = compress(codec, b"x" * 70)
    assert code_of(claiming(10, codec, few)) is ErrorCode.NONE
    assert code_of(claiming(MOST, codec, few)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", PACKED)
def test_check_client_batch_accepts_high_compression_ratio(codec: CompressionType) -> None:
    """The smallest possible records, and data with a higher compression ratio than any records."""
    count = 300_000
    assert code_of(build_batch([NewRecord(None, None, 0)] * count, codec=codec)) is ErrorCode.NONE
    size_bytes = 20_000_000
    assert code_of(claiming(size_bytes // 7, codec, compress(codec, bytes(size_bytes)))) is ErrorCode.NONE


@pytest.mark.parametrize(("size", "taken"), [(5, False), (6, True), (0, False), (-1, False)])
def test_check_client_batch_first_record_below_minimum_size_raises_invalid_record(size: int, *, taken: bool) -> None:
    """Attributes, two deltas, no key, no value, no headers: six bytes after the size (``DefaultRecord``)."""
    data = bytearray(build_batch([NewRecord(None, b"v" * 20, NOW)] * 3))
    data[HEADER_BYTES] = size * 2 if size >= 0 else 1
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    header = parse_single_batch(data)
    if taken:
        check_client_batch(data, header, LogConfig(), "t-0")
    else:
        with pytest.raises(ProtocolError) as caught:
            check_client_batch(data, header, LogConfig(), "t-0")
        assert caught.value.code is ErrorCode.INVALID_RECORD
