"""AlterReplicaLogDirs and DescribeLogDirs: responses, and visibility of a move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.handlers.admin import alter_replica_log_dirs, describe_log_dirs
from ottla.broker.requests.peer import Peer
from ottla.broker.tests.handler_fixture import resolve
from ottla.broker.tests.log_dir_moves_fixture import TOPIC_PARTITION, LogDirMovesFixture
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest


def context(fixture: LogDirMovesFixture, key: ApiKey) -> RequestContext:
    services: Any = SimpleNamespace(
        alter_log_dirs=fixture.alter_log_dirs,
        log_dirs=fixture.log_dirs,
        replica_manager=fixture.replica_manager,
        fail=fixture.failure_handler.handle_failure,
        metadata=fixture.cache,
    )
    version = BROKER_APIS[key].max_version
    peer = Peer("127.0.0.1", ("here", 9092))
    return RequestContext(services, peer, key, version, "client", fixture.env.now_ms(), BROKER_APIS)


async def alter(fixture: LogDirMovesFixture, *rows: tuple[str, str, int]) -> list[tuple[str, int, int]]:
    """Send rows of (path, topic, partition); return (topic, partition, error)."""
    request = AlterReplicaLogDirsRequest(
        [AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(name, [number])]) for path, name, number in rows]
    )
    answer = await resolve(alter_replica_log_dirs.handle(context(fixture, ApiKey.ALTER_REPLICA_LOG_DIRS), request))
    return [(t.topic_name, p.partition_index, p.error_code) for t in answer.results for p in t.partitions]


async def described(fixture: LogDirMovesFixture) -> dict[str, list[tuple[int, int, bool]]]:
    """Return partition, lag and future flag by directory."""
    answer = await resolve(
        describe_log_dirs.handle(context(fixture, ApiKey.DESCRIBE_LOG_DIRS), DescribeLogDirsRequest(None))
    )
    return {
        row.log_dir: [(p.partition_index, p.offset_lag, p.is_future_key) for t in row.topics for p in t.partitions]
        for row in answer.results
    }


def test_alter_replica_log_dirs_returns_row_per_partition_last_path_wins() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        rows = [("/b", "t", 0), ("/d", "u", 1), ("/d", "t", 7), ("/c", "t", 0)]
        assert await alter(fixture, *rows) == [("t", 0, 0), ("t", 7, 57), ("u", 1, 57)]
        assert fixture.log_dirs.directory_of(fixture.future_log).path == "/c"
        assert await alter(fixture) == []

    fixture.run_moves(scenario)


def test_describe_log_dirs_returns_future_log_with_its_lag() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        fixture.write(5)
        await alter(fixture, ("/b", "t", 0))
        assert await described(fixture) == {"/a": [(0, 0, False)], "/b": [(0, 5, True)], "/c": []}
        await fixture.until(lambda: fixture.future_log.log_end_offset == 5)
        fixture.write(2)
        assert (await described(fixture))["/b"] == [(0, 2, True)]
        fixture.replica_manager._hosted.pop(TOPIC_PARTITION)
        assert (await described(fixture))["/b"] == [(0, -1, True)], "nothing to hold it against"

    fixture.run_moves(scenario)
