"""Checker of assignments: the partitions or tasks of a group's members, compared with their coordinator's responses.

``OneOwnerPerPartitionPerEpoch``: no partition has two owners in one epoch. ``NoAssignmentBeforeRevocation``: a member
that has not revoked a partition, and continues to use it, gets an error in its next response once another owns it.

Epochs repeat after a power cut, and where a member joins an empty group of the other protocol: that group is deleted
then, and another created (``GroupMetadataManager.classicGroupJoinToClassicGroup``, ``getOrMaybeCreateConsumerGroup``; a
group becomes classic when the last member of the consumer protocol leaves).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.checkers.history import HistoryPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sim.checkers.delivery_checker import DeliveryChecker


HEARTBEAT_TIMEOUT_S = 2.0
"""Time after which a silent member may have been removed: members send heartbeats more than once a second."""
GROUP_CREATION_TIMEOUT_S = 8.0
"""Initial rebalance delay: three seconds, extended by each joining member, for up to four."""


class PendingRevocation(NamedTuple):
    """Partition assigned to another member while a member still owned it."""

    place: HistoryPartition
    new_owner: str
    event_number: int
    """Event number of the new assignment."""


class AssignmentChecker:
    """Checker of the assignments of one group; its members report each event, and violations go to the ledger."""

    def __init__(self, ledger: DeliveryChecker, group: str, now_s: Callable[[], float]) -> None:
        self._ledger = ledger
        self._group = group
        self._now_s = now_s
        self._last_response_s: dict[str, float] = {}
        """Time of each member's last successful response."""
        self._events = 0
        self._owned: dict[HistoryPartition, dict[str, tuple[int, int]]] = {}
        """Members that use a partition, each with event number and number of power cuts at the start of its use."""
        self._owners: dict[tuple[HistoryPartition, int], str] = {}
        self._claims: dict[str, list[PendingRevocation]] = {}
        """Partitions to revoke, by member that still owns them."""
        self._founded_s: float | None = None
        """Time of the last join by the classic protocol; None without one."""
        ledger.on_power_cut.append(self._power_cut)

    def next_event(self) -> int:
        """Return the number of a new event; it is larger than those of all earlier events."""
        self._events += 1
        return self._events

    def assigned_to(self, member: str) -> list[HistoryPartition]:
        """Return the partitions that a member uses at present, sorted."""
        return sorted(place for place, owners in self._owned.items() if member in owners)

    def on_assigned(
        self, member: str, identity: str, epoch: int, places: Collection[HistoryPartition], began: int, cuts: int
    ) -> None:
        """Record the assignment of a member in an epoch; report a partition that another one has in that epoch.

        It is ignored if power was cut since the request: the response may be outdated.

        Args:
            member: Member id.
            identity: Instance id of a static member, else the member id.
            epoch: Member epoch of the response.
            places: All assigned partitions.
            began: Event number of the request.
            cuts: Number of power cuts before the request.
        """
        if cuts != self._ledger.power_cuts:
            return
        self._last_response_s[member] = self._now_s()
        at = self.next_event()
        for place in places:
            known = self._owners.setdefault((place, epoch), identity)
            if known != identity:
                detail = f"{self._group}: {place[0]}-{place[1]} in epoch {epoch}: {known} and {identity}"
                self._ledger.report_violation("OneOwnerPerPartitionPerEpoch", detail)
            for other, (since, then) in self._owned.get(place, {}).items():
                if other != member and since < began and then == cuts:
                    self._claims.setdefault(other, []).append(PendingRevocation(place, member, at))

    def on_owned(self, member: str, place: HistoryPartition) -> None:
        """Record that a member starts to use a partition."""
        self._owned.setdefault(place, {})[member] = (self.next_event(), self._ledger.power_cuts)

    def on_revoked(self, member: str, places: Collection[HistoryPartition]) -> None:
        """Record that a member has revoked partitions."""
        for place in places:
            self._owned.get(place, {}).pop(member, None)
        if member in self._claims:
            self._claims[member] = [claim for claim in self._claims[member] if claim.place not in places]

    def on_member_removed(self, member: str) -> None:
        """Record that a member has left or ended: it uses no partition any more."""
        self.on_revoked(member, self.assigned_to(member))
        self._claims.pop(member, None)
        self._last_response_s.pop(member, None)

    def on_heartbeat(self, member: str, began: int, only: HistoryPartition | None = None) -> None:
        """Record a successful response to a request with event number ``began``.

        Reports ``NoAssignmentBeforeRevocation`` if the member still uses a partition that was assigned to another one
        before the request. ``only``: the response concerns this partition only; None: all.
        """
        self._last_response_s[member] = self._now_s()
        for claim in self._claims.get(member, ()):
            if claim.event_number < began and only in (None, claim.place):
                where = f"{self._group}: {claim.place[0]}-{claim.place[1]}"
                detail = f"{where} is with {claim.new_owner}, and {member} goes on with it"
                self._ledger.report_violation("NoAssignmentBeforeRevocation", detail)

    def allow_epoch_reset(self) -> None:
        """Record a join by the classic protocol as `on_join`, after which the group may be classic for some time."""
        self._founded_s = self._now_s()
        self.on_join()

    def on_join(self) -> None:
        """Record a join; forget owners by epoch if all members may have been removed: the group may be a new one."""
        if all(at_s < self._now_s() - HEARTBEAT_TIMEOUT_S for at_s in self._last_response_s.values()):
            self._owners.clear()

    def may_be_uninitialized(self) -> bool:
        """Return True if the group may be classic now, before its first generation.

        A consumer group heartbeat gets UNKNOWN_SERVER_ERROR then: Kafka fails on the protocol that is not chosen yet
        (``ConsumerGroup.fromClassicGroup``).
        """
        return self._founded_s is not None and self._now_s() - self._founded_s <= GROUP_CREATION_TIMEOUT_S

    def _power_cut(self) -> None:
        """Forget the owners by epoch and the partitions to revoke after a power cut."""
        self._owners.clear()
        self._claims.clear()
