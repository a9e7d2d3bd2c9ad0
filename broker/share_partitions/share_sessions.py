"""Share sessions: the partitions that a member fetches from this broker, and the epoch of its requests.

A session belongs to a member of a group and to the connection on which it was opened. When it is closed, by a request
or with the connection, the records that the member has acquired in the session's partitions are released. Epoch 0 opens
a session, each request increments it, -1 closes it.

Source: ``ShareSession.java``, ``ShareSessionCache.java``, ``SharePartitionManager.newContext`` (apache/kafka 4.3.1),
KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from ottla.broker.config.limits import MAX_CACHED_SHARE_PARTITIONS, MAX_SHARE_SESSION_PARTITIONS
from ottla.broker.requests.peer import Peer
from ottla.wire.errors import ErrorCode, ProtocolError

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_MAX_EPOCH = 2**31 - 1


class TopicIdPartition(NamedTuple):
    """Key of a partition in a share session: topic id and partition number."""

    topic_id: bytes
    partition: int


class ShareSession:
    """Share session of one member of a group: its partitions in fetch order, and the expected epoch."""

    __slots__ = ("cancel_close_listener", "epoch", "partitions")

    def __init__(self, places: Iterable[TopicIdPartition], cancel: Callable[[], None]) -> None:
        self.epoch = 1
        """Session epoch that the next request must have."""
        self.partitions = dict.fromkeys(places, False)
        """Partitions in fetch order (after a fetch of its records, a partition moves to the end).

        The value is True if the next response must include the partition even without records.
        """
        self.cancel_close_listener = cancel
        """Removes the listener for the end of the connection."""

    def update(self, places: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add the partitions of a request to the session, and remove those it forgets.

        The next response includes the new ones, even without records.
        """
        for place in places:
            self.partitions.setdefault(place, True)
        for place in forgotten:
            self.partitions.pop(place, None)

    def must_include(self, place: TopicIdPartition, *, brings: bool, failed: bool) -> bool:
        """Return True if the response must include a partition: it is due, ``brings`` records, or ``failed``.

        A partition is due if it was added to the open session (`update`), or had an error in the last response. The
        session is updated: with records the partition moves to the end of the fetch order, after an error it is due
        again. A partition outside of the session is not added.
        """
        due = self.partitions.get(place, False)
        if place in self.partitions:
            if brings:
                del self.partitions[place]
            self.partitions[place] = failed
        return due or brings or failed


class ShareSessionCache:
    """Share sessions of this broker by group id and member id, with limits of sessions and of their partitions."""

    def __init__(self, most: int, released: Callable[[str, str, list[TopicIdPartition]], None]) -> None:
        self._max_sessions = most
        self._on_released = released
        """Called with group id, member id and partitions of a session that was closed."""
        self._by_member: dict[tuple[str, str], ShareSession] = {}
        self._session_counts: dict[str, int] = {}
        """Number of sessions by group id."""
        self.group_closed_listeners: list[Callable[[str], None]] = []
        """Called with the id of a group whose last session was closed."""

    def __len__(self) -> int:
        return len(self._by_member)

    def is_open(self, group_id: str, member_id: str) -> bool:
        """Return True if a member of a share group has an open share session (KIP-932) at this broker."""
        return (group_id, member_id) in self._by_member

    def has_sessions(self, group_id: str) -> bool:
        """Return True if any member of a group has a session."""
        return group_id in self._session_counts

    def open(self, peer: Peer, group_id: str, member_id: str, places: Collection[TopicIdPartition]) -> ShareSession:
        """Open a session on the connection ``peer``; it replaces an existing session of the member.

        Records acquired in the replaced session stay acquired. When the connection ends, the session is closed.

        Raises:
            ProtocolError: SHARE_SESSION_LIMIT_REACHED; an existing session of the member is then closed.
        """
        key = group_id, member_id
        if len(places) > MAX_SHARE_SESSION_PARTITIONS:
            self.close(*key)
            raise ProtocolError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session, old = ShareSession(places, lambda: None), self._by_member.get(key)
        more = len(session.partitions) - (0 if old is None else len(old.partitions))
        if (
            old is None and len(self._by_member) >= self._max_sessions
        ) or self._cached_partitions() + more > MAX_CACHED_SHARE_PARTITIONS:
            self.close(*key)
            raise ProtocolError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._remove(key)
        self._by_member[key] = session
        self._session_counts[group_id] = self._session_counts.get(group_id, 0) + 1
        session.cancel_close_listener = peer.on_close(lambda: self._on_disconnect(key, session))
        return session

    def continue_session(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Check the session epoch of a request, increment the epoch of the share session, and return the session.

        Epoch -1 is always valid; it neither changes the epoch nor closes the session here. 1 follows the largest epoch.

        Raises:
            ProtocolError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._by_member.get((group_id, member_id))
        if session is None:
            raise ProtocolError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise ProtocolError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def update(
        self, session: ShareSession, places: Collection[TopicIdPartition], forgotten: Collection[TopicIdPartition]
    ) -> None:
        """Add the partitions of a request to a session and remove those it forgets, within the limits.

        Raises:
            ProtocolError: SHARE_SESSION_LIMIT_REACHED; the session is left unchanged.
        """
        if max(len(places), len(forgotten)) > MAX_SHARE_SESSION_PARTITIONS:
            raise ProtocolError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        new = sum(place not in session.partitions for place in places)
        gone = sum(place in session.partitions for place in forgotten)
        if len(session.partitions) + new - gone > MAX_SHARE_SESSION_PARTITIONS:
            raise ProtocolError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        if new and self._cached_partitions() + new > MAX_CACHED_SHARE_PARTITIONS:
            raise ProtocolError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session.update(places, forgotten)

    def _cached_partitions(self) -> int:
        return sum(len(session.partitions) for session in self._by_member.values())

    def close(self, group_id: str, member_id: str) -> None:
        """Close the session of a member and start to release its acquired records; do nothing without a session.

        If it was the last one of the group, call the ``group_closed_listeners``.
        """
        session = self._remove((group_id, member_id))
        if session is not None:
            self._on_released(group_id, member_id, list(session.partitions))
            self._notify_if_group_closed(group_id)

    def _on_disconnect(self, key: tuple[str, str], session: ShareSession) -> None:
        if self._by_member.get(key) is session:
            self.close(*key)

    def _remove(self, key: tuple[str, str]) -> ShareSession | None:
        session = self._by_member.pop(key, None)
        if session is not None:
            session.cancel_close_listener()
            self._session_counts[key[0]] -= 1
        return session

    def _notify_if_group_closed(self, group_id: str) -> None:
        if self._session_counts.get(group_id) == 0:
            del self._session_counts[group_id]
            for listener in self.group_closed_listeners:
                listener(group_id)
