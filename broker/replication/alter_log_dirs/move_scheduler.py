"""Scheduler of moves between directories: very many may be active, and no step iterates over them all.

Source: ``ReplicaAlterLogDirsThread.scala``, ``ReplicaAlterLogDirsManager.scala`` (apache/kafka 4.3.1; KIP-113), which
use threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.replica_manager import TopicPartition
from ottla.controller.metadata.delta import MetadataDelta
from ottla.log.partition_log import PartitionLog

NEVER = float("-inf")
MAX_DUE_PER_CALL = 500
"""So many are found at a time to have waited long enough; the rest a moment later."""


class LogDirMove:
    """Move of one partition."""

    __slots__ = (
        "aligned_truncations",
        "assignment_sent_ms",
        "future_log",
        "is_blocked",
        "is_error_logged",
        "last_step",
        "not_before_ms",
        "replica",
        "unflushed_bytes",
    )

    def __init__(self, replica: HostedPartition, future: PartitionLog) -> None:
        self.replica = replica
        self.future_log = future
        self.aligned_truncations = -1
        """How often the log had been cut when the copy was held against it; it never was: -1."""
        self.assignment_sent_ms = NEVER
        self.not_before_ms = 0.0
        self.unflushed_bytes = 0
        self.is_error_logged = False
        """True if it was told that the log cannot be copied."""
        self.last_step = 0
        """When it had its last turn, counted over all moves; it had none yet: 0."""
        self.is_blocked = False
        """True if a disk refused, or damage: what waits for that keeps nobody else waiting."""

    @property
    def current_log(self) -> PartitionLog:
        """The log that counts still."""
        return self.replica.log

    @property
    def topic_partition(self) -> TopicPartition:
        """Key of the move."""
        return self.replica.topic, self.replica.partition

    @property
    def is_being_copied(self) -> bool:
        """True if it was begun, and does not wait for the controller or for its disk."""
        return self.last_step > 0 and self.assignment_sent_ms == NEVER and not self.is_blocked


class MoveScheduler:
    """All moves. Each is new, in progress, ready, or waiting for its time.

    Outdated queue entries, of a move that has run since or ended, are skipped.
    """

    def __init__(self) -> None:
        self._moves: dict[TopicPartition, LogDirMove] = {}
        self._new: list[TopicPartition] = []
        self._ready: list[tuple[int, TopicPartition]] = []
        self._waiting: list[tuple[float, int, TopicPartition]] = []
        self._copying: set[TopicPartition] = set()
        self._awaiting_assignment: set[TopicPartition] = set()
        self._step_count = 0

    def __len__(self) -> int:
        return len(self._moves)

    def add(self, move: LogDirMove) -> None:
        """Add a move, replacing an existing one of the partition."""
        before = self._moves.get(move.topic_partition)
        self._moves[move.topic_partition] = move
        self._copying.discard(move.topic_partition)
        self._awaiting_assignment.discard(move.topic_partition)
        if before is None or before.last_step > 0:  # else it stands there already
            heappush(self._new, move.topic_partition)

    def remove(self, move: LogDirMove) -> None:
        """Remove a move."""
        del self._moves[move.topic_partition]
        self._copying.discard(move.topic_partition)
        self._awaiting_assignment.discard(move.topic_partition)

    def next_ready(self, now_ms: float, most: int) -> LogDirMove | None:
        """Return the ready move that has not run for longest.

        New ones come first, by their names, as long as fewer than ``most`` are being copied.
        """
        for _ in range(MAX_DUE_PER_CALL):
            if not self._waiting or self._waiting[0][0] > now_ms:
                break
            _, turn, at = heappop(self._waiting)
            heappush(self._ready, (turn, at))
        while self._new and len(self._copying) < most:
            if (found := self._activate(heappop(self._new), 0, now_ms)) is not None:
                return found
        while self._ready:
            turn, at = heappop(self._ready)
            if (found := self._activate(at, turn, now_ms)) is not None:
                return found
        return None

    def _activate(self, at: TopicPartition, entry: int, now_ms: float) -> LogDirMove | None:
        move = self._moves.get(at)
        if move is None or move.last_step != entry or move.not_before_ms > now_ms:
            return None
        self._step_count += 1
        move.last_step = self._step_count
        return move

    def reschedule(self, move: LogDirMove) -> None:
        """Put a move back after its step, to wait until its time."""
        at = move.topic_partition
        if self._moves.get(at) is not move:
            return
        for members, belongs in (
            (self._copying, move.is_being_copied),
            (self._awaiting_assignment, move.assignment_sent_ms != NEVER),
        ):
            (members.add if belongs else members.discard)(at)
        heappush(self._waiting, (move.not_before_ms, move.last_step, at))

    def moves_awaiting_assignment(self, delta: MetadataDelta) -> Iterator[LogDirMove]:
        """Yield the moves that wait for an assignment, among the changed partitions."""
        if self._awaiting_assignment:
            for name, topic in delta.topics.items():
                for number in topic.partitions:
                    if (name, number) in self._awaiting_assignment:
                        yield self._moves[name, number]

    def wake(self, move: LogDirMove) -> None:
        """Wake a move whose condition may hold."""
        move.not_before_ms = 0.0
        heappush(self._ready, (move.last_step, move.topic_partition))

    def next_due_ms(self) -> float:
        """Return the time of the first waiting move; infinite without one."""
        return self._waiting[0][0] if self._waiting else float("inf")
