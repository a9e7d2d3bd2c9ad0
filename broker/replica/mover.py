"""Partitions on their way from one directory of this node to another, while they are written to and read.

A copy is filled from the log, a piece at a time; as many at once as there are directories, in turns, the others wait in
the order of their names. Once it has everything the controller is told where the replica will lie; once that is
committed, the two change places between one request and the next.

Source: ``ReplicaManager.alterReplicaLogDirs``, ``ReplicaAlterLogDirsThread.scala``, ``LocalLeaderEndPoint.scala``,
``Partition.maybeReplaceCurrentWithFutureReplica`` (apache/kafka 4.3.1; KIP-113, KIP-858).
"""

from __future__ import annotations

import logging

import trio

from ottla.broker.config import NodeConfig
from ottla.broker.replica.move_turns import Move, Turns
from ottla.broker.replica.noting import note_compaction
from ottla.broker.replica.promotion import Next, next_of
from ottla.broker.replica.replica import Replica
from ottla.broker.replica.replicas import Replicas
from ottla.broker.replica.storage import Fail, Storage
from ottla.broker.replica.throttle import Throttle
from ottla.broker.turn import BACKGROUND_SLICE_MS, TimeSlice
from ottla.controller.delta import MetadataDelta
from ottla.controller.directories import directory_id_of
from ottla.controller.image import MetadataImage
from ottla.log import futures as f
from ottla.log.directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.wire.errors import ProtocolError, WireError
from ottla.world.env import FOREVER_S, Env, Lane

logger = logging.getLogger("ottla.moves")
RATE_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"
PIECE_BYTES = 256 * 1024
"""What is read and written in one go, or ``replica.fetch.max.bytes`` where that is less; under two milliseconds of the
loop.
"""
SYNC_EVERY_BYTES = 16 * 1024 * 1024
"""So much is written before the disk is waited for; else all of it would be at the end."""
FULL_MS = 100
"""A look whether more may be copied by now."""
RETRY_MS = 1000
SOON_MS = 1
ATTEMPTS = 3
LONGEST_REST_S = 1.0


class Mover:
    """All of them."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        storage: Storage,
        replicas: Replicas,
        fail: Fail,
    ) -> None:
        self._env = env
        self._node_id = config.node_id
        self._piece_bytes = min(config.number("replica.fetch.max.bytes"), PIECE_BYTES)
        self._storage = storage
        self._replicas = replicas
        self._fail = fail
        self._turns = Turns()
        self._throttle = Throttle("alter log dirs", config.node_id, RATE_KEY)
        self._news = trio.Event()

    def __len__(self) -> int:
        return len(self._turns)

    def go_on(self, replica: Replica) -> None:
        """Fill the copy there is of a partition, and let it take its place. The log is not compacted meanwhile."""
        replica.log.set_has_future_log(begins=True)
        move = Move(replica, self._replicas.futures[replica.topic, replica.partition])
        self._turns.add(move)
        self._news.set()

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Metadata was committed: it may say what is waited for."""
        for move in self._turns.asked(delta):
            if self._is_told(move):
                self._turns.wake(move)
                self._news.set()

    async def run(self) -> None:
        """Move what is to be moved, until cancelled."""
        while True:
            self._news = trio.Event()
            move = await self._next()
            if move is None:
                with self._env.timeout(self._rest_s()):
                    await self._news.wait()
                continue
            try:
                await self._step(move)
            except (ProtocolError, WireError) as error:
                if not move.refused:
                    logger.error("%s cannot be copied: %s", move.current.describe(), error)
                move.refused = move.is_held_up = True
                self._put_off(move, RETRY_MS)
            except OSError as error:
                self._broke(move, error, move.current)
            self._turns.put_back(move)
            await trio.lowlevel.checkpoint()

    async def _next(self) -> Move | None:
        """Whose turn it is, of those that go on still. As many are copied at once as there are directories.

        Very many may be over at once, with their topic: others run in between.
        """
        most, turn = len(self._storage.directories), TimeSlice(self._env, BACKGROUND_SLICE_MS)
        while (move := self._turns.take(self._env.monotonic_ms(), most)) is not None:
            if self._is_alive(move):
                return move
            self._turns.drop(move)
            await turn.maybe_yield()
        return None

    def _rest_s(self) -> float:
        """How long nothing is to be done, if nobody wants something new."""
        if not len(self._turns):
            return FOREVER_S
        return min(max(self._turns.next_ms() - self._env.monotonic_ms(), 1) / 1000, LONGEST_REST_S)

    def _put_off(self, move: Move, by_ms: float) -> None:
        move.not_before_ms = self._env.monotonic_ms() + by_ms

    def _is_alive(self, move: Move) -> bool:
        """Whether the partition is still hosted, and this copy is to take its place."""
        return (
            self._replicas.get(*move.at) is move.replica
            and self._replicas.futures.get(move.at) is move.future
            and not move.current.closed
            and not move.future.closed
        )

    def _is_told(self, move: Move) -> bool:
        """Whether the image has the replica where the copy lies."""
        topic = self._replicas.image.topics.get(move.replica.topic)
        told = None if topic is None else topic.partitions.get(move.replica.partition)
        return told is not None and directory_id_of(told, self._node_id) == self._storage.of(move.future).id

    async def _step(self, move: Move) -> None:
        """The next thing to be done about a move.

        Raises:
            ProtocolError, WireError: the log is damaged; OSError: it cannot be looked at.
        """
        if not self._align(move):
            return
        asked_ago_ms = self._env.monotonic_ms() - move.asked_ms
        match next_of(near=self._is_near(move), told=self._is_told(move), asked_ago_ms=asked_ago_ms):
            case Next.COPY:
                await self._copy(move)
            case Next.ASK:
                await self._ask(move)
            case Next.WAIT:
                self._put_off(move, RETRY_MS)
            case Next.SWAP:
                await self._finish(move)

    def _is_near(self, move: Move) -> bool:
        current, end = move.current, move.future.log_end_offset
        left = current.bytes_between(end, current.log_end_offset)
        return left is not None and left <= self._piece_bytes

    def _align(self, move: Move) -> bool:
        """Take off the copy what the log does not have any more; says whether that could be done."""
        current, future = move.current, move.future
        if future.config is not current.config:
            future.update_config(current.config)
        try:
            f.truncate_to_common(future, current, self._env.now_ms(), was_cut=move.cuts != current.truncations)
            f.follow_offsets(future, current, self._env.now_ms())
        except OSError as error:
            self._broke(move, error, future)
            return False
        move.cuts = current.truncations
        return True

    def _broke(self, move: Move, error: OSError, log: PartitionLog) -> None:
        """A disk refused: its directory may be lost by that, and the move with it; else it is tried again."""
        move.is_held_up = True
        self._put_off(move, RETRY_MS)
        self._fail(error, log)

    async def _copy(self, move: Move) -> None:
        """Copy a piece. It is read beside the loop, as the disk may have to be waited for.

        Raises:
            ProtocolError, WireError: the log is damaged.
        """
        if self._throttle.is_over(self._replicas.image, self._env.monotonic_ms()):
            self._put_off(move, FULL_MS)
            return
        current, cuts = move.current, move.cuts
        try:
            piece = f.read_missing(move.future, current, self._piece_bytes)
            raw = b"" if piece is None else await self._env.in_thread(piece.read, Lane.FILES)
        except OSError as error:
            self._broke(move, error, current)
            return
        if not self._is_alive(move) or move.current is not current or cuts != current.truncations:
            return
        if not raw:
            raise f.missing_data_error(move.future, current)  # somebody cut its file short
        if self._take(move, raw) and move.unsynced >= SYNC_EVERY_BYTES:
            await self._sync(move)

    def _take(self, move: Move, raw: bytes) -> bool:
        """Append a piece to the copy; says whether that could be done."""
        self._throttle.count(len(raw), self._env.monotonic_ms())
        move.unsynced += len(raw)
        try:
            f.append_missing(move.future, move.current, raw, self._env.now_ms())
        except OSError as error:
            self._broke(move, error, move.future)
            return False
        move.is_held_up = False
        return True

    async def _sync(self, move: Move) -> bool:
        """Wait until the disk has what was copied; says whether the move goes on. Nobody else syncs a copy."""
        future = move.future
        try:
            job = future.start_flush(future.log_end_offset)
            await self._env.in_thread(job, Lane.SYNC)
            future.complete_flush(job)
        except OSError as error:
            self._broke(move, error, future)
            return False
        move.unsynced = 0
        if not self._is_alive(move):
            return False
        future.close_idle_files()
        return True

    async def _note(self, move: Move) -> bool:
        """Wait until the disk knows where offsets may be missing in the copy; says whether the move goes on."""
        here = self._storage.of(move.future)
        move.future.raise_cleaner_offset(move.current.cleaner_offset)  # it forgets where it begins anew, or is cut
        if here.is_cleaner_offset_synced(move.future):
            return True
        try:
            await note_compaction(self._env, self._storage, here)
        except OSError as error:
            self._broke(move, error, move.future)
            return False
        return self._is_alive(move)

    async def _ask(self, move: Move) -> None:
        """Have the controller told where the replica is going to lie. What it rests on is on the disk before that.

        Raises:
            ProtocolError, WireError: the log is damaged.
        """
        if self._catch_up(move) and await self._sync(move) and await self._note(move):
            move.asked_ms = self._env.monotonic_ms()
            self._put_off(move, RETRY_MS)
            place = self._storage.of(move.future).id
            self._replicas.on_place(move.replica.topic_id, move.replica.partition, place)

    async def _finish(self, move: Move) -> None:
        """Let the copy take the log's place, if it can catch up within a few waits for the disk.

        Where answers wait for the disk they wait for the copy's then: else the log would always be ahead.

        Raises:
            ProtocolError, WireError: the log is damaged.
        """
        current, future = move.current, move.future
        current.set_being_replaced(begins=True)
        self._put_off(move, SOON_MS)
        here = self._storage.of(future)
        try:
            for _ in range(ATTEMPTS):
                if not (self._catch_up(move) and await self._sync(move) and await self._note(move)):
                    return
                if not self._catch_up(move):
                    return
                if future.recovery_point >= current.recovery_point and here.is_cleaner_offset_synced(future):
                    self._swap(move)
                    break
        finally:
            current.set_being_replaced(begins=False)
        if move.current is future:
            await self._settle(self._storage.of(current), here)

    def _catch_up(self, move: Move) -> bool:
        """Copy what is left, at once; says whether the copy has all of it then.

        Raises:
            ProtocolError, WireError: the log is damaged; OSError: it cannot be looked at. Else that is told.
        """
        if not self._align(move) or not self._is_near(move):
            return False
        current, future = move.current, move.future
        while future.log_end_offset < current.log_end_offset:
            try:
                piece = f.read_missing(future, current, self._piece_bytes)
                raw = b"" if piece is None else piece.read()
            except OSError as error:
                self._broke(move, error, current)
                return False
            if not raw:
                if not self._close_gap(move):
                    return False
            elif not (self._take(move, raw) and self._is_alive(move)):
                return False
        return True

    def _close_gap(self, move: Move) -> bool:
        """The rest of the log is a hole; says whether the copy could be told. Raises ProtocolError: it is none."""
        try:
            f.skip_compacted_tail(move.future, move.current, self._env.now_ms())
        except OSError as error:
            self._broke(move, error, move.future)
            return False
        return True

    def _swap(self, move: Move) -> None:
        """The step itself: nobody else has the loop between its first line and its last. What the log's disk has for
        sure the copy's has, too.
        """
        current, future = move.current, move.future
        here = self._storage.of(future)
        try:
            f.replace_current_with_future_log(here, future, current, self._env.now_ms())
        except OSError as error:
            self._broke(move, error, future)
            return
        self._replicas.swap(move.replica, future)
        logger.info("%s lies in %s now", future.label, here.path)

    async def _settle(self, there: LogDirectory, here: LogDirectory) -> None:
        """Wait until the new names are on the disk, and where the log starts; then how far it is compacted is noted
        where it lies now only.
        """
        for directory in (here, there):
            if directory.path in self._storage.failed:
                continue
            try:
                directory.log_start_checkpoint.complete_sync(
                    await self._env.in_thread(directory.log_start_checkpoint.prepare_sync(), Lane.SYNC)
                )
                if directory is there:
                    await note_compaction(self._env, self._storage, directory)
            except OSError as error:
                self._fail(error, directory)
