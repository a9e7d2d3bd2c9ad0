"""Validation of client batches; the error codes are those that Apache Kafka 4.3.1 returned for the same bytes.

Kafka validates every record. Rows that need ``ottla.validate.records`` for that have a second code.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace

import lz4.frame
import pytest

from ottla.log.log_config import LogConfig
from ottla.log.log_validator import (
    AppendOrigin,
    RecordValidationError,
    check_client_batch,
    needs_record_validation,
)
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import NOW, memory_disk, new_log
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import (
    CONTROL_BIT,
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    crc_matches,
    pack_batch,
    parse_header,
)
from ottla.wire.record_batch.compression import CompressionType, compress
from ottla.wire.record_batch.records import NewRecord, build_batch

PLAIN = LogConfig()
WHOLE = replace(PLAIN, validate_records=True)
COMPACT = replace(PLAIN, compact=True, delete=False)
APPEND_TIME = replace(PLAIN, log_append_time=True)
VALID, INVALID, CORRUPT, UNKNOWN = (
    ErrorCode.NONE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
HOUR_MS = 3_600_000


def good(
    count: int = 3, key: bytes | None = b"k", value: bytes | None = b"v", time_ms: int = NOW, **more: int
) -> bytes:
    return build_batch([NewRecord(key, value, time_ms)] * count, **more)  # type: ignore[arg-type]


def changed(raw: bytes, body: bytes | None = None, **fields: int) -> bytes:
    """Return a batch with another header or other record bytes, and a valid checksum."""
    return pack_batch(parse_header(raw)._replace(**fields), raw[HEADER_BYTES:] if body is None else body)


def poked(raw: bytes, at: int, value: int) -> bytes:
    out = bytearray(raw)
    out[at] = value
    return bytes(out)


def sized(length: int) -> bytes:
    raw = bytearray(good())
    struct.pack_into(">i", raw, 8, length)
    return bytes(raw)


def body_of(raw: bytes) -> bytes:
    return raw[HEADER_BYTES:]


def outcome(raw: bytes, settings: LogConfig = PLAIN) -> tuple[ErrorCode, PartitionLog]:
    log = new_log(memory_disk().session(), settings)
    try:
        log.append_as_leader(bytearray(raw), 0, NOW)
    except ProtocolError as error:
        assert (log.log_end_offset, log.size_bytes) == (0, 0)
        return error.code, log
    return VALID, log


FRAMES: list[tuple[str, bytes, ErrorCode]] = [
    # ByteBufferLogInputStream.nextBatchSize, ProduceRequest.validateRecords
    ("a whole batch", good(), VALID),
    ("magic 9", poked(good(), 16, 9), CORRUPT),
    ("magic -1", poked(good(), 16, 255), CORRUPT),
    ("magic 3", poked(good(), 16, 3), CORRUPT),
    ("magic 1", poked(good(), 16, 1), INVALID),
    ("magic 0", poked(good(), 16, 0), INVALID),
    *((f"{size} bytes", good()[:size], INVALID) for size in (0, 5, 11, 12, 16, 17, 26, 60, 61)),
    ("its last byte missing", good()[:-1], INVALID),
    ("11 bytes behind it", good() + bytes(11), VALID),
    ("12 zeros behind it", good() + bytes(12), CORRUPT),
    ("17 bytes behind it that could become a batch", good() + sized(200)[:17], VALID),
    ("16 bytes behind it that could become a batch", good() + sized(200)[:16], VALID),
    ("17 bytes behind it of magic 3", good() + poked(sized(200), 16, 3)[:17], CORRUPT),
    ("another batch behind it", good() + good(), INVALID),
    *((f"length {length}", sized(length), CORRUPT) for length in (-(2**31), -12, -1, 0, 13, 14, 48)),
    ("a bad checksum", good()[:-1] + b"x", CORRUPT),
    ("codec 7 under a bad checksum", changed(good(), attributes=7)[:-1] + b"x", CORRUPT),
]


@pytest.mark.parametrize(("case", "raw", "code"), FRAMES, ids=[row[0] for row in FRAMES])
def test_append_invalid_frame_returns_kafkas_error_code(case: str, raw: bytes, code: ErrorCode) -> None:
    assert outcome(raw)[0] is code


def test_append_ignores_bytes_after_the_batch() -> None:
    code, log = outcome(good() + bytes(11))
    assert code is VALID
    assert log.size_bytes == len(good())


HEADERS: list[tuple[str, bytes, ErrorCode]] = [
    # UnifiedLog.analyzeAndValidateRecords, LogValidator.validateBatch
    ("base offset 5", changed(good(), base_offset=5), INVALID),
    ("base offset -1", changed(good(), base_offset=-1), INVALID),
    ("codec 5", changed(good(), attributes=5), UNKNOWN),
    ("codec 7", changed(good(), attributes=7), UNKNOWN),
    ("attribute bit 7", changed(good(), attributes=0x80), VALID),
    ("a delete horizon", changed(good(), attributes=0x40), VALID),
    ("control", changed(good(), attributes=CONTROL_BIT), INVALID),
    ("no records", changed(good(), records_count=0, last_offset_delta=-1), INVALID),
    ("less than no records", changed(good(), records_count=-1, last_offset_delta=-2), INVALID),
    ("one more than offsets", changed(good(), records_count=4), INVALID),
    ("one less than offsets", changed(good(), records_count=2), INVALID),
    ("a producer and no sequence", changed(good(), producer_id=0, producer_epoch=0), INVALID),
    ("a producer and sequence 0", changed(good(), producer_id=0, producer_epoch=0, base_sequence=0), VALID),
    ("a sequence and no producer", changed(good(), base_sequence=7), VALID),
    ("an epoch of the leader's", changed(good(), partition_leader_epoch=9), VALID),
]


@pytest.mark.parametrize(("case", "raw", "code"), HEADERS, ids=[row[0] for row in HEADERS])
def test_append_invalid_header_returns_kafkas_error_code(case: str, raw: bytes, code: ErrorCode) -> None:
    assert outcome(raw)[0] is code


def one(at: int, value: int) -> bytes:
    """Return a batch of one record with one byte replaced; byte 0 is its size."""
    raw = good(1)
    return changed(raw, poked(body_of(raw), at, value))


ONE = body_of(good(1))
assert bytes([16, 0, 0, 0, 2, ord("k"), 2, ord("v"), 0]) == ONE

# (name, batch, error code, error code if every record is validated)
CONTENTS: list[tuple[str, bytes, ErrorCode, ErrorCode]] = [
    ("garbage", changed(good(), b"\x07garbage garbage garbage"), INVALID, INVALID),
    ("nothing", changed(good(), b""), INVALID, INVALID),
    ("20 of 21 bytes", changed(good(), bytes(20)), INVALID, INVALID),
    ("half a record", changed(good(1), ONE[:5]), INVALID, INVALID),
    ("a byte too few", changed(good(1), ONE[:-1]), INVALID, INVALID),
    ("a byte too many", changed(good(1), ONE + b"\x00"), INVALID, INVALID),
    ("more behind the only record", changed(good(1), ONE + ONE), INVALID, INVALID),
    ("fewer than there are", changed(good(), records_count=2, last_offset_delta=1), VALID, INVALID),
    ("only the first of three", changed(good(), ONE + bytes(20)), VALID, INVALID),
    ("a size of 0", one(0, 0), INVALID, INVALID),
    ("a size of -1", one(0, 1), INVALID, INVALID),
    ("a size of -5, positively a fit", one(0, 17), INVALID, INVALID),
    ("a size that is cut off", changed(good(1), b"\xff" * 9), INVALID, INVALID),
    ("a size that never ends", changed(good(1), b"\xff" * 11), INVALID, INVALID),
    ("a size in two bytes, and all there", good(1, value=bytes(100)), VALID, VALID),
    (
        "a size in two bytes, one too many",
        changed(good(1), body_of(good(1, value=bytes(100))) + b"x"),
        INVALID,
        INVALID,
    ),
    ("a size in two bytes, one too few", changed(good(1), body_of(good(1, value=bytes(100)))[:-1]), INVALID, INVALID),
    ("an attribute", one(1, 1), VALID, VALID),
    ("an offset delta of 2", one(3, 4), VALID, VALID),
    ("a key of 63 bytes", one(4, 126), INVALID, INVALID),
    ("a key of 4 bytes", one(4, 8), INVALID, INVALID),
    ("a key of 3 bytes, and no room for a value", one(4, 6), INVALID, INVALID),
    ("a key of 2 bytes, and no room for the value", one(4, 4), VALID, INVALID),
    ("a key of -2 bytes", one(4, 3), INVALID, INVALID),
    ("a key of none, and bytes of it", one(4, 1), VALID, INVALID),
    ("a value of 2 bytes", one(6, 4), VALID, INVALID),
    ("a value of -2 bytes", one(6, 3), VALID, INVALID),
    ("one header", one(8, 2), VALID, INVALID),
    ("-1 headers", one(8, 1), VALID, INVALID),
    *(
        (f"{codec.name} {label}", changed(good(codec=codec), body), code, whole)
        for codec in (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD)
        for label, body, code, whole in (
            ("garbage", b"\x07garbage garbage garbage", UNKNOWN, UNKNOWN),
            ("nothing", b"", *((INVALID, INVALID) if codec is CompressionType.ZSTD else (UNKNOWN, UNKNOWN))),
            # which is a possible beginning of raw snappy data
            ("records as they are", body_of(good()), VALID if codec is CompressionType.SNAPPY else UNKNOWN, UNKNOWN),
            ("of garbage", compress(codec, b"\x07garbage garbage garbage"), VALID, INVALID),
            ("and more within", compress(codec, body_of(good()) + b"zz"), VALID, INVALID),
            ("of two records for three", compress(codec, body_of(good(2))), VALID, INVALID),
        )
    ),
    *(
        (f"{codec.name} and more behind", changed(good(codec=codec), body_of(good(codec=codec)) + b"zz"), VALID, VALID)
        for codec in (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4)
    ),
]


@pytest.mark.parametrize(("case", "raw", "code", "whole"), CONTENTS, ids=[row[0] for row in CONTENTS])
def test_append_invalid_records_return_kafkas_error_code(
    case: str, raw: bytes, code: ErrorCode, whole: ErrorCode
) -> None:
    assert outcome(raw)[0] is code
    assert outcome(raw, WHOLE)[0] is whole


LAT = TIMESTAMP_TYPE_BIT
LATE = NOW + HOUR_MS + 1
AGED = replace(PLAIN, timestamp_before_max_ms=10)
UNTIMELY = ErrorCode.INVALID_TIMESTAMP
# (name, settings, batch, code, rejected records, attributes and timestamps of the written batch: base, max)
TIMES: list[tuple[str, LogConfig, bytes, ErrorCode, list[int], tuple[int, int, int] | None]] = [
    ("create time", PLAIN, good(), VALID, [], (0, NOW, NOW)),
    ("an hour ahead", PLAIN, good(time_ms=LATE - 1), VALID, [], (0, LATE - 1, LATE - 1)),
    ("later than that", PLAIN, good(2, time_ms=LATE), UNTIMELY, [0, 1], None),
    ("no time", PLAIN, good(time_ms=-1), VALID, [], (0, -1, -1)),
    ("1970", PLAIN, good(time_ms=0), VALID, [], (0, 0, 0)),
    ("old", AGED, good(time_ms=NOW - 10), VALID, [], (0, NOW - 10, NOW - 10)),
    ("too old", AGED, good(1, time_ms=NOW - 11), UNTIMELY, [0], None),
    ("no age", AGED, good(time_ms=-1), VALID, [], (0, -1, -1)),
    ("a lie believed", PLAIN, changed(good(time_ms=5), max_timestamp=9), VALID, [], (0, 5, 9)),
    ("a lie put right", WHOLE, changed(good(time_ms=5), max_timestamp=9), VALID, [], (0, 5, 5)),
    ("a claim to be without time", WHOLE, changed(good(time_ms=5), max_timestamp=-1), VALID, [], (0, 5, 5)),
    ("the topic's time", APPEND_TIME, good(time_ms=5), VALID, [], (LAT, 5, NOW)),
    ("however late", APPEND_TIME, good(time_ms=LATE), VALID, [], (LAT, LATE, NOW)),
    # LogValidator.validateTimestamp: LogAppendTime claimed by a client
    ("claimed", PLAIN, changed(good(time_ms=5), attributes=LAT, max_timestamp=9), VALID, [], (0, 5, 9)),
    ("claimed, too late", PLAIN, changed(good(2), attributes=LAT, max_timestamp=LATE), UNTIMELY, [0, 1], None),
    ("claimed, no time", PLAIN, changed(good(2), attributes=LAT, max_timestamp=-1), UNTIMELY, [0, 1], None),
    ("claimed where it is the topic's", APPEND_TIME, changed(good(1), attributes=LAT), UNTIMELY, [0], None),
]


@pytest.mark.parametrize(
    ("case", "settings", "raw", "code", "at_fault", "written"), TIMES, ids=[row[0] for row in TIMES]
)
def test_append_timestamp_type_and_limits_equal_kafka(
    case: str,
    settings: LogConfig,
    raw: bytes,
    code: ErrorCode,
    at_fault: list[int],
    written: tuple[int, int, int] | None,
) -> None:
    log = new_log(memory_disk().session(), settings)
    if written is None:
        with pytest.raises(RecordValidationError) as caught:
            log.append_as_leader(bytearray(raw), 0, NOW)
        assert caught.value.code is code
        assert [index for index, _ in caught.value.record_errors] == at_fault
        return
    done = log.append_as_leader(bytearray(raw), 0, NOW)
    assert done.log_append_time_ms == (NOW if settings.log_append_time else -1)
    ((header, data),) = log.segments.batches()
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == written
    assert crc_matches(data, header)
    assert log.segments.active.max_timestamp == written[2]


def test_record_errors_have_kafkas_messages() -> None:
    def validation_errors(raw: bytes, settings: LogConfig) -> tuple[str, list[tuple[int, str | None]]]:
        with pytest.raises(RecordValidationError) as caught:
            new_log(memory_disk().session(), settings).append_as_leader(bytearray(raw), 0, NOW)
        return caught.value.message, caught.value.record_errors

    keyless = "Compacted topic cannot accept message without key in topic partition t-0"
    shown = ", ".join(f"RecordError(batchIndex={i}, message='{keyless}')" for i in range(3))
    assert validation_errors(good(4, None), COMPACT) == (
        "One or more records have been rejected due to 4 record errors in total, "
        f"and only showing the first three errors at most: [{shown}]",
        [(i, keyless) for i in range(4)],
    )
    untimely = "One or more records have been rejected due to invalid timestamp"
    range_ = f"[{NOW - (2**63 - 1)}, {NOW + HOUR_MS}]"
    mixed = build_batch([NewRecord(None, b"v", LATE), NewRecord(b"k", b"v", LATE), NewRecord(b"k", b"v", NOW)])
    late = f"Timestamp {LATE} of message with offset 1 is out of range. The timestamp should be within {range_}"
    assert validation_errors(mixed, COMPACT) == (untimely, [(0, keyless), (1, late)])
    for codec, kind in ((CompressionType.NONE, "DefaultRecord"), (CompressionType.GZIP, "PartialDefaultRecord")):
        claims = changed(good(1, None, b"vv", codec=codec), attributes=LAT | codec)
        assert validation_errors(claims, APPEND_TIME) == (
            untimely,
            [
                (
                    0,
                    f"Invalid timestamp type in message {kind}(offset=0, timestamp={NOW}, key=0 bytes, value=2 bytes). "
                    "Producer should not set timestamp type to LogAppendTime.",
                )
            ],
        )


def test_append_size_limits_are_checked_in_kafkas_order() -> None:
    settings = LogConfig(segment_bytes=1000, max_message_bytes=500)
    assert outcome(good(1, value=bytes(500 - 69)), settings)[0] is ErrorCode.MESSAGE_TOO_LARGE
    exact = good(1, value=bytes(500 - 71))
    assert len(exact) == 500
    assert outcome(exact, settings)[0] is VALID
    assert outcome(poked(good(1, value=bytes(500)), 70, 1), settings)[0] is ErrorCode.MESSAGE_TOO_LARGE, (
        "size is checked before the CRC"
    )
    of_segment = replace(settings, segment_bytes=499)
    assert outcome(exact, of_segment)[0] is ErrorCode.RECORD_LIST_TOO_LARGE
    assert outcome(exact, replace(settings, segment_bytes=500))[0] is VALID
    log = new_log(memory_disk().session(), of_segment)
    with pytest.raises(ProtocolError) as caught:
        log.append_as_leader(bytearray(exact), 0, NOW, AppendOrigin.COORDINATOR)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    log = new_log(memory_disk().session(), LogConfig(max_message_bytes=499))
    with pytest.raises(ProtocolError) as caught:
        log.append_as_leader(bytearray(exact), 0, NOW, AppendOrigin.COORDINATOR)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    log.append_as_leader(bytearray(exact), 0, NOW, AppendOrigin.RAFT_LEADER)
    assert log.log_end_offset == 1, "max.message.bytes does not apply to raft appends"


LOOKS: list[tuple[str, LogConfig, dict[str, int], bool]] = [
    ("an ordinary topic", PLAIN, {}, False),
    ("compacted", COMPACT, {}, True),
    ("asked for", WHOLE, {}, True),
    ("another codec", replace(PLAIN, compression_type=CompressionType.GZIP), {}, True),
    (
        "the same codec",
        replace(PLAIN, compression_type=CompressionType.GZIP),
        {"attributes": CompressionType.GZIP},
        False,
    ),
    (
        "no codec where one was sent",
        replace(PLAIN, compression_type=CompressionType.NONE),
        {"attributes": CompressionType.ZSTD},
        True,
    ),
    ("an hour ahead", PLAIN, {"max_timestamp": LATE - 1}, False),
    ("later", PLAIN, {"max_timestamp": LATE}, True),
    ("later, in LogAppendTime", APPEND_TIME, {"max_timestamp": LATE}, False),
    ("a limit to age", replace(PLAIN, timestamp_before_max_ms=2**62), {}, True),
    ("a limit to age, in LogAppendTime", replace(APPEND_TIME, timestamp_before_max_ms=5), {}, False),
    ("LogAppendTime claimed", PLAIN, {"attributes": LAT}, False),
    ("LogAppendTime claimed without a time", PLAIN, {"attributes": LAT, "max_timestamp": -1}, True),
    ("no time", PLAIN, {"max_timestamp": -1}, False),
    ("LogAppendTime claimed where it is", APPEND_TIME, {"attributes": LAT}, True),
]


@pytest.mark.parametrize(("case", "settings", "fields", "must"), LOOKS, ids=[row[0] for row in LOOKS])
def test_needs_record_validation_depends_on_topic_and_header(
    case: str, settings: LogConfig, fields: dict[str, int], must: bool
) -> None:
    header = parse_header(good())._replace(**fields)
    assert needs_record_validation(header, settings, NOW) is must


def test_append_linked_lz4_blocks_raises_unknown_server_error() -> None:
    """A Java consumer rejects such a batch: "Dependent block stream is unsupported"."""
    plain = good(value=bytes(range(256)) * 300)
    for linked, code in ((True, UNKNOWN), (False, VALID)):
        body = lz4.frame.compress(body_of(plain), block_size=4, block_linked=linked)
        for settings in (PLAIN, WHOLE, COMPACT, replace(PLAIN, compression_type=CompressionType.GZIP)):
            assert outcome(changed(plain, body, attributes=CompressionType.LZ4), settings)[0] is code


@pytest.mark.parametrize("codec", list(CompressionType))
def test_check_client_batch_accepts_all_producer_batches(codec: CompressionType) -> None:
    rng = random.Random(codec)
    sizes: list[Callable[[], int]] = [lambda: 0, lambda: rng.randrange(3), lambda: rng.randrange(200), lambda: 40_000]
    for _ in range(300):
        items = [
            NewRecord(
                None if rng.random() < 0.3 else rng.randbytes(rng.choice(sizes)()),
                None if rng.random() < 0.3 else bytes(rng.choice(sizes)()),
                NOW + rng.randrange(-(10**6), 10**6),
                (("h", b"x"),) * rng.randrange(2),
            )
            for _ in range(rng.choice((1, 1, 2, 20)))
        ]
        raw = bytearray(build_batch(items, codec=codec))
        check_client_batch(raw, parse_header(raw), LogConfig(max_message_bytes=1 << 30), "t-0")
