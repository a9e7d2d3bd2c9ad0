"""Who has which partition, or task, of a group: as its members believe, compared with what their coordinator says.

``OneOwnerPerPartitionPerEpoch``: what is one's in an epoch is nobody else's in it. ``NoAssignmentBeforeRevocation``: a
member that has not given something up, and goes on as if it had it, is told so by its next answer once it is another's.

Epochs are given again after a power cut, and where a member comes into a group nobody is in that is of the other
protocol: that one is deleted then, and another made (``GroupMetadataManager.classicGroupJoinToClassicGroup``,
``getOrMaybeCreateConsumerGroup``; a group gets the older protocol as the last member of the newer one leaves it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.history import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sim.ledger import Ledger


HEARD_S = 2.0
"""Whoever has not been heard for so long may have been given up: members beat more than once a second."""
FOUNDED_WITHIN_S = 8.0
"""The first generation waits for others: three seconds, and again with each who comes, up to four."""


class Claim(NamedTuple):
    """Something was given to a member while another had it."""

    place: Place
    heir: str
    at: int
    """Among all events of the book."""


class Ownership:
    """The book of one group."""

    def __init__(self, ledger: Ledger, group: str, now_s: Callable[[], float]) -> None:
        self._ledger = ledger
        self._group = group
        self._now_s = now_s
        self._heard_s: dict[str, float] = {}
        """When each member was told last that it is one."""
        self._events = 0
        self._owned: dict[Place, dict[str, tuple[int, int]]] = {}
        """Who believes to have it: since which event, and since how many power cuts."""
        self._owners: dict[tuple[Place, int], str] = {}
        self._claims: dict[str, list[Claim]] = {}
        """By whom it had."""
        self._founded_s: float | None = None
        """When a member of the older protocol last asked to be let in, or stopped asking."""
        ledger.on_power_cut.append(self._power_cut)

    def now(self) -> int:
        """The number of an event that begins: what was noted before has a smaller one."""
        self._events += 1
        return self._events

    def owned_by(self, member: str) -> list[Place]:
        """What a member believes to have."""
        return sorted(place for place, owners in self._owned.items() if member in owners)

    def assigned(
        self, member: str, identity: str, epoch: int, places: Collection[Place], began: int, cuts: int
    ) -> None:
        """A member was told in an epoch that these are its own, in answer to what it began to ask then: an answer may
        be old. ``identity``: what stays when it comes back; ``cuts``: power cuts before it asked.
        """
        if cuts != self._ledger.power_cuts:
            return
        self._heard_s[member] = self._now_s()
        at = self.now()
        for place in places:
            known = self._owners.setdefault((place, epoch), identity)
            if known != identity:
                detail = f"{self._group}: {place[0]}-{place[1]} in epoch {epoch}: {known} and {identity}"
                self._ledger.violation("OneOwnerPerPartitionPerEpoch", detail)
            for other, (since, then) in self._owned.get(place, {}).items():
                if other != member and since < began and then == cuts:
                    self._claims.setdefault(other, []).append(Claim(place, member, at))

    def has(self, member: str, place: Place) -> None:
        """It takes it over now."""
        self._owned.setdefault(place, {})[member] = (self.now(), self._ledger.power_cuts)

    def gave_up(self, member: str, places: Collection[Place]) -> None:
        """It has these no longer, and will say so."""
        for place in places:
            self._owned.get(place, {}).pop(member, None)
        if member in self._claims:
            self._claims[member] = [claim for claim in self._claims[member] if claim.place not in places]

    def gone(self, member: str) -> None:
        """It has nothing, and is nobody any more."""
        self.gave_up(member, self.owned_by(member))
        self._claims.pop(member, None)
        self._heard_s.pop(member, None)

    def heard(self, member: str, began: int, only: Place | None = None) -> None:
        """It was told that all is well, in answer to what it began to ask then; ``only``: as far as this goes."""
        self._heard_s[member] = self._now_s()
        for claim in self._claims.get(member, ()):
            if claim.at < began and only in (None, claim.place):
                where = f"{self._group}: {claim.place[0]}-{claim.place[1]}"
                detail = f"{where} is with {claim.heir}, and {member} goes on with it"
                self._ledger.violation("NoAssignmentBeforeRevocation", detail)

    def may_begin_anew(self) -> None:
        """A member of the older protocol asks to be let in, or has asked: if nobody is in, epochs begin anew."""
        self._founded_s = self._now_s()
        self.comes_in()

    def comes_in(self) -> None:
        """Somebody asks to be let in: into a group nobody is in, which may be of the other protocol, as a new one."""
        if all(at_s < self._now_s() - HEARD_S for at_s in self._heard_s.values()):
            self._owners.clear()

    def may_not_have_begun(self) -> bool:
        """Whether it may be of the older protocol just now, in front of its first generation.

        A heartbeat of the new one is answered UNKNOWN_SERVER_ERROR then: Kafka falls over the protocol that nobody has
        chosen yet (``ConsumerGroup.fromClassicGroup``).
        """
        return self._founded_s is not None and self._now_s() - self._founded_s <= FOUNDED_WITHIN_S

    def _power_cut(self) -> None:
        """Epochs are given again, and what one was told last need not have been."""
        self._owners.clear()
        self._claims.clear()
