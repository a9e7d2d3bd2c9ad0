"""Bytes of the records of `__remote_log_metadata`, and the transitions between the states of a segment."""

from __future__ import annotations

import pytest

from ottla.broker.storage.tiered.remote_log_metadata import (
    RemoteLogMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    decode_remote_log_metadata,
    encode_remote_log_metadata,
    is_valid_transition,
    updated,
)
from ottla.broker.storage.tiered.remote_storage import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from ottla.broker.storage.tiered.tests.remote_log_metadata_script import RECORDED_ANSWERS, ScriptRunner
from ottla.wire.codec import compiler
from ottla.wire.errors import WireError
from ottla.wire.messages import remote_log_records as wire

SEGMENT_ID = RemoteLogSegmentId(bytes(range(16)), "orders", 3, bytes(range(16, 32)))
SEGMENT = RemoteLogSegmentMetadata(
    SEGMENT_ID, 10, 29, 1_700_000_000_000, 1, 1_700_000_000_500, 4096, {2: 10, 5: 20}, txn_index_empty=True
)
FINISHED = RemoteLogSegmentMetadataUpdate(
    SEGMENT_ID, 1_700_000_000_900, b"etag", RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 2
)
RECORDS: list[RemoteLogMetadata] = [
    SEGMENT,
    FINISHED,
    RemotePartitionDeleteMetadata(
        SEGMENT_ID.topic_id, "orders", 3, RemotePartitionDeleteState.DELETE_PARTITION_STARTED, 5, 1
    ),
    RemoteLogSegmentMetadataSnapshot(
        SEGMENT_ID.id, 10, 29, -1, 1, 7, 4096, {2: 10}, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, b""
    ),
]


def test_recorded_script_has_the_answers_of_kafka() -> None:
    runner = ScriptRunner()
    lines = RECORDED_ANSWERS.read_text().splitlines()
    assert len(lines) > 250
    for line in lines:
        command, _, expected = line.partition(" => ")
        assert runner.answer(command) == expected, command


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_record_encoded_and_decoded_is_equal(record: RemoteLogMetadata) -> None:
    raw = encode_remote_log_metadata(record)
    assert raw[0] == 1
    assert decode_remote_log_metadata(raw) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_truncated_record_raises_wire_error(record: RemoteLogMetadata) -> None:
    raw = encode_remote_log_metadata(record)
    for size in range(len(raw)):
        with pytest.raises(WireError):
            decode_remote_log_metadata(raw[:size])


@pytest.mark.parametrize(
    "fields",
    [
        {"start_offset": -1},
        {"end_offset": 9},
        {"segment_size_in_bytes": -1},
        {"segment_leader_epochs": []},
        {"segment_leader_epochs": [wire.RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry(2, 30)]},
        {"remote_log_segment_state": 4},
    ],
    ids=str,
)
def test_record_of_an_impossible_segment_raises_wire_error(fields: dict[str, object]) -> None:
    raw = encode_remote_log_metadata(SEGMENT)
    message = compiler.decode(wire.RemoteLogSegmentMetadataRecord, 0, raw, 3)[0]
    for name, value in fields.items():
        setattr(message, name, value)
    with pytest.raises(WireError, match="RemoteLogSegmentMetadataRecord"):
        decode_remote_log_metadata(raw[:3] + compiler.encode(message, 0))


@pytest.mark.parametrize("head", [b"\0\0\0", b"\1\4\0", b"\1\0\1"], ids=["frame", "type", "version"])
def test_record_of_unknown_frame_type_or_version_raises_wire_error(head: bytes) -> None:
    with pytest.raises(WireError, match="unknown record"):
        decode_remote_log_metadata(head + encode_remote_log_metadata(SEGMENT)[3:])


def test_update_replaces_state_broker_time_and_custom_metadata() -> None:
    metadata = updated(SEGMENT, FINISHED)
    assert (metadata.state, metadata.broker_id) == (RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 2)
    assert (metadata.event_timestamp_ms, metadata.custom_metadata) == (1_700_000_000_900, b"etag")
    assert (metadata.start_offset, metadata.segment_leader_epochs) == (10, {2: 10, 5: 20})


def test_segment_state_never_returns_to_an_earlier_one() -> None:
    legal = {
        (None, 0),
        *((state, state) for state in range(4)),
        *((0, 1), (0, 2), (1, 2), (2, 3)),
    }
    for source in (None, *RemoteLogSegmentState):
        for target in RemoteLogSegmentState:
            assert is_valid_transition(source, target) == ((source, target) in legal), (source, target)
