"""The machine of one partition of `__transaction_state`: transactional ids and their transactions, driven by events.

A transition is decided, appended and replayed, and everybody goes on seeing what was before until the log has it for
good; whoever asks for another one meanwhile is told to come again. When it is decided how a transaction ends, and only
once that cannot be lost any more, its partitions are told, and when all of them know it is complete.

Source: ``TransactionCoordinator.scala``, ``TransactionStateManager.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.broker.coordinator.events import Closed, Fired, Loaded, Settled, Unloaded
from ottla.broker.txn import deciding, ending, enlisting, initialising
from ottla.broker.txn import events as ev
from ottla.broker.txn.deciding import Verdict
from ottla.broker.txn.initialising import Fresh
from ottla.broker.txn.pending import Pending
from ottla.broker.txn.records import TransactionRecord
from ottla.broker.txn.state import AT_REST, EPOCH_BUMP, FOREVER_MS, PREPARED, S, Transaction
from ottla.log.machine import RECORDS_PER_STEP, Effects, RequestReply, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError

Fx = Effects[TransactionRecord]
RETRY_MS = 100
"""After so long the end of a transaction is written again where the log did not take it."""
FORGOTTEN_AT_ONCE = 5_000
SETTLED_AT_ONCE = 200
"""Of so many transitions the fate is looked at in one turn: some 10 us each, and more where markers are due."""


class TxnSettings(NamedTuple):
    """What an operator may set; all in milliseconds."""

    max_timeout_ms: int
    abort_every_ms: int
    expiry_every_ms: int
    expiration_ms: int


class TxnMachine:
    """``handle`` decides, ``replay`` takes in records; reads go to `seen` and `ids`."""

    def __init__(self, settings: TxnSettings, fresh: Fresh, level: Callable[[], int], outbox: Any) -> None:
        """``fresh``: producer ids; ``level``: the finalized transaction.version; ``outbox`` gets each `MarkersDue`."""
        self.settings = settings
        self._fresh = fresh
        self._level = level
        self._outbox = outbox
        self._transactions: dict[str, Transaction] = {}
        self._ongoing: dict[str, None] = {}
        self._prepared: dict[str, None] = {}
        self.pending: dict[str, Pending] = {}

    # ------------------------------------------------------------------ reading

    def seen(self, transactional_id: str) -> Transaction | None:
        """What is known of an id for good."""
        pending = self.pending.get(transactional_id)
        return self._transactions.get(transactional_id) if pending is None else pending.seen()

    def ids(self) -> list[str]:
        """All ids there are, those on their way among them."""
        return [*self._transactions, *(x for x in self.pending if x not in self._transactions)]

    # ------------------------------------------------------------------ the contract

    def handle(self, now_ms: int, event: Any) -> Fx:
        """One event."""
        match event:
            case Loaded():
                return self._loaded(now_ms)
            case Settled():
                return self._settled(event.what, event.error, now_ms)
            case Fired():
                return self._fired(event.key, now_ms)
            case ev.Marked():
                return self._marked(event)
            case Unloaded() | Closed():
                return Fx()  # nobody is parked here: whoever waits, waits for a record
        try:
            match event:
                case ev.InitProducerId():
                    return self._init(event, now_ms)
                case ev.AddPartitions():
                    return self._add(event, now_ms)
                case ev.VerifyPartitions():
                    return self._verify(event)
                case ev.EndTransaction():
                    return self._end(event, now_ms)
                case _:
                    raise AssertionError(event)
        except ProtocolError as error:
            return Fx(immediate_replies=[RequestReply(event.ticket, error.with_traceback(None))])

    def replay(self, offset: int, record: TransactionRecord) -> None:
        """Take in one record."""
        transactional_id, txn = record
        self._ongoing.pop(transactional_id, None)
        self._prepared.pop(transactional_id, None)
        if txn is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = txn
            if txn.state is S.ONGOING:
                self._ongoing[transactional_id] = None
            elif txn.state in PREPARED:
                self._prepared[transactional_id] = None
        pending = self.pending.get(transactional_id)
        if pending is not None and pending.after is txn:
            pending.written = True

    # ------------------------------------------------------------------ what producers ask

    def _init(self, event: ev.InitProducerId, now_ms: int) -> Fx:
        self._check_nothing_pending(event.transactional_id)
        txn = self._transactions.get(event.transactional_id)
        if txn is None:
            txn = initialising.unheard_of(event.timeout_ms, now_ms, self._fresh)
        initialising.check_expected(txn, event.expected)
        if txn.state is S.ONGOING:
            answer: Any = ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)  # once its end is decided
            after = ending.fenced(txn, now_ms, self._fresh, bumps=self._level() >= EPOCH_BUMP)
        else:
            after = initialising.begun(txn, event.expected, event.timeout_ms, now_ms, self._fresh)
            answer = (after.producer_id, after.producer_epoch)
        return self._step(event.transactional_id, txn, after, RequestReply(event.ticket, answer))

    def _add(self, event: ev.AddPartitions, now_ms: int) -> Fx:
        self._check_nothing_pending(event.transactional_id)
        txn = self._transactions.get(event.transactional_id)
        txn = enlisting.check_producer(txn, event.producer_id, event.producer_epoch)
        after = enlisting.added(txn, event.partitions, event.client_version, now_ms)
        reply = RequestReply(event.ticket, ErrorCode.NONE)
        if after is None:
            return Fx(replies=[reply])
        return self._step(event.transactional_id, txn, after, reply)

    def _verify(self, event: ev.VerifyPartitions) -> Fx:
        txn = self.seen(event.transactional_id)
        txn = enlisting.check_producer(txn, event.producer_id, event.producer_epoch)
        return Fx(immediate_replies=[RequestReply(event.ticket, event.partitions & txn.partitions)])

    def _end(self, event: ev.EndTransaction, now_ms: int) -> Fx:
        txn = self.seen(event.transactional_id)
        if txn is None:
            raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        decide = deciding.with_bump if event.bumps else deciding.classic
        is_pending = event.transactional_id in self.pending
        verdict = decide(txn, event.producer_id, event.producer_epoch, commits=event.commits, is_pending=is_pending)
        after = txn
        if verdict is Verdict.PREPARE and event.bumps:
            after = ending.prepared_with_bump(txn, now_ms, self._fresh, commits=event.commits)
        elif verdict is Verdict.PREPARE:
            after = ending.prepared(txn, now_ms, commits=event.commits)
        goes_on = ending.completed(after, now_ms) if after.state in PREPARED else after
        told = (goes_on.producer_id, goes_on.producer_epoch) if event.bumps else (-1, -1)
        reply = RequestReply(event.ticket, told)
        return Fx(replies=[reply]) if after is txn else self._step(event.transactional_id, txn, after, reply)

    def _check_nothing_pending(self, transactional_id: str) -> None:
        """Whether an id is free for a transition.

        Raises:
            ProtocolError: CONCURRENT_TRANSACTIONS.
        """
        if transactional_id in self.pending:
            raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)

    # ------------------------------------------------------------------ transitions

    def _step(self, transactional_id: str, before: Transaction, after: Transaction, *replies: RequestReply) -> Fx:
        pending = self.pending[transactional_id] = Pending(before, after)
        record = TransactionRecord(transactional_id, after)
        return Fx([record], list(replies), on_commit_outcome=[(transactional_id, pending)])

    def _settled(self, what: list[tuple[str, Pending]], error: ErrorCode, now_ms: int) -> Fx:
        """The fate of transitions is known; of very many it is looked at in slices."""
        if len(what) <= SETTLED_AT_ONCE:
            return self._fate(what, error, now_ms)
        left = list(what)
        return Fx(on_commit_outcome=left, continuation=self._fates(left, error, now_ms))

    def _fates(self, left: list[tuple[str, Pending]], error: ErrorCode, now_ms: int) -> Iterator[Fx]:
        """What was not looked at, as the log has refused something of a slice, is left and told of that."""
        done: list[tuple[str, Pending]] = []
        what = list(left)
        for first in range(0, len(what), SETTLED_AT_ONCE):
            fx = self._fate(what[first : first + SETTLED_AT_ONCE], error, now_ms)
            done += fx.on_commit_outcome or ()
            fx.on_commit_outcome = None
            left[:] = [*done, *what[first + SETTLED_AT_ONCE :]]
            yield fx

    def _fate(self, what: list[tuple[str, Pending]], error: ErrorCode, now_ms: int) -> Fx:
        """What stands in the log and may get lost is waited for again."""
        fx = Fx()
        again = []
        for transactional_id, pending in what:
            if self.pending.get(transactional_id) is not pending:
                continue
            if error is ErrorCode.NONE:
                self._arrived(transactional_id, pending, now_ms, fx)
            elif pending.written or pending.remaining:
                again.append((transactional_id, pending))
            elif pending.before.state in PREPARED:
                fx.timers.append(ScheduleTimer(("complete", transactional_id), now_ms + RETRY_MS))
            else:
                del self.pending[transactional_id]  # refused: nothing has changed
        if again:
            fx.on_commit_outcome = again
        return fx

    def _arrived(self, transactional_id: str, pending: Pending, now_ms: int, fx: Fx) -> None:
        """A transition cannot be lost any more, or what it begins with cannot."""
        if pending.written:
            del self.pending[transactional_id]
            after = pending.after
            if after is None or after.state not in PREPARED:
                return
            pending = self.pending[transactional_id] = Pending(after, ending.completed(after, now_ms))
        if pending.remaining:
            fx.immediate_replies.append(RequestReply(self._outbox, ev.MarkersDue(transactional_id, pending)))
        else:
            self._complete(transactional_id, pending, fx)

    def _marked(self, event: ev.Marked) -> Fx:
        fx, pending = Fx(), event.pending
        if self.pending.get(event.transactional_id) is pending and pending.remaining:
            pending.remaining.difference_update(event.partitions)
            if not pending.remaining:
                self._complete(event.transactional_id, pending, fx)
        return fx

    def _complete(self, transactional_id: str, pending: Pending, fx: Fx) -> None:
        fx.records.append(TransactionRecord(transactional_id, pending.after))
        fx.on_commit_outcome = [*(fx.on_commit_outcome or ()), (transactional_id, pending)]

    # ------------------------------------------------------------------ timers

    def _loaded(self, now_ms: int) -> Fx:
        """What was decided before is carried on with; it waits until what was read cannot be lost."""
        settings = self.settings
        timers: list[Any] = [
            ScheduleTimer(("abort",), now_ms + settings.abort_every_ms),
            ScheduleTimer(("expire",), now_ms + settings.expiry_every_ms),
        ]
        if self._prepared:
            timers.append(ScheduleTimer(("resume",), now_ms))
        fx = Fx(timers=timers)
        fx.continue_with(self._taken_up(now_ms), len(self._prepared))
        return fx

    def _taken_up(self, now_ms: int) -> Iterator[Fx]:
        for number, transactional_id in enumerate(list(self._prepared), 1):
            txn = self._transactions[transactional_id]
            self.pending[transactional_id] = Pending(txn, ending.completed(txn, now_ms))
            if number % RECORDS_PER_STEP == 0:
                yield Fx()

    def _fired(self, key: tuple[str, ...], now_ms: int) -> Fx:
        match key:
            case ("resume",):
                return Fx(on_commit_outcome=list(self.pending.items()))
            case ("complete", transactional_id):
                fx, pending = Fx(), self.pending.get(transactional_id)
                if pending is not None and not pending.remaining and not pending.written:
                    self._complete(transactional_id, pending, fx)
                return fx
            case ("abort",):
                return self._scan(("abort",), self.settings.abort_every_ms, self._timed_out, now_ms)
            case ("expire",):
                return self._scan(("expire",), self.settings.expiry_every_ms, self._unused, now_ms)
            case _:
                raise AssertionError(key)

    def _scan(self, key: tuple[str], every_ms: int, look: Callable[..., Any], now_ms: int) -> Fx:
        fx = Fx(timers=[ScheduleTimer(key, now_ms + every_ms)], on_commit_outcome=[])
        fx.add_records(look(now_ms, fx.on_commit_outcome))
        return fx

    def _timed_out(self, now_ms: int, settle: list[tuple[str, Pending]]) -> Iterator[TransactionRecord | None]:
        """Abort what has been open for longer than its producer wanted; not what ends in two phases."""
        for transactional_id in list(self._ongoing):
            txn = self._transactions[transactional_id]
            over = txn.timeout_ms != FOREVER_MS and txn.started_ms + txn.timeout_ms < now_ms
            if over and transactional_id not in self.pending:
                try:
                    after = ending.fenced(txn, now_ms, self._fresh, bumps=self._level() >= EPOCH_BUMP)
                except ProtocolError:
                    continue  # no producer id just now: the next look finds it again
                yield self._swept(transactional_id, txn, after, settle)
            else:
                yield None

    def _unused(self, now_ms: int, settle: list[tuple[str, Pending]]) -> Iterator[TransactionRecord | None]:
        """Forget ids that nobody has used for long; the rest is left to the next look where there are very many."""
        since_ms = now_ms - self.settings.expiration_ms
        for transactional_id, txn in list(self._transactions.items()):
            unused = txn.state in AT_REST and txn.updated_ms <= since_ms
            if unused and transactional_id not in self.pending and len(settle) < FORGOTTEN_AT_ONCE:
                yield self._swept(transactional_id, txn, None, settle)
            else:
                yield None

    def _swept(
        self, transactional_id: str, before: Transaction, after: Transaction | None, settle: list[tuple[str, Pending]]
    ) -> TransactionRecord:
        pending = self.pending[transactional_id] = Pending(before, after)
        settle.append((transactional_id, pending))
        return TransactionRecord(transactional_id, after)
