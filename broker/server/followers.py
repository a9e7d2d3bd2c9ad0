"""A follower's fetch session: it may hold thousands of partitions, so a request costs only those with something new.

A partition that has told everything is quiet: nobody looks at it until the leader says that it changed. Each request of
the session counts as a fetch of its quiet partitions too: the follower has asked for their end again.

Source: ``FetchSession.java`` (apache/kafka 4.3.1), which looks at each of them each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ottla.broker.server.session import STEP, Key, Session, Wanted, key_of
from ottla.broker.turn import Steps
from ottla.wire.messages.fetch import FetchPartition, PartitionData

LOOK_ANYWAY = 64
"""Each so-many-th request looks at everything: what nobody tells of, a log start that retention moved, is seen then."""
Watch = Callable[[Wanted, PartitionData, "Line"], bool]
"""Asked with what was wanted and told: whether that is all there is; then the line hears of the next change."""


class Line:
    """What a quiet partition's leader tells of its changes, up to the first that has more records."""

    __slots__ = ("_ended_ms", "_key", "_session")

    def __init__(self, session: FollowerSession, key: Key) -> None:
        self._session = session
        self._key = key
        self._ended_ms: int | None = None

    def note(self, *, more: bool) -> int:
        """Something changed; ``more``: there are records to send. Gives when the follower asked last."""
        if self._ended_ms is not None:
            return self._ended_ms
        self._session.stir(self._key, more=more)
        return self._session.asked_ms

    def end(self) -> None:
        """The follower asks for it no more in this session."""
        self._ended_ms = self._session.asked_ms


class FollowerSession(Session):
    """No reader takes its place, and it may hold as many partitions as there are."""

    privileged = True

    def __init__(
        self,
        session_id: int,
        wanted: dict[Key, Wanted],
        follower: int,
        *,
        uses_ids: bool,
        used_ms: float,
        now_ms: int,
    ) -> None:
        super().__init__(session_id, wanted, uses_ids=uses_ids, now_ms=used_ms)
        self.follower = follower
        self.parks_on = ("session", session_id)
        self.asked_ms = now_ms
        """When its last request came, by the wall clock."""
        self._requests = 0
        self._loud = dict(wanted)
        self._quiet: dict[Key, Line] = {}
        self._wake: Callable[[Hashable], None] = lambda key: None

    def came(self, now_ms: int) -> None:
        """Another request of it."""
        self.asked_ms = now_ms
        self._requests += 1
        if self._requests % LOOK_ANYWAY == 0:
            self._loud = dict(self.by_key)
            self._quiet.clear()

    def want(self, key: Key, part: FetchPartition) -> None:
        """It asks for another offset of a partition, or for one more."""
        super().want(key, part)
        self._loud[key] = self.by_key[key]

    def forget(self, key: Key) -> None:
        """It does not want a partition any more."""
        super().forget(key)
        self._loud.pop(key, None)
        line = self._quiet.pop(key, None)
        if line is not None:
            line.end()

    def to_read(self) -> list[Wanted]:
        """What has to be looked at."""
        return list(self._loud.values())

    def stir(self, key: Key, *, more: bool) -> None:
        """A quiet partition changed. A parked request may not know that it is to be looked at."""
        if self._quiet.pop(key, None) is not None:
            self._loud[key] = self.by_key[key]
        if more:
            self._wake(self.parks_on)

    def settle(self, rows: Any, watch: Watch, wake: Callable[[Hashable], None]) -> Steps[None]:
        """What was told last is all there is of most partitions: they are quiet. Who brought records comes last."""
        self._wake = wake
        for number, (want, row) in enumerate(rows, 1):
            if number % STEP == 0:
                yield
            key = key_of(want.topic, want.topic_id, want.partition, uses_ids=self.uses_ids)
            if key not in self._loud:
                continue
            if len(row.records):
                self._loud[key] = self._loud.pop(key)
            elif row.error_code == 0 and row.diverging_epoch.epoch < 0:
                line = Line(self, key)
                if watch(want, row, line):
                    self._quiet[key] = line
                    del self._loud[key]
