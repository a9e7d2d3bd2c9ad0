"""Records of internal topics that no coordinator writes, drawn by seed, and coordinators that load them.

A case is one log of drawn records. A coordinator loads it, gets requests, and is idle for a while, in virtual time.
With any records the node must stay alive, and the coordinator of a second partition, without such records, must serve.
"""

from __future__ import annotations

import contextlib
import random
import signal
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple

import trio
import trio.testing

from compat_tests.support.random_requests import CORRUPTIBLE_FIELDS, RandomRequestGenerator
from devtools.fuzzing.likely_requests import LIKELY, T, U
from ottla.broker.coordinator import errors
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.dispatcher import load_handler
from ottla.broker.groups import records as group_records
from ottla.broker.tests.handler_fixture import HandlerFixture, as_decoded, resolve
from ottla.jobs.supervision import is_broken_invariant
from ottla.log.log_validator import AppendOrigin
from ottla.log.producers.transaction_verification import VERIFICATION_DISABLED, TxnAppendContext
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ProtocolError, WireError
from ottla.wire.messages import consumer_group_records as consumer
from ottla.wire.messages import offset_records, share_state_records, transaction_records
from ottla.wire.record_batch import batch_header
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.records import NewRecord, build_batch

Classes = Mapping[int, tuple[type[Message], type[Message]]]


class InternalTopic(NamedTuple):
    """Types of the records of an internal topic, as pairs of key and value class by type, and sample values.

    The generator reuses field values of ``samples``, so that some of the drawn records refer to the same objects.
    """

    classes: Classes
    samples: Callable[[random.Random], list[Message]]


def _of_groups(rng: random.Random) -> list[Message]:
    epoch = rng.randint(0, 5)
    held = consumer.TopicPartitions(rng.choice((T, T, U)), [0, 1, 2], [epoch] * 3)
    return [consumer.ConsumerGroupCurrentMemberAssignmentValue(epoch, max(epoch - 1, 0), rng.randint(0, 4)), held]


def _of_transactions(rng: random.Random) -> list[Message]:
    value = transaction_records.TransactionLogValue(
        producer_id=rng.choice((1, 7)),
        producer_epoch=rng.choice((0, 0, 1, 32_765, 32_766, 32_767)),
        transaction_status=rng.randint(0, 5),
        transaction_partitions=[transaction_records.PartitionsSchema("t", [0, 1])],
        transaction_start_timestamp_ms=1_000_000,
        transaction_last_update_timestamp_ms=1_000_000,
    )
    value.client_transaction_version = rng.randint(0, 2)
    return [value]


def _of_share_state(rng: random.Random) -> list[Message]:
    first = rng.randint(0, 9)
    rows = [
        share_state_records.ShareSnapshotValueStateBatch(first, first + rng.randint(0, 3), rng.choice((0, 2, 4)), 1)
    ]
    key = share_state_records.ShareSnapshotKey("s", rng.choice((T, T, U)), 0)
    return [key, share_state_records.ShareSnapshotValue(0, 0, 0, 0, 0, 1_000_000, 1_000_000, rows)]


GROUPS = InternalTopic(
    {
        0: (offset_records.LegacyOffsetCommitKey, offset_records.LegacyOffsetCommitValue),
        1: (offset_records.OffsetCommitKey, offset_records.OffsetCommitValue),
        2: (offset_records.GroupMetadataKey, offset_records.GroupMetadataValue),
        **group_records.modern_record_types(),
    },
    _of_groups,
)
TRANSACTIONS = InternalTopic(
    {0: (transaction_records.TransactionLogKey, transaction_records.TransactionLogValue)}, _of_transactions
)
SHARE_STATE = InternalTopic(
    {
        0: (share_state_records.ShareSnapshotKey, share_state_records.ShareSnapshotValue),
        1: (share_state_records.ShareUpdateKey, share_state_records.ShareUpdateValue),
    },
    _of_share_state,
)
IDS = ("g", "h", "s", "w")
"""A group of each kind, as `RandomRequestGenerator` names them."""
LONGEST_S = 10
"""Limit of processor time for one case: a longer one counts as an endless loop."""
ANSWER_S = 700.0
"""Limit of the time for a response, in virtual time."""
REBALANCE_S = 1_900.0
"""The same for JoinGroup and SyncGroup: they wait for members whose session ends after ``group.max.session.timeout.ms``
(30 minutes)."""
_INT16 = struct.Struct(">h")


class RandomBatchOfRecords(NamedTuple):
    """Drawn record batch: its bytes, the origin with which it is appended, and the number of its records."""

    raw: bytes
    origin: AppendOrigin
    records: int


class RandomRecordGenerator:
    """Generator, by a seed, of records and batches of one internal topic; most of them are well-formed."""

    def __init__(self, seed: int, topic: InternalTopic) -> None:
        self.odd = RandomRequestGenerator(seed)
        self._rng = self.odd.rng
        if seed % 3:
            self.odd.shares = (0.02, 0.0, 0.0, 0.0)  # few values of few records: all of them are replayed
        self._samples = topic.samples
        self._classes = topic.classes
        if len(self._classes) > 2 and self._rng.random() < 0.75:  # records of one kind of group
            module = self._rng.choice(sorted({key.__module__ for key, _ in self._classes.values()}))
            self._classes = {kind: two for kind, two in self._classes.items() if two[0].__module__ == module}

    def record(self) -> tuple[bytes | None, bytes | None]:
        """Draw key and value of a record, encoded with type and version; a null value is a tombstone.

        With some seeds a few do not parse, or are null keys.
        """
        rng = self._rng
        for sample in self._samples(rng):
            self.odd.learn_from(sample)
        kind = rng.choice(sorted(self._classes))
        key_class, value_class = self._classes[kind]
        key: Any = self.odd.generate(key_class, 0)
        if hasattr(key, "group_id") and rng.random() < 0.1:
            key.group_id = rng.choice(IDS)  # of a group of another kind, perhaps
        low, high, *_ = self._versions(value_class)
        version = rng.randint(low, high)
        value = self.odd.generate(value_class, version)
        self.odd.learn_from(key)
        self.odd.learn_from(value)
        raw_key: bytes | None = _INT16.pack(kind) + compiler.encode(key, 0)
        raw_value: bytes | None = _INT16.pack(version) + compiler.encode(value, version)
        if rng.random() < 0.12:
            return raw_key, None
        if self.odd.shares[0] == 1.0 and rng.random() < 0.02:
            return self._torn(raw_key), self._torn(raw_value)
        return raw_key, raw_value

    @staticmethod
    def _versions(value_class: type[Message]) -> tuple[int, int]:
        low, high = value_class.SPEC.versions  # type: ignore[attr-defined]
        return low, high

    def _torn(self, raw: bytes | None) -> bytes | None:
        """Return bytes that were cut, lengthened or changed, or that have an unknown type or version; None for null.

        One in five is returned unchanged.
        """
        rng = self._rng
        if raw is None or rng.random() < 0.2:
            return raw
        match rng.randrange(5):
            case 0:
                return raw[: rng.randrange(len(raw) + 1)]
            case 1:
                return raw + rng.randbytes(5)
            case 2:
                return _INT16.pack(rng.choice((-1, 5, 9, 18, 99, 32767))) + raw[2:]
            case 3:
                at = rng.randrange(len(raw))
                return (
                    raw[:at] + rng.choice((b"\xff", b"\x00", b"\x80", b"\x7f\xff\xff\xff", b"\xff" * 5)) + raw[at + 1 :]
                )
            case _:
                return None

    def batch(self) -> RandomBatchOfRecords:
        """Draw a batch of 1 to 8 records, some of them compressed, transactional or with a wrong header field."""
        rng = self._rng
        count = rng.choice((1, 1, 2, 4, 8))
        some = [NewRecord(*self.record(), rng.choice((0, -1, 1_000_000))) for _ in range(count)]
        named: dict[str, Any] = {}
        if rng.random() < 0.12:
            named = {"producer_id": rng.choice((0, 1, 7)), "producer_epoch": 1, "attributes": 16, "base_sequence": 0}
        raw = build_batch(
            some,
            codec=rng.choice(
                (
                    CompressionType.NONE,
                    CompressionType.NONE,
                    CompressionType.NONE,
                    CompressionType.GZIP,
                    CompressionType.ZSTD,
                )
            ),
            **named,
        )
        if self.odd.shares[0] == 1.0 and rng.random() < 0.03:
            field, bits = rng.choice(CORRUPTIBLE_FIELDS)
            header = batch_header.parse_header(raw)._replace(
                **{field: rng.choice((0, -1, 1, 100, 127 if "8" in bits else 30_000))}
            )
            raw = batch_header.pack_batch(header, raw[batch_header.HEADER_BYTES :])
        return RandomBatchOfRecords(raw, AppendOrigin.COORDINATOR if named else AppendOrigin.CLIENT, count)


class CoordinatorFixture(NamedTuple):
    """Coordinators of one internal topic of two partitions: 0 gets the drawn records, 1 none.

    ``run`` is their main task. ``lead``, ``resign`` and ``advance`` are called with a partition that the node leads
    from now on, does not lead any more, or whose high watermark has advanced. ``apis`` are those of the requests.
    """

    broker_fixture: HandlerFixture
    topic: str
    run: Callable[[], Awaitable[None]]
    lead: Callable[[Any], None]
    resign: Callable[[Any], None]
    advance: Callable[[Any], None]
    apis: tuple[ApiKey, ...]
    serves: Callable[[], Any]
    """Response of the second partition; a `ProtocolError` if it does not serve."""
    is_failed: Callable[[], bool]
    """True if the partition with the drawn records could not be loaded."""
    disturb: Callable[[RandomRequestGenerator], None]
    """Event that is not a request, such as a metadata change."""


class FuzzingResult:
    """Counters of the cases so far, and counts of the failures and closed connections by their exceptions."""

    def __init__(self) -> None:
        self.cases = self.records = self.requests = 0
        self.failed: Counter[str] = Counter()
        """Exceptions that failed a shard."""
        self.closed: Counter[str] = Counter()
        """Exceptions that closed a connection, and requests without a response in time."""
        self.invalid = 0

    def count_failure(self, error: errors.CoordinatorStateError, topic: str, partition: int, event: str) -> None:
        """Count a failure of the coordinator of partition 0; callback in place of `errors.report_failure`.

        Raises:
            AssertionError: the coordinator of another partition failed.
        """
        assert partition == 0, f"another shard of {topic} failed at {event}"
        self.failed[f"{topic} {event}: {error_location(error.__cause__)}"] += 1


def error_location(error: BaseException | None) -> str:
    """Return a text with an exception's type, file and line of origin, and the first 80 characters of its message.

    The path of the file begins below ``ottla/``. ``error`` must not be None: the type allows it for ``__cause__``.
    """
    assert error is not None
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = "" if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/ottla/')[2]}:{trace.tb_lineno}"
    return f"{type(error).__name__} {at} {str(error)[:80]}"


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Limit the user processor time of a ``with`` statement: after ``seconds``, AssertionError is raised in its body.

    It sets the process's handler of SIGVTALRM meanwhile, so only the main thread may call it.
    """

    def over(*_: object) -> None:
        raise AssertionError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


async def send_random_requests(
    coordinators: CoordinatorFixture, odd: RandomRequestGenerator, found: FuzzingResult
) -> None:
    """Call the handler of one drawn request of the coordinators, and count the result in ``found``.

    An exception with which a node closes the connection is counted, and so is a request without a response within
    `ANSWER_S` (`REBALANCE_S` for JoinGroup and SyncGroup). A ProtocolError or WireError is not; a broken invariant is
    raised.
    """
    key = odd.rng.choice(coordinators.apis)
    version = odd.rng.randint(BROKER_APIS[key].min_version, BROKER_APIS[key].max_version)
    request = odd.generate(request_class(key), version)
    if key in LIKELY and odd.rng.random() < 0.7:
        version, request = BROKER_APIS[key].max_version, LIKELY[key](odd.rng)
    context = coordinators.broker_fixture.context(key, version, odd.rng.choice(("client", "__admin_client")))
    found.requests += 1
    try:
        waits_for_members = key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
        with trio.move_on_after(REBALANCE_S if waits_for_members else ANSWER_S) as limit:
            answer = await resolve(
                load_handler(BROKER_APIS[key].endpoint(at_controller=False).handler_module)(context, request)
            )
        if not limit.cancelled_caught:
            odd.learn_from(as_decoded(answer, version))
        else:
            found.closed[f"{key.name}: not answered"] += 1
    except (ProtocolError, WireError):
        pass
    except Exception as error:
        if is_broken_invariant(error):
            raise
        found.closed[f"{key.name}: {error_location(error)}"] += 1


async def run_log(coordinators: CoordinatorFixture, records: RandomRecordGenerator, found: FuzzingResult) -> None:
    """Run one case: load a log of drawn records, then send requests and wait; more records may be written meanwhile.

    Raises:
        AssertionError, in an ExceptionGroup: the coordinator of partition 1 does not serve at the end.
    """
    rng, hosted = records.odd.rng, coordinators.broker_fixture.hosted.replicas
    poisoned, sound = hosted[coordinators.topic, 0], hosted[coordinators.topic, 1]

    def write(batches: int) -> None:
        for _ in range(batches):
            drawn = records.batch()
            with contextlib.suppress(ProtocolError, WireError):
                now_ms, txn = coordinators.broker_fixture.env.now_ms(), TxnAppendContext(VERIFICATION_DISABLED)
                poisoned.append(bytearray(drawn.raw), now_ms, drawn.origin, txn=txn)
                found.records += drawn.records
        poisoned.log.set_high_watermark(poisoned.log.log_end_offset)
        coordinators.advance(poisoned)

    write(rng.choice((1, 2, 4, 8)))
    coordinators.lead(sound)
    coordinators.lead(poisoned)
    await trio.testing.wait_all_tasks_blocked()
    found.invalid += coordinators.is_failed()
    async with trio.open_nursery() as nursery:
        for _ in range(rng.choice((4, 8, 16))):
            nursery.start_soon(send_random_requests, coordinators, records.odd, found)
            await trio.sleep(rng.choice((0, 0, 0, 0.1, 5, 50)))
            if rng.random() < 0.1:
                coordinators.disturb(records.odd)
        if rng.random() < 0.3:
            write(1)
        await trio.sleep(rng.choice((1, 60, 700)))
        answer = coordinators.serves()
        assert not isinstance(answer, ProtocolError), f"the other shard answers {answer}"
        coordinators.resign(poisoned)
    found.cases += 1


def run_seed(
    seed: int, make: Callable[[trio.Nursery], CoordinatorFixture], topic: InternalTopic, found: FuzzingResult
) -> None:
    """Run the case of a seed on a virtual clock and count it in ``found``; ``make`` creates the coordinators.

    Raises:
        AssertionError, mostly in an ExceptionGroup: a coordinator broke an invariant, or the case took more than
            `LONGEST_S` of processor time.
    """
    records = RandomRecordGenerator(seed, topic)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            coordinators = make(nursery)
            nursery.start_soon(coordinators.run)
            await run_log(coordinators, records, found)
            nursery.cancel_scope.cancel()

    with limited(LONGEST_S):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
