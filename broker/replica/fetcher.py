"""Follows one leader over one connection: sends its Fetches, and does to the logs what the answers want done.

What is asked and how answers are judged is `following`'s; here are the bytes, the logs and the disk's errors. A large
answer is taken in pieces, so that others run in between; whoever takes a partition away meanwhile is obeyed at once.

Source: ``AbstractFetcherThread.scala``, ``ReplicaFetcherThread.scala``, ``BrokerBlockingSender.scala`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import trio

from ottla.broker.replica.following import (
    Append,
    Diverged,
    Following,
    Key,
    Outcome,
    OutOfRange,
    pieces,
    where_to_cut,
)
from ottla.broker.replica.leader_line import EARLIEST, LATEST, LeaderLine, World, fetch_version, leaders_offset
from ottla.broker.replica.replica import IN_DOUBT_MS, Replica
from ottla.broker.turn import BACKGROUND_SLICE_MS, TimeSlice
from ottla.log.rebuild import producer_state_below_job
from ottla.peers.client import Disconnected
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import fetch as f
from ottla.world.disk import is_passing
from ottla.world.env import Lane

logger = logging.getLogger("ottla.fetcher")

NEWS_WAIT_S = 0.02
NEWS_WAIT_EACH_S = 0.0002
"""A new partition waits so long for the answer to a request that does not name it, and so much longer for each that is
followed already; then that request is broken off, and the next one has to name them all.
"""
DOUBT_WAIT_MS = 10
"""A leader does not answer a fetch because its high watermark moves. Who must know soon asks again so soon."""
SYNC_AGAIN_S = 1.0
"""So long after one that was short of something that passes."""


class Taken(NamedTuple):
    """An outcome with the partition it is about, and the leader epoch under which it was asked for."""

    outcome: Outcome
    replica: Replica
    leader_epoch: int


class Fetcher:
    """Everything followed from one leader over one connection."""

    def __init__(self, world: World, leader_id: int, number: int) -> None:
        self._world = world
        self._leader_id = leader_id
        self._line = LeaderLine(world, leader_id, f"broker-{world.node_id}-fetcher-{number}")
        self._following = Following(world.node_id, world.broker_epoch(), world.limits)
        self._followed: dict[Key, Replica] = {}
        self._behind: set[Key] = set()
        """Those that lacked something of what is committed when they were last heard of."""
        self._doubtful: dict[Key, float] = {}
        """Those of which clients wait for the new leader's high watermark, and until when."""
        self._unsynced: dict[Key, bool] = {}
        """Those not asked for before what they have is on the disk, and whether somebody sees to that."""
        self._news = trio.Event()
        """Set when there may be something to ask for that there was not."""
        self._asking: trio.CancelScope | None = None
        self._life: trio.CancelScope | None = None
        self._stopped = False
        self._told = False
        """Whether it was told that the leader cannot be reached."""

    def __len__(self) -> int:
        return len(self._followed)

    # ------------------------------------------------------------------ what is followed

    def follow(self, replica: Replica, leader_epoch: int) -> None:
        """Begin with a partition, or go on with it under another epoch."""
        key, log = (replica.topic_id, replica.partition), replica.log
        self._followed[key] = replica
        self._behind.add(key)
        if replica.is_in_doubt:
            self._doubtful[key] = self._world.env.monotonic_ms() + IN_DOUBT_MS
        self._following.follow(key, leader_epoch, log.log_end_offset, log.epochs.latest_epoch(), log.log_start_offset)
        self._hold_unsynced(key, replica)
        self._news.set()

    def forget(self, replica: Replica) -> None:
        """Nothing more is done to a partition."""
        key = (replica.topic_id, replica.partition)
        if self._followed.get(key) is replica:
            del self._followed[key]
            self._behind.discard(key)
            self._doubtful.pop(key, None)
            self._unsynced.pop(key, None)
            self._following.forget(key)

    def stop(self) -> None:
        """End `run`, now or as soon as it begins."""
        self._stopped = True
        if self._life is not None:
            self._life.cancel()

    # ------------------------------------------------------------------ asking

    async def run(self) -> None:
        """Follow, until stopped. An attempt that failed may be followed by another."""
        with trio.CancelScope() as self._life:
            if self._stopped:
                return
            self._unsynced.clear()
            for key, replica in self._followed.items():
                self._hold_unsynced(key, replica)
                self._stands(key, replica)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._hasten)
                    while True:
                        await self._round(nursery)
            finally:
                self._line.close()

    async def _round(self, nursery: trio.Nursery) -> None:
        """One request and what its answer wants done, or the wait until there is something to ask for."""
        env, following = self._world.env, self._following
        now = env.monotonic_ms()
        following.broker_epoch = self._world.broker_epoch()
        for key in [key for key, seen_to in self._unsynced.items() if not seen_to]:
            self._unsynced[key] = True
            replica = self._followed[key]
            nursery.start_soon(self._sync, Taken(Append(key, b"", 0, 0), replica, replica.leader_epoch))
        following.hold(self._held())
        request = following.request(now)
        if request is None:
            with env.timeout(max(following.next_ms(now) - now, 1) / 1000):
                await self._news.wait()
            self._no_news()
            return
        if self._doubtful and self._is_in_doubt(now):
            request.max_wait_ms = min(request.max_wait_ms, DOUBT_WAIT_MS)
        answer = await self._ask(request)
        if answer is None:
            return
        turn = TimeSlice(env, BACKGROUND_SLICE_MS)
        for taken in self._take(answer):
            try:
                await self._do(taken, turn, nursery)
            except (Disconnected, WireError) as error:  # while it was asked where its log lies
                self._lost(error)
                following.delay(taken.outcome.key, env.monotonic_ms())
            await turn.maybe_yield()

    def _no_news(self) -> None:
        """Everything that is known is asked for; `_hasten` may wait for the event there is."""
        if self._news.is_set():
            self._news = trio.Event()

    def _held(self) -> frozenset[Key]:
        """What is not synced; and what is behind, may be held back, and was filled fast enough of late."""
        if not self._behind or not self._world.is_over():
            return frozenset(self._unsynced)
        throttled = (key for key in self._behind if self._world.is_throttled(self._followed[key]))
        return frozenset(throttled).union(self._unsynced)

    def _hold_unsynced(self, key: Key, replica: Replica) -> None:
        """Whoever fetches from an offset says that it keeps what is before, which a killed process left unsynced."""
        log = replica.log
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self._unsynced[key] = False
        else:
            self._unsynced.pop(key, None)

    def _is_in_doubt(self, now_ms: float) -> bool:
        """Whether a client may be waiting for what the leader says next."""
        for key in [k for k, t in self._doubtful.items() if t <= now_ms or not self._followed[k].is_in_doubt]:
            del self._doubtful[key]
        return bool(self._doubtful)

    def _take(self, answer: f.FetchResponse) -> list[Taken]:
        outcomes = self._following.take(answer, self._world.env.monotonic_ms())
        found = ((outcome, self._followed[outcome.key]) for outcome in outcomes)
        return [Taken(outcome, replica, replica.leader_epoch) for outcome, replica in found]

    async def _ask(self, request: f.FetchRequest) -> f.FetchResponse | None:
        """The answer to a Fetch; None where there is none."""
        version = fetch_version(self._world.metadata_version())
        if version < 15:
            request.replica_id, request.replica_state = self._world.node_id, f.ReplicaState()
        self._no_news()
        with trio.CancelScope() as self._asking:
            try:
                answer: f.FetchResponse = await self._line.call(request, version)
                self._told = False
                return answer
            except (OSError, WireError) as error:
                self._lost(error)
                return None
            finally:
                self._asking = None
        self._following.begin_anew()  # broken off: there is something new to ask for
        return None

    async def _hasten(self) -> None:
        """Break a request off that waits for records while there is a partition it does not name.

        One that was sent since there was news names what was new.
        """
        while True:
            await self._news.wait()
            asking = self._asking
            await self._world.env.sleep(max(NEWS_WAIT_S, NEWS_WAIT_EACH_S * len(self._followed)))
            if asking is not None and asking is self._asking and self._news.is_set():
                asking.cancel()

    def _lost(self, error: Exception) -> None:
        """No answer: everything waits a little. Told once, until there is an answer again."""
        if not self._told:
            logger.warning("broker %d cannot be followed: %s", self._leader_id, error)
        self._told = True
        self._line.close()
        self._following.lost(self._world.env.monotonic_ms())

    # ------------------------------------------------------------------ doing

    def _is_ours(self, taken: Taken) -> bool:
        """Whether the partition still follows this leader as it did when it was asked for."""
        replica = taken.replica
        return (
            self._followed.get(taken.outcome.key) is replica
            and replica.leader_epoch == taken.leader_epoch
            and not replica.log.closed
        )

    async def _do(self, taken: Taken, turn: TimeSlice, nursery: trio.Nursery) -> None:
        """What one row wants done; what goes wrong concerns its partition only.

        Raises:
            Disconnected, WireError: the leader was to be asked more, and did not answer.
        """
        if not self._is_ours(taken):
            return
        outcome, replica, _ = taken
        log, key = replica.log, outcome.key
        try:
            match outcome:
                case Append():
                    if await self._append(taken, outcome, turn):
                        nursery.start_soon(self._sync, taken)
                        return
                case Diverged(_, epoch, end):
                    own = log.epochs.end_offset_for(epoch, log.log_end_offset)
                    nursery.start_soon(self._diverged, taken, where_to_cut(epoch, end, own, log.log_end_offset).offset)
                    return
                case OutOfRange():
                    if (offset := await self._find_range(taken)) is not None:
                        nursery.start_soon(self._diverged, taken, offset)
                        return
        except ProtocolError as error:
            logger.error("%s: what broker %d sent is refused: %s", log.describe(), self._leader_id, error)
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._following.broke(key)
            else:
                self._later(taken)
            return
        except Disconnected:
            raise
        except OSError as error:
            self._broke(taken, error)
            return
        if self._is_ours(taken):
            self._stands(key, replica)

    def _stands(self, key: Key, replica: Replica) -> None:
        log = replica.log
        self._following.stands(key, log.log_end_offset, log.epochs.latest_epoch(), log.log_start_offset)

    def _later(self, taken: Taken) -> None:
        """Ask again in a while, from where the log ends: some of the answer may be in it."""
        key = taken.outcome.key
        if self._is_ours(taken):
            self._hold_unsynced(key, taken.replica)
            self._stands(key, taken.replica)
        self._following.delay(key, self._world.env.monotonic_ms())

    def _broke(self, taken: Taken, error: OSError) -> None:
        """The disk refused."""
        if is_passing(error):
            self._later(taken)
        else:
            self._following.broke(taken.outcome.key)
        self._world.fail(error, taken.replica.log)

    async def _append(self, taken: Taken, outcome: Append, turn: TimeSlice) -> bool:
        """Take the leader's records and offsets; says whether they must be synced before they are asked beyond.

        Raises:
            ProtocolError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE; OSError: the disk failed.
        """
        replica, due = taken.replica, False
        if outcome.records and self._world.is_throttled(replica):
            self._world.throttled(len(outcome.records))
        for piece in pieces(outcome.records or b"", taken.leader_epoch):
            due = replica.append_as_follower(piece, self._world.env.now_ms())
            await turn.maybe_yield()
            if not self._is_ours(taken):
                return False
        replica.follow_offsets(outcome.high_watermark, outcome.log_start)
        if replica.lag:
            self._behind.add(outcome.key)
        else:
            self._behind.discard(outcome.key)
        return due

    async def _sync(self, taken: Taken) -> None:
        """``flush.messages`` is reached: the next offset asked for says to the leader that everything below is kept."""
        log = None
        while log is not taken.replica.log and not taken.replica.log.closed:  # it may have moved to another directory
            log = taken.replica.log
            try:
                job = log.start_flush(log.log_end_offset)
                await self._world.env.in_thread(job, Lane.SYNC)
                log.complete_flush(job)
            except OSError as error:
                if log is taken.replica.log and not is_passing(error):
                    self._broke(taken, error)
                    return
                self._world.fail(error, log)  # the disk it has left: what counts lies elsewhere; or it passes
                if log is taken.replica.log:
                    await self._world.env.sleep(SYNC_AGAIN_S)
                    log = None
        if self._is_ours(taken):
            self._unsynced.pop(taken.outcome.key, None)
            self._stands(taken.outcome.key, taken.replica)
            self._news.set()

    async def _diverged(self, taken: Taken, offset: int) -> None:
        """Cut a log, while others are followed."""
        try:
            await self._cut(taken, offset)
        except OSError as error:
            self._broke(taken, error)
            return
        if self._is_ours(taken):
            self._stands(taken.outcome.key, taken.replica)
            self._news.set()

    async def _cut(self, taken: Taken, offset: int) -> None:
        """Nobody writes to a log that follows meanwhile: what is known of producers there is told first, in steps."""
        log, producers = taken.replica.log, None
        if log.producers.producers or log.producers.last_txn_end_offset >= offset:
            producers = await TimeSlice(self._world.env, BACKGROUND_SLICE_MS).run(producer_state_below_job(log, offset))
            if not self._is_ours(taken) or taken.replica.log is not log:
                return
        if offset < log.high_watermark:
            logger.warning("%s: cut to %d, below the high watermark: the leader has another past", log.label, offset)
        log.truncate_to(offset, self._world.env.now_ms(), producers)
        taken.replica.changed()

    async def _find_range(self, taken: Taken) -> int | None:
        """The leader has nothing at this log's end: gives where it ends, or starts anew where it starts (R322).

        Raises:
            ProtocolError: it does not say; OSError, WireError: no answer, or the disk failed.
        """
        replica = taken.replica
        where = replica, taken.leader_epoch
        end = await leaders_offset(self._line, self._world, *where, LATEST)
        if self._is_ours(taken) and end < replica.log.log_end_offset:
            return end
        start = await leaders_offset(self._line, self._world, *where, EARLIEST)
        if self._is_ours(taken) and start > replica.log.log_end_offset:
            logger.warning("%s: begins anew at %d, where the leader's log starts", replica.log.label, start)
            replica.log.truncate_fully_and_start_at(start, self._world.env.now_ms())
            replica.changed()
        return None
