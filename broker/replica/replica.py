"""One hosted partition: its log, and what the controller last said of it.

Source: ``Partition.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from ottla.broker.replica.partition import Committed, Eligible, Following, Leading, State
from ottla.controller.image import Partition
from ottla.log.partition_log import Appended, PartitionLog
from ottla.log.validate import Checked, Origin
from ottla.wire.batch import BatchHeader
from ottla.wire.errors import ErrorCode, ProtocolError


class IsrRules(NamedTuple):
    """What the node's settings and the image say about every partition's ISR."""

    lag_max_ms: int
    eligible: Eligible


class Replica:
    """A log that is led from here, or follows."""

    __slots__ = (
        "_fetch_key",
        "_flush_due",
        "_hw_key",
        "_rules",
        "_wake",
        "flushing",
        "is_alone",
        "is_leader",
        "leader_epoch",
        "log",
        "partition",
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
        self._hw_key = ("hw", log.topic, log.partition)
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
        self.flushing = False
        """Whether a sync that answers wait for is under way: what is appended behind it is committed by the next."""

    def follow_image(self, node_id: int, told: Partition, now_ms: int) -> bool:
        """Take over what the image says; True where this node begins to lead under a new epoch."""
        state, leads = self.state, told.leader == node_id
        self.leader_epoch = told.leader_epoch
        self.is_leader = leads
        if not leads:
            self.is_alone = False
            self.state = Following(told.leader_epoch, told.leader)
            self.changed()
            return False
        isr = Committed(told.isr, told.recovering > 0)
        if isinstance(state, Leading) and state.epoch == told.leader_epoch:
            if state.follow_image(told.partition_epoch, told.replicas, isr):
                self.is_alone = not state.followers
                self.flushed(self.log.log_end_offset if not self.flushing else self.log.recovery_point, now_ms)
            return False
        end = self.log.log_end_offset
        self.state = Leading.begin(node_id, told.leader_epoch, told.partition_epoch, told.replicas, isr, end, now_ms)
        self.is_alone = not self.state.followers
        return True

    def resign(self) -> None:
        """Nothing more is appended here: the partition, its directory or its leadership is gone."""
        self.is_leader = self.is_alone = False
        self.state = Following(self.leader_epoch)

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

    def check_min_isr(self) -> None:
        """Refuse what asks for acks=all while too few replicas are in sync (R337).

        Raises:
            ProtocolError: NOT_ENOUGH_REPLICAS.
        """
        state = self.state
        if type(state) is Leading and state.is_under_min_isr(self.log.settings.min_insync_replicas):
            raise ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def append(
        self,
        data: bytearray | memoryview,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        header: BatchHeader | None = None,
        checked: Checked | None = None,
        *,
        at_once: bool = True,
    ) -> Appended:
        """Append as leader; the high watermark moves as far as it may. ``header`` and the rest: as
        `PartitionLog.append_as_leader`.

        Raises:
            ProtocolError: refused; OSError: the disk failed; LookFirst: not ``at_once``, and it takes long.
        """
        log = self.log
        done = log.append_as_leader(data, self.leader_epoch, now_ms, origin, header, checked, at_once=at_once)
        if not done.duplicate:
            if log.unflushed_records >= log.settings.flush_messages:
                self._flush_due(self)  # counts once it is on the disk
            elif not self.flushing:
                self.advance(log.log_end_offset, now_ms)
        return done

    def count_what_was_found(self, now_ms: int) -> None:
        """Begin to lead with what is there. Behind the recovery point it may be in the page cache only.

        Where answers wait for the disk it counts once it is synced: a batch sent again is answered for the old one.
        """
        log = self.log
        if log.log_end_offset - log.recovery_point < log.settings.flush_messages:
            self.advance(log.log_end_offset, now_ms)
            return
        self.advance(log.recovery_point, now_ms)
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
                log.settings.min_insync_replicas,
                self._rules.eligible,
            )
        if committed is None or not log.set_high_watermark(committed):
            return False
        self._wake(self._fetch_key)
        if not self.is_alone:
            self._wake(self._hw_key)  # alone nobody waits for it but for a sync: `flushed`
        return True

    def flushed(self, end: int, now_ms: int) -> None:
        """Everything below ``end`` counts as this node's copy now, and who waits for that hears of it."""
        if self.advance(end, now_ms):
            self._wake(self._hw_key)

    def changed(self) -> None:
        """Leadership or the log's ends changed: whoever waits here looks again."""
        self._wake(self._fetch_key)
        self._wake(self._hw_key)
