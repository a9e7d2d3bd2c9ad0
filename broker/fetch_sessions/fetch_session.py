"""Fetch session (KIP-227): its partitions with the state last returned to the client, and incremental responses.

Source: ``FetchSession.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Protocol

from ottla.jobs.job import Job
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchResponse, PartitionData

PARTITIONS_PER_STEP = 64
"""Partitions processed between two yields to the event loop."""
PartitionKey = tuple[str | None, bytes, int]
"""Key of a partition in a session: topic name (None in versions with topic ids), topic id, partition."""


def partition_key(name: str | None, topic_id: bytes, partition: int, *, uses_ids: bool) -> PartitionKey:
    """Return the key of a partition in a session.

    With ``uses_ids`` (topic ids) the key has no name, as the name of an id may become known later.
    """
    return (None, topic_id, partition) if uses_ids else (name, topic_id, partition)


class CachedPartition:
    """Partition of a fetch session: fetch parameters of the last request, and offsets of the last response."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str | None, topic_id: bytes, part: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = part.partition
        self.high_watermark = -1
        self.log_start_offset = -1
        self.update_request_params(part)

    def update_request_params(self, part: FetchPartition) -> None:
        """Set fetch offset, limit and epochs from the partition of a request."""
        self.fetch_offset = part.fetch_offset
        self.max_bytes = part.partition_max_bytes
        epoch = part.current_leader_epoch
        self.current_leader_epoch = epoch if epoch >= 0 else -1  # ``FetchRequest.optionalEpoch``
        self.last_fetched_epoch = part.last_fetched_epoch
        self.start_offset = part.log_start_offset

    def maybe_update_response_data(self, row: PartitionData) -> bool:
        """Store the returned offsets of a row; return True if an incremental response must contain the row.

        It must with records, an error, another high watermark or log start offset than before, a diverging epoch or a
        preferred read replica.
        """
        is_changed = (
            len(row.records) > 0
            or row.error_code != 0
            or row.high_watermark != self.high_watermark
            or row.log_start_offset != self.log_start_offset
            or row.diverging_epoch.epoch >= 0
            or row.preferred_read_replica >= 0
        )
        self.remember_response(-1 if row.error_code else row.high_watermark, row.log_start_offset)
        return is_changed

    def remember_response(self, high_watermark: int, log_start_offset: int) -> None:
        """Store the high watermark and log start offset that a response returns."""
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset


class FetchRowBuffer(Protocol):
    """Interface of a buffer for the rows of a Fetch response: partitions that were read, in order."""

    def append(self, row: tuple[CachedPartition, PartitionData], /) -> None:
        """Append a partition of the session and its row of the Fetch response."""


class FetchContext(Protocol):
    """Interface of the context of one Fetch request: partitions to read, response, and fetch session."""

    def requested_partitions(self) -> Collection[CachedPartition | None]:
        """Return the partitions to read, in order; None entries are skipped, and only let the caller yield."""

    def create_row_buffer(self) -> FetchRowBuffer:
        """Create the buffer for the rows of the response."""

    def build_response(self, rows: Any) -> Job[FetchResponse]:
        """Return the response with the rows of the partitions that were read, as a job; update or open the session.

        ``rows`` is what `create_row_buffer` returned.
        """

    @property
    def is_follower(self) -> bool:
        """True if the replica id of the request is that of a follower, not -1 of a consumer."""

    @property
    def is_session_owner(self) -> bool:
        """True if the request comes from the follower that opened the session, which is notified of changes."""

    @property
    def session(self) -> FetchSession | None:
        """Fetch session once the response is built; None without one."""

    @property
    def wait_key(self) -> Hashable:
        """Purgatory key of changes in partitions of the session that the request does not read; None if it reads all.

        A change completes a delayed fetch.
        """


FetchedPartitions = list[tuple[CachedPartition, PartitionData]]


def group_by_topic(rows: FetchedPartitions) -> Job[list[FetchableTopicResponse]]:
    """Group adjacent partitions of the same topic into the topics of a fetch response, as a job."""
    out: list[FetchableTopicResponse] = []
    last: tuple[str | None, bytes] | None = None
    for number, (want, row) in enumerate(rows, 1):
        at = (want.topic, want.topic_id)
        if at != last:
            out.append(FetchableTopicResponse(want.topic or "", want.topic_id))
            last = at
        out[-1].partitions.append(row)
        if number % PARTITIONS_PER_STEP == 0:
            yield None
    return out


class FetchSession:
    """Fetch session of a client: its partitions, next epoch, and monotonic time in ms of the last use."""

    is_privileged = False
    follower_id = -1
    """Id of the broker that opened the session; -1 for a consumer."""
    wait_key: Hashable = None
    """Purgatory key that a delayed request of the session watches besides its partitions; None if it reads all."""

    def __init__(
        self, session_id: int, partitions: dict[PartitionKey, CachedPartition], *, uses_ids: bool, now_ms: float
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.partitions = partitions
        self.uses_topic_ids = uses_ids
        self.last_used_ms = now_ms
        self.client_id = ""
        """Client id of the request that opened the session."""

    def advance_epoch(self) -> None:
        """Increment the expected epoch of the next request; it wraps from 2^31 - 1 to 1."""
        self.epoch = 1 if self.epoch == 2**31 - 1 else self.epoch + 1

    def record_request(self, now_ms: int) -> None:
        """Record the wall-clock time in ms of a request of the session; no effect for consumers."""

    def add_or_update(self, key: PartitionKey, part: FetchPartition) -> None:
        """Add a partition or update its fetch parameters; the name of a topic id is resolved when it is read."""
        known = self.partitions.get(key)
        if known is None:
            self.partitions[key] = CachedPartition(key[0], key[1], part)
        else:
            known.update_request_params(part)

    def remove(self, key: PartitionKey) -> None:
        """Remove a partition that the client no longer fetches; do nothing if the session does not have it."""
        self.partitions.pop(key, None)

    def partitions_to_read(self) -> list[CachedPartition]:
        """Return the partitions that a request reads: all of the session."""
        return list(self.partitions.values())

    def on_response(self, rows: Any, watch: Any, wake: Callable[[Hashable], None]) -> Job[None]:
        """Update the session after a response, as a job; no effect if the session reads all partitions each time.

        ``rows``, ``watch`` and ``wake`` are used by `FollowerFetchSession`.
        """
        return
        yield


class IncrementalFetchContext:
    """Context of a fetch that continues a session; its request contains only changed partitions.

    The replica id of the request itself decides whether it comes from a follower, not that of the request that opened
    the session (``FetchRequest.isFromFollower``).
    """

    def __init__(self, session: FetchSession, names: Mapping[bytes, str], *, is_follower: bool, is_own: bool) -> None:
        """Create a context; ``names`` has topic names by id.

        ``is_own``: the request comes from the follower that opened the session, and need not read every partition.
        """
        self.session = session
        self.is_follower = is_follower
        self.is_session_owner = is_own
        self.wait_key = session.wait_key if is_own else None
        self._topic_names = names

    def requested_partitions(self) -> list[CachedPartition]:
        """Return the partitions to read; names of topic ids that were unknown before are resolved."""
        session = self.session
        out = session.partitions_to_read() if self.is_session_owner else list(session.partitions.values())
        for want in out:
            if want.topic is None:
                want.topic = self._topic_names.get(want.topic_id)
        return out

    def create_row_buffer(self) -> FetchedPartitions:
        """Return a list of all rows, as the response is built from all of them."""
        return []

    def build_response(self, rows: FetchedPartitions) -> Job[FetchResponse]:
        """Return the response with the changed rows, as a job; move partitions with records to the session's end."""
        changed, by_key = FetchedPartitions(), self.session.partitions
        for number, (want, row) in enumerate(rows, 1):
            if want.maybe_update_response_data(row):
                changed.append((want, row))
                if len(row.records):
                    key = partition_key(want.topic, want.topic_id, want.partition, uses_ids=self.session.uses_topic_ids)
                    if key in by_key:
                        by_key[key] = by_key.pop(key)
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        responses = yield from group_by_topic(changed)
        return FetchResponse(session_id=self.session.id, responses=responses)
