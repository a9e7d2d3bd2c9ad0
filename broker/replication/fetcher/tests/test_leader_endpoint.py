"""Protocol between brokers by metadata version and settings (R-311 to R-313)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.replication.fetcher.fetch_state import ReplicaFetchLimits
from ottla.broker.replication.fetcher.leader_endpoint import (
    FetcherDependencies,
    connect_to_leader,
    fetch_limits_of,
    fetch_version,
    list_offsets_version,
)
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.client.channel import Disconnected
from ottla.client.node_connection import NodeConnection
from ottla.wire.messages.fetch import FetchRequest


@pytest.mark.behaviour("R-312")
@pytest.mark.parametrize(
    ("level", "fetch", "list_offsets"),
    [
        (7, 13, 7),  # 3.3-IV3
        (8, 13, 7),
        (9, 14, 8),  # 3.5-IV0
        (10, 15, 8),  # 3.5-IV1
        (18, 15, 8),
        (19, 16, 8),  # 3.7-IV4
        (20, 16, 8),
        (21, 17, 9),  # 3.9-IV0
        (24, 17, 9),
        (25, 17, 10),  # 4.0-IV3
        (26, 17, 10),
        (27, 18, 10),  # 4.1-IV1
        (28, 18, 10),
        (29, 18, 11),  # 4.2-IV1
        (30, 18, 11),
    ],
)
def test_metadata_version_determines_request_versions(level: int, fetch: int, list_offsets: int) -> None:
    assert (fetch_version(level), list_offsets_version(level)) == (fetch, list_offsets)


@pytest.mark.behaviour("R-313")
def test_fetch_limits_come_from_their_settings() -> None:
    names = {"wait.max.ms": 11, "min.bytes": 22, "response.max.bytes": 33, "max.bytes": 44, "backoff.ms": 55}
    config = NodeConfig({f"replica.fetch.{name}": str(value) for name, value in names.items()}, "/a", 1)
    assert fetch_limits_of(config) == ReplicaFetchLimits(
        max_wait_ms=11, min_bytes=22, max_bytes=33, partition_max_bytes=44, backoff_ms=55
    )


class SilentStream:
    """Connection without responses."""

    peer, local = "h2", ("h1", 9092)

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.waited_s: list[float] = []
        self.closed = False

    async def send(self, chunks: Any) -> None:
        self.sent.append(b"".join(chunks))

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        self.waited_s.append(timeout_s)
        await trio.sleep(timeout_s)
        return 0

    def close(self) -> None:
        self.closed = True


def leader_connection(connect: Any, address: tuple[str, int] | None = ("h2", 9092)) -> NodeConnection:
    env: Any = VirtualEnv()
    env.net = SimpleNamespace(connect=connect)
    result = SimpleNamespace(code=None)
    dependencies = FetcherDependencies(env, 1, 3.0, lambda: 5, lambda: 30, lambda broker: address, lambda *_: result)
    assert not dependencies.is_throttled(result)  # type: ignore[arg-type]
    assert not dependencies.is_quota_exceeded()
    return connect_to_leader(dependencies, 2, "broker-1-fetcher-0")


@pytest.mark.behaviour("R-311")
def test_first_request_is_fetch_without_api_versions_and_times_out() -> None:
    silent = SilentStream()

    async def connect(host: str, port: int) -> SilentStream:
        assert (host, port) == ("h2", 9092)
        return silent

    async def scenario() -> None:
        connection = leader_connection(connect)
        with pytest.raises(Disconnected):
            await connection.call(FetchRequest(), 18)
        assert (trio.current_time(), silent.waited_s) == (3.0, [3.0])

    run_virtual(scenario)
    (sent,) = silent.sent
    assert sent[4:8] == b"\0\x01\0\x12", "Fetch 18, no ApiVersions before"
    assert b"broker-1-fetcher-0" in sent
    assert silent.closed


def test_connect_timeout_raises_os_error() -> None:
    async def connect(host: str, port: int) -> SilentStream:
        await trio.sleep_forever()
        raise AssertionError

    async def scenario() -> None:
        with pytest.raises(OSError, match=r"broker 2|connection timed out"):
            await leader_connection(connect).call(FetchRequest(), 18)
        assert trio.current_time() == 3.0

    run_virtual(scenario)


def test_leader_without_address_raises_disconnected() -> None:
    async def scenario() -> None:
        with pytest.raises(Disconnected, match="broker 2"):
            await leader_connection(None, None).call(FetchRequest(), 18)

    run_virtual(scenario)


def test_close_closes_the_connection() -> None:
    silent = SilentStream()

    async def connect(host: str, port: int) -> SilentStream:
        return silent

    async def scenario() -> None:
        connection = leader_connection(connect)
        with trio.move_on_after(1):
            await connection.call(FetchRequest(), 18)
        connection.close()
        assert silent.closed

    run_virtual(scenario)
