"""Who has which partition, or task, of a group: as its members believe, compared with what their coordinator says.

``OneOwnerPerPartitionPerEpoch``: what is one's in an epoch is nobody else's in it. ``NoAssignmentBeforeRevocation``: a
member that has not given something up, and goes on as if it had it, is told so by its next answer once it is another's.

Epochs are given again after a power cut, and where a member comes into a group nobody is in that is of the other
protocol: that one is deleted then, and another made (``GroupMetadataManager.classicGroupJoinToClassicGroup``,
``getOrMaybeCreateConsumerGroup``; a group gets the older protocol as the last member of the newer one leaves it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.checkers.history import HistoryPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sim.checkers.delivery_checker import DeliveryChecker


HEARTBEAT_TIMEOUT_S = 2.0
"""Whoever has not been heard for so long may have been given up: members beat more than once a second."""
GROUP_CREATION_TIMEOUT_S = 8.0
"""The first generation waits for others: three seconds, and again with each who comes, up to four."""


class PendingRevocation(NamedTuple):
    """Something was given to a member while another had it."""

    place: HistoryPartition
    new_owner: str
    event_number: int
    """Among all events of the book."""


class AssignmentChecker:
    """The book of one group."""

    def __init__(self, ledger: DeliveryChecker, group: str, now_s: Callable[[], float]) -> None:
        self._ledger = ledger
        self._group = group
        self._now_s = now_s
        self._heard_s: dict[str, float] = {}
        """When each member was told last that it is one."""
        self._events = 0
        self._owned: dict[HistoryPartition, dict[str, tuple[int, int]]] = {}
        """Who believes to have it: since which event, and since how many power cuts."""
        self._owners: dict[tuple[HistoryPartition, int], str] = {}
        self._claims: dict[str, list[PendingRevocation]] = {}
        """By whom it had."""
        self._founded_s: float | None = None
        """When a member of the older protocol last asked to be let in, or stopped asking."""
        ledger.on_power_cut.append(self._power_cut)

    def next_event(self) -> int:
        """The number of an event that begins: what was noted before has a smaller one."""
        self._events += 1
        return self._events

    def assigned_to(self, member: str) -> list[HistoryPartition]:
        """What a member believes to have."""
        return sorted(place for place, owners in self._owned.items() if member in owners)

    def on_assigned(
        self, member: str, identity: str, epoch: int, places: Collection[HistoryPartition], began: int, cuts: int
    ) -> None:
        """A member was told in an epoch that these are its own, in answer to what it began to ask then: an answer may
        be old. ``identity``: what stays when it comes back; ``cuts``: power cuts before it asked.
        """
        if cuts != self._ledger.power_cuts:
            return
        self._heard_s[member] = self._now_s()
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
        """It takes it over now."""
        self._owned.setdefault(place, {})[member] = (self.next_event(), self._ledger.power_cuts)

    def on_revoked(self, member: str, places: Collection[HistoryPartition]) -> None:
        """It has these no longer, and will say so."""
        for place in places:
            self._owned.get(place, {}).pop(member, None)
        if member in self._claims:
            self._claims[member] = [claim for claim in self._claims[member] if claim.place not in places]

    def on_member_removed(self, member: str) -> None:
        """It has nothing, and is nobody any more."""
        self.on_revoked(member, self.assigned_to(member))
        self._claims.pop(member, None)
        self._heard_s.pop(member, None)

    def on_heartbeat(self, member: str, began: int, only: HistoryPartition | None = None) -> None:
        """It was told that all is well, in answer to what it began to ask then; ``only``: as far as this goes."""
        self._heard_s[member] = self._now_s()
        for claim in self._claims.get(member, ()):
            if claim.event_number < began and only in (None, claim.place):
                where = f"{self._group}: {claim.place[0]}-{claim.place[1]}"
                detail = f"{where} is with {claim.new_owner}, and {member} goes on with it"
                self._ledger.report_violation("NoAssignmentBeforeRevocation", detail)

    def allow_epoch_reset(self) -> None:
        """A member of the older protocol asks to be let in, or has asked: if nobody is in, epochs begin anew."""
        self._founded_s = self._now_s()
        self.on_join()

    def on_join(self) -> None:
        """Somebody asks to be let in: into a group nobody is in, which may be of the other protocol, as a new one."""
        if all(at_s < self._now_s() - HEARTBEAT_TIMEOUT_S for at_s in self._heard_s.values()):
            self._owners.clear()

    def may_be_uninitialized(self) -> bool:
        """Whether it may be of the older protocol just now, in front of its first generation.

        A heartbeat of the new one is answered UNKNOWN_SERVER_ERROR then: Kafka falls over the protocol that nobody has
        chosen yet (``ConsumerGroup.fromClassicGroup``).
        """
        return self._founded_s is not None and self._now_s() - self._founded_s <= GROUP_CREATION_TIMEOUT_S

    def _power_cut(self) -> None:
        """Epochs are given again, and what one was told last need not have been."""
        self._owners.clear()
        self._claims.clear()
