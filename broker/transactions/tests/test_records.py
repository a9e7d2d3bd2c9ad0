"""Records of `__transaction_state`, as a Kafka 4.3.1 node wrote them."""

from __future__ import annotations

import pytest

from ottla.broker.transactions.records import TransactionRecord, decode, encode
from ottla.broker.transactions.transaction_metadata import S, TransactionMetadata
from ottla.wire.errors import WireError

ID, JAVA = "0000000474782d31", "000000036a7478"
T = frozenset({("txn", 0)})
BEGAN, ENDED = 1795253388674, 1795253388711
KEYS = {"tx-1": ID, "jtx": JAVA}
GOLDEN = [
    (
        "tx-1",
        TransactionMetadata(0, 0, 60000, S.EMPTY, frozenset(), -1, 1795253388643, 0),
        "0001000000000000000000000000ea600000000001a1fd70c563ffffffffffffffff0100080000000000000000",
    ),
    (
        "tx-1",
        TransactionMetadata(0, 0, 60000, S.ONGOING, T, BEGAN, BEGAN, 0),
        "0001000000000000000000000000ea6001020474786e020000000000000001a1fd70c582000001a1fd70c5820100080000000000000000",
    ),
    (
        "tx-1",
        TransactionMetadata(0, 0, 60000, S.PREPARE_COMMIT, T, BEGAN, ENDED, 0),
        "0001000000000000000000000000ea6002020474786e020000000000000001a1fd70c5a7000001a1fd70c5820100080000000000000000",
    ),
    (
        "tx-1",
        TransactionMetadata(0, 0, 60000, S.COMPLETE_COMMIT, frozenset(), BEGAN, 1795253388715, 0),
        "0001000000000000000000000000ea600401000001a1fd70c5ab000001a1fd70c5820100080000000000000000",
    ),
    (
        "jtx",
        TransactionMetadata(
            2, 1, 60000, S.PREPARE_COMMIT, T, 1795253460969, 1795253461635, 2, client_transaction_version=2
        ),
        "0001000000000000000200010000ea6002020474786e020000000000000001a1fd71e283000001a1fd71dfe9"
        "020008000000000000000202020002",
    ),
]


@pytest.mark.behaviour("C-114")
@pytest.mark.parametrize(("name", "txn", "value"), GOLDEN, ids=[f"{x[0]} {x[1].state.state_name}" for x in GOLDEN])
@pytest.mark.parametrize("level", [1, 2])
def test_transaction_records_equal_kafkas_bytes(name: str, txn: TransactionMetadata, value: str, level: int) -> None:
    raw = bytes.fromhex(KEYS[name]), bytes.fromhex(value)
    assert decode(*raw) == TransactionRecord(name, txn)
    assert encode(TransactionRecord(name, txn), level) == raw


@pytest.mark.behaviour("C-114")
def test_encode_at_transaction_version_0_omits_flexible_fields() -> None:
    txn = TransactionMetadata(2, 1, 60000, S.PREPARE_COMMIT, T, 5, 6, 2, 9, 0, client_transaction_version=2)
    key, value = encode(TransactionRecord("jtx", txn), 0)
    assert value is not None
    assert value[:2] == b"\x00\x00"
    old = txn._replace(
        previous_producer_id=-1, next_producer_id=-1, last_producer_epoch=-1, client_transaction_version=0
    )
    assert decode(key, value) == TransactionRecord("jtx", old)


@pytest.mark.behaviour("C-113")
def test_encode_omits_last_producer_epoch() -> None:
    txn = TransactionMetadata(2, 1, 60000, S.EMPTY, frozenset(), -1, 6, 2, last_producer_epoch=0)
    again = decode(*encode(TransactionRecord("jtx", txn), 2))
    assert again == TransactionRecord("jtx", txn._replace(last_producer_epoch=-1))


def test_encode_and_decode_tombstone_has_no_value() -> None:
    raw = bytes.fromhex(JAVA), None
    assert encode(TransactionRecord("jtx", None), 2) == raw
    assert decode(*raw) == TransactionRecord("jtx", None)


@pytest.mark.behaviour("C-119")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("0001" + JAVA[4:], GOLDEN[0][2]),
        ("7fff", ""),
        (JAVA, "0002"),
        (JAVA, "ffff"),
        (JAVA, "0002" + GOLDEN[0][2][4:]),
    ],
)
def test_decode_record_of_newer_version_returns_none(key: str, value: str) -> None:
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00", b""),
        (bytes.fromhex(JAVA)[:-1], None),
        (bytes.fromhex(JAVA), b"\x00"),
        (bytes.fromhex(JAVA), bytes.fromhex(GOLDEN[0][2])[:-1]),
        (bytes.fromhex(JAVA), bytes.fromhex(GOLDEN[0][2]).replace(b"\x60\x00\x00", b"\x60\x09\x00")),
    ],
)
def test_decode_invalid_record_raises_wire_error(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(WireError):
        decode(key, value)


@pytest.mark.parametrize(
    "field",
    [
        {"producer_id": -1},
        {"producer_id": -(2**63)},
        {"producer_epoch": -1},
        {"state": S.DEAD},
        {"state": S.PREPARE_EPOCH_FENCE},
        {"next_producer_id": -2},
        {"previous_producer_id": -2},
        {"client_transaction_version": -1},
        {"client_transaction_version": 3},
    ],
    ids=str,
)
def test_decode_value_no_coordinator_writes_raises_wire_error(field: dict[str, int]) -> None:
    txn = TransactionMetadata(2, 1, 60000, S.PREPARE_COMMIT, T, 5, 6, 2, 9, client_transaction_version=2)._replace(
        **field
    )  # type: ignore[arg-type]
    with pytest.raises(WireError):
        decode(*encode(TransactionRecord("x", txn), 2))
