"""Controller without file descriptors or memory for a while: it waits, and loses no record."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Any

import pytest
import trio

from ottla.controller.quorum_controller import QuorumController
from ottla.controller.raft.driver.resource_retry import LOG_EVERY_ATTEMPTS, retry_call_on_shortage
from ottla.controller.tests.controller_fixture import SINGLE_NODE_QUORUM, ControllerFixture, ControllerTestEnv
from ottla.controller.tests.test_quorum_controller import code, topic, virtual
from ottla.log.directory.log_directory import LogDirectory
from ottla.wire.errors import ErrorCode, ProtocolError

NEED_DESCRIPTORS = ("open", "listdir", "fsync_dir")
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "700", "metadata.max.retention.bytes": "3000"}


def short(number: int = errno.EMFILE) -> OSError:
    return OSError(number, "short")


async def create(controller: Any, name: str) -> None:
    """Create a topic; retry after NOT_CONTROLLER, as brokers do."""
    while True:
        with suppress(ProtocolError):
            assert code(await controller.submit(topic(name), 7)) in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
            return
        await trio.sleep(0.2)


async def run_controller(fixture: ControllerFixture, names: list[str], fault: Any) -> int:
    """Run a controller that creates topics; return the number of calls that needed a descriptor."""
    calls = 0

    def count(operation: str, path: str) -> OSError | None:
        nonlocal calls
        calls += operation in NEED_DESCRIPTORS
        return fault(calls) if operation in NEED_DESCRIPTORS else None

    async with fixture.controller() as controller:
        fixture.env.disk.fault = count
        for name in names:
            await create(controller, name)
            await trio.sleep(0.5)
        fixture.env.disk.fault = None
        await trio.sleep(1)
        assert not fixture.failures
        assert set(names) <= set(controller.image.topics)
    return calls


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
@virtual
async def test_controller_with_one_shortage_at_any_call_keeps_all_topics(number: int) -> None:
    names = [f"t{i}" for i in range(8)]
    fixture = ControllerFixture(**SETTINGS)
    most = await run_controller(fixture, names, lambda call: None)
    assert most > 10
    for at in range(1, most + 1):
        fixture = ControllerFixture(**SETTINGS)
        await run_controller(fixture, names, lambda call, at=at: short(number) if call == at else None)
        async with fixture.controller(broker=False) as again:
            assert set(names) == set(again.image.topics)


@pytest.mark.parametrize("path", ["quorum-state.tmp", "__cluster_metadata-0"])
@virtual
async def test_voter_without_descriptors_at_start_becomes_leader_later(path: str) -> None:
    fixture = ControllerFixture()
    async with fixture.controller():
        pass
    env = fixture.env = ControllerTestEnv(fixture.disk, fixture._ids)
    failed = 0

    def fault(operation: str, at: str) -> OSError | None:
        nonlocal failed
        is_short = operation in NEED_DESCRIPTORS and at.endswith(path) and failed < 30
        failed += is_short
        return short() if is_short else None

    async with trio.open_nursery() as nursery:
        directory = LogDirectory(env.disk, "/data")
        made = QuorumController(
            env, directory, fixture.identity, fixture.defaults, fixture.failures.append, SINGLE_NODE_QUORUM
        )
        made.load()
        env.disk.fault = fault
        nursery.start_soon(made.run)
        with trio.fail_after(60):
            await made.wait_ready()
            assert made.is_active
        nursery.cancel_scope.cancel()
    assert failed == 30
    assert not fixture.failures


@virtual
async def test_retry_call_on_shortage_raises_disk_error_and_logs_shortage_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env: Any = ControllerTestEnv(ControllerFixture().disk, iter(range(9)))
    errors = [short(errno.ENFILE)] * (LOG_EVERY_ATTEMPTS + 1) + [OSError(errno.EIO, "gone")]

    def work() -> None:
        raise errors.pop(0)

    with pytest.raises(OSError, match="gone"):
        await retry_call_on_shortage(env, work)
    assert not errors
    assert len(caplog.records) == 2


@virtual
async def test_controller_with_unreadable_log_becomes_active_after_shortage() -> None:
    fixture = ControllerFixture()
    async with fixture.controller() as controller:
        await create(controller, "t")
    directory = LogDirectory(fixture.env.disk, "/data")
    made = QuorumController(
        fixture.env, directory, fixture.identity, fixture.defaults, fixture.failures.append, SINGLE_NODE_QUORUM
    )
    made.load()
    read, left = made._store.committed_batches, [short()] * 20

    def fails_first(offset: int, end: int) -> Any:
        if left:
            raise left.pop()
        return read(offset, end)

    made._store.committed_batches = fails_first  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        with trio.fail_after(60):
            await made.wait_ready()
        assert not left
        await create(made, "u")
        assert {"t", "u"} == set(made.image.topics)
        nursery.cancel_scope.cancel()
    assert not fixture.failures


@virtual
async def test_failing_metadata_listener_is_logged_and_controller_continues(caplog: pytest.LogCaptureFixture) -> None:
    fixture = ControllerFixture()
    published_offsets: list[int] = []
    async with fixture.controller() as controller:

        def fail(image: Any, delta: Any) -> None:
            if "t" in delta.topics:
                raise short()

        controller.subscribe(fail)
        controller.subscribe(lambda image, delta: published_offsets.append(image.offset))
        await create(controller, "t")
        assert published_offsets[-1] == controller.image.offset
        assert controller.is_active
    assert not fixture.failures
    assert "Error while publishing metadata at offset" in caplog.text
