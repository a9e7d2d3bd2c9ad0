"""State of a follower's fetches from one leader: partitions, fetch session, backoffs.

Pure: `FollowerFetchState.build_fetch` returns the next Fetch, `FollowerFetchState.process_response` the outcome for
each partition of the response; the caller sends, appends and truncates, and reports the new log ends. One request is in
flight at a time.

Source: ``AbstractFetcherThread.scala``, ``RemoteLeaderEndPoint.scala``, ``FetchSessionHandler.java`` (apache/kafka
4.3.1); KIP-227, KIP-320, KIP-516, KIP-595 (diverging epochs), KIP-903.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.log.checkpoints.leader_epoch_cache import UNDEFINED_EPOCH
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

_MAX_SESSION_EPOCH = 2**31 - 1

PartitionKey = tuple[bytes, int]
"""Topic id and partition number."""


class ReplicaFetchLimits(NamedTuple):
    """Limits of a follower's Fetch in bytes and ms, from the settings ``replica.fetch.*`` (R-313)."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_ms: int = 1000
    """Backoff after an error, and interval of checks while there are no partitions to fetch (R-314, R-316)."""


DEFAULT_FETCH_LIMITS = ReplicaFetchLimits()
FIRST_BACKOFF_MS = 20
"""First backoff in ms, doubled up to ``backoff_ms`` after each further error; Kafka waits ``backoff_ms`` at once."""


MAX_NEW_PARTITIONS_PER_REQUEST = 1000
"""Maximum number of partitions added to a fetch session in one request; until all are added none waits for records.

Ten thousand partitions in one request would hold the event loop for 50 ms, here and at the leader.
"""


@dataclass(slots=True)
class PartitionFetchState:
    """State of a followed partition: fields of its next Fetch, end of its backoff (monotonic ms), failure (R-313)."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    not_before_ms: float = 0
    consecutive_errors: int = 0
    """Number of consecutive error responses for the partition."""
    is_failed: bool = False
    """True after a fatal error: the partition is not fetched until its leader epoch changes."""
    is_outcome_pending: bool = False
    """True until the outcome of the last response is applied to the log; the partition is not fetched meanwhile."""


class AppendOutcome(NamedTuple):
    """Outcome of a Fetch for a partition: records to append (empty or None: none), and the leader's offsets (R-319).

    The offsets are its high watermark and log start offset.
    """

    key: PartitionKey
    records: Opaque
    high_watermark: int
    log_start_offset: int


class DivergedOutcome(NamedTuple):
    """Outcome of a Fetch for a partition whose log diverges from the leader's and must be truncated (R-320).

    It has the leader's largest epoch not above the last fetched one, and the end offset of that epoch.
    """

    key: PartitionKey
    epoch: int
    end_offset: int


class OutOfRangeOutcome(NamedTuple):
    """Outcome of a Fetch at an offset out of the leader's range: log start and end must be requested (R-322)."""

    key: PartitionKey


class OffsetMovedOutcome(NamedTuple):
    """Outcome of a Fetch at an offset in the remote store: the local log must restart above it (KIP-405)."""

    key: PartitionKey


FetchOutcome = AppendOutcome | DivergedOutcome | OutOfRangeOutcome | OffsetMovedOutcome


class FollowerFetchState:
    """State of the fetches from one leader: fetch session, partitions. No I/O; times (``now_ms``) are monotonic."""

    def __init__(self, node_id: int, broker_epoch: int, limits: ReplicaFetchLimits = DEFAULT_FETCH_LIMITS) -> None:
        self._node_id = node_id
        self._limits = limits
        self.broker_epoch = broker_epoch
        """Broker epoch of this node; changes when the node registers again."""
        self._partitions: dict[PartitionKey, PartitionFetchState] = {}
        self._session_id = self._session_epoch = 0
        self._session_partitions: dict[PartitionKey, FetchPartition] = {}
        """Partitions of the fetch session, as last sent to the leader."""
        self._is_full_fetch = True
        """True if the request in flight is a full fetch (session epoch 0)."""
        self._leader_keeps_sessions = True
        """True if the last response had a session id; otherwise each request must contain all partitions."""
        self._changed: dict[PartitionKey, None] = {}
        """Partitions whose entry in the fetch session may have changed since the last request."""
        self._delayed: dict[PartitionKey, None] = {}
        """Partitions in backoff."""
        self._consecutive_failures = 0
        """Number of consecutive failed requests."""
        self._excluded: frozenset[PartitionKey] = frozenset()
        """Partitions not fetched for now: unflushed, or throttled by the follower quota (R-341)."""

    # -------------------------------------------------------------- changes from metadata and the log

    def add_partition(self, key: PartitionKey, leader_epoch: int, end: int, last_epoch: int, log_start: int) -> None:
        """Start to fetch a partition, or restart it with a new leader epoch; no effect for the same epoch (R-317).

        ``end``, ``last_epoch`` and ``log_start``: the follower's log end offset, last leader epoch and log start
        offset.
        """
        known = self._partitions.get(key)
        if known is None or known.leader_epoch != leader_epoch:
            self._partitions[key] = PartitionFetchState(leader_epoch, end, last_epoch, log_start)
            self._changed[key] = None

    def remove_partition(self, key: PartitionKey) -> None:
        """Stop fetching a partition that has another leader or was deleted."""
        if self._partitions.pop(key, None) is not None:
            self._changed[key] = None

    def update_log_state(self, key: PartitionKey, end: int, last_epoch: int, log_start: int) -> None:
        """Set the next fetch from the log's end, last epoch and start, after an outcome was applied or after a flush.

        The partition may be fetched then, unless it failed, is in backoff or excluded; no effect if it was removed.
        """
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
        """Replace the set of partitions that are not fetched although they are ready; an empty set excludes none."""
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
        """Delay the next fetch of a partition by ``backoff_ms``, after an outcome that could not be applied."""
        part = self._partitions.get(key)
        if part is not None:
            part.is_outcome_pending = False
            self._delay_until(key, part, now_ms + self._limits.backoff_ms)

    def _delay_until(self, key: PartitionKey, part: PartitionFetchState, until_ms: float) -> None:
        part.not_before_ms = until_ms
        self._changed[key] = self._delayed[key] = None

    def _backoff_ms(self, failures: int) -> float:
        """Return the backoff in ms after ``failures`` earlier consecutive failures; it doubles up to ``backoff_ms``."""
        return min(FIRST_BACKOFF_MS << min(failures, 16), self._limits.backoff_ms)

    # -------------------------------------------------------------- requests

    def next_fetch_ms(self, now_ms: float) -> float:
        """Return the monotonic time in ms of the next fetch: now, or the end of the first backoff (R-314).

        Without partitions to fetch it is ``backoff_ms`` from now.
        """
        fetching = (
            p
            for key, p in self._partitions.items()
            if not p.is_failed and not p.is_outcome_pending and key not in self._excluded
        )
        times = (p.not_before_ms for p in fetching)
        return max(now_ms, min(times, default=now_ms + self._limits.backoff_ms))

    def build_fetch(self, now_ms: float) -> FetchRequest | None:
        """Return the next Fetch, or None if no partition is to be fetched (R-313, R-314).

        The request counts as sent: the session state contains its changes. Within a fetch session, the cost depends on
        the changed partitions only.
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
        included: dict[PartitionKey, FetchPartition] = {}
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
                included[key] = row
                new_left -= known is None
        if not included and len(session) == len(gone):
            return None
        session.update(included)
        for key in gone:
            del session[key]
        self._session_partitions, self._is_full_fetch, self._changed = session, full, later
        return self._build_request(included, gone, waits=not later)

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

    # -------------------------------------------------------------- responses

    def process_response(self, response: FetchResponse, now_ms: float) -> list[FetchOutcome]:
        """Update session and partitions by a response; return the outcomes to apply to the logs (R-315).

        Empty after an error of the whole response, or if its partitions do not fit the session, which is reset then.
        Partitions whose fetch state changed since the request have no outcome, nor those with an error, except for
        OFFSET_OUT_OF_RANGE and OFFSET_MOVED_TO_TIERED_STORAGE. A partition with an outcome is not fetched until
        `update_log_state` or `delay` is called for it (or never: `mark_failed`).
        """
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
        """Back off all partitions after a failed request, longer after each; start a new session then (R-315)."""
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
        """Update a partition's fetch state by its row of the response; return its outcome.

        None after an error without an outcome of its own, which delays the partition or marks it failed, or if its
        state changed since the request.
        """
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
            case ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                self._mark_outcome_pending(key, part)
                return OffsetMovedOutcome(key)
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
    """Offset to truncate a follower's log to, and whether the logs agree below it.

    ``truncation_completed`` is False if the logs may still diverge below the offset, so that the next Fetch decides.
    """

    offset: int
    truncation_completed: bool


def compute_truncation(epoch: int, end: int, own: tuple[int, int], log_end: int) -> OffsetTruncationState:
    """Return the offset, exclusive, to which a diverged log is truncated (R-320); ``log_end`` is its end.

    ``epoch`` and ``end`` are the leader's diverging epoch and its end offset; ``own`` is the largest epoch not above it
    in this log, with its end offset (`LeaderEpochFileCache.end_offset_for`), or (-1, -1).
    """
    own_epoch, own_end = own
    if own_epoch == epoch:
        return OffsetTruncationState(min(own_end, end, log_end), truncation_completed=True)
    if own_epoch == UNDEFINED_EPOCH:
        return OffsetTruncationState(min(end, log_end), truncation_completed=True)
    return OffsetTruncationState(min(own_end, log_end), truncation_completed=False)
