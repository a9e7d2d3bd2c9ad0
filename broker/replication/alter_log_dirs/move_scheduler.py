"""Scheduler of moves between log directories, for very many: no step iterates over all of them.

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
"""Maximum number of delayed moves that become ready in one call; further ones in the next call."""


class LogDirMove:
    """Move of a replica from its current log to a future log in another log directory, with its progress.

    Its times are monotonic, in ms; `assignment_sent_ms` is `NEVER` until the assignment is requested.
    """

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
        """Number of truncations of the current log when the future log was last aligned with it; -1 before."""
        self.assignment_sent_ms = NEVER
        self.not_before_ms = 0.0
        self.unflushed_bytes = 0
        self.is_error_logged = False
        """True if it was logged that the current log cannot be copied."""
        self.last_step = 0
        """Number of the last step of this move, counted over all moves; 0 before its first step."""
        self.is_blocked = False
        """True if the last step failed (disk error, corrupt log), so that another move may start in its place."""

    @property
    def current_log(self) -> PartitionLog:
        """Log that serves the partition: the one to replace, and after the promotion `future_log`."""
        return self.replica.log

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition number of the replica."""
        return self.replica.topic, self.replica.partition

    @property
    def is_being_copied(self) -> bool:
        """True if the copy has started and is neither complete (awaiting the controller) nor blocked by an error."""
        return self.last_step > 0 and self.assignment_sent_ms == NEVER and not self.is_blocked


class MoveScheduler:
    """Queues of all moves: new, ready by last step, and delayed until `LogDirMove.not_before_ms`.

    A queue entry of a move that has made a step since, or was removed, is skipped.
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
        """Add a new move, replacing an existing one of the same partition."""
        before = self._moves.get(move.topic_partition)
        self._moves[move.topic_partition] = move
        self._copying.discard(move.topic_partition)
        self._awaiting_assignment.discard(move.topic_partition)
        if before is None or before.last_step > 0:  # else it is queued as new already
            heappush(self._new, move.topic_partition)

    def remove(self, move: LogDirMove) -> None:
        """Remove a move; its queue entries are skipped later."""
        del self._moves[move.topic_partition]
        self._copying.discard(move.topic_partition)
        self._awaiting_assignment.discard(move.topic_partition)

    def next_ready(self, now_ms: float, most: int) -> LogDirMove | None:
        """Return the ready move that has waited longest since its last step, or None; mark it as stepping.

        New moves come first, by name, as long as fewer than ``most`` are being copied. The caller executes a step and
        calls `reschedule`, or calls `remove`.

        Args:
            now_ms: Monotonic time in ms.
            most: Maximum number of moves whose copy is in progress.
        """
        for _ in range(MAX_DUE_PER_CALL):
            if not self._waiting or self._waiting[0][0] > now_ms:
                break
            _, last_step, at = heappop(self._waiting)
            heappush(self._ready, (last_step, at))
        while self._new and len(self._copying) < most:
            if (found := self._activate(heappop(self._new), 0, now_ms)) is not None:
                return found
        while self._ready:
            last_step, at = heappop(self._ready)
            if (found := self._activate(at, last_step, now_ms)) is not None:
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
        """Put a move back into the queue after its step, due at its `LogDirMove.not_before_ms`, unless removed."""
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
        """Yield the moves that await an assignment by the controller, among the partitions of a delta."""
        if self._awaiting_assignment:
            for name, topic in delta.topics.items():
                for number in topic.partitions:
                    if (name, number) in self._awaiting_assignment:
                        yield self._moves[name, number]

    def wake(self, move: LogDirMove) -> None:
        """Make a delayed move ready at once."""
        move.not_before_ms = 0.0
        heappush(self._ready, (move.last_step, move.topic_partition))

    def next_due_ms(self) -> float:
        """Return the monotonic time in ms when the first delayed move is due; infinite if none is delayed."""
        return self._waiting[0][0] if self._waiting else float("inf")
