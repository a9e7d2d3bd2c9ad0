"""Which of the moves between directories has its turn next: very many may be under way, and no step looks at them all.

Source: ``ReplicaAlterLogDirsThread.scala``, ``ReplicaAlterLogDirsManager.scala`` (apache/kafka 4.3.1; KIP-113), which
have threads instead of turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from ottla.broker.replica.replica import Replica
from ottla.broker.replica.replicas import TopicPartition
from ottla.controller.delta import MetadataDelta
from ottla.log.partition_log import PartitionLog

NEVER = float("-inf")
DUE_AT_ONCE = 500
"""So many are found at a time to have waited long enough; the rest a moment later."""


class Move:
    """One partition on its way."""

    __slots__ = ("asked_ms", "cuts", "future", "is_held_up", "not_before_ms", "refused", "replica", "turn", "unsynced")

    def __init__(self, replica: Replica, future: PartitionLog) -> None:
        self.replica = replica
        self.future = future
        self.cuts = -1
        """How often the log had been cut when the copy was held against it; it never was: -1."""
        self.asked_ms = NEVER
        self.not_before_ms = 0.0
        self.unsynced = 0
        self.refused = False
        """Whether it was told that the log cannot be copied."""
        self.turn = 0
        """When it had its last turn, counted over all moves; it had none yet: 0."""
        self.is_held_up = False
        """Whether a disk refused, or damage: what waits for that keeps nobody else waiting."""

    @property
    def current(self) -> PartitionLog:
        """The log that counts still."""
        return self.replica.log

    @property
    def at(self) -> TopicPartition:
        """Its place in the books."""
        return self.replica.topic, self.replica.partition

    @property
    def is_being_copied(self) -> bool:
        """Whether it was begun, and does not wait for the controller or for its disk."""
        return self.turn > 0 and self.asked_ms == NEVER and not self.is_held_up


class Turns:
    """All moves. Each is either new, or has its turn, or is ready, or waits for its time.

    What stands in a queue and is true no more, because the move had a turn since or is gone, is left out when it is
    come across.
    """

    def __init__(self) -> None:
        self._moves: dict[TopicPartition, Move] = {}
        self._new: list[TopicPartition] = []
        self._ready: list[tuple[int, TopicPartition]] = []
        self._waiting: list[tuple[float, int, TopicPartition]] = []
        self._copied: set[TopicPartition] = set()
        self._asked: set[TopicPartition] = set()
        self._last = 0

    def __len__(self) -> int:
        return len(self._moves)

    def add(self, move: Move) -> None:
        """A new one; of its partition it takes the place of any there was."""
        before = self._moves.get(move.at)
        self._moves[move.at] = move
        self._copied.discard(move.at)
        self._asked.discard(move.at)
        if before is None or before.turn > 0:  # else it stands there already
            heappush(self._new, move.at)

    def drop(self, move: Move) -> None:
        """One that was taken is over."""
        del self._moves[move.at]
        self._copied.discard(move.at)
        self._asked.discard(move.at)

    def take(self, now_ms: float, most: int) -> Move | None:
        """Whose last turn is longest ago, of those that need not wait: it has its turn now.

        New ones come first, by their names, as long as fewer than ``most`` are being copied.
        """
        for _ in range(DUE_AT_ONCE):
            if not self._waiting or self._waiting[0][0] > now_ms:
                break
            _, turn, at = heappop(self._waiting)
            heappush(self._ready, (turn, at))
        while self._new and len(self._copied) < most:
            if (found := self._found(heappop(self._new), 0, now_ms)) is not None:
                return found
        while self._ready:
            turn, at = heappop(self._ready)
            if (found := self._found(at, turn, now_ms)) is not None:
                return found
        return None

    def _found(self, at: TopicPartition, turn: int, now_ms: float) -> Move | None:
        move = self._moves.get(at)
        if move is None or move.turn != turn or move.not_before_ms > now_ms:
            return None
        self._last += 1
        move.turn = self._last
        return move

    def put_back(self, move: Move) -> None:
        """Its turn is over: it waits until its time has come."""
        at = move.at
        if self._moves.get(at) is not move:
            return
        for members, belongs in ((self._copied, move.is_being_copied), (self._asked, move.asked_ms != NEVER)):
            (members.add if belongs else members.discard)(at)
        heappush(self._waiting, (move.not_before_ms, move.turn, at))

    def asked(self, delta: MetadataDelta) -> Iterator[Move]:
        """Of whom the controller was told where they will lie, among the partitions that have changed."""
        if self._asked:
            for name, topic in delta.topics.items():
                for number in topic.partitions:
                    if (name, number) in self._asked:
                        yield self._moves[name, number]

    def wake(self, move: Move) -> None:
        """What it waits for may have come."""
        move.not_before_ms = 0.0
        heappush(self._ready, (move.turn, move.at))

    def next_ms(self) -> float:
        """When one of those that wait has waited long enough; infinite where none waits."""
        return self._waiting[0][0] if self._waiting else float("inf")
