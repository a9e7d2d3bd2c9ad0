"""Cache of incremental fetch sessions (KIP-227).

A request with epoch 0 opens a session, epoch -1 requests no session; both close the session that they name. Any other
epoch must be the expected one, which is incremented and wraps to 1. An incremental response omits unchanged partitions.

Source: ``FetchSession.java``, ``FetchMetadata.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Protocol

from ottla.broker.config.limits import (
    MAX_CACHED_FETCH_PARTITIONS,
    MAX_FETCH_SESSION_PARTITIONS,
    MIN_FETCH_SESSION_EVICTION_MS,
)
from ottla.broker.fetch_sessions.fetch_session import (
    PARTITIONS_PER_STEP,
    CachedPartition,
    FetchContext,
    FetchedPartitions,
    FetchSession,
    IncrementalFetchContext,
    PartitionKey,
    group_by_topic,
    partition_key,
)
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.wire.codec.compiler import response_array
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

INITIAL_EPOCH = 0
FINAL_EPOCH = -1


class FetchRequestContext(Protocol):
    """Interface of the context of a Fetch request, as far as sessions use it: client id and authorization."""

    client_id: str

    def may(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Return True if the client is authorized for an operation on a resource type."""


class _FullFetchContext:
    """Context of a full fetch; with ``sessions`` its response opens a fetch session, if the cache is not full."""

    def __init__(
        self,
        partitions: dict[PartitionKey, CachedPartition],
        sessions: FetchSessionCache | None,
        *,
        uses_ids: bool,
        follower: int,
        client_id: str = "",
    ) -> None:
        self._partitions = partitions
        self._sessions = sessions
        self._client_id = client_id
        self._uses_topic_ids = uses_ids
        self._follower_id = follower
        self.is_follower = follower >= 0
        self.session: FetchSession | None = None
        self.wait_key: Hashable = None

    @property
    def is_session_owner(self) -> bool:
        """True if the request has opened a follower's session."""
        return self.session is not None and self.session.is_privileged

    def requested_partitions(self) -> list[CachedPartition]:
        """Return all partitions of the request: a full fetch reads each of them."""
        return list(self._partitions.values())

    def create_row_buffer(self) -> FetchedPartitions:
        """Return a list of all rows, as the session is created from all of them."""
        return []

    def build_response(self, rows: FetchedPartitions) -> Job[FetchResponse]:
        """Return the response with all rows, and with a new session id, 0 if the cache is full, as a job."""
        session_id = 0
        if self._sessions is not None and rows:
            for number, (want, row) in enumerate(rows, 1):
                want.maybe_update_response_data(row)
                if number % PARTITIONS_PER_STEP == 0:
                    yield None
            session_id = self._sessions.maybe_create_session(
                self._partitions, uses_ids=self._uses_topic_ids, follower=self._follower_id
            )
            self.session = self._sessions.get(session_id)
            if self.session is not None:
                self.session.client_id = self._client_id
        responses = yield from group_by_topic(rows)
        return FetchResponse(session_id=session_id, responses=responses)


class _TopicGrouper:
    """Buffer of response rows that groups them by topic and encodes them in blocks, which bounds the memory."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._last: tuple[str | None, bytes] | None = None
        self._partitions: list[PartitionData] = []
        self.topics: list[FetchableTopicResponse] = response_array(FetchResponse, version)

    def append(self, pair: tuple[CachedPartition, PartitionData]) -> None:
        """Append a partition's row to its topic."""
        want, row = pair
        at = (want.topic, want.topic_id)
        if at != self._last:
            self._last = at
            self._partitions = response_array(FetchResponse, self._version)
            self.topics.append(FetchableTopicResponse(want.topic or "", want.topic_id, self._partitions))
        self._partitions.append(row)


class _LargeFetchContext:
    """Context of a full fetch with very many partitions: it opens no session and stores no partitions.

    A duplicate partition is read once, in its first position and with its last parameters.
    """

    session: FetchSession | None = None
    wait_key: Hashable = None
    is_session_owner = False

    def __init__(
        self, request: FetchRequest, version: int, names: Mapping[bytes, str], count: int, *, is_follower: bool
    ) -> None:
        self.is_follower = is_follower
        self._request = request
        self._version = version
        self._topic_names = names
        self._count = count
        self._duplicates: dict[PartitionKey, FetchPartition] = {}

    def find_duplicates(self) -> Job[None]:
        """Find the partitions that occur more than once, as a job; others with equal hashes are harmless."""
        seen: set[int] = set()
        for topic in self._request.topics:
            for part in topic.partitions:
                key = self._key(topic, part)
                if hash(key) in seen:
                    self._duplicates[key] = part
                seen.add(hash(key))
                yield None
            yield None

    @staticmethod
    def _key(topic: FetchTopic, part: FetchPartition) -> PartitionKey:
        return topic.topic, topic.topic_id, part.partition  # a version has either names or ids

    def __len__(self) -> int:
        return self._count

    def __contains__(self, _: object) -> bool:
        raise AssertionError("no request uses it")

    def __iter__(self) -> Iterator[CachedPartition | None]:
        """Yield the partitions; None at the end of a topic and for a repeated partition lets the caller yield."""
        done: set[PartitionKey] = set()
        for topic in self._request.topics:
            name = self._topic_names.get(topic.topic_id) if self._version >= 13 else topic.topic
            for part in topic.partitions:
                key = self._key(topic, part)
                if key in self._duplicates:
                    if key in done:
                        yield None
                        continue
                    done.add(key)
                yield CachedPartition(name, topic.topic_id, self._duplicates.get(key, part))
            yield None

    def requested_partitions(self) -> Collection[CachedPartition | None]:
        """Return this context, which iterates over the request's partitions."""
        return self

    def create_row_buffer(self) -> _TopicGrouper:
        """Return a buffer that groups the read partitions by topic, in the form of the Fetch response."""
        return _TopicGrouper(self._version)

    def build_response(self, rows: _TopicGrouper) -> Job[FetchResponse]:
        """Return the response with all rows and without a session, as a job."""
        return FetchResponse(responses=rows.topics)
        yield


class FetchSessionCache:
    """Cache of this broker's fetch sessions by id, with ``slots`` sessions at most.

    A new session may evict the least recently used one; see `maybe_create_session`.
    """

    def __init__(self, env: Env, slots: int) -> None:
        self._env = env
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        """Return the session with an id; None if it does not exist."""
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> FetchSession | None:
        """Close the session with an id and return it; None if it does not exist."""
        return self._sessions.pop(session_id, None)

    def new_context(
        self, names: Mapping[bytes, str], version: int, request: FetchRequest, context: FetchRequestContext
    ) -> Job[FetchContext | FetchResponse]:
        """Return the context of a Fetch request, or an error response for an invalid session, as a job.

        The session of the request is updated: its epoch is incremented, partitions are added and removed. A full fetch
        (epoch 0 or -1) closes the session that it names. A session that grows above the limits is closed, with
        FETCH_SESSION_ID_NOT_FOUND; one without partitions left is closed, too.

        ``names``: topic names by id. A replica id without CLUSTER_ACTION gets no session, and errors in its rows.
        """
        uses_ids = version >= 13
        epoch, session_id = request.session_epoch, request.session_id
        follower = max(request.replica_id, request.replica_state.replica_id)  # the version decides which one is set
        is_follower = follower >= 0
        count = 0
        for number, topic in enumerate(request.topics, 1):
            count += len(topic.partitions)
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        is_whole = epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        is_broker = is_whole and is_follower and _may_follow(context)
        if is_whole and count > MAX_FETCH_SESSION_PARTITIONS and not is_broker:
            self._sessions.pop(session_id, None)
            long = _LargeFetchContext(request, version, names, count, is_follower=is_follower)
            yield from long.find_duplicates()
            return long
        named = yield from _partitions_by_key(request, uses_ids=uses_ids)
        if is_whole:
            if session_id:
                self._sessions.pop(session_id, None)
            fresh: dict[PartitionKey, CachedPartition] = {}
            for number, (key, part) in enumerate(named.items(), 1):
                fresh[key] = CachedPartition(names.get(key[1]) if uses_ids else key[0], key[1], part)
                if number % PARTITIONS_PER_STEP == 0:
                    yield None
            is_kept = epoch == INITIAL_EPOCH and version >= 7 and (is_broker or not is_follower)
            sessions = self if is_kept else None
            return _FullFetchContext(fresh, sessions, uses_ids=uses_ids, follower=follower, client_id=context.client_id)
        session = self._sessions.get(session_id)
        if session is None:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != uses_ids:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.advance_epoch()  # before the next yield, as other tasks may run then
        before = len(session.partitions)
        yield from _update_session(session, request, named)
        if len(session.partitions) > before and self._is_too_large(session, context):
            self._sessions.pop(session.id, None)  # too large: the client falls back to a full fetch
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._sessions.pop(session.id, None)
            return _FullFetchContext({}, None, uses_ids=uses_ids, follower=follower)
        session.last_used_ms = self._env.monotonic_ms()
        is_own = session.is_privileged and follower == session.follower_id
        if is_own:
            session.record_request(self._env.now_ms())
        return IncrementalFetchContext(session, names, is_follower=is_follower, is_own=is_own)

    def _is_too_large(self, session: FetchSession, context: FetchRequestContext) -> bool:
        if session.is_privileged and _may_follow(context):  # its authorization may have been revoked
            return False
        return (
            len(session.partitions) > MAX_FETCH_SESSION_PARTITIONS
            or self._cached_partition_count() > MAX_CACHED_FETCH_PARTITIONS
        )

    def _cached_partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values() if not session.is_privileged)

    def maybe_create_session(
        self, partitions: dict[PartitionKey, CachedPartition], *, uses_ids: bool, follower: int
    ) -> int:
        """Create a session with ``partitions`` and return its id; 0 if no session can be created.

        That is so if the cache is full, by sessions or (for a consumer) by partitions of all consumers' sessions, and
        not enough sessions may be evicted. The least recently used one goes first: for a consumer if it was idle for
        two minutes, for a follower also any session of a consumer.
        """
        now, privileged = self._env.monotonic_ms(), follower >= 0
        while len(self._sessions) >= self._slots or (
            not privileged and self._cached_partition_count() + len(partitions) > MAX_CACHED_FETCH_PARTITIONS
        ):
            weaker = (
                s
                for s in self._sessions.values()
                if not s.is_privileged or now - s.last_used_ms >= MIN_FETCH_SESSION_EVICTION_MS
            )
            oldest = min(weaker, key=lambda s: s.last_used_ms, default=None)
            if oldest is None or (now - oldest.last_used_ms < MIN_FETCH_SESSION_EVICTION_MS and not privileged):
                return 0
            del self._sessions[oldest.id]
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = int(self._env.random() * (2**31 - 1)) + 1
        if privileged:
            # lazy: 0.7 ms, 20 kB: only in a cluster
            from ottla.broker.fetch_sessions.follower_session import FollowerFetchSession

            self._sessions[session_id] = FollowerFetchSession(
                session_id, partitions, follower, uses_ids=uses_ids, used_ms=now, now_ms=self._env.now_ms()
            )
        else:
            self._sessions[session_id] = FetchSession(session_id, partitions, uses_ids=uses_ids, now_ms=now)
        return session_id


def _may_follow(context: FetchRequestContext) -> bool:
    return context.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def _partitions_by_key(request: FetchRequest, *, uses_ids: bool) -> Job[dict[PartitionKey, FetchPartition]]:
    """Return the partitions of a request by key, as a job; a duplicate has its last parameters."""
    named: dict[PartitionKey, FetchPartition] = {}
    number = 0
    for topic in request.topics:
        name = None if uses_ids else topic.topic
        for part in topic.partitions:
            named[name, topic.topic_id, part.partition] = part
            number += 1
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        number += 1
        if number % PARTITIONS_PER_STEP == 0:
            yield None
    return named


def _update_session(
    session: FetchSession, request: FetchRequest, named: dict[PartitionKey, FetchPartition]
) -> Job[None]:
    by_key = session.partitions
    for number, (key, part) in enumerate(named.items(), 1):
        known = by_key.get(key)
        if known is None or session.is_privileged:
            session.add_or_update(key, part)
        else:
            known.update_request_params(part)
        if number % PARTITIONS_PER_STEP == 0:
            yield None
    for number, topic in enumerate(request.forgotten_topics_data, 1):
        topic_id = topic.topic_id if session.uses_topic_ids else ZERO_UUID
        for count, partition in enumerate(topic.partitions, 1):
            session.remove(partition_key(topic.topic, topic_id, partition, uses_ids=session.uses_topic_ids))
            if count % PARTITIONS_PER_STEP == 0:
                yield None
        if number % PARTITIONS_PER_STEP == 0:
            yield None
