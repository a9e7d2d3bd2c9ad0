"""Records with very many elements in the logs of coordinators: they are decoded in slices, to the same state."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ottla.broker.coordinator import record_batches
from ottla.broker.groups import records as group_records
from ottla.broker.share_state import records as share_records
from ottla.broker.transactions import records as transaction_records
from ottla.wire.codec import compiler
from ottla.wire.codec.lazy_array import ELEMENTS_PER_YIELD
from ottla.wire.errors import WireError
from ottla.wire.messages import consumer_group_records, offset_records, share_state_records
from ottla.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ottla.wire.record_batch import records as wire_records
from ottla.wire.record_batch.batch_header import parse_header

GROUPS: Any = record_batches.Serde(group_records.encode, group_records.decode, group_records.form)
TRANSACTIONS: Any = record_batches.Serde(
    lambda record: transaction_records.encode(record, 2), transaction_records.decode, transaction_records.form
)
SHARE_STATE: Any = record_batches.Serde(share_records.encode, share_records.decode, share_records.form)
MANY = 20_000


class RecordedStateMachine:
    """State machine that keeps the replayed records."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def replay(self, offset: int, record: Any) -> None:
        self.records.append(record)


def raw(kind: int, key: Any, version: int, value: Any) -> tuple[bytes, bytes]:
    head = struct.Struct(">h").pack
    return head(kind) + compiler.encode(key, 0), head(version) + compiler.encode(value, version)


def replayed(serde: Any, key: bytes, value: bytes, headers: Any = ()) -> tuple[list[Any], list[int]]:
    """Replay a record; return the records that the state machine received, and the work of each step."""
    batch, log = wire_records.build_batch([wire_records.NewRecord(key, value, headers=headers)]), RecordedStateMachine()
    steps = list(record_batches.replay_batch(log, serde, parse_header(batch), batch))  # type: ignore[arg-type]
    return log.records, steps


LARGE = {
    "names of a subscription": (
        GROUPS,
        raw(
            5,
            consumer_group_records.ConsumerGroupMemberMetadataKey("g", "m"),
            0,
            consumer_group_records.ConsumerGroupMemberMetadataValue(subscribed_topic_names=["", "t"] * (MANY // 2)),
        ),
    ),
    "topics of a regular expression": (
        GROUPS,
        raw(
            16,
            consumer_group_records.ConsumerGroupRegularExpressionKey("g", "r"),
            0,
            consumer_group_records.ConsumerGroupRegularExpressionValue([f"t-{n}" for n in range(MANY)], 3, 4),
        ),
    ),
    "members of a classic group": (
        GROUPS,
        raw(
            2,
            offset_records.GroupMetadataKey("g"),
            3,
            offset_records.GroupMetadataValue(
                "consumer", 1, "range", "m", 5, [offset_records.MemberMetadata(f"m-{n}") for n in range(MANY)]
            ),
        ),
    ),
    "partitions of a transaction": (
        TRANSACTIONS,
        raw(
            0,
            TransactionLogKey("x"),
            1,
            TransactionLogValue(
                producer_id=1,
                producer_epoch=1,
                transaction_status=1,
                transaction_partitions=[PartitionsSchema(f"t-{n}", [n]) for n in range(MANY)],
            ),
        ),
    ),
    "batches of a share partition": (
        SHARE_STATE,
        raw(
            0,
            share_state_records.ShareSnapshotKey("g", bytes(16), 0),
            0,
            share_state_records.ShareSnapshotValue(
                state_batches=[share_state_records.ShareSnapshotValueStateBatch(n, n, 0, 1) for n in range(MANY)]
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_record_with_many_elements_is_decoded_in_slices(name: str) -> None:
    serde, (key, value) = LARGE[name]
    records, steps = replayed(serde, key, value)
    assert records == [serde.decode(key, value)]
    assert len(steps) >= MANY // ELEMENTS_PER_YIELD, "no step decodes more"
    assert sum(steps) >= MANY * record_batches.ELEMENT_COST_BYTES + len(value), "the loop is yielded after so much work"


def test_small_record_is_decoded_at_once() -> None:
    key, value = raw(
        5,
        consumer_group_records.ConsumerGroupMemberMetadataKey("g", "m"),
        0,
        consumer_group_records.ConsumerGroupMemberMetadataValue(subscribed_topic_names=["t"] * 1000),
    )
    assert len(replayed(GROUPS, key, value)[1]) == 1


@pytest.mark.parametrize("serde", [GROUPS, TRANSACTIONS, SHARE_STATE])
def test_large_record_of_an_unknown_type_is_skipped(serde: Any) -> None:
    assert replayed(serde, struct.pack(">h", 99) + b"k", bytes(record_batches.LARGE_VALUE_BYTES))[0] == []


@pytest.mark.parametrize("serde", [GROUPS, TRANSACTIONS, SHARE_STATE])
def test_large_record_without_a_type_raises_wire_error(serde: Any) -> None:
    with pytest.raises(WireError):
        replayed(serde, b"", bytes(record_batches.LARGE_VALUE_BYTES))


@pytest.mark.parametrize("name", LARGE)
def test_truncated_large_record_raises_wire_error(name: str) -> None:
    serde, (key, value) = LARGE[name]
    with pytest.raises(WireError):
        replayed(serde, key, value[:-20_000])


@pytest.mark.parametrize(("length", "count", "is_read"), [(4, 200_000, True), (1, 400_000, False), (0, 900_000, False)])
def test_record_with_more_elements_than_its_bytes_allow_is_refused(length: int, count: int, *, is_read: bool) -> None:
    names = ["n" * length] * count
    key, value = raw(
        16,
        consumer_group_records.ConsumerGroupRegularExpressionKey("g", "r"),
        0,
        consumer_group_records.ConsumerGroupRegularExpressionValue(names, 3, 4),
    )
    if is_read:
        assert len(replayed(GROUPS, key, value)[0][0].value.topics) == count
    else:
        with pytest.raises(WireError, match="far more memory"):
            replayed(GROUPS, key, value)


def test_offset_commit_of_version_0_key_with_large_value_is_replayed() -> None:
    key, value = raw(
        0,
        offset_records.LegacyOffsetCommitKey("g", "t", 1),
        3,
        offset_records.OffsetCommitValue(7, metadata="m" * 20_000),
    )
    records, _ = replayed(GROUPS, key, value)
    assert records == [GROUPS.decode(key, value)]


def test_record_headers_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    key, value = raw(
        2, offset_records.GroupMetadataKey("g"), 3, offset_records.GroupMetadataValue("consumer", 1, None, None, 5, [])
    )

    def read(*_: Any) -> Any:
        raise AssertionError("a record of a megabyte may have half a million headers")

    monkeypatch.setattr(wire_records, "_headers", read)
    assert replayed(GROUPS, key, value, (("h", None),) * 9)[0] == [GROUPS.decode(key, value)]
