"""One remembered fetch (KIP-227): what its reader wants, what it was told, and how a request in it is answered.

Source: ``FetchSession.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Protocol

from ottla.jobs.job import Job
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchResponse, PartitionData

PARTITIONS_PER_STEP = 64
"""Partitions looked at between two yields."""
PartitionKey = tuple[str | None, bytes, int]
"""What names a partition in a session: its topic's id where ids are spoken, else its topic's name."""


def partition_key(name: str | None, topic_id: bytes, partition: int, *, uses_ids: bool) -> PartitionKey:
    """A name may become known, or go, after its id was asked for: the id alone is what the reader means."""
    return (None, topic_id, partition) if uses_ids else (name, topic_id, partition)


class CachedPartition:
    """One partition a reader wants, and what it was told last."""

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
        """The reader moved on, or changed its limits."""
        self.fetch_offset = part.fetch_offset
        self.max_bytes = part.partition_max_bytes
        epoch = part.current_leader_epoch
        self.current_leader_epoch = epoch if epoch >= 0 else -1  # ``FetchRequest.optionalEpoch``
        self.last_fetched_epoch = part.last_fetched_epoch
        self.start_offset = part.log_start_offset

    def maybe_update_response_data(self, row: PartitionData) -> bool:
        """Return whether an incremental answer must hold this row; remembers what was said."""
        news = (
            len(row.records) > 0
            or row.error_code != 0
            or row.high_watermark != self.high_watermark
            or row.log_start_offset != self.log_start_offset
            or row.diverging_epoch.epoch >= 0
            or row.preferred_read_replica >= 0
        )
        self.high_watermark = -1 if row.error_code else row.high_watermark
        self.log_start_offset = row.log_start_offset
        return news


class FetchRowBuffer(Protocol):
    """Where what was read is put, in order."""

    def append(self, row: tuple[CachedPartition, PartitionData], /) -> None:
        """One partition more."""


class FetchContext(Protocol):
    """How one request is read and answered."""

    def requested_partitions(self) -> Collection[CachedPartition | None]:
        """The partitions to read, in order; None between them stands for a step without a partition."""

    def create_row_buffer(self) -> FetchRowBuffer:
        """Where to put what is read."""

    def build_response(self, rows: Any) -> Job[FetchResponse]:
        """The answer made of what was read."""

    @property
    def is_follower(self) -> bool:
        """True if who fetches says that it is a broker, to have what the leader has."""

    @property
    def is_session_owner(self) -> bool:
        """True if the request is of the follower that opened its session, which hears of partitions that change."""

    @property
    def session(self) -> FetchSession | None:
        """What is remembered of it once it is answered."""

    @property
    def wait_key(self) -> Hashable:
        """What wakes it besides its partitions, None for nothing: then there are partitions that are not looked at."""


FetchedPartitions = list[tuple[CachedPartition, PartitionData]]


def group_by_topic(rows: FetchedPartitions) -> Job[list[FetchableTopicResponse]]:
    """Rows under their topics, neighbours together."""
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
    """A remembered fetch."""

    is_privileged = False
    follower_id = -1
    """Id of the broker that opened it."""
    wait_key: Hashable = None
    """What a parked request of it waits on besides its partitions."""

    def __init__(
        self, session_id: int, wanted: dict[PartitionKey, CachedPartition], *, uses_ids: bool, now_ms: float
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.partitions = wanted
        self.uses_topic_ids = uses_ids
        self.last_used_ms = now_ms

    def record_request(self, now_ms: int) -> None:
        """Another request of it, by the wall clock."""

    def add_or_update(self, key: PartitionKey, part: FetchPartition) -> None:
        """The reader moved on in a partition, or wants one more; it is named when it is read."""
        known = self.partitions.get(key)
        if known is None:
            self.partitions[key] = CachedPartition(key[0], key[1], part)
        else:
            known.update_request_params(part)

    def remove(self, key: PartitionKey) -> None:
        """The reader does not want a partition any more."""
        self.partitions.pop(key, None)

    def partitions_to_read(self) -> list[CachedPartition]:
        """What has to be looked at."""
        return list(self.partitions.values())

    def on_response(self, rows: Any, watch: Any, wake: Callable[[Hashable], None]) -> Job[None]:
        """What was told last; ``watch`` and ``wake`` are for who need not look at everything each time."""
        return
        yield


class IncrementalFetchContext:
    """A request that names only what changed.

    Its own replica id says whether it is a follower's, not that of the request which opened the session
    (``FetchRequest.isFromFollower``).
    """

    def __init__(
        self, session: FetchSession, names: Mapping[bytes, str], *, is_follower: bool = False, is_own: bool = False
    ) -> None:
        """``is_own``: the request is of the follower that opened the session, and need not look at everything."""
        self.session = session
        self.is_follower = is_follower
        self.is_session_owner = is_own
        self.wait_key = session.wait_key if is_own else None
        self._topic_names = names

    def requested_partitions(self) -> list[CachedPartition]:
        """Partitions of the session; an id nobody knew when it was asked for may have got its name since."""
        session = self.session
        out = session.partitions_to_read() if self.is_session_owner else list(session.partitions.values())
        for want in out:
            if want.topic is None:
                want.topic = self._topic_names.get(want.topic_id)
        return out

    def create_row_buffer(self) -> FetchedPartitions:
        """All of them are looked at again."""
        return []

    def build_response(self, rows: FetchedPartitions) -> Job[FetchResponse]:
        """Rows with news; a partition that brought records goes to the end, so that all get their turn."""
        news, by_key = FetchedPartitions(), self.session.partitions
        for number, (want, row) in enumerate(rows, 1):
            if want.maybe_update_response_data(row):
                news.append((want, row))
                if len(row.records):
                    key = partition_key(want.topic, want.topic_id, want.partition, uses_ids=self.session.uses_topic_ids)
                    if key in by_key:
                        by_key[key] = by_key.pop(key)
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        responses = yield from group_by_topic(news)
        return FetchResponse(session_id=self.session.id, responses=responses)
