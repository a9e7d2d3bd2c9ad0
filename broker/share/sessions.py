"""Share sessions: which partitions a member reads from this broker, and in what order its requests come.

A session is a member's of a group, and belongs to the connection it was opened on: with that goes everything the
member holds here. Epoch 0 opens one, each request counts it up, -1 ends it.

Source: ``ShareSession.java``, ``ShareSessionCache.java``, ``SharePartitionManager.newContext`` (apache/kafka 4.3.1),
KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from ottla.broker.server.peer import Peer
from ottla.wire.errors import ErrorCode, ProtocolError

OPENING, CLOSING = 0, -1
MOST_PLACES = 500_000
"""All sessions remember so many partitions at most; Kafka counts sessions alone."""
MANY_PLACES = 10_000
"""And one of them so many: it is opened and changed in one turn of the loop."""
_LAST_EPOCH = 2**31 - 1


class Place(NamedTuple):
    """A partition, by its topic's id."""

    topic_id: bytes
    partition: int


class ShareSession:
    """One member's session."""

    __slots__ = ("cancel", "epoch", "places")

    def __init__(self, places: Iterable[Place], cancel: Callable[[], None]) -> None:
        self.epoch = 1
        """What the next request must name."""
        self.places = dict.fromkeys(places, False)
        """In the order in which they are read; one that brought records goes to the end. Whether the next answer must
        name it although it brings nothing."""
        self.cancel = cancel
        """Its connection's end does not matter any more."""

    def update(self, places: Iterable[Place], forgotten: Iterable[Place]) -> None:
        """A request adds partitions, and takes others back."""
        for place in places:
            self.places.setdefault(place, True)
        for place in forgotten:
            self.places.pop(place, None)

    def is_news(self, place: Place, *, brings: bool, failed: bool) -> bool:
        """Whether an answer must name a partition; remembers that it did."""
        due = self.places.get(place, False)
        if place in self.places:
            if brings:
                del self.places[place]
            self.places[place] = failed
        return due or brings or failed


class ShareSessions:
    """All share sessions of this broker, by group and member."""

    def __init__(self, most: int, released: Callable[[str, str, list[Place]], None]) -> None:
        self._most = most
        self._released = released
        """Hears of a group and member whose session is over, and of the partitions it had."""
        self._by_member: dict[tuple[str, str], ShareSession] = {}
        self._members: dict[str, int] = {}
        """Sessions by group."""
        self.on_group_gone: list[Callable[[str], None]] = []
        """Hear of a group that has no session here any more."""

    def __len__(self) -> int:
        return len(self._by_member)

    def is_open(self, group_id: str, member_id: str) -> bool:
        """Whether a member has a session."""
        return (group_id, member_id) in self._by_member

    def has_any(self, group_id: str) -> bool:
        """Whether anybody of a group has one."""
        return group_id in self._members

    def open(self, peer: Peer, group_id: str, member_id: str, places: Collection[Place]) -> ShareSession:
        """Begin anew, whatever was there.

        Raises:
            ProtocolError: SHARE_SESSION_LIMIT_REACHED.
        """
        key = group_id, member_id
        if len(places) > MANY_PLACES:
            self.close(*key)
            raise ProtocolError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session, old = ShareSession(places, lambda: None), self._by_member.get(key)
        more = len(session.places) - (0 if old is None else len(old.places))
        if (old is None and len(self._by_member) >= self._most) or self._remembered() + more > MOST_PLACES:
            self.close(*key)
            raise ProtocolError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._forget(key)
        self._by_member[key] = session
        self._members[group_id] = self._members.get(group_id, 0) + 1
        session.cancel = peer.on_close(lambda: self._hung_up(key, session))
        return session

    def go_on(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The next request of a session; ``epoch`` -1 may come at any time, and does not end it yet.

        Raises:
            ProtocolError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._by_member.get((group_id, member_id))
        if session is None:
            raise ProtocolError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != CLOSING:
            if epoch != session.epoch:
                raise ProtocolError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def update(self, session: ShareSession, places: Collection[Place], forgotten: Collection[Place]) -> None:
        """A request adds partitions to a session, and takes others back.

        Raises:
            ProtocolError: SHARE_SESSION_LIMIT_REACHED.
        """
        if max(len(places), len(forgotten)) > MANY_PLACES:
            raise ProtocolError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        new = sum(place not in session.places for place in places)
        gone = sum(place in session.places for place in forgotten)
        if len(session.places) + new - gone > MANY_PLACES:
            raise ProtocolError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        if new and self._remembered() + new > MOST_PLACES:
            raise ProtocolError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session.update(places, forgotten)

    def _remembered(self) -> int:
        return sum(len(session.places) for session in self._by_member.values())

    def close(self, group_id: str, member_id: str) -> None:
        """A member is done here, or left its group: others may have what it holds."""
        session = self._forget((group_id, member_id))
        if session is not None:
            self._released(group_id, member_id, list(session.places))
            self._look_for_others(group_id)

    def _hung_up(self, key: tuple[str, str], session: ShareSession) -> None:
        if self._by_member.get(key) is session:
            self.close(*key)

    def _forget(self, key: tuple[str, str]) -> ShareSession | None:
        session = self._by_member.pop(key, None)
        if session is not None:
            session.cancel()
            self._members[key[0]] -= 1
        return session

    def _look_for_others(self, group_id: str) -> None:
        if self._members.get(group_id) == 0:
            del self._members[group_id]
            for hear in self.on_group_gone:
                hear(group_id)
