"""Cached authorization of a connection in the handlers of Fetch and Produce. Source: ``KafkaApis`` (4.3.1)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.fetch_sessions import fetch_session_cache
from ottla.broker.fetch_sessions.fetch_session_cache import FetchSessionCache
from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.fetch.tests.test_fetch import request, rows_of
from ottla.broker.handlers.produce import produce
from ottla.broker.handlers.produce.tests.test_produce import request as bringing
from ottla.broker.handlers.produce.tests.test_produce import row_of
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.requests.peer import Peer
from ottla.broker.security.authz.tests.test_authorizer import acl, holding, record
from ottla.broker.tests.handler_fixture import HandlerFixture, resolve, run_virtual
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, ResourceType, StandardAcl
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import metadata_records

PRINCIPAL = "User:ANONYMOUS"
READ, WRITE = (
    acl(operation=AclOperation.READ, principal=PRINCIPAL),
    acl(operation=AclOperation.WRITE, principal=PRINCIPAL),
)
ACTION = acl(CLUSTER_NAME, AclOperation.CLUSTER_ACTION, principal=PRINCIPAL, kind=ResourceType.CLUSTER)
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
THERE = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""Broker 2 may follow, and has no replica."""


class AuthorizedConnection:
    """Connection to the leader of topic t with one batch."""

    def __init__(self, *rules: StandardAcl) -> None:
        self.fixture = HandlerFixture()
        self.replica = self.fixture.hosted.host("t")
        self.replica.append(make_batch(10), 1_000_000)
        self.authorizer = self.fixture.services.authorizer = holding(*rules)
        self._rules = rules
        self.peer = Peer("127.0.0.1", ("here", 9092))

    def drop(self) -> None:
        """Remove the rules."""
        draft = ImageBuilder(
            MetadataImage(others={("acl", n.to_bytes(16, "big")): record(n, x) for n, x in enumerate(self._rules)})
        )
        for number in range(len(self._rules)):
            draft.replay(metadata_records.RemoveAccessControlEntryRecord(number.to_bytes(16, "big")))
        image = run_to_end(draft.image(2, 1))
        self.authorizer.publish(image, run_to_end(draft.delta(image)))

    async def read(self, **more: Any) -> int:
        body = request(("t", 0, more.pop("at", 0)), **more)
        context = replace(self.fixture.context(ApiKey.FETCH, 14), peer=self.peer)
        (row,) = rows_of(await resolve(fetch.handle(context, body)))
        return int(row.error_code)

    async def write(self) -> int:
        context = replace(self.fixture.context(ApiKey.PRODUCE, 12), peer=self.peer)
        return row_of(await resolve(produce.handle(context, bringing(("t", 0, bytearray(make_batch(10))))))).error_code

    async def ask(self) -> tuple[int, int, int]:
        """Return the results of a read, a follower fetch and a write."""
        return await self.read(), await self.read(replica=2), await self.write()


@pytest.mark.parametrize(
    ("rules", "answers"),
    [
        ((), (REFUSED, REFUSED, REFUSED)),
        ((READ,), (0, REFUSED, REFUSED)),
        ((WRITE,), (REFUSED, REFUSED, 0)),
        ((ACTION,), (REFUSED, THERE, REFUSED)),
        ((READ, WRITE), (0, REFUSED, 0)),
        ((READ, WRITE, ACTION), (0, THERE, 0)),
    ],
)
def test_cached_authorization_of_one_operation_does_not_grant_another(
    rules: tuple[StandardAcl, ...], answers: tuple[int, int, int]
) -> None:
    connection = AuthorizedConnection(*rules)
    assert [run_virtual(connection.ask) for _ in range(3)] == [answers] * 3
    connection.drop()
    assert run_virtual(connection.ask) == (REFUSED, REFUSED, REFUSED)


def test_delayed_fetch_after_acl_removal_returns_authorization_failed() -> None:
    connection, reported = AuthorizedConnection(READ), list[int]()

    async def wait() -> None:
        reported.append(await connection.read(at=3, wait=5_000))

    async def run() -> None:
        assert await connection.read() == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            assert not reported
            connection.drop()
            connection.replica.append(make_batch(10), 1_000_000)

    run_virtual(run)
    assert reported == [REFUSED]


class Claims:
    """Client with the replica id of broker 2, and a consumer; the cache holds one fetch session."""

    def __init__(self, *rules: StandardAcl) -> None:
        self.connection = AuthorizedConnection(*rules)
        self.fixture = self.connection.fixture
        self.kept = self.fixture.services.fetch_sessions = FetchSessionCache(self.fixture.env, 1)  # type: ignore[arg-type]
        self.epoch = 0

    async def fetch(self, count: int, replica: int = -1, session: int = 0) -> tuple[set[int], int]:
        """Fetch partitions of topic t; return the row errors, or the top-level error, and the session id."""
        body = request(*(("t", number, 0) for number in range(count)))
        body.replica_state.replica_id = replica
        body.session_id, body.session_epoch = session, self.epoch
        context = replace(self.fixture.context(ApiKey.FETCH, 15), peer=self.connection.peer)
        answer: Any = await resolve(fetch.handle(context, body))
        return {row.error_code for row in rows_of(answer)} or {answer.error_code}, answer.session_id


@pytest.mark.parametrize("throttle", [False, True])
@pytest.mark.parametrize("most", [2, 10_000])
def test_replica_id_without_permission_gets_no_session_and_evicts_none(
    monkeypatch: pytest.MonkeyPatch, most: int, *, throttle: bool
) -> None:
    """A broker's session has no limit of partitions, and evicts those of readers."""
    claims = Claims(READ)
    if throttle:
        claims.fixture.hosted.leader_quota = SimpleNamespace(bytes_per_second=lambda _: 1)  # type: ignore[assignment]
    _, reading = run_virtual(lambda: claims.fetch(1))
    monkeypatch.setattr(fetch_session_cache, "MAX_FETCH_SESSION_PARTITIONS", most)
    assert run_virtual(lambda: claims.fetch(3, replica=2)) == ({REFUSED}, 0)
    assert claims.kept.get(reading) is not None


def test_permission_granted_during_large_fetch_is_consistent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch of so many has no session, and the follower's rows count towards no rate."""
    claims = Claims(READ, ACTION)
    throttle: Any = SimpleNamespace(
        bytes_per_second=lambda _: 1, is_throttled=lambda *_: False, is_exceeded=lambda *_: False
    )
    claims.fixture.hosted.leader_quota = throttle
    monkeypatch.setattr(fetch_session_cache, "MAX_FETCH_SESSION_PARTITIONS", 2)
    monkeypatch.setattr(fetch_session_cache, "_may_follow", lambda _: False)
    monkeypatch.setattr(HostedPartition, "check_follower", lambda *_, **__: None)
    monkeypatch.setattr(HostedPartition, "update_follower_fetch_state", lambda *_, **__: None)
    codes, session = run_virtual(lambda: claims.fetch(3, replica=2))
    assert (codes, session) == ({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, 0)


def test_follower_session_does_not_grow_after_permission_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = Claims(ACTION)
    _, following = run_virtual(lambda: claims.fetch(1, replica=2))
    monkeypatch.setattr(fetch_session_cache, "MAX_FETCH_SESSION_PARTITIONS", 2)
    claims.epoch = 1
    assert run_virtual(lambda: claims.fetch(3, replica=2, session=following))[1] == following
    claims.connection.drop()
    claims.epoch = 2
    assert run_virtual(lambda: claims.fetch(3, replica=2, session=following))[1] == following, "it asks for no more"
    claims.epoch = 3
    result = run_virtual(lambda: claims.fetch(4, replica=2, session=following))
    assert result == ({ErrorCode.FETCH_SESSION_ID_NOT_FOUND}, 0)
    assert len(claims.kept) == 0
