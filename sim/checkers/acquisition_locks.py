"""Checker of acquired records of a share group: owners and acknowledgements, as its members see them.

``LockedToOne``: no other member acquires a record with a valid lock. ``HolderIsHeard``: the owner of a lock can
acknowledge the record. ``AcceptedIsFinal``: a record whose accept was confirmed is not delivered again.
``share-overdelivered``: a record was delivered more often than allowed. A lock is valid on one leader of its share
partition, in one session, for the lock duration that the response states (``AcquisitionLockTimeoutMs``), by that
node's clock; the leader's state is read from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.share_partitions.share_sessions import TopicIdPartition as SharedPlace
from sim.checkers.history import HistoryPartition

if TYPE_CHECKING:
    from ottla.broker.components.broker_components import BrokerComponents
    from ottla.broker.share_partitions.share_partition_leader import SharePartitionLeader
    from ottla.broker.share_partitions.share_sessions import ShareSession
    from sim.checkers.delivery_checker import DeliveryChecker

RecordKey = tuple[HistoryPartition, int]
"""Partition and offset of a record."""
LiveNodesByHost = Callable[[], "Mapping[str, BrokerComponents]"]
"""Function that returns the components of the running nodes, by host."""
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class ServerState(NamedTuple):
    """Objects that represent a share partition and a share session on a node; reloading replaces them."""

    share_partition: SharePartitionLeader
    session: ShareSession | None


class AcquiredRecord(NamedTuple):
    """Acquisition lock of a member of a share group on records of a partition, on a node (``host``)."""

    member: str
    host: str
    until_s: float
    """Earliest end of the acquisition lock, in seconds of that host's clock."""
    server_state: ServerState | None
    """Objects of the node at the acquisition; None if unknown: then no property is checked."""
    since_s: float = 0.0
    """Time of the acquisition in simulated seconds."""


class AcquisitionLocks:
    """Acquired records of one share group, from the view of its members."""

    def __init__(
        self,
        ledger: DeliveryChecker,
        group: str,
        limit: int,
        living: LiveNodesByHost,
        clock: Callable[[str], float],
        now_s: Callable[[], float],
    ) -> None:
        """Create the checker.

        Args:
            ledger: collects the violations.
            group: id of the share group.
            limit: maximum delivery count.
            living: returns the components of running nodes.
            clock: returns seconds of a host's monotonic clock.
            now_s: returns simulated seconds.
        """
        self._ledger = ledger
        self._group = group
        self.limit = limit
        self._living = living
        self._clock = clock
        self._now_s = now_s
        self._seen_s: dict[SharePartitionLeader, float] = {}
        """Time at which each leader object of a share partition was first observed, in simulated seconds."""
        self._held: dict[RecordKey, dict[str, AcquiredRecord]] = {}
        self._by_member: dict[str, dict[RecordKey, None]] = {}
        self.acknowledgements: dict[RecordKey, set[int]] = {}
        """Acknowledgement types that members have sent for a record, accepted or not."""
        self.delivered: dict[RecordKey, int] = {}
        """Highest delivery count of each record in a response."""
        self.uncertain_acknowledgements: dict[HistoryPartition, int] = {}
        """Number of requests without a response, by partition; each may have delivered records once more."""
        self._accepted: dict[RecordKey, tuple[float, SharePartitionLeader | None]] = {}
        """Time and share partition leader of each confirmed accept."""
        ledger.on_power_cut.append(self._accepted.clear)

    # ------------------------------------------------------------------ state of the nodes

    def server_state(self, host: str, place: SharedPlace, member: str) -> ServerState | None:
        """Return the leader object and the share session of a member on a host; None if it does not lead the partition.

        The first observation of a leader object is recorded with its time.
        """
        parts = self._living().get(host)
        shares = None if parts is None else vars(parts).get("share_partition_manager")
        shared = None if shares is None else shares.get(self._group, place)
        if shares is None or shared is None or shared.share_partition is None:
            return None
        self._seen_s.setdefault(shared, self._now_s())
        return ServerState(shared, shares.sessions._by_member.get((self._group, member)))

    def _is_in_force(self, hold: AcquiredRecord, place: SharedPlace) -> bool:
        if hold.server_state is None or self._clock(hold.host) >= hold.until_s:
            return False
        now = self.server_state(hold.host, place, hold.member)
        return (
            now is not None
            and now.share_partition is hold.server_state.share_partition
            and now.session is hold.server_state.session
        )

    # ------------------------------------------------------------------ events of members

    def on_acquired(
        self,
        hold: AcquiredRecord,
        partition: HistoryPartition,
        place: SharedPlace,
        rows: Iterable[tuple[int, int, int]],
        began_s: float,
    ) -> None:
        """Record acquired records, and report those that were not free, or were delivered too often.

        Args:
            hold: Member, host and lock of the acquisition.
            partition: Partition by topic name.
            place: The same partition by topic id.
            rows: First offset, last offset (inclusive) and delivery count of each batch.
            began_s: Simulated time of the request; records that others acquired since may have been released before.
        """
        for first, last, count in rows:
            for offset in range(first, last + 1):
                where = (partition, offset)
                text = f"{self._group}: {partition[0]}-{partition[1]} {offset} to {hold.member}"
                if count > self.limit:
                    self._ledger.report_violation("share-overdelivered", f"{text} for the {count}. time")
                if self._must_be_accepted(where, self.server_state(hold.host, place, hold.member), began_s):
                    self._ledger.report_violation("AcceptedIsFinal", text)
                for other in list(self._held.get(where, {}).values()):
                    beside = other.member != hold.member and other.host == hold.host and other.since_s < began_s
                    if beside and self._is_in_force(other, place):
                        self._ledger.report_violation("LockedToOne", f"{text} and {other.member}, {count}")
                self.delivered[where] = max(self.delivered.get(where, 0), count)
                self._held.setdefault(where, {})[hold.member] = hold
                self._by_member.setdefault(hold.member, {})[where] = None

    def _must_be_accepted(self, where: RecordKey, sight: ServerState | None, began_s: float) -> bool:
        """Return True if record ``where`` was accepted before ``began_s`` and this leader (``sight``) must know of it.

        ``sight`` None: the leader is unknown, and the result False.

        A former leader that does not know of the accept may still deliver the record, in Kafka as well, until it has to
        write state.
        """
        at_s, by = self._accepted.get(where, (began_s, None))
        if sight is None or at_s >= began_s:
            return False
        return sight.share_partition is by or self._seen_s[sight.share_partition] > at_s

    def on_acknowledging(
        self, member: str, partition: HistoryPartition, offsets: Mapping[int, int]
    ) -> dict[int, AcquiredRecord]:
        """Record that a member sends acknowledgements (type by offset); return its acquired records by offset.

        Except for renewals, its locks of these records end.
        """
        out = {}
        for offset, kind in offsets.items():
            self.acknowledgements.setdefault((partition, offset), set()).add(kind)
            hold = self._held.get((partition, offset), {}).get(member)
            if hold is not None:
                out[offset] = hold
            if kind != RENEW:
                self._remove_lock(member, (partition, offset))
        return out

    def on_acknowledged(
        self, partition: HistoryPartition, offsets: Mapping[int, int], holds: Mapping[int, AcquiredRecord]
    ) -> None:
        """Record acknowledgements (type by offset) that succeeded; ``holds``: result of `on_acknowledging`."""
        for offset, kind in offsets.items():
            if kind == ACCEPT:
                sight = holds[offset].server_state if offset in holds else None
                self._accepted[partition, offset] = (self._now_s(), None if sight is None else sight.share_partition)

    def on_renewed(self, member: str, partition: HistoryPartition, offsets: Collection[int], until_s: float) -> None:
        """Record a renewal: locks of these records last at least until ``until_s``, in seconds of the host's clock."""
        for offset in offsets:
            hold = self._held.get((partition, offset), {}).get(member)
            if hold is not None:
                self._held[partition, offset][member] = hold._replace(until_s=until_s)

    def on_refused(
        self,
        place: SharedPlace,
        partition: HistoryPartition,
        offsets: Mapping[int, int],
        holds: Mapping[int, AcquiredRecord],
    ) -> None:
        """Report a rejected acknowledgement as ``HolderIsHeard`` if the member had a valid lock of each record.

        ``offsets``: acknowledgement types by offset; ``holds``: result of `on_acknowledging`; ``place``: the partition
        by topic id.
        """
        if holds and all(offset in holds and self._is_in_force(holds[offset], place) for offset in offsets):
            self._ledger.report_violation(
                "HolderIsHeard", f"{self._group}: {partition[0]}-{partition[1]} {dict(offsets)}"
            )

    def on_lost(self, member: str) -> None:
        """Record that all locks of a member have ended, such as with its connection."""
        for where in list(self._by_member.get(member, ())):
            self._remove_lock(member, where)

    def _remove_lock(self, member: str, where: RecordKey) -> None:
        self._held.get(where, {}).pop(member, None)
        self._by_member.get(member, {}).pop(where, None)
