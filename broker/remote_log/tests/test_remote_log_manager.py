"""Manager of tiered storage: tasks by leadership and settings, deletion with the topic, followers, quota."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.observability.metrics_builder import MetricsBuilder
from ottla.broker.observability.remote_log_metrics import add_remote_log_metrics
from ottla.broker.remote_log.tests.remote_log_manager_fixture import OTHER, ROUND_S, ManagerFixture
from ottla.broker.tests.broker_storage_fixture import NODE_ID, led_topic


def test_leader_copies_rolled_segments_and_local_retention_deletes_them() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        log = fixture.replica.log
        fixture.retain_locally()
        assert log.local_log_start_offset == 0
        await trio.sleep(ROUND_S)
        assert len(fixture.store.objects) == len(log.segments) - 1 > 3
        assert log.highest_remote_offset == log.segments.active.base_offset - 1
        fixture.retain_locally()
        assert log.log_start_offset == 0 < log.local_log_start_offset == log.segments.base_offsets[0]
        cache = fixture.manager.cache(fixture.replica.topic_id, 0)
        assert cache is not None
        assert len(cache.list_segments()) == len(fixture.store.objects)

    fixture.play(scenario)


def test_stop_during_hung_copy_abandons_the_copy(caplog: pytest.LogCaptureFixture) -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        fixture.env.hangs = True
        await trio.sleep(ROUND_S)
        assert fixture.copies == 0

    fixture.play(scenario)
    assert "Abandoning calls of the remote store: 1 have not ended 5 s after the stop of the node" in caplog.messages


def test_topic_without_remote_storage_has_no_tasks() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit(remote_storage_enable="false")
        fixture.append(60)
        await trio.sleep(ROUND_S)
        assert fixture.manager.cache(fixture.replica.topic_id, 0) is None
        assert not fixture.store.objects
        await fixture.commit()  # enabled later
        await trio.sleep(ROUND_S)
        assert len(fixture.store.objects) == len(fixture.replica.log.segments) - 1

    fixture.play(scenario)


def test_remote_retention_deletes_segments_after_the_log_start_is_persisted() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit(retention_bytes="5000")
        fixture.append(60)
        await trio.sleep(3 * ROUND_S)
        log = fixture.replica.log
        assert fixture.persisted[-1] == log.log_start_offset > 0
        assert 0 < len(fixture.store.objects) < fixture.copies

    fixture.play(scenario)


def test_follower_copies_nothing_and_follows_the_offset_of_the_copies() -> None:
    fixture = ManagerFixture()
    followed = led_topic("t", 1, replicas=(NODE_ID, OTHER), isr=(NODE_ID, OTHER), leader=OTHER, leader_epoch=1)

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        fixture.store_fails = True
        await trio.sleep(ROUND_S)
        log = fixture.replica.log
        fixture.store_fails = False
        await fixture.commit(followed)
        await trio.sleep(ROUND_S)
        assert (fixture.copies, log.highest_remote_offset) == (0, -1)
        await fixture.commit(led_topic("t", 1, leader_epoch=2, partition_epoch=2))
        await trio.sleep(ROUND_S)
        copies = fixture.copies
        assert copies == len(log.segments) - 1
        log.forget_remote_records()
        await fixture.commit(led_topic("t", 1, replicas=(NODE_ID, OTHER), leader=OTHER, leader_epoch=3))
        await trio.sleep(ROUND_S)
        assert log.highest_remote_offset == log.segments.active.base_offset - 1
        assert fixture.copies == copies

    fixture.play(scenario)


def test_failing_store_stops_nothing_local_and_the_next_run_repeats_the_copy() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(30)
        fixture.store_fails = True
        await trio.sleep(2 * ROUND_S)
        fixture.append(30)
        fixture.retain_locally()
        assert fixture.replica.log.local_log_start_offset == 0
        fixture.store_fails = False
        await trio.sleep(ROUND_S)
        assert len(fixture.store.objects) == len(fixture.replica.log.segments) - 1
        assert not fixture.ended

    fixture.play(scenario)


def test_leader_deletes_the_remote_segments_of_a_deleted_topic() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        await trio.sleep(ROUND_S)
        topic_id = fixture.replica.topic_id
        assert fixture.store.objects
        fixture.store_fails = True
        fixture.commit_topics(gone=("t",))
        await trio.sleep(ROUND_S)
        assert fixture.store.objects
        assert fixture.manager.cache(topic_id, 0) is not None
        fixture.store_fails = False
        await trio.sleep(ROUND_S)
        assert not fixture.store.objects
        assert fixture.manager.cache(topic_id, 0) is None

    fixture.play(scenario)


def test_removed_replica_leaves_the_remote_segments_to_others() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        await trio.sleep(ROUND_S)
        topic_id, count = fixture.replica.topic_id, len(fixture.store.objects)
        await fixture.commit(led_topic("t", 1, replicas=(OTHER,), isr=(OTHER,), leader=OTHER, leader_epoch=1))
        await trio.sleep(ROUND_S)
        assert fixture.replica_manager.get("t", 0) is None
        assert len(fixture.store.objects) == count > 0
        assert fixture.manager.cache(topic_id, 0) is None

    fixture.play(scenario)


def test_disabled_remote_storage_deletes_remote_segments_and_their_records() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        await trio.sleep(ROUND_S)
        fixture.retain_locally()
        log = fixture.replica.log
        await fixture.commit(remote_storage_enable="false", remote_log_delete_on_disable="true")
        assert log.log_start_offset == log.local_log_start_offset > 0
        assert log.highest_remote_offset == -1
        await trio.sleep(ROUND_S)
        assert not fixture.store.objects
        assert fixture.manager.cache(log.topic_id, 0) is None

    fixture.play(scenario)


def test_remote_storage_that_is_enabled_again_copies_the_local_segments_again() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        await trio.sleep(ROUND_S)
        log = fixture.replica.log
        count = len(fixture.store.objects)
        fixture.store_fails = True
        await fixture.commit(remote_storage_enable="false", remote_log_delete_on_disable="true")
        await fixture.commit()
        await trio.sleep(ROUND_S)
        assert fixture.copies == count  # the deletion of the former segments is not complete
        fixture.store_fails = False
        await trio.sleep(2 * ROUND_S)
        assert fixture.copies == 2 * count
        assert {x.segment_id for x in fixture.manager.cache(log.topic_id, 0).list_segments()} == set(  # type: ignore[union-attr]
            fixture.store.objects
        )
        assert log.highest_remote_offset == log.segments.active.base_offset - 1

    fixture.play(scenario)


def test_disabled_copies_keep_the_remote_segments() -> None:
    fixture = ManagerFixture()

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(30)
        await trio.sleep(ROUND_S)
        count = len(fixture.store.objects)
        await fixture.commit(remote_log_copy_disable="true")
        fixture.append(30)
        await trio.sleep(ROUND_S)
        assert len(fixture.store.objects) == count > 0
        await fixture.commit()
        await trio.sleep(ROUND_S)
        assert len(fixture.store.objects) > count

    fixture.play(scenario)


def test_copy_quota_and_thread_pools_follow_the_dynamic_settings() -> None:
    fixture = ManagerFixture()
    rate = "remote.log.manager.copy.max.bytes.per.second"

    async def scenario() -> None:
        broker = {rate: "10", "remote.log.reader.threads": "3", "remote.log.manager.copier.thread.pool.size": "1"}
        await fixture.commit(broker=broker)
        assert fixture.manager.readers.limiter.total_tokens == 3
        assert fixture.manager.copiers.limiter.total_tokens == 1
        fixture.append(60)
        await trio.sleep(ROUND_S)
        assert 0 < fixture.copies < 4
        await fixture.commit()
        await trio.sleep(2 * ROUND_S)
        assert fixture.copies == len(fixture.replica.log.segments) - 1

    fixture.play(scenario)


def test_metrics_have_copies_errors_and_lag() -> None:
    fixture = ManagerFixture()
    prefix = "kafka_server_brokertopicmetrics_remote"

    async def samples() -> dict[str, float]:
        page = MetricsBuilder()
        reads: Any = SimpleNamespace(expired_fetches=2, expired_list_offsets=3)
        for _ in add_remote_log_metrics(page, fixture.manager, reads):
            await trio.lowlevel.checkpoint()
        job = page.finish()
        try:
            while True:
                next(job)
        except StopIteration as done:
            lines = b"".join(done.value).decode().splitlines()
        return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines if not x.startswith("#"))}

    async def scenario() -> None:
        await fixture.commit()
        fixture.append(60)
        log = fixture.replica.log
        rolled = len(log.segments) - 1
        fixture.store_fails = True
        await trio.sleep(ROUND_S)
        found = await samples()
        at = '{topic="t"}'
        assert found[f"{prefix}copyerrors_total{at}"] == found[f"{prefix}copyerrors_total"] > 0
        assert found[f"{prefix}deleteerrors_total{at}"] > 0
        assert found[f"{prefix}copylagsegments{at}"] == rolled
        assert found[f"{prefix}copylagbytes{at}"] == log.size_bytes - log.segments.active.size_bytes
        fixture.store_fails = False
        await trio.sleep(2 * ROUND_S)
        found = await samples()
        assert found[f"{prefix}copylagsegments{at}"] == found[f"{prefix}copylagbytes"] == 0
        assert found[f"{prefix}copybytes_total{at}"] == log.size_bytes - log.segments.active.size_bytes
        assert found[f"{prefix}logmetadatacount{at}"] == rolled
        assert found[f"{prefix}logsizebytes{at}"] == found[f"{prefix}copybytes_total{at}"]
        assert found["kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent"] == 1.0
        assert found["kafka_server_delayedremotefetchmetrics_expires_total"] == 2
        assert found["kafka_server_delayedremotelistoffsetsmetrics_expires_total"] == 3

    fixture.play(scenario)


def test_store_reads_ahead_in_a_thread() -> None:
    fixture = ManagerFixture()
    done: list[bool] = []

    async def scenario() -> None:
        fixture.read_ahead(lambda: done.append(fixture.env.is_beside))
        await trio.sleep(1)

    fixture.play(scenario)
    assert done == [True]


def test_read_ahead_of_an_abandoned_thread_after_the_stop_is_dropped() -> None:
    fixture = ManagerFixture()
    done: list[bool] = []

    async def scenario() -> None:
        async with trio.open_nursery() as fixture.nursery:
            await fixture.manager.open()
            fixture.nursery.cancel_scope.cancel()
        fixture.read_ahead(lambda: done.append(True))
        await trio.sleep(1)

    fixture.run(scenario)
    assert not done
