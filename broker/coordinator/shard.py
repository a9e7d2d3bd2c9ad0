"""Shard of a coordinator: state machine, partition, and replies that wait for the high watermark.

For each event the state machine returns effects: records are appended and replayed, timers are set, and the replies are
sent once all records up to them are committed. A rejected batch has changed no replayed state, so that no rollback is
needed (earlier batches remain): the replies become errors, and the state machine is notified if it requested it.
Clients may write to internal topics, so an exception of a state machine fails its shard only (`CoordinatorStateError`).
The shard is reloaded after a back-off; one that failed while loading is not, before this node is elected again.

Source: ``CoordinatorRuntime.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from math import ceil
from typing import Any, Generic, TypeVar

from ottla.broker.coordinator import errors
from ottla.broker.coordinator.errors import CoordinatorStateError, to_client_error, wrap_state_errors
from ottla.broker.coordinator.events import RequestDisconnected, ShardLoaded, ShardUnloaded, TimerExpired, WriteResult
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.coordinator.record_batches import CoordinatorBatch, Encoded, Serde, build_batches, encode_records
from ottla.broker.coordinator.shard_state import (
    CoordinatorState,
    DeferredReplies,
    QueuedEvent,
    ShardDependencies,
    UnansweredRequests,
)
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.jobs.job import Job
from ottla.jobs.state_machine import CancelTimer, Effects, RequestReply, ScheduleTimer, StateMachine
from ottla.jobs.time_slice import run_in_background
from ottla.log.log_validator import AppendOrigin
from ottla.wire.errors import ErrorCode, ProtocolError, WireError

R = TypeVar("R")
logger = logging.getLogger("ottla.coordinator")
__all__ = ["ShardDependencies", "Serde", "Shard", "CoordinatorState"]

MAX_EVENTS_PER_PASS = 50
"""Queued events that are processed before yielding to the event loop; fewer if they take long."""


class Shard(Generic[R]):
    """Coordinator shard: the state machine of one partition of an internal topic, its queue, timers and replies."""

    def __init__(
        self,
        dependencies: ShardDependencies,
        replica: HostedPartition,
        machine: StateMachine[R],
        serde: Serde[R],
        out_of_step: Callable[[], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """Both callbacks reload the shard: ``out_of_step`` for records of others, ``failed`` later for an exception."""
        self._dependencies = dependencies
        self._serde = serde
        self._on_log_advanced = out_of_step
        self._on_failed = failed
        self.replica = replica
        self.machine = machine
        self.state = CoordinatorState.LOADING
        self.last_written_offset: int
        """Log end offset after the last replayed record."""
        self._deferred: deque[DeferredReplies] = deque()
        self._releasing = False
        self._queue: deque[QueuedEvent] = deque()
        self._unanswered = UnansweredRequests()
        self._is_draining = False
        self._running_effects: Effects[R] | None = None
        self._timer_generations: dict[Hashable, int] = {}
        self._last_timer_generation = 0

    # ------------------------------------------------------------------ events

    def activate(self, end: int) -> Iterator[None]:
        """Activate the shard after its log was replayed up to ``end`` (exclusive), as a job; then queued events follow.

        Raises:
            CoordinatorStateError: the state machine failed on the replayed state.
        """
        fx = self._handle(ShardLoaded())
        at_once: list[RequestReply] = []
        for part in wrap_state_errors(fx.flatten()):
            if part is not None:
                assert not part.records, "no records may be written during loading"
                self._set_timers(part.timers)
                at_once += part.immediate_replies
            if part is not fx:
                yield
        self.last_written_offset = end
        self.state = CoordinatorState.ACTIVE
        self._send_replies(at_once)
        if self._queue:
            self._start_draining()

    def enqueue(self, event: Any, pending: PendingBrokerRequest | None = None) -> None:
        """Process an event now, or after loading and queued events; ``pending`` fails if the shard is closed."""
        if pending is not None:
            self._unanswered.add(pending)
        if self.state is CoordinatorState.LOADING or self._is_draining:
            self._queue.append(QueuedEvent(event, pending))
        elif self.state is CoordinatorState.ACTIVE:
            self._process(event)
        elif pending is not None:
            pending.deliver(ProtocolError(ErrorCode.NOT_COORDINATOR))

    def on_disconnect(self, key: str, pending: PendingBrokerRequest) -> None:
        """Enqueue that the client of ``pending`` has disconnected, unless it is completed or the shard is inactive."""
        if pending.answer is None and self.state is CoordinatorState.ACTIVE:
            self.enqueue(RequestDisconnected(key, pending))

    def _process_queued(self, queued: QueuedEvent) -> None:
        if queued.timer_generation:
            key = self._timer_key(queued.event.key)
            if self._timer_generations.get(key) != queued.timer_generation:
                return  # reset or cancelled while queued
            del self._timer_generations[key]
        self._process(queued.event)

    def _handle(self, event: Any) -> Effects[R]:
        """Return the effects that the state machine generates for an event, without applying them.

        Raises:
            CoordinatorStateError: the state machine raised an exception.
        """
        try:
            return self.machine.handle(self._dependencies.env.now_ms(), event)
        except Exception as error:
            raise CoordinatorStateError from error

    def _process(self, event: Any) -> None:
        try:
            self._decide(event)
        except CoordinatorStateError as error:
            self._fail(error, event)

    def _decide(self, event: Any) -> None:
        """Process an event: append and replay records, set timers, send or defer replies. Raises as `_handle`."""
        fx = self._handle(event)
        self._send_replies(fx.immediate_replies)
        error = self._write(fx, map(self._serde.encode, fx.records))
        self._set_timers(fx.timers)
        if not fx.records and fx.txn is None and isinstance(event, WriteResult):
            self._send_replies(fx.replies)  # replies to a write that is already committed or failed
            fx.replies = []
        if fx.continuation is None or error is not ErrorCode.NONE:
            self._complete(fx, error)
        else:
            self._running_effects = fx
            self._start_draining()

    def _start_draining(self) -> None:
        if not self._is_draining:
            self._is_draining = True
            self._dependencies.start_task(partial(run_in_background, self._dependencies.env, self._drain_queue()))

    def _drain_queue(self) -> Job[None]:
        """Run the current continuation, then process the queued events, until both are done, as a job."""
        passes = 0
        while self.state is CoordinatorState.ACTIVE and (self._running_effects is not None or self._queue):
            if self._running_effects is not None:
                yield from self._run_continuation(self._running_effects)
                continue
            self._process_queued(self._queue.popleft())
            passes += 1
            yield self._dependencies.env.sleep(0) if passes % MAX_EVENTS_PER_PASS == 0 else None
        self._is_draining = False

    def _run_continuation(self, fx: Effects[R]) -> Job[None]:
        error = ErrorCode.NONE
        try:
            for part in wrap_state_errors(iter(fx.continuation or ()), (ProtocolError,)):
                if part is None:
                    yield None
                else:
                    error = yield from self._write_part(part)
                if error is not ErrorCode.NONE or self.state is not CoordinatorState.ACTIVE:
                    break
        except ProtocolError as refusal:
            error = refusal.code
        except CoordinatorStateError as failure:
            self._fail(failure, None)
        if self.state is CoordinatorState.ACTIVE:  # otherwise `unload` has replied
            self._running_effects = None
            self._complete(fx, error)

    def _write_part(self, part: Effects[R]) -> Job[ErrorCode]:
        assert part.continuation is None
        assert part.on_commit_outcome is None, "only the combined effects have an outcome callback"
        self._send_replies(part.immediate_replies)
        encoded = yield from encode_records(self._serde, part.records)
        if self.state is not CoordinatorState.ACTIVE:
            self._send_replies(part.replies, ErrorCode.NOT_COORDINATOR)
            return ErrorCode.NONE
        error = self._write(part, encoded)
        self._set_timers(part.timers)
        self._complete(part, error)
        if error is ErrorCode.NONE:
            yield self._dependencies.env.sleep(0)  # later events queue behind it
        return error

    def _complete(self, fx: Effects[R], error: ErrorCode) -> None:
        """Send replies and `WriteResult`: an ``error`` at once, else once all records of the shard are committed."""
        if error is not ErrorCode.NONE:
            self._send_replies(fx.replies, to_client_error(error))
            self._deliver_write_result(fx.on_commit_outcome, to_client_error(error))
        elif not fx.replies and fx.on_commit_outcome is None:
            pass
        elif self.is_committed and not self._deferred:
            self._send_replies(fx.replies)
            self._deliver_write_result(fx.on_commit_outcome, ErrorCode.NONE)
        else:
            deadline = self._dependencies.env.monotonic_ms() + self._dependencies.write_timeout_ms
            self._deferred.append(DeferredReplies(self.last_written_offset, deadline, fx.replies, fx.on_commit_outcome))
            if len(self._deferred) == 1:
                self._arm_write_timeout()
        self.on_high_watermark_updated()

    def _send_replies(self, replies: list[RequestReply], error: ErrorCode = ErrorCode.NONE) -> None:
        for reply in replies:
            reply.pending_request.deliver(reply.message if error is ErrorCode.NONE else ProtocolError(error))

    def _deliver_write_result(self, write_context: Any, error: ErrorCode) -> None:
        if write_context is not None and self.state is CoordinatorState.CLOSED:
            self._send_replies(self._final_replies(WriteResult(write_context, error)))
        elif write_context is not None:
            self.enqueue(WriteResult(write_context, error))

    # ------------------------------------------------------------------ appends and high watermark

    def _write(self, fx: Effects[R], encoded: Encoded) -> ErrorCode:
        """Append and replay the records or marker of effects; return NONE or the error (earlier batches remain)."""
        assert self.state is CoordinatorState.ACTIVE
        if not fx.records and fx.txn is None:
            return ErrorCode.NONE
        now, limit = self._dependencies.env.now_ms(), self.replica.log.config.max_message_bytes
        try:
            for batch in wrap_state_errors(build_batches(self.machine, self._serde, fx, encoded, limit, now)):
                self._append(batch, now)
        except ProtocolError as error:
            return error.code
        except WireError as error:  # a string too long for its field, such as a group id of 40,000 characters
            text = "Failed to append coordinator records to %s-%d: %s"
            logger.warning(text, self.replica.topic, self.replica.partition, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        except OSError as error:
            self._dependencies.fail(error, self.replica.log)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _append(self, batch: CoordinatorBatch, now_ms: int) -> None:
        if self._dependencies.acks_all:
            self.replica.check_min_isr()
        done = self.replica.append(batch.data, now_ms, AppendOrigin.COORDINATOR, txn=batch.txn)
        if done.first_offset != self.last_written_offset:
            # The log advanced without this state machine: its state is outdated.
            text = "Reloading coordinator state of %s-%d: its log has records that the coordinator did not write"
            logger.error(text, self.replica.topic, self.replica.partition)
            self._on_log_advanced()
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        try:
            batch.replay(done.first_offset)
        except Exception as error:
            raise CoordinatorStateError from error
        self.last_written_offset = self.replica.log.log_end_offset

    @property
    def is_committed(self) -> bool:
        """True if all replayed records are committed (below the high watermark)."""
        return self.replica.log.high_watermark >= self.last_written_offset

    def on_high_watermark_updated(self) -> None:
        """Send the deferred replies of committed records in order, each with its `WriteResult` to the state machine."""
        held = self._deferred
        if not held or self._releasing:
            return  # sending a reply may process another event; the outer call continues
        self._releasing = True
        while held and held[0].end_offset <= self.replica.log.high_watermark:
            self._release_first(ErrorCode.NONE)
        self._releasing = False

    def _release_first(self, error: ErrorCode) -> None:
        first = self._deferred.popleft()
        self._arm_write_timeout()
        self._send_replies(first.replies, error)
        self._deliver_write_result(first.context, error)

    def read_barrier(self) -> PendingBrokerRequest | None:
        """Return a request that completes with True once the current state is committed; None if it is already.

        It completes with a `ProtocolError` if the shard is not active, is unloaded, or the write times out.
        """
        pending = PendingBrokerRequest()
        if self.state is not CoordinatorState.ACTIVE:
            pending.deliver(ProtocolError(ErrorCode.NOT_COORDINATOR))
            return pending
        if self.is_committed:
            return None
        self._complete(Effects(replies=[RequestReply(pending, True)]), ErrorCode.NONE)
        return pending

    # ------------------------------------------------------------------ timers

    def _timer_key(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.replica.topic, self.replica.partition, *key)

    def _set_timers(self, timers: list[ScheduleTimer | CancelTimer]) -> None:
        if self.state not in (CoordinatorState.LOADING, CoordinatorState.ACTIVE):
            return
        for timer in timers:
            key = self._timer_key(timer.key)
            if isinstance(timer, ScheduleTimer):
                generation = self._last_timer_generation = self._last_timer_generation + 1
                self._timer_generations[key] = generation
                on_timer = partial(self._on_timer, timer.key, generation)
                self._dependencies.timers.arm(key, timer.deadline_ms, on_timer)
            elif self._timer_generations.pop(key, None) is not None:
                self._dependencies.timers.cancel(key)

    def _on_timer(self, key: tuple[str, ...], arming: int) -> None:
        queued = QueuedEvent(TimerExpired(key), timer_generation=arming)
        if self._is_draining or self.state is CoordinatorState.LOADING:
            self._queue.append(queued)
        else:
            self._process_queued(queued)

    def _arm_write_timeout(self) -> None:
        """Set the timer for the write timeout of the first deferred replies."""
        key = self._timer_key(())
        if self._deferred:
            left = self._deferred[0].deadline_ms - self._dependencies.env.monotonic_ms()
            self._dependencies.timers.arm(key, self._dependencies.env.now_ms() + ceil(left), self._expire_deferred)
        else:
            self._dependencies.timers.cancel(key)

    def _expire_deferred(self) -> None:
        """Fail the deferred replies whose write timeout has passed; their records may still be committed."""
        now = self._dependencies.env.monotonic_ms()
        while self._deferred and self._deferred[0].deadline_ms <= now:
            self._release_first(to_client_error(ErrorCode.REQUEST_TIMED_OUT))

    # ------------------------------------------------------------------ failure and unloading

    def _fail(self, error: CoordinatorStateError, event: Any) -> None:
        """Log the error, fail the shard and have it reloaded; the request of ``event`` gets UNKNOWN_SERVER_ERROR."""
        errors.report_failure(error, self.replica.topic, self.replica.partition, type(event).__name__)
        pending = getattr(event, "pending_request", None)
        if pending is not None:
            pending.deliver(ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR))
        self.fail()
        self._on_failed()

    def fail(self) -> None:
        """Unload the shard as failed, without a reload; all pending and later requests get NOT_COORDINATOR."""
        self.unload()
        self.state = CoordinatorState.FAILED
        self._unanswered.fail_all(ErrorCode.NOT_COORDINATOR)  # also those that the state machine lost when it raised

    def _final_replies(self, event: Any) -> list[RequestReply]:
        """Return the state machine's replies to an event of the closed shard; none, and a log entry, if it raises."""
        try:
            return self._handle(event).replies
        except CoordinatorStateError as error:
            errors.report_failure(error, self.replica.topic, self.replica.partition, type(event).__name__)
            return []

    def unload(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Close the shard: fail its requests and outstanding writes with ``error``, cancel timers, drop other events.

        `WriteResult` of outstanding writes, then `ShardUnloaded`, are handled at once, for replies; none if it failed.
        """
        if self.state in (CoordinatorState.CLOSED, CoordinatorState.FAILED):
            self.state = CoordinatorState.CLOSED
            return
        self.state = CoordinatorState.CLOSED
        for key in self._timer_generations:
            self._dependencies.timers.cancel(key)
        self._dependencies.timers.cancel(self._timer_key(()))
        self._timer_generations.clear()
        waiting = [*self._deferred]
        if (fx := self._running_effects) is not None:
            waiting.append(DeferredReplies(0, 0, fx.replies, fx.on_commit_outcome))
        self._deferred.clear()
        self._running_effects = None
        for held in waiting:
            self._send_replies(held.replies, error)
            self._deliver_write_result(held.context, error)
        while self._queue:
            event, pending, _ = self._queue.popleft()
            if pending is not None:
                pending.deliver(ProtocolError(error))
            elif isinstance(event, WriteResult):
                self._deliver_write_result(event.context, error)
        self._send_replies(self._final_replies(ShardUnloaded(error)))
