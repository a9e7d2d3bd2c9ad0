"""State of a follower's fetches from one leader: partitions, fetch session, backoffs.

Pure: `FollowerFetchState.build_fetch` returns the next Fetch, `FollowerFetchState.process_response` the outcome of each
row; the caller sends, appends and truncates, and reports log ends. One request is in flight at a time.

Source: ``AbstractFetcherThread.scala``, ``RemoteLeaderEndPoint.scala``, ``FetchSessionHandler.java`` (apache/kafka
4.3.1); KIP-227, KIP-320, KIP-516, KIP-595 (diverging epochs), KIP-903.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ottla.log.checkpoints.leader_epoch_cache import UNDEFINED_EPOCH
from ottla.wire.codec.primitives import Buffer
from ottla.wire.codec.schema import Opaque
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.wire.record_batch.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES

APPEND_CHUNK_BYTES = 256 * 1024
APPEND_CHUNK_BATCHES = 64
_LENGTH_AND_EPOCH = struct.Struct(">ii").unpack_from
_MAX_SESSION_EPOCH = 2**31 - 1

PartitionKey = tuple[bytes, int]
"""Topic id and partition."""


class ReplicaFetchLimits(NamedTuple):
    """The settings of a follower's Fetch, ``replica.fetch.*`` (R-313)."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_ms: int = 1000
    """Backoff after an error, and without partitions to fetch (R-314, R-316)."""


DEFAULT_FETCH_LIMITS = ReplicaFetchLimits()
FIRST_BACKOFF_MS = 20
"""First backoff: a leader usually gets metadata of a partition a moment later. The backoff doubles up to
``backoff_ms``, which Kafka waits at once.
"""


MAX_NEW_PARTITIONS_PER_REQUEST = 1000
"""So many partitions at most are named in one request of a session; the others follow in the next ones, for none of
which records are waited. Ten thousand in one hold the loop for a twentieth of a second, here and at the leader.
"""


@dataclass(slots=True)
class PartitionFetchState:
    """Fetch state of a partition, as in the next Fetch (R-313)."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    not_before_ms: float = 0
    consecutive_errors: int = 0
    """In a row."""
    is_failed: bool = False
    """Silent until it has another leader epoch."""
    is_outcome_pending: bool = False
    """True while an outcome is not processed yet."""


class AppendOutcome(NamedTuple):
    """Records of the leader's, to be taken as they are; perhaps none, then only the offsets count (R-319)."""

    key: PartitionKey
    records: Opaque
    high_watermark: int
    log_start_offset: int


class DivergedOutcome(NamedTuple):
    """The leader's log has another past: ``epoch`` ends there at ``end`` (R-320)."""

    key: PartitionKey
    epoch: int
    end_offset: int


class OutOfRangeOutcome(NamedTuple):
    """Offset out of the leader's range: its log start and end must be requested (R-322)."""

    key: PartitionKey


FetchOutcome = AppendOutcome | DivergedOutcome | OutOfRangeOutcome


class FollowerFetchState:
    """Partitions fetched from one leader over one connection."""

    def __init__(self, node_id: int, broker_epoch: int, limits: ReplicaFetchLimits = DEFAULT_FETCH_LIMITS) -> None:
        self._node_id = node_id
        self._limits = limits
        self.broker_epoch = broker_epoch
        """Of this node; it may register again."""
        self._partitions: dict[PartitionKey, PartitionFetchState] = {}
        self._session_id = self._session_epoch = 0
        self._session_partitions: dict[PartitionKey, FetchPartition] = {}
        """What the leader was last told of each partition."""
        self._is_full_fetch = True
        """The request under way names everything, or begins to."""
        self._leader_keeps_sessions = True
        """True if the leader did when it was asked last: who does not has to be told everything each time."""
        self._changed: dict[PartitionKey, None] = {}
        """Of whom the leader may have to be told something."""
        self._delayed: dict[PartitionKey, None] = {}
        """Who waits after an error."""
        self._consecutive_failures = 0
        """Requests in a row that brought nothing."""
        self._excluded: frozenset[PartitionKey] = frozenset()
        """Who is not asked for now, so as not to be filled too fast (R-341)."""

    # -------------------------------------------------------------- changes from metadata and the log

    def add_partition(self, key: PartitionKey, leader_epoch: int, end: int, last_epoch: int, log_start: int) -> None:
        """Start to fetch a partition, or again with a new epoch; the same epoch has no effect (R-317)."""
        known = self._partitions.get(key)
        if known is None or known.leader_epoch != leader_epoch:
            self._partitions[key] = PartitionFetchState(leader_epoch, end, last_epoch, log_start)
            self._changed[key] = None

    def remove_partition(self, key: PartitionKey) -> None:
        """Remove a partition with another leader, or a deleted one."""
        if self._partitions.pop(key, None) is not None:
            self._changed[key] = None

    def update_log_state(self, key: PartitionKey, end: int, last_epoch: int, log_start: int) -> None:
        """Update the state after the log has changed as requested."""
        part = self._partitions.get(key)
        if part is not None:
            part.fetch_offset, part.last_fetched_epoch, part.log_start_offset, part.is_outcome_pending = (
                end,
                last_epoch,
                log_start,
                False,
            )
            self._changed[key] = None

    def exclude(self, keys: frozenset[PartitionKey]) -> None:
        """Exclude partitions from fetching until the next call."""
        if keys != self._excluded:
            self._changed.update(dict.fromkeys(keys ^ self._excluded))
            self._excluded = keys

    def mark_failed(self, key: PartitionKey) -> None:
        """Stop fetching a partition that failed, until its leader epoch changes (R-316)."""
        part = self._partitions.get(key)
        if part is not None:
            part.is_failed, part.is_outcome_pending = True, False
            self._changed[key] = None

    def delay(self, key: PartitionKey, now_ms: float) -> None:
        """Delay a partition whose records could not be appended."""
        part = self._partitions.get(key)
        if part is not None:
            part.is_outcome_pending = False
            self._delay_until(key, part, now_ms + self._limits.backoff_ms)

    def _delay_until(self, key: PartitionKey, part: PartitionFetchState, until_ms: float) -> None:
        part.not_before_ms = until_ms
        self._changed[key] = self._delayed[key] = None

    def _backoff_ms(self, failures: int) -> float:
        """Return the backoff after a number of consecutive failures, the first being 0."""
        return min(FIRST_BACKOFF_MS << min(failures, 16), self._limits.backoff_ms)

    # -------------------------------------------------------------- asking

    def next_fetch_ms(self, now_ms: float) -> float:
        """Return the time of the next fetch: now, or the end of a backoff (R-314)."""
        asked = (
            p
            for key, p in self._partitions.items()
            if not p.is_failed and not p.is_outcome_pending and key not in self._excluded
        )
        times = (p.not_before_ms for p in asked)
        return max(now_ms, min(times, default=now_ms + self._limits.backoff_ms))

    def build_fetch(self, now_ms: float) -> FetchRequest | None:
        """Return the next Fetch; None without partitions to fetch (R-313, R-314).

        In a session its cost depends on the changes only.
        """
        for key in [
            k for k in self._delayed if k not in self._partitions or self._partitions[k].not_before_ms <= now_ms
        ]:
            del self._delayed[key]
            self._changed[key] = None
        full = self._session_epoch <= 0
        if full:
            self._changed = dict.fromkeys([*self._partitions, *self._changed])
        session: dict[PartitionKey, FetchPartition] = {} if full else self._session_partitions
        told: dict[PartitionKey, FetchPartition] = {}
        gone: list[PartitionKey] = []
        new_left = MAX_NEW_PARTITIONS_PER_REQUEST if self._leader_keeps_sessions else len(self._changed)
        later: dict[PartitionKey, None] = {}
        for key in self._changed:
            known = session.get(key)
            if known is None and new_left == 0:
                later[key] = None
                continue
            part = self._partitions.get(key)
            if part is None or key in self._excluded or not _is_ready_to_fetch(part, now_ms):
                if known is not None:
                    gone.append(key)
                continue
            row = _fetch_partition(key[1], part, self._limits)
            if known != row:
                told[key] = row
                new_left -= known is None
        if not told and len(session) == len(gone):
            return None
        session.update(told)
        for key in gone:
            del session[key]
        self._session_partitions, self._is_full_fetch, self._changed = session, full, later
        return self._build_request(told, gone, waits=not later)

    def _build_request(
        self, partitions: dict[PartitionKey, FetchPartition], forgotten: list[PartitionKey], *, waits: bool
    ) -> FetchRequest:
        limits = self._limits
        request = FetchRequest(
            replica_state=ReplicaState(self._node_id, self.broker_epoch),
            max_wait_ms=limits.max_wait_ms if waits else 0,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
        )
        by_topic: dict[bytes, FetchTopic] = {}
        for (topic_id, _), row in partitions.items():
            by_topic.setdefault(topic_id, FetchTopic(topic_id=topic_id)).partitions.append(row)
        gone: dict[bytes, ForgottenTopic] = {}
        for topic_id, partition in forgotten:
            gone.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(partition)
        request.topics, request.forgotten_topics_data = list(by_topic.values()), list(gone.values())
        return request

    # -------------------------------------------------------------- answers

    def process_response(self, response: FetchResponse, now_ms: float) -> list[FetchOutcome]:
        """Return the outcome of each partition, without those whose log has changed since the request (R-315)."""
        if response.error_code != ErrorCode.NONE:
            self._on_error(response.error_code, now_ms)
            return []
        self._consecutive_failures = 0
        rows = {(t.topic_id, p.partition_index): p for t in response.responses for p in t.partitions}
        right = (
            rows.keys() == self._session_partitions.keys()
            if self._is_full_fetch
            else rows.keys() <= self._session_partitions.keys()
        )
        if not right:
            self.reset_session()
            return []
        self._leader_keeps_sessions = response.session_id != 0
        if not self._leader_keeps_sessions:
            self._session_id = self._session_epoch = 0
        elif self._is_full_fetch:
            self._session_id, self._session_epoch = response.session_id, 1
        else:
            self._session_epoch = self._session_epoch + 1 if self._session_epoch < _MAX_SESSION_EPOCH else 1
        found = (self._process_partition(key, row, now_ms) for key, row in rows.items())
        return [outcome for outcome in found if outcome is not None]

    def on_connection_failure(self, now_ms: float) -> None:
        """Back off all partitions after a failed request; a new connection begins a new session (R-315)."""
        self.reset_session()
        until_ms = now_ms + self._backoff_ms(self._consecutive_failures)
        self._consecutive_failures += 1
        for key, part in self._partitions.items():
            self._delay_until(key, part, max(until_ms, part.not_before_ms))

    def _on_error(self, code: int, now_ms: float) -> None:
        match code:
            case ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = self._session_epoch = 0
            case ErrorCode.INVALID_FETCH_SESSION_EPOCH:
                self.reset_session()
            case _:
                self.on_connection_failure(now_ms)

    def reset_session(self) -> None:
        """Reset the session: the next request is a full one, which closes the old session (KIP-227)."""
        self._session_epoch = 0

    def _process_partition(self, key: PartitionKey, row: PartitionData, now_ms: float) -> FetchOutcome | None:
        """R-316, row by row."""
        part, sent = self._partitions.get(key), self._session_partitions[key]
        if part is None or (part.fetch_offset, part.leader_epoch) != (sent.fetch_offset, sent.current_leader_epoch):
            return None
        match row.error_code:
            case ErrorCode.NONE if row.diverging_epoch.epoch >= 0:
                self._mark_outcome_pending(key, part)
                return DivergedOutcome(key, row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
            case ErrorCode.NONE:
                self._mark_outcome_pending(key, part)
                return AppendOutcome(key, row.records, row.high_watermark, row.log_start_offset)
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                self._mark_outcome_pending(key, part)
                return OutOfRangeOutcome(key)
            case ErrorCode.FENCED_LEADER_EPOCH:
                self.mark_failed(key)
            case _:
                self._delay_until(key, part, now_ms + self._backoff_ms(part.consecutive_errors))
                part.consecutive_errors += 1
        return None

    def _mark_outcome_pending(self, key: PartitionKey, part: PartitionFetchState) -> None:
        part.is_outcome_pending, part.consecutive_errors = True, 0
        self._changed[key] = None


def _is_ready_to_fetch(part: PartitionFetchState, now_ms: float) -> bool:
    return not part.is_failed and not part.is_outcome_pending and part.not_before_ms <= now_ms


def _fetch_partition(partition: int, part: PartitionFetchState, limits: ReplicaFetchLimits) -> FetchPartition:
    return FetchPartition(
        partition,
        current_leader_epoch=part.leader_epoch,
        fetch_offset=part.fetch_offset,
        last_fetched_epoch=part.last_fetched_epoch,
        log_start_offset=part.log_start_offset,
        partition_max_bytes=limits.partition_max_bytes,
    )


class OffsetTruncationState(NamedTuple):
    """Truncation offset, and whether the leader must be asked again from there."""

    offset: int
    truncation_completed: bool


def compute_truncation(epoch: int, end: int, own: tuple[int, int], log_end: int) -> OffsetTruncationState:
    """Return the offset to which a diverged log is truncated (R-320).

    ``epoch`` and ``end`` are the leader's; ``own`` is the end of that epoch in this log
    (`LeaderEpochFileCache.end_offset_for`): the largest epoch not above it with its end, (-1, -1) for an epoch above
    all of this log, or before it knew of any.
    """
    own_epoch, own_end = own
    if own_epoch == epoch:
        return OffsetTruncationState(min(own_end, end, log_end), truncation_completed=True)
    if own_epoch == UNDEFINED_EPOCH:
        return OffsetTruncationState(min(end, log_end), truncation_completed=True)
    return OffsetTruncationState(min(own_end, log_end), truncation_completed=False)


def split_batches(records: Buffer, leader_epoch: int) -> Iterator[memoryview]:
    """Yield the whole batches of a row, up to the first of an epoch above ``leader_epoch`` (R-319).

    What begins like no batch comes as it is: the log refuses it.
    """
    view = memoryview(records)
    start = at = count = 0
    while at + HEADER_BYTES <= len(view):
        length, epoch = _LENGTH_AND_EPOCH(view, at + 8)
        if epoch > leader_epoch:
            break
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            at = len(view)
            break
        if at + length + LOG_OVERHEAD_BYTES > len(view):
            break
        at += length + LOG_OVERHEAD_BYTES
        count += 1
        if count == APPEND_CHUNK_BATCHES or at - start >= APPEND_CHUNK_BYTES:
            yield view[start:at]
            start, count = at, 0
    if at > start:
        yield view[start:at]
