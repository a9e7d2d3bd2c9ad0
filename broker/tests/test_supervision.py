"""Supervision of background tasks: logged failures, restarts, and end of the node on programming errors."""

from __future__ import annotations

import errno
import logging
from itertools import pairwise
from typing import Any

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.network.bound_listeners import BindError, BoundListeners
from ottla.broker.storage.deleted_logs import DeletedLogRemover
from ottla.broker.tests.broker_storage_fixture import BrokerStorageFixture, SlowEnv, led_topic
from ottla.broker.tests.handler_fixture import run_virtual
from ottla.jobs.supervision import MAX_BACKOFF_S, STABLE_AFTER_S, raise_unwrapped, run_logging_failure, supervise


def fails(times: int, error: BaseException, seen: list[float], runs_s: float = 0.0) -> Any:
    async def work() -> None:
        seen.append(trio.current_time())
        await trio.sleep(runs_s)
        if len(seen) <= times:
            raise error

    return work


def test_failing_task_is_restarted_with_growing_backoff_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[float] = []

    async def main() -> None:
        await supervise(SlowEnv(), "counting", fails(9, ValueError("no"), seen))  # type: ignore[arg-type]

    with caplog.at_level(logging.ERROR):
        run_virtual(main)
    waits = [b - a for a, b in pairwise(seen)]
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, MAX_BACKOFF_S, MAX_BACKOFF_S, MAX_BACKOFF_S])
    assert len(caplog.records) == 9
    assert "counting failed" in caplog.text


def test_backoff_is_reset_after_a_long_run() -> None:
    seen: list[float] = []

    async def main() -> None:
        await supervise(SlowEnv(), "x", fails(3, ValueError("no"), seen, STABLE_AFTER_S + 1))  # type: ignore[arg-type]

    run_virtual(main)
    assert [b - a for a, b in pairwise(seen)] == pytest.approx([STABLE_AFTER_S + 2] * 3)


@pytest.mark.parametrize("grouped", [False, True])
def test_assertion_error_is_raised_without_restart(grouped: bool) -> None:
    ours = AssertionError("ours")
    error: Exception = ExceptionGroup("g", [ValueError("x"), ours]) if grouped else ours
    seen: list[float] = []

    async def supervised() -> None:
        await supervise(SlowEnv(), "x", fails(1, error, seen))  # type: ignore[arg-type]

    async def attempted() -> None:
        await run_logging_failure("x", fails(9, error, seen))

    for main in (supervised, attempted):
        with pytest.raises((AssertionError, ExceptionGroup)) as caught:
            run_virtual(main)
        assert caught.value is error
    assert len(seen) == 2


def test_run_logging_failure_logs_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[float] = []

    async def main() -> None:
        await run_logging_failure("a try", fails(5, ValueError("no"), seen))

    run_virtual(main)
    assert len(seen) == 1
    assert "a try failed" in caplog.text


def test_raise_unwrapped_raises_single_nested_error() -> None:
    inner = ValueError("x")
    with pytest.raises(ValueError, match="x") as caught:
        raise_unwrapped(ExceptionGroup("a", [ExceptionGroup("b", [inner])]))
    assert caught.value is inner
    two = ExceptionGroup("a", [inner, KeyError("y")])
    with pytest.raises(ExceptionGroup) as both:
        raise_unwrapped(two)
    assert both.value is two


def test_bind_error_of_address_in_use_names_it() -> None:
    class Net:
        async def listen(self, host: str, port: int, buffers: Any) -> Any:
            raise OSError(errno.EADDRINUSE, "in use")

    env: Any = SlowEnv()
    env.net = Net()

    async def main() -> None:
        await BoundListeners(env, NodeConfig(host="127.0.0.1", port=9092)).bind_clients()

    with pytest.raises(BindError, match=r"Socket server failed to bind to 127\.0\.0\.1:9092: Address already in use"):
        run_virtual(main)


def test_failed_directory_is_lost_once_and_metadata_directory_ends_node() -> None:
    fixture = BrokerStorageFixture("/a,/b")
    lost: list[int] = []
    fixture.failure_handler.on_logs_offline.append(lambda logs: lost.append(len(logs)))

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 4))
        await fixture.publisher.wait_applied_and_created()
        replica = fixture.replica_manager.get("t", 1)
        assert replica is not None
        fixture.failure_handler.handle_failure(OSError(errno.EMFILE, "short"), replica.log)
        assert not fixture.log_dirs.offline
        assert not lost
        fixture.failure_handler.handle_failure(OSError(errno.EIO, "gone"), replica.log)
        fixture.failure_handler.handle_failure(OSError(errno.EIO, "gone"), fixture.log_dirs.directories[1])
        assert lost == [2]
        assert not replica.is_leader
        assert fixture.ended == 0
        fixture.failure_handler.handle_failure(
            OSError(errno.EMFILE, "short")
        )  # an error of the metadata log is never transient
        fixture.failure_handler.handle_failure(OSError(errno.EIO, "again"))
        assert fixture.ended == 1

    fixture.run(scenario)
    assert fixture.failure_handler.failure is not None
    assert fixture.failure_handler.failure.errno == errno.EMFILE
    assert lost == [2]


def test_renamed_directories_are_deleted_after_their_delay(caplog: pytest.LogCaptureFixture) -> None:
    env: Any = SlowEnv()
    removals = DeletedLogRemover(env, 60_000)
    env.disk.makedirs("/a/x-delete")
    env.disk.makedirs("/a/y-delete")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(removals.run)
            removals.schedule("/a/x-delete")
            await trio.sleep(30)
            removals.schedule("/a/y-delete")
            await trio.sleep(29)
            assert env.disk.exists("/a/x-delete")
            await trio.sleep(2)
            assert not env.disk.exists("/a/x-delete")
            assert env.disk.exists("/a/y-delete")
            env.disk.fault = lambda call, path: OSError(errno.EMFILE, "short", path) if "y-delete" in path else None
            await trio.sleep(30)
            assert "y-delete" not in caplog.text, "it is tried again"
            env.disk.fault = lambda call, path: OSError(errno.EIO, "no", path) if "y-delete" in path else None
            await trio.sleep(60)
            env.disk.fault = None
            assert "Failed to delete the directory of a deleted partition: '/a/y-delete'" in caplog.text
            env.disk.makedirs("/a/z-delete")
            removals.schedule("/a/z-delete")
            await trio.sleep(61)
            assert not env.disk.exists("/a/z-delete")
            nursery.cancel_scope.cancel()

    run_virtual(main)
