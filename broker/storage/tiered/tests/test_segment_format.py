"""Segment objects: encoding, and errors for truncated, damaged and foreign bytes."""

from __future__ import annotations

import json
import random
import re
import tracemalloc
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings, strategies

from ottla.broker.storage.tiered import segment_format
from ottla.broker.storage.tiered.remote_storage import CorruptRemoteSegmentError, IndexType
from ottla.broker.storage.tiered.segment_format import (
    CHECKSUM_CHUNK_BYTES,
    FOOTER_BYTES,
    Footer,
    ObjectIdentity,
    SegmentDescriptor,
    SegmentEncoder,
    chunk_range,
    decode_descriptor,
    decode_footer,
    decode_identity,
    encode_footer,
    encode_identity,
    object_name,
    verify_chunks,
    verify_part,
)
from ottla.broker.storage.tiered.tests.segment_files import random_records, segment_metadata

INDEXES = {IndexType.OFFSET: b"offsets", IndexType.TIMESTAMP: b"", IndexType.LEADER_EPOCH: b"0\n1\n4 0\n"}


def pieces(records: bytes) -> list[bytes]:
    step = 2 * CHECKSUM_CHUNK_BYTES
    return [records[at : at + step] for at in range(0, len(records), step)]


def encoded(records: bytes) -> bytes:
    encoder = SegmentEncoder(segment_metadata(len(records)), INDEXES)
    raw = b"".join(encoder.encode(pieces(records)))
    assert encoder.identity is not None
    assert encoder.identity.object_bytes == len(raw)
    return raw


def decoded(raw: bytes) -> SegmentDescriptor:
    footer = decode_footer(raw[-FOOTER_BYTES:], len(raw))
    return decode_descriptor(raw[footer.position : footer.position + footer.length], footer)


def with_descriptor(raw: bytes, **changes: object) -> bytes:
    """Return an object whose descriptor has other values, with correct checksums."""
    footer = decode_footer(raw, len(raw))
    stored = json.loads(raw[footer.position : footer.position + footer.length])
    text = json.dumps({**stored, **changes}).encode()
    return raw[: footer.position] + text + encode_footer(Footer(footer.position, len(text), crc32c(text)))


@pytest.mark.parametrize("size", [0, 1, CHECKSUM_CHUNK_BYTES, 3 * CHECKSUM_CHUNK_BYTES + 17])
def test_encoded_segment_decodes_to_its_metadata_and_parts(size: int) -> None:
    records = random_records(size)
    raw = encoded(records)
    descriptor = decoded(raw)
    assert raw[:size] == records, "a position in the segment is a position in the object"
    assert descriptor.metadata.segment_id == segment_metadata(size).segment_id
    assert descriptor.metadata.segment_leader_epochs == {4: 0, 7: 50}
    assert descriptor.metadata.segment_size_bytes == size
    assert list(descriptor.parts) == ["records", "offset", "timestamp", "leader_epoch", "record_checksums"]
    for part in descriptor.parts.values():
        verify_part(part, raw[part.position : part.end])
    checksums = descriptor.parts["record_checksums"]
    verify_chunks(descriptor, raw[checksums.position : checksums.end], 0, records)


def test_encoded_segment_equals_the_example_in_the_documentation() -> None:
    encoder = SegmentEncoder(segment_metadata(24), INDEXES)
    raw = b"".join(encoder.encode([b"the records, 24 bytes..."]))
    footer = decode_footer(raw, len(raw))
    page = (Path(__file__).resolve().parents[4] / "docs/reference/segment-objects.md").read_text()
    (shown,) = re.findall(r"^```text\n(\{.*?)^```", page, re.M | re.S)
    assert json.loads(shown) == json.loads(raw[footer.position : -FOOTER_BYTES])
    assert raw[-FOOTER_BYTES:].hex(" ") in page


def test_encode_with_wrong_length_of_records_fails() -> None:
    encoder = SegmentEncoder(segment_metadata(100), INDEXES)
    with pytest.raises(ValueError, match="segment has 99 bytes"):
        list(encoder.encode([bytes(99)]))


def test_object_name_with_path_in_topic_is_rejected() -> None:
    assert object_name(segment_metadata(1, start=1500)).startswith(
        "events/AQIDBAUGBwgJCgsMDQ4PEA/3/00000000000000001500-"
    )
    for topic in ("..", ".", "", "a/b", "../../etc", "a\n", "x" * 250):
        with pytest.raises(ValueError, match="invalid topic name"):
            object_name(segment_metadata(1, topic=topic))


@pytest.mark.parametrize("size", range(FOOTER_BYTES))
def test_decode_footer_of_short_object_fails(size: int) -> None:
    with pytest.raises(CorruptRemoteSegmentError, match="no segment object"):
        decode_footer(bytes(size), size)


def test_decode_footer_of_foreign_object_fails() -> None:
    with pytest.raises(CorruptRemoteSegmentError, match="no segment object, or a truncated one: it ends with"):
        decode_footer(b"PAR1" * 100, 400)


def test_decode_footer_with_every_bit_flipped_fails() -> None:
    raw = encoded(b"records")
    for position in range(FOOTER_BYTES):
        for bit in range(8):
            end = bytearray(raw[-FOOTER_BYTES:])
            end[position] ^= 1 << bit
            with pytest.raises(CorruptRemoteSegmentError):
                decode_footer(end, len(raw))


def test_decode_footer_of_later_version_names_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_format, "FORMAT_VERSION", 2)
    end = encode_footer(Footer(0, 10, 0))
    monkeypatch.undo()
    with pytest.raises(CorruptRemoteSegmentError, match="unknown format: version 2"):
        decode_footer(end, 42)


@given(strategies.data())
@settings(max_examples=100, deadline=None)
def test_decode_of_truncated_or_damaged_object_fails(data: strategies.DataObject) -> None:
    raw = encoded(b"records of the segment")
    start = decode_footer(raw, len(raw)).position
    if data.draw(strategies.booleans()):
        damaged = raw[: data.draw(strategies.integers(0, len(raw) - 1))]
    else:
        position = data.draw(strategies.integers(start, len(raw) - 1))
        damaged = raw[:position] + bytes([raw[position] ^ data.draw(strategies.integers(1, 255))]) + raw[position + 1 :]
    with pytest.raises(CorruptRemoteSegmentError):
        decoded(damaged)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partition": -1}, "partition -1"),
        ({"topic": "../x"}, "invalid topic name"),
        ({"topicId": "short"}, "is no uuid"),
        ({"startOffset": 5, "endOffset": 4}, "offsets 5 to 4"),
        ({"leaderEpochs": []}, "no leader epochs"),
        ({"leaderEpochs": [[1, 2], [1, 3]]}, "repeated"),
        ({"leaderEpochs": "x"}, "Expected `array`"),
        ({"parts": []}, "parts end at 0"),
        ({"parts": [{"name": "records", "position": 0, "length": 2**40, "crc32c": "00000000"}]}, "1099511627776 bytes"),
        ({"parts": [{"name": "records", "position": 0, "length": -1, "crc32c": "00000000"}]}, "-1 bytes"),
        ({"parts": [{"name": "records", "position": 0, "length": 7, "crc32c": "0"}]}, "checksum '0'"),
        ({"checksumChunkBytes": 0}, "chunks of 0 bytes"),
        ({"checksumChunkBytes": 2**40}, "chunks of 1099511627776 bytes"),
        ({"startOffset": 2**70}, "invalid descriptor"),
    ],
)
def test_decode_descriptor_with_impossible_values_fails(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CorruptRemoteSegmentError, match=message):
        decoded(with_descriptor(encoded(b"records"), **changes))


@pytest.mark.parametrize("number", [0, -1])
def test_decode_descriptor_without_records_or_their_checksums_fails(number: int) -> None:
    raw = encoded(b"records")
    footer = decode_footer(raw, len(raw))
    parts = json.loads(raw[footer.position : footer.position + footer.length])["parts"]
    parts[number]["name"] = "other"
    with pytest.raises(CorruptRemoteSegmentError, match="no records, or no checksums of records"):
        decoded(with_descriptor(raw, parts=parts))


def test_decode_of_object_with_descriptor_only_fails() -> None:
    raw = with_descriptor(encoded(b"records"), parts=[])
    text = raw[decode_footer(raw, len(raw)).position : -FOOTER_BYTES]
    with pytest.raises(CorruptRemoteSegmentError, match="no records, or no checksums of records"):
        decoded(text + encode_footer(Footer(0, len(text), crc32c(text))))


def test_chunk_range_has_the_whole_chunks_of_a_range_up_to_the_end_of_the_records() -> None:
    size = CHECKSUM_CHUNK_BYTES
    descriptor = decoded(encoded(random_records(3 * size + 17)))
    assert chunk_range(descriptor, 0, 1) == (0, size)
    assert chunk_range(descriptor, size, 2 * size) == (size, 2 * size)
    assert chunk_range(descriptor, 2 * size - 1, 2 * size + 1) == (size, 3 * size)
    assert chunk_range(descriptor, 3 * size + 1, 3 * size + 5) == (3 * size, 3 * size + 17)


@pytest.mark.parametrize(("chunk_bytes", "is_valid"), [(4095, False), (4096, True), (2**26, True), (2**26 + 1, False)])
def test_decode_descriptor_with_chunks_of_4_kib_to_64_mib_succeeds(chunk_bytes: int, *, is_valid: bool) -> None:
    raw = with_descriptor(encoded(b"records"), checksumChunkBytes=chunk_bytes)
    if is_valid:
        assert decoded(raw).chunk_bytes == chunk_bytes
    else:
        with pytest.raises(CorruptRemoteSegmentError, match=f"chunks of {chunk_bytes} bytes"):
            decoded(raw)


def test_decode_descriptor_with_further_fields_ignores_them() -> None:
    assert decoded(with_descriptor(encoded(b"records"), written_by="a later version")).records.length == 7


def test_decode_of_deeply_nested_descriptor_fails() -> None:
    text = b"[" * 100_000
    end = encode_footer(Footer(0, len(text), crc32c(text)))
    footer = decode_footer(end, len(text) + FOOTER_BYTES)
    with pytest.raises(CorruptRemoteSegmentError, match="invalid descriptor"):
        decode_descriptor(text, footer)


def test_decode_of_footer_with_huge_lengths_allocates_nothing() -> None:
    end = encode_footer(Footer(0, 2**31 - 1, 0))
    tracemalloc.start()
    with pytest.raises(CorruptRemoteSegmentError, match="does not fit"):
        decode_footer(end, 2**31 - 1 + FOOTER_BYTES)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_verify_chunks_names_the_damaged_chunk() -> None:
    records = bytearray(random_records(3 * CHECKSUM_CHUNK_BYTES))
    raw = encoded(bytes(records))
    descriptor = decoded(raw)
    part = descriptor.parts["record_checksums"]
    checksums = raw[part.position : part.end]
    records[2 * CHECKSUM_CHUNK_BYTES + 5] ^= 1
    verify_chunks(descriptor, checksums, CHECKSUM_CHUNK_BYTES, records[CHECKSUM_CHUNK_BYTES : 2 * CHECKSUM_CHUNK_BYTES])
    with pytest.raises(CorruptRemoteSegmentError, match=f"chunk at {2 * CHECKSUM_CHUNK_BYTES}"):
        verify_chunks(descriptor, checksums, CHECKSUM_CHUNK_BYTES, records[CHECKSUM_CHUNK_BYTES:])


def test_identity_of_other_bytes_is_none() -> None:
    identity = ObjectIdentity(1234, 0xDEADBEEF)
    raw = encode_identity(identity)
    assert len(raw) == 17
    assert decode_identity(raw) == identity
    assert decode_identity(None) is None
    rng = random.Random(3)
    for _ in range(200):
        damaged = bytearray(raw)
        damaged[rng.randrange(17)] ^= rng.randrange(1, 256)
        assert decode_identity(bytes(damaged)) is None
    assert decode_identity(raw[:-1]) is None
