"""Hosted partition: the replica of a partition on this node, with its log and its role by the metadata image.

Source: ``Partition.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from ottla.broker.replication.partition_state import (
    AlterPartitionOutcome,
    AlterPartitionResult,
    CommittedIsr,
    FollowerState,
    IsrChange,
    IsrEligibility,
    IsrState,
    LeaderState,
    PartitionListener,
    PartitionRole,
)
from ottla.controller.metadata.image import PartitionRegistration
from ottla.log.log_append import LogAppendInfo
from ottla.log.log_validator import AppendOrigin, ValidatedBatch
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.transaction_verification import NO_TXN_CONTEXT, TxnAppendContext
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import BatchHeader, offset_range

UNCERTAIN_COMMIT_MS = 1000
"""Time in ms after a demotion during which the former leader polls its successor's high watermark quickly."""


class PendingIsrChange(NamedTuple):
    """ISR change to request from the controller; a response applies only while the change `is_current`."""

    replica: HostedPartition
    leader_state: LeaderState
    pending_isr: IsrState
    change: IsrChange

    @property
    def is_current(self) -> bool:
        """True if the leader state still has this pending change: no newer image or leader epoch replaced it."""
        return self.replica.state is self.leader_state and self.leader_state.isr is self.pending_isr


class IsrDependencies(NamedTuple):
    """Dependencies of ISR changes that all hosted partitions share: maximum lag, and functions of the node."""

    lag_max_ms: int
    is_eligible: IsrEligibility
    submit_isr_change: Callable[[PendingIsrChange], None] = lambda pending: None
    """Callback that requests an ISR change from the controller."""
    on_high_watermark_moved: Callable[[HostedPartition], None] = lambda replica: None
    """Callback after the high watermark advanced by a follower's fetch or an ISR change."""
    broker_epoch_of: Callable[[int], int] = lambda broker: -1
    """Function that returns the broker epoch of an unfenced broker by the image, -1 for any other."""


class TopicTraffic:
    """Counters of a topic since this node hosts a partition of it: messages, bytes, requests, failures.

    The partitions of the topic share it.

    Source: ``BrokerTopicMetrics.java`` (apache/kafka 4.3.1).
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "hosted_count",
        "messages_in",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = self.bytes_rejected = 0
        self.replication_bytes_in = self.replication_bytes_out = 0
        self.produces = self.failed_produces = self.fetches = self.failed_fetches = 0
        self.hosted_count = 0
        """Number of hosted partitions of the topic."""

    def add(self, other: TopicTraffic) -> None:
        """Add the counts of another topic to these."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class HostedPartition:
    """Replica of a partition on this node: its log, and its role of leader or follower by the metadata image.

    ``now_ms`` of its methods is the wall clock.
    """

    __slots__ = (
        "_end_key",
        "_fetch_key",
        "_flush_due",
        "_hw_key",
        "_isr",
        "_start_key",
        "_wake",
        "end_at_demotion",
        "is_flushing",
        "is_leader",
        "is_sole_replica",
        "lag",
        "leader_epoch",
        "leadership_count",
        "log",
        "partition",
        "state",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        log: PartitionLog,
        topic_id: bytes,
        wake: Callable[[Hashable], None],
        flush_due: Callable[[HostedPartition], None],
        rules: IsrDependencies,
    ) -> None:
        self._wake = wake
        self._flush_due = flush_due
        self._isr = rules
        self._fetch_key = ("fetch", log.topic, log.partition)
        self._end_key = ("end", log.topic, log.partition)
        self._hw_key = ("hw", log.topic, log.partition)
        self._start_key = ("start", log.topic, log.partition)
        self.log = log
        self.topic = log.topic
        self.partition = log.partition
        self.topic_id = topic_id
        self.traffic = TopicTraffic()
        self.state: PartitionRole = FollowerState(-1)
        self.is_leader = False
        self.is_sole_replica = False
        """True if this node leads and there is no other replica: the log end is the high watermark.

        Derived from `state`, to save time on each append.
        """
        self.leader_epoch = -1
        self.lag = 0
        """Number of committed records that a follower lacked by its leader's last response."""
        self.leadership_count = 0
        """Number of promotions from follower to leader: while it leads, no record appended since is truncated."""
        self.end_at_demotion = 0
        """Log end offset at the last demotion to follower: records below may await the new leader's commit."""
        self.is_flushing = False
        """True during a sync that acknowledgements wait for; later records are committed by the next sync."""

    def apply_partition_state(self, node_id: int, registration: PartitionRegistration, now_ms: int) -> bool:
        """Apply the partition state of the image; return True if this node becomes leader in a new leader epoch.

        The caller then calls `recover_high_watermark`. Otherwise the waiting requests that are affected are completed.
        """
        state, leads = self.state, registration.leader == node_id
        self._notify_listeners(more=True)
        self.leader_epoch = epoch = registration.leader_epoch
        self.is_leader = leads
        if not leads:
            self.is_sole_replica = False
            if type(state) is LeaderState:
                self.end_at_demotion = self.log.log_end_offset
            self.state = FollowerState(registration.leader_epoch, registration.leader)
            self.notify_waiters()
            return False
        isr = CommittedIsr(registration.isr, registration.recovering > 0)
        if isinstance(state, LeaderState) and state.epoch == epoch:
            if state.apply_partition_state(registration.partition_epoch, registration.replicas, isr):
                self.is_sole_replica = not state.followers
                self.on_flushed(self._own_end_offset(), now_ms)
                self._wake(self._start_key)
            return False
        end = self.log.log_end_offset
        # Another broker may have led in a skipped epoch, and followers may have truncated their logs.
        before = state if type(state) is LeaderState and state.epoch == epoch - 1 else None
        self.state = LeaderState.start_epoch(
            node_id, epoch, registration.partition_epoch, registration.replicas, isr, end, now_ms, before
        )
        self.is_sole_replica = not self.state.followers
        if type(state) is FollowerState:
            self.leadership_count += 1
        return True

    def resign(self) -> None:
        """Become a follower without a leader: the partition was removed, or its log directory failed.

        The leader epoch stays. The caller completes waiting requests (`notify_waiters`).
        """
        self._notify_listeners(more=True)
        self.is_leader = self.is_sole_replica = False
        self.state = FollowerState(self.leader_epoch)

    @property
    def has_uncertain_records(self) -> bool:
        """True if records of this node's former leadership are in the log that are not known to be committed."""
        return self.log.high_watermark < min(self.end_at_demotion, self.log.log_end_offset)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Check a client's leader epoch against the partition's; -1 is not checked.

        Raises:
            ProtocolError: FENCED_LEADER_EPOCH if it is older, UNKNOWN_LEADER_EPOCH if it is newer.
        """
        if current_leader_epoch == -1 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def check_leader(self, current_leader_epoch: int) -> None:
        """Check a client's leader epoch (-1: not checked), then that this node leads the partition, in Kafka's order.

        Raises:
            ProtocolError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_min_isr(self) -> None:
        """Check before an append with acks=all that the committed ISR has ``min.insync.replicas`` members (R-337).

        No more members than replicas are required. Nothing is checked if this node does not lead.

        Raises:
            ProtocolError: NOT_ENOUGH_REPLICAS.
        """
        state = self.state
        if type(state) is LeaderState and state.is_under_min_isr(self.log.config.min_insync_replicas):
            text = f"The size of the current ISR {list(state.committed_isr)} is insufficient to satisfy the min.isr "
            text += f"requirement of {self.log.config.min_insync_replicas} for partition {self.log.label}"
            raise ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS, text)

    def has_enough_replicas(self) -> bool:
        """Return True if the maximal ISR satisfies min.insync.replicas: the check after an acks=all append (R-337).

        No more members than replicas are required. False if this node does not lead.
        """
        state = self.state
        return type(state) is LeaderState and state.has_enough_replicas(self.log.config.min_insync_replicas)

    def append(
        self,
        data: bytearray | memoryview,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        header: BatchHeader | None = None,
        checked: ValidatedBatch | None = None,
        *,
        at_once: bool = True,
        txn: TxnAppendContext = NO_TXN_CONTEXT,
    ) -> LogAppendInfo:
        """Append as leader, and advance the high watermark as far as the in-sync replicas allow; do not wait for them.

        The arguments are those of `PartitionLog.append_as_leader`. If ``flush.messages`` requires it, a flush is
        requested, and the high watermark advances after it. A duplicate batch changes nothing.

        Raises:
            ProtocolError: the append is rejected; OSError: the disk failed.
            ValidationPending: without ``at_once``, the validation takes long.
        """
        log = self.log
        done = log.append_as_leader(data, self.leader_epoch, now_ms, origin, header, checked, at_once=at_once, txn=txn)
        if not done.duplicate:
            if not self.is_sole_replica:
                self._wake(self._end_key)
                self._notify_listeners(more=True)
            if log.unflushed_records >= log.config.flush_messages:
                self._flush_due(self)  # advances the high watermark once flushed
            elif not self.is_flushing:
                self.advance_high_watermark(log.log_end_offset, now_ms)
        return done

    def recover_high_watermark(self, now_ms: int) -> None:
        """Advance the high watermark of a new leader to the offset that all in-sync replicas have reached.

        If acknowledgements wait for a flush (``flush.messages``), it advances to the recovery point, and a flush is
        requested, after which it advances further.
        """
        log = self.log
        if log.log_end_offset - log.recovery_point < log.config.flush_messages:
            self.on_flushed(log.log_end_offset, now_ms)
            return
        self.on_flushed(log.recovery_point, now_ms)
        self._flush_due(self)

    def advance_high_watermark(self, own_end: int, now_ms: int) -> bool:
        """Advance the high watermark as far as the ISR allows, with ``own_end`` as the local replica's log end.

        Return True if it advanced; fetches that wait for it are completed then, and Produce requests if there are other
        replicas (`on_flushed` completes those for a sole replica). False if this node does not lead.
        """
        state, log = self.state, self.log
        committed: int | None = own_end
        if not self.is_sole_replica:
            if type(state) is not LeaderState:
                return False
            committed = state.high_watermark(
                own_end,
                log.log_end_offset,
                now_ms,
                self._isr.lag_max_ms,
                log.config.min_insync_replicas,
                self._isr.is_eligible,
            )
        if committed is None or not log.set_high_watermark(committed):
            return False
        self._wake(self._fetch_key)
        if not self.is_sole_replica:
            self._wake(self._hw_key)  # a sole replica only delays it for a sync: `on_flushed`
            self._notify_listeners(more=False)
        return True

    def on_flushed(self, end: int, now_ms: int) -> None:
        """Advance the high watermark after a flush of this replica below ``end``; if it moved, complete requests."""
        if self.advance_high_watermark(end, now_ms):
            self._wake(self._hw_key)

    def notify_waiters(self) -> None:
        """Let waiting requests check the partition, and notify followers' sessions: leadership or log ends changed."""
        self._notify_listeners(more=False)
        self._wake(self._fetch_key)
        self._wake(self._end_key)
        self._wake(self._hw_key)
        self._wake(self._start_key)

    def _own_end_offset(self) -> int:
        """Return the local log end that counts for the high watermark: the recovery point during a flush."""
        return self.log.recovery_point if self.is_flushing else self.log.log_end_offset

    # ------------------------------------------------------------------ leader: followers and the ISR

    def check_follower(self, broker: int, broker_epoch: int, *, names_epoch: bool) -> None:
        """Check that a broker may fetch the partition as a follower (R-325).

        ``names_epoch``: the request has a leader epoch; ``broker_epoch`` -1 is not checked.

        Raises:
            ProtocolError: NOT_LEADER_OR_FOLLOWER: this node does not lead, or the broker epoch is older than the
                image's. For a broker without a replica UNKNOWN_LEADER_EPOCH with ``names_epoch``, else
                NOT_LEADER_OR_FOLLOWER.
        """
        state = self.state
        if type(state) is not LeaderState:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if broker not in state.followers:
            raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH if names_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if -1 < broker_epoch < self._isr.broker_epoch_of(broker):
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # of an earlier process of the broker (KIP-903)

    def update_follower_fetch_state(
        self, broker: int, broker_epoch: int, offset: int, log_start: int, leader_end: int, now_ms: int
    ) -> None:
        """Update a follower's state on its fetch at ``offset``; if due, request an ISR expansion and advance the HW.

        ``log_start``: the follower's log start offset; a change wakes requests that wait for it; ``leader_end``:
        the leader's log end when the fetch was received (R-327). No effect without a replica or leadership.
        """
        state = self.state
        if type(state) is not LeaderState or broker not in state.followers:
            return
        before = state.followers[broker]
        was = before.end_offset, before.log_start_offset
        state.update_follower(broker, broker_epoch, offset, log_start, leader_end, now_ms)
        self._submit_isr_change(state, state.maybe_expand_isr(broker, self.log.high_watermark, self._isr.is_eligible))
        if was[0] != offset and self.advance_high_watermark(self._own_end_offset(), now_ms):
            self._isr.on_high_watermark_moved(self)
        if was[1] != log_start:
            self._wake(self._start_key)

    def register_listener(
        self, broker: int, offset: int, high_watermark: int, log_start: int, listener: PartitionListener
    ) -> bool:
        """Register the fetch session of a caught-up follower for the next change of the partition.

        Return False, with nothing registered, unless this node leads and the follower is in the committed ISR, without
        a pending ISR change, and its log end, high watermark and log start offset are those of the leader. A follower
        outside the ISR is not registered, since each of its fetches may expand the ISR. An earlier session of the
        broker is notified of a change, and removed.
        """
        state, log = self.state, self.log
        if type(state) is not LeaderState or type(state.isr) is not CommittedIsr or broker not in state.isr.isr:
            return False
        if (log.log_end_offset, log.high_watermark, log.log_start_offset) != (offset, high_watermark, log_start):
            return False
        follower = state.followers[broker]
        if follower.end_offset != offset:
            return False
        # an earlier fetch session of the broker loses its registration and must read the partition again
        follower.notify_listener(more=True)
        follower.listener = listener
        return True

    def _notify_listeners(self, *, more: bool) -> None:
        """Notify the registered fetch sessions of followers; ``more`` is True if the log changed."""
        state = self.state
        if type(state) is LeaderState:
            for follower in state.followers.values():
                if follower.listener is not None:
                    follower.notify_listener(more=more)

    def maybe_shrink_isr(self, now_ms: int) -> None:
        """Request the removal of replicas from the ISR that lag for too long, if this node leads (R-331)."""
        state = self.state
        if type(state) is LeaderState:
            self._submit_isr_change(
                state, state.maybe_shrink_isr(now_ms, self.log.log_end_offset, self._isr.lag_max_ms)
            )

    def _submit_isr_change(self, state: LeaderState, change: IsrChange | None) -> None:
        if change is not None:
            self._isr.submit_isr_change(PendingIsrChange(self, state, state.isr, change))

    def handle_alter_partition_result(
        self, pending: PendingIsrChange, answer: AlterPartitionResult, now_ms: int
    ) -> AlterPartitionOutcome:
        """Apply the controller's response to an ISR change (R-334) and return the outcome.

        It is IGNORED, with nothing changed, if a newer image or leader epoch has replaced the change, or if the
        response is of another leader epoch or an older partition epoch.
        """
        if not pending.is_current:
            return AlterPartitionOutcome.IGNORED
        outcome = pending.leader_state.handle_alter_partition_result(answer)
        if outcome is AlterPartitionOutcome.APPLIED and self.advance_high_watermark(self._own_end_offset(), now_ms):
            self._isr.on_high_watermark_moved(self)
        return outcome

    def low_watermark(self, alive: Mapping[int, object]) -> int:
        """Return the lowest log start offset of this replica and those on live brokers, for DeleteRecords (R-338).

        ``alive``: the live brokers, by id. -1 while a live follower has not fetched; only its own offset if this node
        does not lead.
        """
        state, own = self.state, self.log.log_start_offset
        return state.low_watermark(own, alive) if type(state) is LeaderState else own

    # ------------------------------------------------------------------ follower

    def append_as_follower(self, raw: Buffer, now_ms: int) -> bool:
        """Append batches of the leader; return True if a flush must precede the next fetch (``flush.messages``).

        The high watermark is not changed. An empty log may be restarted at the leader's first batch, if its end is
        within that batch. ``now_ms``: wall clock.

        Raises:
            ProtocolError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE, nothing was appended; OSError: the disk failed, batches
                before the failed one are in the log.
        """
        assert type(self.state) is FollowerState, self.log.describe()
        log = self.log
        if log.log_end_offset == log.log_start_offset:
            self._append_first_batch(raw, now_ms)
        log.append_as_follower(raw, now_ms)
        self.traffic.replication_bytes_in += len(raw)
        return log.unflushed_records >= log.config.flush_messages

    def _append_first_batch(self, raw: Buffer, now_ms: int) -> None:
        """Restart an empty log at the leader's first batch in ``raw``, if its end is within that batch; append nothing.

        The leader's log may start within a batch, where records were deleted: an empty log then begins with the whole
        batch (``Partition.appendRecordsToFollowerOrFutureReplica``).
        """
        first, last = offset_range(raw)
        if first < self.log.log_end_offset <= last:
            self.log.truncate_fully_and_start_at(first, now_ms)

    def update_leader_offsets(self, high_watermark: int, log_start: int) -> None:
        """Update high watermark and log start offset by the leader's, as far as the log reaches (R-319).

        The high watermark may also fall; the log start offset only rises, at most to the high watermark. The lag is
        updated, and requests that wait for the offsets are completed.

        Raises:
            OSError: the disk failed.
        """
        log = self.log
        self.lag = max(high_watermark - log.log_end_offset, 0)
        if log.follow_high_watermark(high_watermark) | log.maybe_increment_log_start_offset(log_start):
            self._wake(self._fetch_key)
            self._wake(self._hw_key)  # requests that wait for records of this node's former leadership
