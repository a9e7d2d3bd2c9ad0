"""Parsing and validation of fetched batches."""

from __future__ import annotations

import pytest

from ottla.controller.metadata.record_serde import MetadataBatchWriter, control_batch
from ottla.controller.raft.messages.fetched_batches import parse_fetched_batches
from ottla.controller.raft.store.tests.test_quorum_records import voters
from ottla.wire.messages.control_records import KRaftVersionRecord, LeaderChangeMessage
from ottla.wire.messages.metadata_records import ConfigRecord


def data(offset: int, epoch: int, count: int = 1) -> bytes:
    writer = MetadataBatchWriter(0)
    for number in range(count):
        writer.add_message(ConfigRecord(2, "t", f"k{number}", "v"))
    return bytes(writer.build(offset, epoch))


def test_parse_fetched_batches_returns_offsets_epoch_and_bytes() -> None:
    one, two = data(5, 3, 2), data(7, 4)
    assert [tuple(b) for b in parse_fetched_batches(one + two)] == [(5, 6, 3, one, None), (7, 7, 4, two, None)]
    assert parse_fetched_batches(None) == parse_fetched_batches(b"") == ()


def test_parse_fetched_batches_returns_voters_of_control_batch() -> None:
    record = voters(1, 2)
    raw = bytes(control_batch([KRaftVersionRecord(0, 1), record], 0, 5, 3))
    (batch,) = parse_fetched_batches(raw)
    assert batch.voters == record
    (other,) = parse_fetched_batches(bytes(control_batch([LeaderChangeMessage(0, 1)], 0, 5, 3)))
    assert other.voters is None


@pytest.mark.parametrize("cut", [1, 60, 61, 62])
def test_parse_fetched_batches_omits_truncated_last_batch(cut: int) -> None:
    one, two = data(5, 3), data(6, 3)
    assert [b.first_offset for b in parse_fetched_batches(one + two[:cut])] == [5]


@pytest.mark.parametrize("at", [8, 16, 20, 40, 70])
def test_parse_fetched_batches_stops_at_damaged_batch(at: int) -> None:
    bad = bytearray(data(6, 3))
    bad[at] ^= 0xFF
    assert [b.first_offset for b in parse_fetched_batches(data(5, 3) + bytes(bad) + data(7, 3))] == [5]
