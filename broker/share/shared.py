"""A share partition as its leader serves it: its state fetched first, its locks timed, its changes written.

Rules are `ottla.broker.share.partition`'s and its neighbours'; here is what waits: for the persister, for the clock.

Source: ``SharePartition.java``, ``SharePartitionManager.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ottla.broker.coordinator.ticket import Ticket
from ottla.broker.coordinator.timers import Timers
from ottla.broker.replica.replica import HostedPartition
from ottla.broker.replica.storage import DiskErrorHandler
from ottla.broker.share import acknowledging as ack
from ottla.broker.share.acquiring import Acquired, Asked, Fetched, acquire
from ottla.broker.share.batches import StateBatch, joined
from ottla.broker.share.partition import InvalidState, Limits, SharePartition
from ottla.broker.share.persister import Persister
from ottla.broker.share.state import UNINITIALIZED, SharePartitionKey, ShareState
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.world.env import Env

logger = logging.getLogger("ottla.share")
DONE = True
"""What a ticket is given where nothing went wrong."""
_COORDINATOR = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NETWORK_EXCEPTION,
)
_FENCED = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
_KEPT = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class GroupRules(Protocol):
    """What a group's settings say."""

    def limits(self, group_id: str) -> Limits:
        """How its records go out."""

    def start_offset(self, group_id: str, replica: HostedPartition) -> int:
        """Where it begins in a partition it has never read (``share.auto.offset.reset``)."""


class Ground(NamedTuple):
    """What all share partitions of a node have in common."""

    env: Env
    timers: Timers
    persister: Persister
    rules: GroupRules
    start: Callable[[Callable[[], Awaitable[None]]], None]
    """Runs something beside the requests."""
    wake: Callable[[object], None]
    """Something may be fetched, or is decided, under a key."""
    gone: Callable[[Shared], None]
    """This one is of no use any more."""
    fail: DiskErrorHandler
    """A log could not be read."""


def told(error: ProtocolError) -> ProtocolError:
    """What the persister's refusal is to a consumer (item 232)."""
    if error.code in _COORDINATOR:
        return ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code in _FENCED:
        return ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    if error.code in _KEPT:
        return error
    return ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)


async def _said(reading: Awaitable[ShareState]) -> ShareState:
    """What the persister says. Raises: ProtocolError: in a consumer's words."""
    try:
        return await reading
    except ProtocolError as error:
        raise told(error) from None


class Shared:
    """One share partition at its leader."""

    def __init__(self, ground: Ground, key: SharePartitionKey, replica: HostedPartition) -> None:
        self._ground = ground
        self.key = key
        self.replica = replica
        self.leader_epoch = replica.leader_epoch
        self._state_epoch = 0
        self._look_ms: int | None = None
        """When locks are looked at next, by the clock of `_now_ms`."""
        self.rules: SharePartition | None = None
        """None until its state is there."""
        self.failure: ProtocolError | None = None
        """Why its state could not be had."""
        self.closed = False
        ground.start(partial(self._load, ground.persister.read(key, self.leader_epoch)))

    @property
    def wakes(self) -> tuple[str, SharePartitionKey]:
        """What whoever waits for its records waits on, besides the log."""
        return "share", self.key

    async def _load(self, reading: Awaitable[ShareState]) -> None:
        """Fetch its state; older leaders are fenced by that. It comes behind what was said of it here before."""
        try:
            state = await _said(reading)
            start = state.start_offset
            if start == UNINITIALIZED:
                start = self._ground.rules.start_offset(self.key.group_id, self.replica)
            limits = self._ground.rules.limits(self.key.group_id)
            self._state_epoch = state.state_epoch
            self.rules = SharePartition(start, state.batches, limits)
        except ProtocolError as error:
            self.failure = error.with_traceback(None)
        except InvalidState as error:
            logger.error("share group %s, partition %d: %s", self.key.group_id, self.key.partition, error)
            self.failure = ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        except OSError as error:
            self._ground.fail(error, self.replica.log)
            self.failure = ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR)
        if self.failure is not None:
            self._ground.gone(self)
        self._ground.wake(self.wakes)

    # ------------------------------------------------------------------ records go out

    def next_fetch_offset(self) -> int | None:
        """Where a fetch begins now; None where nothing may go out."""
        rules = self.rules
        if rules is None or self.closed:
            return None
        rules.limits = self._ground.rules.limits(self.key.group_id)
        offset = rules.next_fetch_offset()
        return offset if rules.can_acquire() else None

    @property
    def new_from(self) -> int:
        """Nothing from here on has been handed out yet."""
        return 0 if self.rules is None else max(self.rules.end_offset + 1, self.rules.start_offset)

    def acquire(self, asked: Asked, fetched: Fetched) -> list[Acquired]:
        """Hand out what was read; its locks run from now."""
        assert self.rules is not None
        now = self._now_ms()
        out = acquire(self.rules, asked, fetched, now)
        if out:
            self._watch_locks(now + self.rules.limits.lock_duration_ms)
        return out

    def log_starts_at(self, offset: int) -> None:
        """What the log does not have any more is nobody's."""
        if self.rules is not None:
            self.rules.log_starts_at(offset)

    # ------------------------------------------------------------------ records come back

    def acknowledge(self, member_id: str, said: Sequence[ack.Acknowledgement]) -> Ticket:
        """Take a member's word; the ticket is given `DONE` once it is written, or a `ProtocolError`."""
        ticket, rules = Ticket(), self.rules
        if rules is None or self.closed:
            ticket.give(ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return ticket
        rules.limits = self._ground.rules.limits(self.key.group_id)
        try:
            changes = ack.acknowledge(rules, member_id, said, self._now_ms())
        except ProtocolError as error:
            ticket.give(error.with_traceback(None))
            return ticket
        self._write(changes, ticket)
        return ticket

    def release(self, member_id: str) -> None:
        """A member is gone: others may have what it holds."""
        if self.rules is not None and not self.closed:
            self._write(ack.release(self.rules, member_id), Ticket())

    def _write(self, changes: ack.Changes, ticket: Ticket) -> None:
        if changes.rows:
            self._ground.start(partial(self._written, changes, ticket, self._writing(changes.batches())))
        else:
            ticket.give(DONE)

    async def _written(self, changes: ack.Changes, ticket: Ticket, writing: Awaitable[None]) -> None:
        assert self.rules is not None
        error = await self._keep(writing)
        ack.settle(self.rules, changes, self._now_ms(), written=error is None)
        if error is not None and not self.closed:
            self._watch_next_lock()  # one that is back may have been overlooked while its end was pending
        ticket.give(DONE if error is None else error)
        self._ground.wake(self.wakes)

    def _writing(self, batches: tuple[StateBatch, ...]) -> Awaitable[None]:
        """Have the persister write, behind all it was asked for before: whoever reads next reads this."""
        rules = self.rules
        assert rules is not None
        said = (rules.start_offset, rules.delivery_complete_count, batches)
        return self._ground.persister.write(self.key, self._state_epoch, self.leader_epoch, *said)

    async def _keep(self, writing: Awaitable[None]) -> ProtocolError | None:
        """Gives what went wrong, in a consumer's words."""
        try:
            await writing
        except ProtocolError as error:
            failure = told(error)
            if failure.code in _KEPT:
                self._ground.gone(self)
            return failure
        return None

    # ------------------------------------------------------------------ locks

    def _now_ms(self) -> int:
        """The clock that locks are measured by: nobody sets it, forward or back."""
        return int(self._ground.env.monotonic_ms())

    def _watch_locks(self, end_ms: int) -> None:
        """Look when the first lock may be over; one that was let go or renewed before costs a look for nothing."""
        if self._look_ms is None or end_ms < self._look_ms:
            self._look_ms = end_ms
            env = self._ground.env
            self._ground.timers.arm(self.wakes, env.now_ms() + end_ms - self._now_ms(), self._look_at_locks)

    def _watch_next_lock(self) -> None:
        end = None if self.rules is None else ack.next_lock_end(self.rules)
        if end is not None:
            self._watch_locks(end)

    def _look_at_locks(self) -> None:
        self._look_ms = None
        if self.rules is None or self.closed:
            return
        batches = ack.expire(self.rules, self._now_ms())
        self._watch_next_lock()
        if batches:
            self._ground.start(partial(self._keep_and_move_on, self._writing(joined(batches))))
            self._ground.wake(self.wakes)

    async def _keep_and_move_on(self, writing: Awaitable[None]) -> None:
        error = await self._keep(writing)
        if error is not None:
            logger.warning("share group %s: locks that are over were not written: %s", self.key.group_id, error)
        assert self.rules is not None
        if self.rules.move_on():
            self._ground.wake(self.wakes)  # more may be in flight

    def close(self) -> None:
        """It is served here no longer: whoever waits looks for its new leader. Its successor has the same timer."""
        if self.closed:
            return
        self.closed = True
        self._ground.timers.cancel(self.wakes)
        self._ground.wake(self.wakes)
