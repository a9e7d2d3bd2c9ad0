"""Request processing of the controller: batching, visibility of changes, and failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import pytest
import trio
import trio.testing

from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.record_serde import MetadataBatchWriter, decode_batch
from ottla.controller.metadata.snapshot_files import SnapshotContents, encode_snapshot, read_snapshot, write_snapshot
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.storage_formatter import bootstrap_records
from ottla.controller.tests.controller_fixture import (
    SINGLE_NODE_QUORUM,
    ControllerFixture,
    ControllerTestEnv,
    register_broker,
)
from ottla.jobs.job import run_to_end
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.log_loader import open_log
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)

LOG = "/data/__cluster_metadata-0"


def virtual(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**arguments: Any) -> None:
        async def go() -> None:
            await test(**arguments)

        trio.run(go, clock=trio.testing.MockClock(autojump_threshold=0))

    return run


def topic(name: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 1000)


def code(answer: Any) -> int:
    return int(answer.topics[0].error_code)


def metadata_log(fixture: ControllerFixture) -> PartitionLog:
    return open_log(fixture.disk.session(), LOG, "__cluster_metadata", 0, LogConfig(), 0, clean=False)


def written(fixture: ControllerFixture) -> list[tuple[int, Message]]:
    """Return (offset, record) of all records in the metadata log."""
    return [found for header, raw in metadata_log(fixture).segments.batches() for found in decode_batch(header, raw)]


@virtual
async def test_new_leader_decides_after_its_first_record_is_synced() -> None:
    fixture = ControllerFixture()
    async with fixture.controller():
        pass
    before = len(written(fixture))
    env = fixture.env = ControllerTestEnv(fixture.disk, iter(range(900, 999)))
    env.thread_gate = trio.Event()
    directory = LogDirectory(env.disk, "/data")
    controller = QuorumController(
        env, directory, fixture.identity, fixture.defaults, lambda error: None, SINGLE_NODE_QUORUM
    )
    controller.load()
    end = controller.log_end_offset
    async with trio.open_nursery() as nursery:
        nursery.start_soon(controller.run)
        await trio.sleep(1)
        assert controller.log_end_offset == end, "no decision before the epoch record is synced"
        released, env.thread_gate = env.thread_gate, trio.Event()
        released.set()
        await trio.sleep(1)
        assert controller.log_end_offset == end + 1, "the new leader"
        assert not controller.is_active
        env.thread_gate.set()
        await controller.wait_ready()
        nursery.cancel_scope.cancel()
    assert [type(record) for _, record in written(fixture)[before:]] == [RegisterControllerRecord]


@virtual
async def test_close_seals_the_metadata_log() -> None:
    fixture = ControllerFixture()
    async with fixture.controller() as controller:
        await controller.submit(topic("t"), 7)
        log = controller._store.log
        assert not log.closed
        controller.close()
        assert log.closed
        assert log.flush_state.sealed_end_offset == log.log_end_offset


@pytest.mark.behaviour("R-265")
@virtual
async def test_new_cluster_uses_feature_levels_of_bootstrap_file() -> None:
    fixture = ControllerFixture()
    path = "/data/bootstrap.checkpoint"
    session = fixture.disk.session()
    assert run_to_end(read_snapshot(session, path)).records == bootstrap_records()
    assert fixture.disk.files[path].mode == 0o600
    levels: list[Message] = [FeatureLevelRecord("metadata.version", 29), FeatureLevelRecord("group.version", 1)]
    session.unlink(path)
    write_snapshot(session, path, run_to_end(encode_snapshot(SnapshotContents(levels), 0, 0)))
    async with fixture.controller(broker=False) as controller:
        assert controller.image.features == {"metadata.version": 29, "group.version": 1}
    first = [type(record) for _, record in written(fixture)]
    levels_written = [FeatureLevelRecord] * 2
    transaction = [BeginTransactionRecord, *levels_written, EndTransactionRecord]
    assert first == [*transaction, RegisterControllerRecord]
    fixture = ControllerFixture()
    fixture.disk.session().unlink(path)
    async with fixture.controller(broker=False) as controller:
        assert controller.image.features == {r.name: r.feature_level for r in bootstrap_records()}  # type: ignore[attr-defined]


@pytest.mark.behaviour("R-265")
@virtual
async def test_new_cluster_takes_min_insync_replicas_from_first_controller() -> None:
    fixture = ControllerFixture(**{"min.insync.replicas": "2"})
    async with fixture.controller(broker=False) as controller:
        assert controller.image.config(4, "") == {"min.insync.replicas": "2"}


@virtual
async def test_restart_keeps_metadata_of_the_cluster() -> None:
    fixture = ControllerFixture()
    async with fixture.controller() as controller:
        assert controller.image.features["metadata.version"] == 30
        assert controller.image.config(4, "") == {"min.insync.replicas": "1"}
        assert code(await controller.submit(topic("t", 3), 7)) == 0
        before, epoch = controller.image, controller.epoch
    async with fixture.controller(broker=False) as controller:
        assert controller.epoch == epoch + 1
        assert controller.image.topics == before.topics
        assert controller.image.configs == before.configs
        assert controller.image.brokers == before.brokers
        assert len(list(controller.image.controllers)) == 1


@virtual
async def test_queued_requests_are_decided_together_with_one_sync() -> None:
    async with ControllerFixture().controller() as controller:
        threads = controller._env.threads  # type: ignore[attr-defined]
        futures = [controller.enqueue(topic(f"t{n}"), 7) for n in range(20)]
        assert [code(await t.wait()) for t in futures] == [0] * 20
        assert controller._env.threads == threads + 1  # type: ignore[attr-defined]


@pytest.mark.behaviour("R-262")
@virtual
async def test_later_request_is_decided_on_result_of_earlier_one() -> None:
    async with ControllerFixture().controller() as controller:
        futures = [controller.enqueue(topic("t"), 7) for _ in range(2)]
        assert [code(await t.wait()) for t in futures] == [0, ErrorCode.TOPIC_ALREADY_EXISTS]


@pytest.mark.behaviour("R-262")
@virtual
async def test_changes_are_visible_only_after_sync() -> None:
    fixture = ControllerFixture()
    async with fixture.controller() as controller:
        published: list[tuple[MetadataImage, MetadataDelta]] = []
        controller.subscribe(lambda image, delta: published.append((image, delta)))
        published.clear()
        fixture.env.thread_gate = trio.Event()
        future = controller.enqueue(topic("t", 2), 7)
        late = controller.enqueue(topic("t"), 7)
        await trio.sleep(1)
        assert "t" not in controller.image.topics
        assert not published
        assert not future._done.is_set()
        assert not late._done.is_set(), "a rejection based on uncommitted records is delayed too"
        fixture.env.thread_gate.set()
        assert code(await future.wait()) == 0
        assert code(await late.wait()) == ErrorCode.TOPIC_ALREADY_EXISTS
        ((image, delta),) = published
        assert image is controller.image
        assert delta.topics["t"].partitions == {0, 1}
        assert delta.topics["t"].new is image.topics["t"]


@virtual
async def test_listeners_are_called_before_the_response_in_order() -> None:
    async with ControllerFixture().controller() as controller:
        log: list[str] = []
        controller.subscribe(lambda *_: log.append("first"))
        controller.subscribe(lambda *_: log.append("second"))
        log.clear()
        await controller.submit(topic("t"), 7)
        assert log == ["first", "second"]
        await controller.submit(topic("t"), 7)
        assert log == ["first", "second"], "a rejection publishes no image"


@virtual
async def test_cancelled_request_is_still_decided() -> None:
    fixture = ControllerFixture()
    async with fixture.controller() as controller:
        fixture.env.thread_gate = trio.Event()
        with trio.move_on_after(1) as scope:
            await controller.submit(topic("t"), 7)
        assert scope.cancelled_caught
        fixture.env.thread_gate.set()
        await controller.submit(topic("u"), 7)
        assert {"t", "u"} <= set(controller.image.topics)


@virtual
async def test_failing_request_does_not_affect_others() -> None:
    async with ControllerFixture().controller() as controller:
        bad = controller.enqueue(object(), 7)
        good = controller.enqueue(topic("t"), 7)
        with pytest.raises(AssertionError):
            await bad.wait()
        assert code(await good.wait()) == 0


@virtual
async def test_disk_failure_ends_controller_and_fails_pending_requests() -> None:
    fixture = ControllerFixture()
    async with fixture.controller() as controller:
        fixture.env.thread_error, fixture.env.thread_gate = OSError("gone"), trio.Event()
        futures = [controller.enqueue(topic("t"), 7)]
        await trio.sleep(1)
        futures.append(controller.enqueue(topic("u"), 7))
        fixture.env.thread_gate.set()
        for future in futures:
            with pytest.raises(OSError, match="gone"):
                await future.wait()
        assert [str(e) for e in fixture.failures] == ["gone"]
        fixture.env.thread_error = None
        with pytest.raises(OSError, match="gone"):
            await controller.submit(topic("v"), 7)
        assert not controller.image.topics
        assert controller.machine.latest_image is controller.image


@virtual
async def test_error_in_listener_ends_the_node() -> None:
    def trip(image: MetadataImage, delta: MetadataDelta) -> None:
        if "t" in delta.topics:
            raise ValueError("a bug")

    async def serve() -> None:
        async with ControllerFixture().controller() as controller:
            controller.subscribe(trip)
            await controller.submit(topic("t"), 7)
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await serve()
    assert caught.group_contains(ValueError, match="a bug")


@virtual
async def test_submit_after_close_raises_not_controller() -> None:
    async with ControllerFixture().controller() as controller:
        controller.close()
        with pytest.raises(ProtocolError) as caught:
            await controller.submit(topic("t"), 7)
        assert caught.value.code == ErrorCode.NOT_CONTROLLER


@virtual
async def test_create_topics_of_many_partitions_yields_in_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks may run at least every hundred records: during decision, encoding and replay."""
    monkeypatch.setattr("ottla.jobs.time_slice.BACKGROUND_SLICE_MS", 0.0)
    async with ControllerFixture().controller() as controller:
        rounds = 0

        async def count() -> None:
            nonlocal rounds
            while True:
                await trio.lowlevel.checkpoint()
                rounds += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            future = controller.enqueue(topic("t", 2000), 7)
            await future.wait()
            nursery.cancel_scope.cancel()
        assert len(controller.image.topics["t"].partitions) == 2000
        assert rounds >= 2 * 20 + 2 * 2000, "placement and creation in steps of 100, encoding and replay in steps of 1"


@pytest.mark.behaviour("P-57", "R-265")
@virtual
async def test_open_metadata_transaction_is_aborted_by_next_leader() -> None:
    fixture = ControllerFixture()
    async with fixture.controller() as controller:
        await controller.submit(topic("kept"), 7)
    log = metadata_log(fixture)
    writer = MetadataBatchWriter(0)
    for record in (BeginTransactionRecord("x"), TopicRecord("lost", bytes(15) + b"\x05")):
        writer.add_message(record)
    log.append_as_leader(writer.build(), log.epochs.latest_epoch(), 0, AppendOrigin.RAFT_LEADER)
    log.close()
    for _ in range(2):
        async with fixture.controller() as controller:
            assert "kept" in controller.image.topics
            assert "lost" not in controller.image.topics
            assert code(await controller.submit(topic("after"), 7)) in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
            assert "after" in controller.image.topics
    aborted = [record for _, record in written(fixture) if isinstance(record, AbortTransactionRecord)]
    assert aborted == [AbortTransactionRecord("the controller was replaced")], "aborted once, by the first leader"


@virtual
async def test_broker_epoch_is_offset_of_registration() -> None:
    fixture = ControllerFixture()
    async with fixture.controller(broker=False) as controller:
        controller.enqueue(topic("first"), 7)
        epoch = await register_broker(controller)
    found = [(offset, record) for offset, record in written(fixture) if isinstance(record, RegisterBrokerRecord)]
    assert [(offset, record.broker_epoch) for offset, record in found] == [(epoch, epoch)]
