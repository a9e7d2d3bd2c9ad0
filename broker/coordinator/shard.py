"""One shard: a machine, the partition it is a fold of, and the answers that wait for that partition's high watermark.

A turn is: the machine decides, its records are appended, then replayed, timers are set; answers leave once everything
written up to that turn is committed. An append that is refused has changed nothing that is replayed, so nothing is
rolled back: the answers become errors, and the machine learns of it where it asked to. While something goes in slices
events queue up, as behind each other in Kafka's event loop of a partition.

Clients may write to internal topics, so the state that is replayed from them is not trusted. An exception of the state
machine fails its shard and nothing else: `StateError`. The shard is reloaded from its log after a pause.

Source: ``CoordinatorRuntime.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from itertools import chain
from math import ceil
from typing import Any, Generic, TypeVar

import trio

from ottla.broker.coordinator import errors
from ottla.broker.coordinator.batches import Batch, Serde, batches
from ottla.broker.coordinator.errors import StateError, guarded, told
from ottla.broker.coordinator.events import Closed, Fired, Loaded, Settled, Unloaded
from ottla.broker.coordinator.queued import Ground, Held, OpenTickets, Queued, State
from ottla.broker.coordinator.ticket import Ticket
from ottla.broker.replica.replica import HostedPartition
from ottla.broker.turn import BACKGROUND_SLICE_MS, TimeSlice
from ottla.log.machine import CancelTimer, Effects, RequestReply, ScheduleTimer, StateMachine
from ottla.log.validate import AppendOrigin
from ottla.wire.errors import ErrorCode, ProtocolError, WireError

R = TypeVar("R")
logger = logging.getLogger("ottla.coordinator")
__all__ = ["Ground", "Serde", "Shard", "State"]

TURNS_AT_ONCE = 50
"""So many queued events at most are worked off before others get the loop; fewer where they take long."""


class Shard(Generic[R]):
    """One partition's coordinator."""

    def __init__(
        self,
        ground: Ground,
        replica: HostedPartition,
        machine: StateMachine[R],
        serde: Serde[R],
        out_of_step: Callable[[], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """``failed``: called after the active shard has failed, to have it reloaded."""
        self._ground = ground
        self._serde = serde
        self._out_of_step = out_of_step
        self._failed = failed
        self.replica = replica
        self.machine = machine
        self.state = State.LOADING
        self.written: int
        """The log's end after the last record that is replayed here."""
        self._held: deque[Held] = deque()
        self._releasing = False
        self._queue: deque[Queued] = deque()
        self._tickets = OpenTickets()
        self._busy = False
        """Whether a task works off what goes in slices and what is queued."""
        self._long: Effects[R] | None = None
        """What goes on in slices."""
        self._armed: dict[Hashable, int] = {}
        self._armings = 0

    # ------------------------------------------------------------------ events

    def take_up(self, end: int) -> Iterator[None]:
        """The log has been replayed up to ``end``: take up work, in slices; what came meanwhile first of all.

        Raises:
            StateError: the state machine cannot take up the state that was replayed.
        """
        fx = self._handle(Loaded())
        at_once: list[RequestReply] = []
        for part in guarded(chain([fx], fx.continuation or ())):
            assert not part.records, "nothing is written before all is read"
            self._set(part.timers)
            at_once += part.immediate_replies
            if part is not fx:
                yield
        self.written = end
        self.state = State.ACTIVE
        self._give(at_once)
        if self._queue:
            self._be_busy()

    def hand_in(self, event: Any, ticket: Ticket | None = None) -> None:
        """Give the machine an event, now or behind those that came before it. A ticket hears if that cannot be."""
        if ticket is not None:
            self._tickets.add(ticket)
        if self.state is State.LOADING or self._busy:
            self._queue.append(Queued(event, ticket))
        elif self.state is State.ACTIVE:
            self._turn(event)
        elif ticket is not None:
            ticket.give(ProtocolError(ErrorCode.NOT_COORDINATOR))

    def close(self, key: str, ticket: Ticket) -> None:
        """Nobody waits any more for what was asked about ``key``."""
        if ticket.answer is None and self.state is State.ACTIVE:
            self.hand_in(Closed(key, ticket))

    def _take(self, queued: Queued) -> None:
        if queued.arming:
            key = self._key(queued.event.key)
            if self._armed.get(key) != queued.arming:
                return  # set anew or cancelled while it stood in the queue
            del self._armed[key]
        self._turn(queued.event)

    # ------------------------------------------------------------------ a turn

    def _handle(self, event: Any) -> Effects[R]:
        """Return what the state machine makes of an event.

        Raises:
            StateError: the state machine raised.
        """
        try:
            return self.machine.handle(self._ground.env.now_ms(), event)
        except Exception as error:
            raise StateError from error

    def _turn(self, event: Any) -> None:
        try:
            self._decide(event)
        except StateError as error:
            self._fail(error, event)

    def _decide(self, event: Any) -> None:
        """Decide, append, replay, set timers, answer: in that order."""
        fx = self._handle(event)
        self._give(fx.immediate_replies)
        error = self._write(fx)
        self._set(fx.timers)
        if not fx.records and fx.txn is None and isinstance(event, Settled):
            self._give(fx.replies)  # what they hung on is committed, or never will be
            fx.replies = []
        if fx.continuation is None or error is not ErrorCode.NONE:
            self._finish(fx, error)
        else:
            self._long = fx
            self._be_busy()

    def _be_busy(self) -> None:
        if not self._busy:
            self._busy = True
            self._ground.start(self._work_off)

    async def _work_off(self) -> None:
        """Finish what goes in slices, then what queued up behind it."""
        turns, turn = 0, TimeSlice(self._ground.env, BACKGROUND_SLICE_MS)
        while self.state is State.ACTIVE and (self._long is not None or self._queue):
            if self._long is not None:
                await self._go_on(self._long)
                continue
            self._take(self._queue.popleft())
            turns += 1
            if turns % TURNS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            else:
                await turn.maybe_yield()
        self._busy = False

    async def _go_on(self, fx: Effects[R]) -> None:
        error = ErrorCode.NONE
        try:
            for part in guarded(iter(fx.continuation or ()), (ProtocolError,)):
                assert part.continuation is None
                assert part.on_commit_outcome is None, "only the whole has something to settle"
                self._give(part.immediate_replies)
                error = self._write(part)
                self._set(part.timers)
                self._finish(part, error)
                if error is not ErrorCode.NONE:
                    break
                await trio.lowlevel.checkpoint()
                if self.state is not State.ACTIVE:
                    break
        except ProtocolError as refusal:
            error = refusal.code
        except StateError as failure:
            self._fail(failure, None)
        if self.state is State.ACTIVE:  # else `unload` has answered
            self._long = None
            self._finish(fx, error)

    def _finish(self, fx: Effects[R], error: ErrorCode) -> None:
        """Let a turn's answers go, or have them wait for the high watermark; an append may have moved that."""
        if error is not ErrorCode.NONE:
            self._give(fx.replies, told(error))
            self._settle(fx.on_commit_outcome, told(error))
        elif not fx.replies and fx.on_commit_outcome is None:
            pass
        elif self.is_committed and not self._held:
            self._give(fx.replies)
            self._settle(fx.on_commit_outcome, ErrorCode.NONE)
        else:
            deadline = self._ground.env.monotonic_ms() + self._ground.write_timeout_ms
            self._held.append(Held(self.written, deadline, fx.replies, fx.on_commit_outcome))
            if len(self._held) == 1:
                self._watch()
        self.advance()

    def _give(self, replies: list[RequestReply], error: ErrorCode = ErrorCode.NONE) -> None:
        for reply in replies:
            reply.pending_request.give(reply.message if error is ErrorCode.NONE else ProtocolError(error))

    def _settle(self, what: Any, error: ErrorCode) -> None:
        if what is None:
            return
        if self.state is State.CLOSED:
            self._give(self._last_replies(Settled(what, error)))
        else:
            self.hand_in(Settled(what, error))

    # ------------------------------------------------------------------ the log

    def _write(self, fx: Effects[R]) -> ErrorCode:
        """Append and replay; says what went wrong.

        A record larger than ``max.message.bytes`` is refused by the log. What was appended before a batch that is
        refused stays.

        Raises:
            StateError: a record cannot be encoded or replayed.
        """
        assert self.state is State.ACTIVE
        if not fx.records and fx.txn is None:
            return ErrorCode.NONE
        now, limit = self._ground.env.now_ms(), self.replica.log.config.max_message_bytes
        try:
            for batch in guarded(batches(self.machine, self._serde, fx, limit, now)):
                self._append(batch, now)
        except ProtocolError as error:
            return error.code
        except WireError as error:  # a text too long for its field: a group of 40,000 letters, say
            logger.warning("%s-%d: %s", self.replica.topic, self.replica.partition, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        except OSError as error:
            self._ground.fail(error, self.replica.log)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _append(self, batch: Batch, now_ms: int) -> None:
        if self._ground.acks_all:
            self.replica.check_min_isr()
        done = self.replica.append(batch.data, now_ms, AppendOrigin.COORDINATOR, txn=batch.txn)
        if done.first_offset != self.written:
            # Somebody else has written to this partition: what is known here is not what the log says.
            logger.error("%s-%d is read anew: its log went on without", self.replica.topic, self.replica.partition)
            self._out_of_step()
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        try:
            batch.replay(done.first_offset)
        except Exception as error:
            raise StateError from error
        self.written = self.replica.log.log_end_offset

    @property
    def is_committed(self) -> bool:
        """Whether all that is replayed here is committed."""
        return self.replica.log.high_watermark >= self.written

    def advance(self) -> None:
        """The high watermark has moved: let answers go."""
        held = self._held
        if not held or self._releasing:
            return  # an answer that leaves may be a turn of its own: whoever began to let go goes on
        self._releasing = True
        while held and held[0].end <= self.replica.log.high_watermark:
            self._release(ErrorCode.NONE)
        self._releasing = False

    def _release(self, error: ErrorCode) -> None:
        first = self._held.popleft()
        self._watch()
        self._give(first.replies, error)
        self._settle(first.settle, error)

    def read(self) -> Ticket | None:
        """For an answer made from what stands here now: wait for this before it is sent; None where nothing is to come.

        The ticket's answer is True, or a `ProtocolError`: also where the shard went while the answer was made.
        """
        ticket = Ticket()
        if self.state is not State.ACTIVE:
            ticket.give(ProtocolError(ErrorCode.NOT_COORDINATOR))
            return ticket
        if self.is_committed:
            return None
        self._finish(Effects(replies=[RequestReply(ticket, True)]), ErrorCode.NONE)
        return ticket

    # ------------------------------------------------------------------ timers

    def _key(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.replica.topic, self.replica.partition, *key)

    def _set(self, timers: list[ScheduleTimer | CancelTimer]) -> None:
        if self.state not in (State.LOADING, State.ACTIVE):
            return
        for timer in timers:
            key = self._key(timer.key)
            if isinstance(timer, ScheduleTimer):
                self._armings += 1
                self._armed[key] = self._armings
                self._ground.timers.arm(key, timer.deadline_ms, partial(self._fire, timer.key, self._armings))
            elif self._armed.pop(key, None) is not None:
                self._ground.timers.cancel(key)

    def _fire(self, key: tuple[str, ...], arming: int) -> None:
        queued = Queued(Fired(key), arming=arming)
        if self._busy or self.state is State.LOADING:
            self._queue.append(queued)
        else:
            self._take(queued)

    def _watch(self) -> None:
        """See to it that the first of those who wait does not wait longer than the write timeout."""
        key = self._key(())
        if self._held:
            left = self._held[0].deadline_ms - self._ground.env.monotonic_ms()
            self._ground.timers.arm(key, self._ground.env.now_ms() + ceil(left), self._give_up)
        else:
            self._ground.timers.cancel(key)

    def _give_up(self) -> None:
        """The write timeout is over: the records may still be committed, but nobody waits for that."""
        now = self._ground.env.monotonic_ms()
        while self._held and self._held[0].deadline_ms <= now:
            self._release(told(ErrorCode.REQUEST_TIMED_OUT))

    # ------------------------------------------------------------------ the end

    def _fail(self, error: StateError, event: Any) -> None:
        """Fail this shard: answer the event with UNKNOWN_SERVER_ERROR, everything else with NOT_COORDINATOR."""
        errors.report(error, self.replica.topic, self.replica.partition, type(event).__name__)
        ticket = getattr(event, "ticket", None)
        if ticket is not None:
            ticket.give(ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR))
        self.fail()
        self._failed()

    def fail(self) -> None:
        """Answer everything with NOT_COORDINATOR from now on: the log, or the state made of it, is invalid."""
        self.unload()
        self.state = State.FAILED
        self._tickets.refuse(ErrorCode.NOT_COORDINATOR)  # also those that the state machine lost when it raised

    def _last_replies(self, event: Any) -> list[RequestReply]:
        """Return the replies to an event that ends something; none where the state machine raises."""
        try:
            return self._handle(event).replies
        except StateError as error:
            errors.report(error, self.replica.topic, self.replica.partition, type(event).__name__)
            return []

    def unload(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Answer everybody who waits for anything here, and do nothing more."""
        if self.state in (State.CLOSED, State.FAILED):
            self.state = State.CLOSED
            return
        self.state = State.CLOSED
        for key in self._armed:
            self._ground.timers.cancel(key)
        self._ground.timers.cancel(self._key(()))
        self._armed.clear()
        waiting = [*self._held]
        if self._long is not None:
            waiting.append(Held(0, 0, self._long.replies, self._long.on_commit_outcome))
        self._held.clear()
        self._long = None
        for held in waiting:
            self._give(held.replies, error)
            self._settle(held.settle, error)
        while self._queue:
            event, ticket, _ = self._queue.popleft()
            if ticket is not None:
                ticket.give(ProtocolError(error))
            elif isinstance(event, Settled):
                self._settle(event.what, error)
        self._give(self._last_replies(Unloaded(error)))
