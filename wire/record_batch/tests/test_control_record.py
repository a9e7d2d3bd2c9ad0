"""Control records: types, end transaction markers, malformed records."""

from __future__ import annotations

import pytest

from ottla.wire.codec import compiler
from ottla.wire.errors import WireError
from ottla.wire.messages import control_records as ctl
from ottla.wire.record_batch.control_record import (
    ControlRecordType,
    EndTransactionMarker,
    build_control_record,
    decode_control_record,
    parse_end_transaction_marker,
    read_control_type,
)
from ottla.wire.record_batch.records import Record


def record(key: str | None, value: str | None) -> Record:
    return Record(
        7, 0, None if key is None else bytes.fromhex(key), None if value is None else bytes.fromhex(value), ()
    )


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("00000000", 0),
        ("00000001", 1),
        ("00070006", 6),
        ("0000ffff", -1),
        ("0000000299", 2),
        ("000000", None),
        ("", None),
        (None, None),
    ],
)
def test_read_control_type_returns_second_field_of_key(key: str | None, kind: int | None) -> None:
    assert read_control_type(record(key, "")) == kind


@pytest.mark.parametrize(
    ("key", "value", "end"),
    [
        ("00000000", "000000000005", EndTransactionMarker(ControlRecordType.ABORT, 5)),
        ("00000001", "0000ffffffff", EndTransactionMarker(ControlRecordType.COMMIT, -1)),
        ("00000001", "00000000000599", EndTransactionMarker(ControlRecordType.COMMIT, 5)),
        ("00000001", "0000000005", None),
        ("00000001", None, None),
        ("00000002", "000000000005", None),
        (None, "000000000005", None),
    ],
)
def test_parse_end_transaction_marker_returns_coordinator_epoch(
    key: str, value: str, end: EndTransactionMarker | None
) -> None:
    assert parse_end_transaction_marker(record(key, value)) == end


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (ctl.LeaderChangeMessage(0, 3, [ctl.LeaderChangeMessageVoter(1)]), 2),
        (ctl.SnapshotHeaderRecord(0, 77), 3),
        (ctl.SnapshotFooterRecord(), 4),
        (ctl.KRaftVersionRecord(0, 1), 5),
        (ctl.VotersRecord(0, [ctl.VotersRecordVoter(1, bytes(16))]), 6),
    ],
)
def test_control_record_survives_round_trip(message: object, kind: int) -> None:
    new = build_control_record(message, 5)  # type: ignore[arg-type]
    assert new.key == b"\x00\x00\x00" + bytes([kind])
    assert new.timestamp_ms == 5
    assert decode_control_record(Record(0, 5, new.key, new.value, ())) == message


def test_decode_control_record_end_transaction_marker_skips_its_version() -> None:
    assert decode_control_record(record("00000001", "000000000005")) == ctl.EndTxnMarker(5)


def test_decode_control_record_newer_leader_change_uses_highest_known_version() -> None:
    raw = build_control_record(ctl.LeaderChangeMessage(0, 3), 0).value
    assert raw is not None
    got = decode_control_record(Record(0, 0, b"\x00\x00\x00\x02", b"\x00\x09" + raw[2:], ()))
    assert got == ctl.LeaderChangeMessage(9, 3)


def test_decode_control_record_leader_change_v1_has_voter_directories() -> None:
    voter = ctl.LeaderChangeMessageVoter(4, bytes(range(16)))
    raw = compiler.encode(ctl.LeaderChangeMessage(1, 3, [voter], [voter]), 1)
    assert decode_control_record(Record(0, 0, b"\0\0\0\2", raw, ())) == ctl.LeaderChangeMessage(1, 3, [voter], [voter])
    negative = b"\xff\xff" + compiler.encode(ctl.LeaderChangeMessage(0, 3), 0)[2:]
    assert decode_control_record(Record(0, 0, b"\0\0\0\2", negative, ())) == ctl.LeaderChangeMessage(-1, 3)


def test_decode_control_record_unknown_type_returns_none_and_malformed_raises() -> None:
    assert decode_control_record(record("00000063", "0000")) is None
    for key, value in ((None, "0000"), ("0000", "0000"), ("00000002", None), ("00000002", "00")):
        with pytest.raises(WireError, match="without type or content"):
            decode_control_record(record(key, value))
