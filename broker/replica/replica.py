"""One hosted partition: its log, and what the controller last said of it.

Source: ``PartitionRegistration.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from ottla.broker.replica.partition import (
    Answered,
    Committed,
    Eligible,
    Following,
    Isr,
    IsrAnswer,
    IsrChange,
    Leading,
    Line,
    State,
)
from ottla.controller.image import PartitionRegistration
from ottla.log.partition_log import LogAppendInfo, PartitionLog
from ottla.log.validate import AppendOrigin, ValidatedBatch
from ottla.log.verification import NO_TXN_CONTEXT, TxnAppendContext
from ottla.wire.batch import BatchHeader, offset_range
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.primitives import Buffer

IN_DOUBT_MS = 1000
"""For so long a node that was relieved hastens to hear what its successor has committed: a few rounds of fetches, on a
machine that is short of everything.
"""


class Asked(NamedTuple):
    """A change of the ISR that the controller is to be asked for; only its answer to this very one counts."""

    replica: Replica
    leading: Leading
    pending: Isr
    change: IsrChange

    @property
    def is_current(self) -> bool:
        """Whether it is still wanted: the image may have been quicker, and the leadership may have gone."""
        return self.replica.state is self.leading and self.leading.isr is self.pending


class IsrRules(NamedTuple):
    """What the node's settings and the image say about every partition's ISR, and who hears of what becomes of it."""

    lag_max_ms: int
    eligible: Eligible
    ask: Callable[[Asked], None] = lambda asked: None
    """Have the controller asked for another ISR."""
    committed: Callable[[Replica], None] = lambda replica: None
    """The high watermark has moved, and not by an append."""
    epoch_of: Callable[[int], int] = lambda broker: -1
    """The broker epoch the image has of a broker that is alive, -1 for none."""


class Replica:
    """A log that is led from here, or follows."""

    __slots__ = (
        "_end_key",
        "_fetch_key",
        "_flush_due",
        "_hw_key",
        "_rules",
        "_start_key",
        "_wake",
        "doubtful_end",
        "flushing",
        "is_alone",
        "is_leader",
        "lag",
        "leader_epoch",
        "log",
        "partition",
        "reign",
        "state",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        log: PartitionLog,
        topic_id: bytes,
        wake: Callable[[Hashable], None],
        flush_due: Callable[[Replica], None],
        rules: IsrRules,
    ) -> None:
        self._wake = wake
        self._flush_due = flush_due
        self._rules = rules
        self._fetch_key = ("fetch", log.topic, log.partition)
        self._end_key = ("end", log.topic, log.partition)
        self._hw_key = ("hw", log.topic, log.partition)
        self._start_key = ("start", log.topic, log.partition)
        self.log = log
        self.topic = log.topic
        self.partition = log.partition
        self.topic_id = topic_id
        self.state: State = Following(-1)
        self.is_leader = False
        self.is_alone = False
        """Whether this node leads and nobody else has a replica: then its own end is the high watermark.

        `state` says it too, in more steps; each append asks.
        """
        self.leader_epoch = -1
        self.lag = 0
        """Committed records that a follower was without when it last heard of its leader."""
        self.reign = 0
        """How often this node began to lead after it had followed: what is in the log since one began stays there."""
        self.doubtful_end = 0
        """Where the log ended when this node led last: what lies below may wait for its successor's word."""
        self.flushing = False
        """Whether a sync that answers wait for is under way: what is appended behind it is committed by the next."""

    def follow_image(self, node_id: int, told: PartitionRegistration, now_ms: int) -> bool:
        """Take over what the image says; True where this node begins to lead under a new epoch."""
        state, leads = self.state, told.leader == node_id
        self._tell(more=True)
        self.leader_epoch = epoch = told.leader_epoch
        self.is_leader = leads
        if not leads:
            self.is_alone = False
            if type(state) is Leading:
                self.doubtful_end = self.log.log_end_offset
            self.state = Following(told.leader_epoch, told.leader)
            self.changed()
            return False
        isr = Committed(told.isr, told.recovering > 0)
        if isinstance(state, Leading) and state.epoch == epoch:
            if state.follow_image(told.partition_epoch, told.replicas, isr):
                self.is_alone = not state.followers
                self.flushed(self._own_end(), now_ms)
                self._wake(self._start_key)
            return False
        end = self.log.log_end_offset
        # An epoch that the image passed over may have been led by another broker: its followers may have truncated.
        before = state if type(state) is Leading and state.epoch == epoch - 1 else None
        self.state = Leading.begin(node_id, epoch, told.partition_epoch, told.replicas, isr, end, now_ms, before)
        self.is_alone = not self.state.followers
        if type(state) is Following:
            self.reign += 1
        return True

    def resign(self) -> None:
        """Nothing more is appended here: the partition, its directory or its leadership is gone."""
        self._tell(more=True)
        self.is_leader = self.is_alone = False
        self.state = Following(self.leader_epoch)

    @property
    def is_in_doubt(self) -> bool:
        """Whether it is not known of all that was taken while this node led if the leader after it has committed it."""
        return self.log.high_watermark < min(self.doubtful_end, self.log.log_end_offset)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Hold a client's idea of the leader epoch against ours; -1 is no idea.

        Raises:
            ProtocolError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        if current_leader_epoch == -1 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def check_leads(self, current_leader_epoch: int) -> None:
        """The same, and that this node leads: in Kafka's order.

        Raises:
            ProtocolError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_min_isr(self) -> None:
        """Refuse what asks for acks=all while too few replicas are in sync (R337).

        Raises:
            ProtocolError: NOT_ENOUGH_REPLICAS.
        """
        state = self.state
        if type(state) is Leading and state.is_under_min_isr(self.log.config.min_insync_replicas):
            raise ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def has_enough(self) -> bool:
        """Whether what is below the high watermark lies at enough replicas: the second look of acks=all (R337)."""
        state = self.state
        return type(state) is Leading and state.has_enough_for(self.log.config.min_insync_replicas)

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
        """Append as leader; the high watermark moves as far as it may. ``header`` and the rest: as
        `PartitionLog.append_as_leader`.

        Raises:
            ProtocolError: refused; OSError: the disk failed; LookFirst: not ``at_once``, and it takes long.
        """
        log = self.log
        done = log.append_as_leader(data, self.leader_epoch, now_ms, origin, header, checked, at_once=at_once, txn=txn)
        if not done.duplicate:
            if not self.is_alone:
                self._wake(self._end_key)
                self._tell(more=True)
            if log.unflushed_records >= log.config.flush_messages:
                self._flush_due(self)  # counts once it is on the disk
            elif not self.flushing:
                self.advance(log.log_end_offset, now_ms)
        return done

    def count_what_was_found(self, now_ms: int) -> None:
        """Begin to lead with what is there. Behind the recovery point it may be in the page cache only.

        Where answers wait for the disk it counts once it is synced: a batch sent again is answered for the old one.
        """
        log = self.log
        if log.log_end_offset - log.recovery_point < log.config.flush_messages:
            self.flushed(log.log_end_offset, now_ms)
            return
        self.flushed(log.recovery_point, now_ms)
        self._flush_due(self)

    def advance(self, own_end: int, now_ms: int) -> bool:
        """Move the high watermark, where this node's own copy counts up to ``own_end``; says whether it moved."""
        state, log = self.state, self.log
        committed: int | None = own_end
        if not self.is_alone:
            if type(state) is not Leading:
                return False
            committed = state.high_watermark(
                own_end,
                log.log_end_offset,
                now_ms,
                self._rules.lag_max_ms,
                log.config.min_insync_replicas,
                self._rules.eligible,
            )
        if committed is None or not log.set_high_watermark(committed):
            return False
        self._wake(self._fetch_key)
        if not self.is_alone:
            self._wake(self._hw_key)  # alone nobody waits for it but for a sync: `flushed`
            self._tell(more=False)
        return True

    def flushed(self, end: int, now_ms: int) -> None:
        """Everything below ``end`` counts as this node's copy now, and who waits for that hears of it."""
        if self.advance(end, now_ms):
            self._wake(self._hw_key)

    def changed(self) -> None:
        """Leadership or the log's ends changed: whoever waits here looks again."""
        self._tell(more=False)
        self._wake(self._fetch_key)
        self._wake(self._end_key)
        self._wake(self._hw_key)
        self._wake(self._start_key)

    def _own_end(self) -> int:
        """Up to where this node's own copy counts."""
        return self.log.recovery_point if self.flushing else self.log.log_end_offset

    # ------------------------------------------------------------------ followers, as the leader sees them

    def check_follower(self, broker: int, broker_epoch: int, *, names_epoch: bool) -> None:
        """Whether a broker may fetch here as a follower (R325). One that this node does not know of yet asks again.

        Raises:
            ProtocolError: UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        state = self.state
        if type(state) is not Leading:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if broker not in state.followers:
            raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH if names_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if -1 < broker_epoch < self._rules.epoch_of(broker):
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # an earlier process of it (KIP-903)

    def fetched(
        self, broker: int, broker_epoch: int, offset: int, log_start: int, leader_end: int, now_ms: int
    ) -> None:
        """A follower's fetch has come: it has everything below ``offset``, may join the ISR, and what it has may be
        committed now (R327). ``leader_end``: where the log ended then.
        """
        state = self.state
        if type(state) is not Leading or broker not in state.followers:
            return
        before = state.followers[broker]
        was = before.end_offset, before.log_start_offset
        state.fetched(broker, broker_epoch, offset, log_start, leader_end, now_ms)
        self._ask(state, state.expand(broker, self.log.high_watermark, self._rules.eligible))
        if was[0] != offset and self.advance(self._own_end(), now_ms):
            self._rules.committed(self)
        if was[1] != log_start:
            self._wake(self._start_key)

    def watch(self, broker: int, offset: int, high_watermark: int, log_start: int, line: Line) -> bool:
        """Have a follower told of the next change here, where it knows all there is; says whether that is so.

        One outside the ISR is always looked at: each of its fetches may let it in.
        """
        state, log = self.state, self.log
        if type(state) is not Leading or type(state.isr) is not Committed or broker not in state.isr.isr:
            return False
        if (log.log_end_offset, log.high_watermark, log.log_start_offset) != (offset, high_watermark, log_start):
            return False
        follower = state.followers[broker]
        if follower.end_offset != offset:
            return False
        follower.tell(more=True)  # a session of it that was to be told looks for itself now, or it would stay deaf
        follower.line = line
        return True

    def _tell(self, *, more: bool) -> None:
        """Followers that had everything until now look again."""
        state = self.state
        if type(state) is Leading:
            for follower in state.followers.values():
                if follower.line is not None:
                    follower.tell(more=more)

    def shrink(self, now_ms: int) -> None:
        """Have those taken out of the ISR who have been behind for too long (R331)."""
        state = self.state
        if type(state) is Leading:
            self._ask(state, state.shrink(now_ms, self.log.log_end_offset, self._rules.lag_max_ms))

    def _ask(self, state: Leading, change: IsrChange | None) -> None:
        if change is not None:
            self._rules.ask(Asked(self, state, state.isr, change))

    def answered(self, asked: Asked, answer: IsrAnswer, now_ms: int) -> Answered:
        """What the controller said to a change of the ISR (R334). It is ignored where the image was quicker."""
        if not asked.is_current:
            return Answered.IGNORED
        outcome = asked.leading.answered(answer)
        if outcome is Answered.TAKEN and self.advance(self._own_end(), now_ms):
            self._rules.committed(self)
        return outcome

    def low_watermark(self, alive: Mapping[int, object]) -> int:
        """The lowest log start among the replicas that are alive (R338)."""
        state, own = self.state, self.log.log_start_offset
        return state.low_watermark(own, alive) if type(state) is Leading else own

    # ------------------------------------------------------------------ following

    def append_as_follower(self, raw: Buffer, now_ms: int) -> bool:
        """Take some of the leader's batches as they are; says whether they must be synced before they count.

        Raises:
            ProtocolError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE; OSError: the disk failed.
        """
        assert type(self.state) is Following, self.log.describe()
        log = self.log
        if log.log_end_offset == log.log_start_offset:
            self._begin_with(raw, now_ms)
        log.append_as_follower(raw, now_ms)
        return log.unflushed_records >= log.config.flush_messages

    def _begin_with(self, raw: Buffer, now_ms: int) -> None:
        """The leader's log may start within a batch, where records were deleted: an empty log begins with all of it,
        and its start follows (``PartitionRegistration.appendRecordsToFollowerOrFutureReplica``).
        """
        first, last = offset_range(raw)
        if first < self.log.log_end_offset <= last:
            self.log.truncate_fully_and_start_at(first, now_ms)

    def follow_offsets(self, high_watermark: int, log_start: int) -> None:
        """What the leader says of its high watermark, then of its log start, holds here as far as the log reaches
        (R319).

        Raises:
            OSError: the disk failed.
        """
        log = self.log
        self.lag = max(high_watermark - log.log_end_offset, 0)
        if log.follow_high_watermark(high_watermark) | log.maybe_increment_log_start_offset(log_start):
            self._wake(self._fetch_key)
            self._wake(self._hw_key)  # who waits for what this node took when it led
