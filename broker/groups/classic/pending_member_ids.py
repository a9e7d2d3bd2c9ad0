"""Member ids that were assigned (MEMBER_ID_REQUIRED) and not used yet, bounded by removing the oldest.

A client normally rejoins with its id at once; an unused id is kept for the session timeout. Kafka keeps all of them for
that time, without a bound.
"""

from __future__ import annotations

from ottla.broker.config.limits import (
    MAX_GROUP_PENDING_MEMBER_ID_CHARS,
    MAX_PENDING_MEMBER_ID_CHARS,
    PENDING_MEMBER_ID_OVERHEAD_CHARS,
)


class PendingMemberIds:
    """Pending member ids of the groups of one shard in order of assignment.

    They are bounded by their number of characters, for each group and in total.
    """

    __slots__ = ("_all", "_chars", "_group_chars", "_groups")

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], int] = {}
        self._chars = 0
        self._groups: dict[str, dict[str, None]] = {}
        self._group_chars: dict[str, int] = {}

    def add(self, group_id: str, member_id: str) -> list[tuple[str, str]]:
        """Add a member id as the newest; return the (group id, member id) pairs removed to stay within the limits."""
        self.remove(group_id, member_id)
        chars = len(member_id) + PENDING_MEMBER_ID_OVERHEAD_CHARS
        self._all[group_id, member_id] = chars
        self._chars += chars
        group = self._groups.setdefault(group_id, {})
        group[member_id] = None
        self._group_chars[group_id] = self._group_chars.get(group_id, 0) + chars
        gone: list[tuple[str, str]] = []
        while self._group_chars[group_id] > MAX_GROUP_PENDING_MEMBER_ID_CHARS:
            gone.append((group_id, next(iter(group))))
            self.remove(*gone[-1])
        while self._chars > MAX_PENDING_MEMBER_ID_CHARS:
            gone.append(next(iter(self._all)))
            self.remove(*gone[-1])
        return gone

    def remove(self, group_id: str, member_id: str) -> None:
        """Remove a member id after its use or session timeout; do nothing if it is absent."""
        chars = self._all.pop((group_id, member_id), 0)
        if chars:
            self._chars -= chars
            group = self._groups[group_id]
            del group[member_id]
            self._group_chars[group_id] -= chars
            if not group:
                del self._groups[group_id], self._group_chars[group_id]
