"""Replication rules of one partition: in-sync replicas and high watermark.

Pure: events result in a new high watermark or a change of the ISR to request. A leader tracks the fetch state of each
follower. While an ISR change is pending it uses the larger of the two sets (the *maximal* ISR), so that whichever of
them the controller commits, no record counts as committed too early.

Source: ``Partition.scala``, ``Replica.scala`` (apache/kafka 4.3.1); KIP-497, KIP-903, KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.wire.errors import ErrorCode

UNKNOWN_OFFSET = -1


class CommittedIsr(NamedTuple):
    """ISR committed by the controller, without a pending change."""

    isr: tuple[int, ...]
    is_recovering: bool = False

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Replicas that may be in the ISR: the committed ISR."""
        return self.isr


class PendingExpandIsr(NamedTuple):
    """ISR while a request to add one replica is pending at the controller."""

    committed: CommittedIsr
    new_in_sync_replica_id: int

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Replicas that may be in the ISR: the committed ISR and the new member."""
        return (*self.committed.isr, self.new_in_sync_replica_id)

    @property
    def requested_isr(self) -> tuple[int, ...]:
        """ISR requested from the controller, with the new member."""
        return self.maximal_isr


class PendingShrinkIsr(NamedTuple):
    """ISR while a request to remove replicas is pending at the controller; they are in the maximal ISR until then."""

    committed: CommittedIsr
    out_of_sync_replica_ids: frozenset[int]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Replicas that may be in the ISR: the committed ISR, with the members to remove."""
        return self.committed.isr

    @property
    def requested_isr(self) -> tuple[int, ...]:
        """ISR requested from the controller, without the members to remove."""
        return tuple(i for i in self.committed.isr if i not in self.out_of_sync_replica_ids)


IsrState = CommittedIsr | PendingExpandIsr | PendingShrinkIsr


class PartitionListener(Protocol):
    """Interface of the fetch session of a caught-up follower, which skips the partition until notified of a change."""

    def on_change(self, *, more: bool) -> int:
        """Notify of a change of the log (``more``) or of the high watermark only.

        Return the wall-clock time in ms of the follower's last request, at which it was caught up.
        """


@dataclass(slots=True)
class FollowerReplica:
    """Leader's view of a follower: its log offsets, the times of its fetches (wall clock, ms), its broker epoch."""

    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = 0
    """Wall-clock time in ms at which the follower was last caught up."""
    last_fetch_ms: int = 0
    last_leader_end: int = UNKNOWN_OFFSET
    """Leader's log end at the follower's last fetch: an offset not below it shows that it was caught up then."""
    broker_epoch: int = UNKNOWN_OFFSET
    listener: PartitionListener | None = field(default=None, compare=False)

    def notify_listener(self, *, more: bool) -> None:
        """Notify the registered fetch session, if any; a change of the log (``more``) removes it."""
        if self.listener is None:
            return
        fetch_ms = self.listener.on_change(more=more)
        if more:
            self.listener = None
            self.caught_up_ms = max(self.caught_up_ms, fetch_ms)
            self.last_fetch_ms = max(self.last_fetch_ms, fetch_ms)

    def update_fetch_state(self, now_ms: int, offset: int, leader_end: int) -> None:
        """Record that the follower fetched at ``offset``, so that it has all records below (R-327, R-328).

        ``leader_end``: the leader's log end when the fetch was received; ``now_ms``: wall-clock time.
        """
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.last_leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.last_fetch_ms = now_ms
        self.last_leader_end = leader_end

    def continue_from(self, earlier: FollowerReplica | None, leader_end: int) -> None:
        """Copy offsets and broker epoch from the previous leader epoch (``Replica.resetReplicaState``), not its times.

        ``earlier`` is None if the follower is new: these stay unknown.
        """
        self.last_fetch_ms = self.caught_up_ms
        self.last_leader_end = leader_end
        if earlier is not None:
            self.end_offset = earlier.end_offset
            self.log_start_offset = earlier.log_start_offset
            self.broker_epoch = earlier.broker_epoch

    def is_caught_up(self, now_ms: int, leader_end: int, lag_max_ms: int) -> bool:
        """Return True if the follower is at ``leader_end``, or was caught up at most ``lag_max_ms`` ago."""
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= lag_max_ms


class AlterPartitionOutcome(Enum):
    """Outcome of AlterPartition for one partition: applied, ignored, given up, reverted, or to be repeated (R-334)."""

    APPLIED = "taken"
    IGNORED = "ignored"
    ABANDONED = "given up"
    """Rejected for good: the change stays pending until the image has a newer partition epoch."""
    REVERTED = "taken back"
    """Rejected: the committed ISR holds again, and the change may be requested later."""
    RETRY = "again"
    """The same request must be sent again."""


_ABANDON_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
_REVERT_ERRORS = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})


class AlterPartitionResult(NamedTuple):
    """Result of AlterPartition for one partition: error code; without an error the new ISR with its epochs."""

    error_code: int
    leader_epoch: int = UNKNOWN_OFFSET
    partition_epoch: int = UNKNOWN_OFFSET
    isr: tuple[int, ...] = ()
    is_recovering: bool = False


class IsrChange(NamedTuple):
    """Change of the ISR to request from the controller: the new ISR, its broker epochs, leader and partition epoch."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """Broker epoch of each ISR member's last fetch, -1 if unknown."""


IsrEligibility = Callable[[int, int], bool]
"""Predicate with (broker, broker epoch of its last fetch): True if the broker may join the ISR (R-331, KIP-903)."""


@dataclass(slots=True)
class LeaderState:
    """State of a leader for its partition: epochs, ISR, and fetch states of the other replicas (``followers``).

    It does no I/O; the methods return changes to request and offsets to set. ``now_ms`` is the wall clock.
    """

    local_id: int
    epoch: int
    partition_epoch: int
    isr: IsrState
    leader_epoch_start_offset: int
    """Leader's log end offset at the start of this leader epoch."""
    followers: dict[int, FollowerReplica] = field(default_factory=dict)

    @classmethod
    def start_epoch(
        cls,
        local: int,
        epoch: int,
        partition_epoch: int,
        replicas: Iterable[int],
        isr: CommittedIsr,
        log_end: int,
        now_ms: int,
        earlier: LeaderState | None = None,
    ) -> LeaderState:
        """Return the state of a leader at the start of a leader epoch; ISR members count as caught up (R-329).

        Args:
            local: id of this broker.
            epoch: the leader epoch.
            partition_epoch: the partition epoch.
            replicas: ids of all replicas.
            isr: the ISR by the image.
            log_end: the log end offset of this broker.
            now_ms: wall-clock time.
            earlier: state of the leader epoch directly before, if this broker led in it too. The fetch states of the
                other replicas still hold, so the high watermark need not wait for another fetch of each.
        """
        others = {i: FollowerReplica(caught_up_ms=now_ms if i in isr.isr else 0) for i in replicas if i != local}
        if earlier is not None:
            for broker, follower in others.items():
                follower.continue_from(earlier.followers.get(broker), log_end)
        return cls(local, epoch, partition_epoch, isr, log_end, others)

    def is_high_watermark_unknown(self, high_watermark: int) -> bool:
        """Return True if the high watermark is below the start of this leader epoch.

        Records that an earlier leader has committed may be above it. Source: ``Partition.fetchOffsetForTimestamp``.
        """
        return self.leader_epoch_start_offset > high_watermark

    def apply_partition_state(self, partition_epoch: int, replicas: Iterable[int], isr: CommittedIsr) -> bool:
        """Apply a partition state of the same leader epoch; return False, unchanged, if it is not newer (R-329).

        A newer one has a higher partition epoch; it replaces a pending ISR change.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self.isr = isr
        self.followers = {i: self.followers.get(i) or FollowerReplica() for i in replicas if i != self.local_id}
        return True

    # ------------------------------------------------------------------ the high watermark

    def effective_min_isr(self, min_insync_replicas: int) -> int:
        """Return min.insync.replicas, limited to the number of replicas."""
        return min(min_insync_replicas, len(self.followers) + 1)

    def _committed_state(self) -> CommittedIsr:
        return self.isr if isinstance(self.isr, CommittedIsr) else self.isr.committed

    @property
    def committed_isr(self) -> tuple[int, ...]:
        """Broker ids of the ISR committed by the controller, also while a change is pending."""
        return self._committed_state().isr

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        """Return True if the committed ISR is below `effective_min_isr` (R-332, R-337, KIP-966).

        Appends with acks=all are then rejected, and the high watermark does not advance.
        """
        return len(self._committed_state().isr) < self.effective_min_isr(min_insync_replicas)

    def has_enough_replicas(self, min_insync_replicas: int) -> bool:
        """Return True if the maximal ISR has `effective_min_isr` members: check after an acks=all append (R-337)."""
        return self.effective_min_isr(min_insync_replicas) <= len(self.isr.maximal_isr)

    def high_watermark(
        self,
        own_end: int,
        log_end: int,
        now_ms: int,
        lag_max_ms: int,
        min_insync_replicas: int,
        eligible: IsrEligibility,
    ) -> int | None:
        """Return the offset, exclusive, up to which records count as committed; None while it must not advance.

        It may be below the present high watermark; the log ignores it then. ``own_end``: end of the local replica that
        counts: its flushed end if flush settings require it, else ``log_end``. The high watermark also waits for
        caught-up replicas outside the ISR that are eligible, so that they can join (R-332).
        """
        if self.is_under_min_isr(min_insync_replicas):
            return None
        members = self.isr.maximal_isr
        lowest = own_end
        for broker, follower in self.followers.items():
            if follower.end_offset >= lowest:
                continue
            waits = broker in members or (
                follower.is_caught_up(now_ms, log_end, lag_max_ms) and eligible(broker, follower.broker_epoch)
            )
            if waits:
                lowest = follower.end_offset
        return None if lowest < 0 else lowest

    # ------------------------------------------------------------------ the ISR

    def update_follower(
        self, broker: int, broker_epoch: int, offset: int, log_start: int, leader_end: int, now_ms: int
    ) -> FollowerReplica | None:
        """Update a follower's offsets and times on its Fetch at ``offset`` and return it (R-327).

        None for a broker without a replica. The ISR is not changed.
        """
        follower = self.followers.get(broker)
        if follower is not None:
            follower.update_fetch_state(now_ms, offset, leader_end)
            follower.log_start_offset = log_start
            follower.broker_epoch = broker_epoch
        return follower

    def maybe_expand_isr(self, broker: int, high_watermark: int, eligible: IsrEligibility) -> IsrChange | None:
        """Make the addition of a follower to the ISR pending after its fetch, and return the change to request (R-331).

        Return None, with nothing changed, if it may not join: a change is pending already, it is a member or not
        eligible, or its log end is below the high watermark or the start of this leader epoch.
        """
        follower = self.followers.get(broker)
        if not isinstance(self.isr, CommittedIsr) or follower is None or broker in self.isr.isr:
            return None
        if follower.end_offset < high_watermark or follower.end_offset < self.leader_epoch_start_offset:
            return None
        if not eligible(broker, follower.broker_epoch):
            return None
        self.isr = PendingExpandIsr(self.isr, broker)
        return self._isr_change(self.isr.requested_isr)

    def maybe_shrink_isr(self, now_ms: int, log_end: int, lag_max_ms: int) -> IsrChange | None:
        """Make the removal of lagging ISR members pending, and return the change to request (R-331).

        Return None, with nothing changed, without such members or while another change is pending.
        """
        if not isinstance(self.isr, CommittedIsr):
            return None
        late = frozenset(
            broker
            for broker in self.isr.isr
            if broker in self.followers and not self.followers[broker].is_caught_up(now_ms, log_end, lag_max_ms)
        )
        if not late:
            return None
        self.isr = PendingShrinkIsr(self.isr, late)
        return self._isr_change(self.isr.requested_isr)

    def _isr_change(self, isr: tuple[int, ...]) -> IsrChange:
        epochs = tuple(self.followers[i].broker_epoch if i in self.followers else UNKNOWN_OFFSET for i in isr)
        return IsrChange(self.epoch, self.partition_epoch, isr, epochs)

    def handle_alter_partition_result(self, answer: AlterPartitionResult) -> AlterPartitionOutcome:
        """Apply the controller's result for the pending ISR change and return its outcome (R-334).

        APPLIED: the ISR is the committed one of the result. IGNORED, with nothing changed: no change is pending, or a
        success is of another leader epoch or an older partition epoch. For errors see `AlterPartitionOutcome`.
        """
        if isinstance(self.isr, CommittedIsr):
            return AlterPartitionOutcome.IGNORED  # the image had the change first
        if answer.error_code == ErrorCode.NONE:
            if answer.leader_epoch != self.epoch or answer.partition_epoch < self.partition_epoch:
                return AlterPartitionOutcome.IGNORED
            self.isr = CommittedIsr(answer.isr, answer.is_recovering)
            self.partition_epoch = answer.partition_epoch
            return AlterPartitionOutcome.APPLIED
        if answer.error_code in _REVERT_ERRORS:
            self.isr = self.isr.committed
            return AlterPartitionOutcome.REVERTED
        return AlterPartitionOutcome.ABANDONED if answer.error_code in _ABANDON_ERRORS else AlterPartitionOutcome.RETRY

    def low_watermark(self, own_start: int, alive: Mapping[int, object]) -> int:
        """Return the lowest log start offset of the leader and the replicas on live brokers, for DeleteRecords (R-338).

        ``own_start`` is that of the leader; ``alive``: the live brokers, by id. -1 while one of them has not fetched.
        """
        return min([own_start, *(f.log_start_offset for broker, f in self.followers.items() if broker in alive)])


class FollowerState(NamedTuple):
    """State of a follower for its partition: leader epoch and leader's broker id, -1 without a leader."""

    epoch: int
    leader: int = UNKNOWN_OFFSET


PartitionRole = LeaderState | FollowerState
