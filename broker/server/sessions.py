"""Fetch sessions (KIP-227): the node remembers what a consumer fetches, so requests and answers carry only changes.

(id 0, epoch 0) asks for a session, epoch -1 wants none, any other epoch counts up by one and wraps to 1. An
incremental answer leaves out partitions that have nothing new.

Source: ``FetchSession.java``, ``FetchMetadata.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Protocol

from ottla.broker.server.session import STEP, FetchContext, Incremental, Key, Pairs, Session, Wanted, grouped, key_of
from ottla.broker.turn import Steps
from ottla.controller.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.schema import ZERO_UUID
from ottla.wire.written import StreamingArray
from ottla.world.env import Env

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MIN_EVICTION_MS = 120_000
MANY_PARTITIONS = 10_000
"""A fetch of more is not remembered: some 250 bytes each."""
MOST_REMEMBERED = 500_000
"""So many partitions are remembered in all sessions together."""


class Asks(Protocol):
    """Who fetches."""

    def may(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether it may do something to the cluster."""


class _Full:
    """A request that names everything; with ``sessions`` it opens one."""

    def __init__(self, wanted: dict[Key, Wanted], sessions: Sessions | None, *, uses_ids: bool, follower: int) -> None:
        self._wanted = wanted
        self._sessions = sessions
        self._uses_ids = uses_ids
        self._follower = follower
        self.is_follower = follower >= 0
        self.session: Session | None = None
        self.parks_on: Hashable = None

    @property
    def is_own(self) -> bool:
        """Whether it has opened a follower's session."""
        return self.session is not None and self.session.privileged

    def wanted(self) -> list[Wanted]:
        """All partitions of the request."""
        return list(self._wanted.values())

    def rows(self) -> Pairs:
        """All of them are looked at again."""
        return []

    def respond(self, rows: Pairs) -> Steps[FetchResponse]:
        """All rows; the id of a new session where there is room for one."""
        session_id = 0
        if self._sessions is not None and rows:
            for number, (want, row) in enumerate(rows, 1):
                want.is_news(row)
                if number % STEP == 0:
                    yield
            session_id = self._sessions.create(self._wanted, uses_ids=self._uses_ids, follower=self._follower)
            self.session = self._sessions.get(session_id)
        responses = yield from grouped(rows)
        return FetchResponse(session_id=session_id, responses=responses)


class _Grouped:
    """Rows under their topics, as objects no longer than they must be."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._last: tuple[str | None, bytes] | None = None
        self.topics: list[FetchableTopicResponse] = StreamingArray(FetchResponse, version)

    def append(self, pair: tuple[Wanted, PartitionData]) -> None:
        """One partition more."""
        want, row = pair
        at = (want.topic, want.topic_id)
        if at != self._last:
            self._last = at
            self.topics.append(
                FetchableTopicResponse(want.topic or "", want.topic_id, StreamingArray(FetchResponse, self._version))
            )
        self.topics[-1].partitions.append(row)


class _Long:
    """A request that names very many partitions: it opens no session, and nothing is kept of it.

    What is asked for more than once is read once, in its first place and as it was asked for last.
    """

    session: Session | None = None
    parks_on: Hashable = None
    is_own = False

    def __init__(
        self, request: FetchRequest, version: int, names: Mapping[bytes, str], count: int, *, is_follower: bool = False
    ) -> None:
        self.is_follower = is_follower
        self._request = request
        self._version = version
        self._names = names
        self._count = count
        self._again: dict[Key, FetchPartition] = {}

    def look(self) -> Steps[None]:
        """Find what is asked for more than once. Two that only seem to be the same do no harm."""
        seen: set[int] = set()
        for topic in self._request.topics:
            for part in topic.partitions:
                key = self._key(topic, part)
                if hash(key) in seen:
                    self._again[key] = part
                seen.add(hash(key))
                yield
            yield

    def _key(self, topic: FetchTopic, part: FetchPartition) -> Key:
        return key_of(topic.topic, topic.topic_id, part.partition, uses_ids=self._version >= 13)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, _: object) -> bool:
        raise AssertionError("nobody asks")

    def __iter__(self) -> Iterator[Wanted | None]:
        """Yield the partitions; None for a topic or a repetition that is left out, so that no step is long."""
        done: set[Key] = set()
        for topic in self._request.topics:
            name = self._names.get(topic.topic_id) if self._version >= 13 else topic.topic
            for part in topic.partitions:
                key = self._key(topic, part)
                if key in self._again:
                    if key in done:
                        yield None
                        continue
                    done.add(key)
                yield Wanted(name, topic.topic_id, self._again.get(key, part))
            yield None

    def wanted(self) -> Collection[Wanted | None]:
        """Made anew each time."""
        return self

    def rows(self) -> _Grouped:
        """They are not looked at again."""
        return _Grouped(self._version)

    def respond(self, rows: _Grouped) -> Steps[FetchResponse]:
        """All rows."""
        return FetchResponse(responses=rows.topics)
        yield


class Sessions:
    """The node's fetch sessions; the least recently used gives way once it has been idle for two minutes."""

    def __init__(self, env: Env, slots: int) -> None:
        self._env = env
        self._slots = slots
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> Session | None:
        """What is remembered under an id."""
        return self._sessions.get(session_id)

    def open(
        self, names: Mapping[bytes, str], version: int, request: FetchRequest, asks: Asks
    ) -> Steps[FetchContext | FetchResponse]:
        """How to serve a request, a step a partition; a response where the session it names is not what it thinks.

        ``names``: of topics by id, as they are known now. Anybody can say that he is a replica: without the right to be
        one nothing is remembered of him, and he gets his errors.
        """
        uses_ids = version >= 13
        epoch, session_id = request.session_epoch, request.session_id
        follower = max(request.replica_id, request.replica_state.replica_id)  # which of them: by version
        is_follower = follower >= 0
        count = 0
        for number, topic in enumerate(request.topics, 1):
            count += len(topic.partitions)
            if number % STEP == 0:
                yield
        is_whole = epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        is_broker = is_whole and is_follower and _may_follow(asks)
        if is_whole and count > MANY_PARTITIONS and not is_broker:
            self._sessions.pop(session_id, None)
            long = _Long(request, version, names, count, is_follower=is_follower)
            yield from long.look()
            return long
        named = yield from _named(request, uses_ids=uses_ids)
        if is_whole:
            if session_id:
                self._sessions.pop(session_id, None)
            fresh: dict[Key, Wanted] = {}
            for number, (key, part) in enumerate(named.items(), 1):
                fresh[key] = Wanted(names.get(key[1]) if uses_ids else key[0], key[1], part)
                if number % STEP == 0:
                    yield
            is_kept = epoch == INITIAL_EPOCH and version >= 7 and (is_broker or not is_follower)
            return _Full(fresh, self if is_kept else None, uses_ids=uses_ids, follower=follower)
        session = self._sessions.get(session_id)
        if session is None:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_ids != uses_ids:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = 1 if epoch == 2**31 - 1 else epoch + 1  # first: others may go on during what follows
        before = len(session.by_key)
        yield from _update(session, request, named)
        if len(session.by_key) > before and self._is_too_large(session, asks):
            self._sessions.pop(session.id, None)  # it has grown too large: the reader goes on without one
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.by_key:
            self._sessions.pop(session.id, None)
            return _Full({}, None, uses_ids=uses_ids, follower=follower)
        session.used_ms = self._env.monotonic_ms()
        is_own = session.privileged and follower == session.follower
        if is_own:
            session.came(self._env.now_ms())
        return Incremental(session, names, is_follower=is_follower, is_own=is_own)

    def _is_too_large(self, session: Session, asks: Asks) -> bool:
        if session.privileged and _may_follow(asks):  # it may have lost that right since
            return False
        return len(session.by_key) > MANY_PARTITIONS or self._remembered() > MOST_REMEMBERED

    def _remembered(self) -> int:
        return sum(len(session.by_key) for session in self._sessions.values() if not session.privileged)

    def create(self, wanted: dict[Key, Wanted], *, uses_ids: bool, follower: int = -1) -> int:
        """Remember a fetch; 0 where there is no room. A follower takes the place of the reader that is idle longest."""
        now, privileged = self._env.monotonic_ms(), follower >= 0
        while len(self._sessions) >= self._slots or (
            not privileged and self._remembered() + len(wanted) > MOST_REMEMBERED
        ):
            weaker = (s for s in self._sessions.values() if not s.privileged or now - s.used_ms >= MIN_EVICTION_MS)
            oldest = min(weaker, key=lambda s: s.used_ms, default=None)
            if oldest is None or (now - oldest.used_ms < MIN_EVICTION_MS and not privileged):
                return 0
            del self._sessions[oldest.id]
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = int(self._env.random() * (2**31 - 1)) + 1
        if privileged:
            from ottla.broker.server.followers import FollowerSession  # a node alone never has one

            self._sessions[session_id] = FollowerSession(
                session_id, wanted, follower, uses_ids=uses_ids, used_ms=now, now_ms=self._env.now_ms()
            )
        else:
            self._sessions[session_id] = Session(session_id, wanted, uses_ids=uses_ids, now_ms=now)
        return session_id


def _may_follow(asks: Asks) -> bool:
    return asks.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def _named(request: FetchRequest, *, uses_ids: bool) -> Steps[dict[Key, FetchPartition]]:
    """Return the partitions of a request; one that is named again counts as it was named last."""
    named: dict[Key, FetchPartition] = {}
    number = 0
    for topic in request.topics:
        name = None if uses_ids else topic.topic
        for part in topic.partitions:
            named[name, topic.topic_id, part.partition] = part
            number += 1
            if number % STEP == 0:
                yield
        number += 1
        if number % STEP == 0:
            yield
    return named


def _update(session: Session, request: FetchRequest, named: dict[Key, FetchPartition]) -> Steps[None]:
    by_key = session.by_key
    for number, (key, part) in enumerate(named.items(), 1):
        known = by_key.get(key)
        if known is None or session.privileged:
            session.want(key, part)
        else:
            known.update(part)
        if number % STEP == 0:
            yield
    for number, topic in enumerate(request.forgotten_topics_data, 1):
        topic_id = topic.topic_id if session.uses_ids else ZERO_UUID
        for count, partition in enumerate(topic.partitions, 1):
            session.forget(key_of(topic.topic, topic_id, partition, uses_ids=session.uses_ids))
            if count % STEP == 0:
                yield
        if number % STEP == 0:
            yield
