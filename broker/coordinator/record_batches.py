"""Record batches of a coordinator: encoding of an event's records, and replay from the log.

Batches have at most ``max.message.bytes``, unless one record is larger. The records of an `Effects` in a transaction
are one batch, also if it is larger; a transaction ends with a marker. The append rejects such larger batches.

Source: ``CoordinatorRuntime.java``, ``CoordinatorLoaderImpl.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from ottla.jobs.job import Job
from ottla.jobs.state_machine import (
    Effects,
    StateMachine,
    TransactionalStateMachine,
    TransactionCompletion,
    TransactionContext,
)
from ottla.log.producers.transaction_verification import NO_TXN_CONTEXT, TxnAppendContext
from ottla.wire.codec import compiler
from ottla.wire.codec.decode_budget import DecodeBudget
from ottla.wire.codec.lazy_array import ELEMENTS_PER_YIELD
from ottla.wire.codec.primitives import Buffer
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import HEADER_BYTES, TRANSACTIONAL_BIT, BatchHeader
from ottla.wire.record_batch.control_record import ControlRecordType, build_end_transaction_batch, iterate_end_markers
from ottla.wire.record_batch.records import NewRecord, Record, build_batch, iterate_records

M = TypeVar("M", bound=Message)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
MAX_BATCH_BYTES = 2 << 20
"""Size limit of a decompressed batch at replay, if ``max.message.bytes`` of the topic is not larger. Coordinators write
no larger batch, but a compressed batch of a few kilobytes written by a client could expand to far more.
"""
MAX_RECORD_OVERHEAD_BYTES = 21
"""Maximum bytes of a record besides key and value (``DefaultRecord.MAX_RECORD_OVERHEAD``)."""
LARGE_VALUE_BYTES = 16 * 1024
"""Size from which a record's value is decoded in steps: a value of 1 MB may contain a million names."""
DECODED_PER_BYTE = 8
"""Memory limit of a large decoded value, as a factor of its size in `ottla.wire.codec.decode_budget.PER_REQUEST_BYTE`.
200,000 names of four letters in a megabyte are decoded; a million empty names, which no coordinator writes, are
rejected.
"""
ELEMENT_COST_BYTES = 16
"""Work for an array element, in bytes of records."""
REPLAY_STEP_BYTES = 8 * 1024
"""Work of a step of the replay of a large record, in bytes of records."""
_VERSION_BYTES = 2

Form = tuple[type[Message], int]
Encoded = Iterable[tuple[bytes, bytes | None]]
"""Encoded keys and values of records; a value of None is a tombstone."""


@runtime_checkable
class SteppedReplay(Protocol):
    """State machine that replays a large record in steps while its shard is loading."""

    def replay_job(self, offset: int, record: Any, replay: Callable[[int, Any], None], /) -> Iterator[None]:
        """Apply a record to the state like ``replay(offset, record)``, as a job.

        The state must not be read before the last step.
        """


class Decode(Protocol[R_co]):
    """Function that decodes a record from its key and value."""

    def __call__(self, key: bytes | None, value: bytes | None, parsed: Any = None, /) -> R_co | None:
        """Return the record; None for an unknown type. ``parsed``: the message of the value, if it is decoded already.

        Raises:
            WireError: the record is malformed.
        """


class Serde(NamedTuple, Generic[R]):
    """Functions that encode and decode a coordinator's records of type R, and the base sequence of its batches."""

    encode: Callable[[R], tuple[bytes, bytes | None]]
    decode: Decode[R]
    form: Callable[[bytes, bytes], Form | None]
    """Returns class and version of the message in a record's value; None if it is too short or of an unknown type."""
    base_sequence: int = 0
    """Base sequence of batches of records, with or without a producer id: -1 in `__transaction_state`, as in Kafka."""
    encode_job: Callable[[R], Job[tuple[bytes, bytes | None]]] | None = None
    """Encodes a large record like ``encode``, as a job."""


class CoordinatorBatch(NamedTuple):
    """Encoded batch, and the function that replays its records at the base offset it is appended at."""

    data: bytearray
    replay: Callable[[int], None]
    txn: TxnAppendContext = NO_TXN_CONTEXT


def encode_records(serde: Serde[R], records: list[R]) -> Job[Encoded]:
    """Encode records in steps and return an iterable over their keys and values, as a job.

    From the first record on that cannot be encoded (or from the start, if ``serde`` has no ``encode_job``), records are
    encoded only while the caller iterates, which raises the error.
    """
    out: list[tuple[bytes, bytes | None]] = []
    encode = serde.encode_job
    for record in records if encode is not None else ():
        assert encode is not None
        try:
            out.append((yield from encode(record)))
        except Exception:
            break
    return chain(out, map(serde.encode, records[len(out) :]))


def build_batches(
    machine: StateMachine[R], serde: Serde[R], fx: Effects[R], encoded: Encoded, limit_bytes: int, now_ms: int
) -> Iterator[CoordinatorBatch]:
    """Yield the batches to append for an event's effects in order: none if there are no records and no marker.

    Records outside of a transaction are split into batches of at most ``limit_bytes``, unless one record is larger; the
    records of a transaction, and a marker, are one batch each. The caller appends and replays a batch before the next.
    ``encoded``: keys and values of ``fx.records``; ``now_ms``: timestamp of the records (wall clock).

    Raises:
        WireError: a record does not fit its schema.
    """
    if isinstance(fx.txn, TransactionCompletion):
        yield _end_txn_batch(machine, fx.txn, now_ms)
    elif fx.txn is not None:
        yield _transactional_batch(machine, serde, fx.records, encoded, fx.txn, now_ms)
    elif fx.records:
        yield from _plain_batches(machine, serde, fx.records, encoded, limit_bytes, now_ms)


def _plain_batches(
    machine: StateMachine[R], serde: Serde[R], records: list[R], encoded: Encoded, limit_bytes: int, now_ms: int
) -> Iterator[CoordinatorBatch]:
    def batch(part: list[R]) -> CoordinatorBatch:
        def replay(offset: int) -> None:
            for index, record in enumerate(part):
                machine.replay(offset + index, record)

        return CoordinatorBatch(bytearray(build_batch(raw, base_sequence=serde.base_sequence)), replay)

    raw: list[NewRecord] = []
    begin, size = 0, HEADER_BYTES
    for number, (key, value) in enumerate(encoded):
        more = MAX_RECORD_OVERHEAD_BYTES + len(key) + len(value or b"")
        if raw and size + more > limit_bytes:
            yield batch(records[begin:number])
            begin, size, raw = number, HEADER_BYTES, []
        raw.append(NewRecord(key, value, now_ms))
        size += more
    yield batch(records[begin:])


def _transactional_batch(
    machine: StateMachine[R],
    serde: Serde[R],
    records: list[R],
    encoded: Encoded,
    txn: TransactionContext,
    now_ms: int,
) -> CoordinatorBatch:
    assert isinstance(machine, TransactionalStateMachine)

    def replay(offset: int) -> None:
        for index, record in enumerate(records):
            machine.replay_pending(offset + index, txn.producer_id, record)

    raw = build_batch(
        [NewRecord(*pair, now_ms) for pair in encoded],
        attributes=TRANSACTIONAL_BIT,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        base_sequence=serde.base_sequence,
    )
    return CoordinatorBatch(bytearray(raw), replay, TxnAppendContext(txn.guard))


def _end_txn_batch(machine: StateMachine[R], ends: TransactionCompletion, now_ms: int) -> CoordinatorBatch:
    assert isinstance(machine, TransactionalStateMachine)
    commits = ends.marker.control_type == ControlRecordType.COMMIT

    def replay(_: int) -> None:
        machine.replay_end(ends.producer_id, commits=commits)

    raw = build_end_transaction_batch(ends.marker, ends.producer_id, ends.epoch, now_ms)
    return CoordinatorBatch(bytearray(raw), replay, TxnAppendContext(transaction_version=ends.transaction_version))


def replay_batch(
    machine: StateMachine[R], serde: Serde[R], header: BatchHeader, raw: Buffer, limit_bytes: int = MAX_BATCH_BYTES
) -> Iterator[int]:
    """Replay a batch of the log into ``machine``; after each record or step, yield its work in bytes.

    With a `TransactionalStateMachine`, records with a producer id are pending until a control batch applies or discards
    them; with another one they are applied at once.

    Raises:
        WireError: a record is malformed, its offset is outside its batch, or the decompressed batch is larger than
            ``limit_bytes``.
    """
    if header.is_control:
        if isinstance(machine, TransactionalStateMachine):
            for end in iterate_end_markers(header, raw):
                machine.replay_end(header.producer_id, commits=end.control_type == ControlRecordType.COMMIT)
        return
    replay = machine.replay
    if header.producer_id >= 0 and isinstance(machine, TransactionalStateMachine):
        pending = machine.replay_pending
        replay = lambda offset, record: pending(offset, header.producer_id, record)  # noqa: E731
    first, next_offset = header.base_offset, header.next_offset
    for record in iterate_records(raw, header, limit=limit_bytes, skips_headers=True):
        if header.magic > 1 and not first <= record.offset < next_offset:
            raise WireError(f"invalid record offset: {record.offset} (its batch has {first} to {next_offset - 1})")
        if len(record.value or b"") < LARGE_VALUE_BYTES:
            decoded = serde.decode(record.key, record.value)
            if decoded is not None:
                replay(record.offset, decoded)
        else:
            yield from _replay_job(machine, serde, record, replay)
        yield len(record.key or b"") + len(record.value or b"")


def decode_job(cls: type[M], version: int, raw: bytes) -> Generator[None, None, M]:
    """Decode the message that follows the first two bytes (its version) of ``raw``, as a job that yields within it.

    ``version``: version to decode; the one in ``raw`` is skipped. A message below 16 KiB is decoded without a yield.

    Raises:
        WireError: the message is malformed, or would take far more memory than it has bytes.
    """
    if len(raw) < LARGE_VALUE_BYTES:
        return compiler.decode(cls, version, raw, _VERSION_BYTES)[0]
    budget = DecodeBudget(DECODED_PER_BYTE * len(raw), keeps=True)
    return (yield from compiler.decode_job(cls, version, raw, _VERSION_BYTES, budget))[0]


def _replay_job(
    machine: StateMachine[R], serde: Serde[R], record: Record, replay: Callable[[int, R], None]
) -> Iterator[int]:
    """Decode and replay a record with a large value; yield the work of each step in bytes.

    Raises:
        WireError: the record is malformed, or its value would take far more memory than it has bytes.
    """
    key, value = record.key, record.value
    form = None if key is None or value is None else serde.form(key, value)
    parsed = None
    if form is not None and value is not None:
        decoding = decode_job(*form, value)
        while True:
            try:
                next(decoding)
            except StopIteration as end:
                parsed = end.value
                break
            yield ELEMENTS_PER_YIELD * ELEMENT_COST_BYTES
    decoded = serde.decode(key, value, parsed)
    if decoded is None:
        return
    if isinstance(machine, SteppedReplay):
        for _ in machine.replay_job(record.offset, decoded, replay):
            yield REPLAY_STEP_BYTES
    else:
        replay(record.offset, decoded)
