"""Copies and deletions of remote segments under failures of the store and of the metadata topic."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentMetadata, RemoteLogSegmentState
from ottla.broker.storage.tiered.remote_topic_stats import RemotePartitionGauges
from ottla.broker.storage.tiered.tests.remote_log_tasks_fixture import TIERED, TieredPartitionFixture
from ottla.jobs.job import run_to_end
from ottla.log.log_config import TieringConfig
from ottla.log.tests.log_fixtures import NOW, make_batch

OPERATIONS = [(name, is_done) for name in ("copy", "delete", "metadata") for is_done in (False, True)]


def test_rolled_segments_are_copied_once_and_then_deleted_locally() -> None:
    fixture = TieredPartitionFixture()
    fixture.append(60)
    bases = list(fixture.log.segments.base_offsets)
    assert fixture.copy() == len(bases) - 1
    assert fixture.copy() == 0
    assert fixture.log.highest_remote_offset == bases[-1] - 1
    fixture.retain_locally()
    assert fixture.log.log_start_offset == 0 < fixture.log.local_log_start_offset
    copied = fixture.topic.cache.list_segments(0)
    assert [(each.start_offset, each.end_offset + 1) for each in copied] == list(pairwise(bases))
    assert {each.custom_metadata for each in copied} == {b"etag"}
    assert all(each.txn_index_empty and each.max_timestamp_ms > 0 for each in copied)
    fixture.readable_from_store()


def test_leader_epochs_of_copies_are_those_of_their_records() -> None:
    fixture = TieredPartitionFixture()
    fixture.append(3)
    fixture.epoch = 2
    fixture.append(60)
    fixture.copy()
    first, second, *_ = fixture.topic.cache.list_segments(2)
    assert first.segment_leader_epochs == {0: 0, 2: 9}
    assert second.segment_leader_epochs == {2: second.start_offset}
    assert fixture.store.files[second.segment_id].leader_epochs == b"0\n2\n0 0\n2 9\n"
    snapshot = fixture.store.files[first.segment_id].producer_snapshot
    assert snapshot is not None
    assert snapshot.name == f"{second.start_offset:020}.snapshot"


@pytest.mark.parametrize("failure", [x for x in OPERATIONS if x[0] != "delete"], ids=str)
def test_failed_copy_keeps_the_local_segment_and_is_repeated(failure: tuple[str, bool]) -> None:
    fixture = TieredPartitionFixture()
    fixture.append(60)
    fixture.failures.append(failure)
    assert fixture.copy() is None
    fixture.retain_locally()
    assert fixture.log.local_log_start_offset == 0
    assert fixture.copy() == len(fixture.log.segments) - 1
    fixture.retain_locally()
    fixture.readable_from_store()
    assert not fixture.orphans()


def test_failure_of_the_last_metadata_record_keeps_the_local_segment() -> None:
    fixture = TieredPartitionFixture()
    fixture.append(60)
    states = []

    async def write(record: object) -> None:
        states.append(getattr(record, "state", None))
        if states[-1] is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            fixture.failures.append(("metadata", False))
        await type(fixture.topic).write(fixture.topic, record)  # type: ignore[arg-type]

    fixture.topic.write = write  # type: ignore[method-assign]
    assert fixture.copy() is None
    assert states == [RemoteLogSegmentState.COPY_SEGMENT_STARTED, RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    fixture.retain_locally()
    assert fixture.log.highest_remote_offset == -1
    assert fixture.log.local_log_start_offset == 0


def test_custom_metadata_above_the_limit_deletes_the_copy_and_stops_copies() -> None:
    fixture = TieredPartitionFixture()
    fixture.store.custom_metadata = bytes(129)
    fixture.append(60)
    assert fixture.copy() is None
    assert (fixture.copy(), fixture.store.objects, fixture.topic.cache.list_segments()) == (0, {}, [])


def test_cancelled_tasks_begin_nothing() -> None:
    fixture = TieredPartitionFixture()
    fixture.append(60)
    fixture.tasks.is_cancelled = True
    assert (fixture.copy(), fixture.expire(), fixture.topic.records) == (0, 0, [])


@pytest.mark.parametrize("failure", [x for x in OPERATIONS if x[0] != "copy"], ids=str)
def test_expired_segments_are_deleted_after_the_log_start_passed_them(failure: tuple[str, bool]) -> None:
    fixture = TieredPartitionFixture(settings=replace(TIERED, retention_bytes=5000))
    fixture.append(90)
    copies = fixture.copy()
    fixture.retain_locally()
    fixture.failures.append(failure)
    assert fixture.expire() is None
    start = fixture.log.log_start_offset
    assert 0 < start == fixture.persisted_start
    fixture.readable_from_store()
    fixture.expire()
    assert len(fixture.store.objects) == len(fixture.topic.cache.list_segments()) < (copies or 0)
    assert min(each.start_offset for each in fixture.topic.cache.list_segments()) == start
    fixture.readable_from_store()


def test_segments_below_deleted_records_are_deleted_remotely() -> None:
    fixture = TieredPartitionFixture()
    fixture.append(60)
    fixture.copy()
    second = fixture.log.segments.base_offsets[1]
    fixture.log.maybe_increment_log_start_offset(second)
    assert fixture.expire() == 1
    assert min(each.start_offset for each in fixture.topic.cache.list_segments()) == second


@pytest.mark.parametrize(("below", "deleted"), [(1, 0), (0, 1)])
def test_expired_segment_with_a_record_at_the_high_watermark_is_not_deleted(below: int, deleted: int) -> None:
    fixture = TieredPartitionFixture(settings=replace(TIERED, retention_bytes=0))
    fixture.append(60)
    fixture.copy()
    log = fixture.log
    high_watermark = log.segments.base_offsets[1] - below
    log.follow_high_watermark(high_watermark)  # that of a new leader
    assert fixture.expire() == deleted
    assert log.log_start_offset == fixture.persisted_start == high_watermark
    fixture.readable_from_store()


@pytest.mark.parametrize("clean", [True, False])
def test_leader_after_a_start_copies_on_from_the_last_copied_offset(*, clean: bool) -> None:
    fixture = TieredPartitionFixture()
    fixture.append(60)
    fixture.copy()
    highest = fixture.log.highest_remote_offset
    fixture.restart(clean=clean)
    assert fixture.log.highest_remote_offset == highest > 0
    assert fixture.copy() == 0
    fixture.append(20)
    assert (fixture.copy() or 0) > 0
    assert min(each.start_offset for each in fixture.topic.cache.list_segments(1)) > highest - 40


def test_copy_lag_lasts_since_the_oldest_segment_waits_for_its_copy() -> None:
    gauges = RemotePartitionGauges()
    for minute, bases in enumerate(([], [10], [10, 20], [20], [30, 40], [])):
        gauges.set_copy_lag(dict.fromkeys(bases, 7), 60_000.0 * minute)
        since_ms = [None, 60_000, 60_000, 120_000, 240_000, None][minute]
        assert (gauges.copy_lag_bytes, gauges.lagging_since_ms) == (7 * len(bases), since_ms)


def test_disabled_copies_have_no_lag() -> None:
    fixture = TieredPartitionFixture()
    fixture.append(60)
    fixture.log.roll(NOW)
    run_to_end(fixture.tasks.measure_job(0.0))
    assert fixture.gauges.copy_lag_segments > 0
    config = fixture.log.config
    fixture.log.update_config(replace(config, tiering=config.tiering._replace(has_copies=False)))
    run_to_end(fixture.tasks.measure_job(1.0))
    assert (fixture.gauges.copy_lag_segments, fixture.gauges.lagging_since_ms) == (0, None)


def test_gauges_of_copies_have_the_rolled_segments_and_the_copied_ones() -> None:
    fixture = TieredPartitionFixture()
    gauges, log = fixture.gauges, fixture.log

    def measured() -> tuple[int, int, int, int]:
        run_to_end(fixture.tasks.measure_job(0.0))
        return gauges.copy_lag_segments, gauges.copy_lag_bytes, gauges.metadata_count, gauges.size_bytes

    assert measured() == (0, 0, 0, 0), "only the active segment"
    fixture.append(60)
    log.roll(NOW)
    log.append_as_leader(make_batch(0, 1), 0, NOW)  # a segment of one record, whose first offset is its last
    log.roll(NOW)
    log.set_high_watermark(log.log_end_offset)
    sizes = [segment.size_bytes for segment in log.segments][:-1]
    assert measured() == (len(sizes), sum(sizes), 0, 0)
    fixture.copy()
    assert measured() == (0, 0, len(sizes), sum(sizes))
    fixture.failures = [("copy", False), ("delete", False)]
    fixture.append(20)
    lags = [segment.size_bytes for segment in log.segments][len(sizes) : -1]
    assert fixture.copy() is None
    assert measured() == (len(lags), sum(lags), len(sizes) + 1, sum(sizes) + lags[0]), (
        "the failed copy is being deleted"
    )


def test_gauges_of_deletions_have_the_rest_to_delete() -> None:
    fixture = TieredPartitionFixture()
    fixture.append(60)
    fixture.copy()
    fourth, sizes = fixture.log.segments.base_offsets[3], [s.size_bytes for s in fixture.log.segments][:3]
    fixture.log.maybe_increment_log_start_offset(fourth)
    fixture.failures.append(("delete", False))
    assert fixture.expire() is None
    assert (fixture.gauges.delete_lag_segments, fixture.gauges.delete_lag_bytes) == (3, sum(sizes))
    seen = []

    def delete(metadata: RemoteLogSegmentMetadata) -> None:
        seen.append((fixture.gauges.delete_lag_segments, fixture.gauges.delete_lag_bytes))

    fixture.store.delete_segment = delete  # type: ignore[method-assign]
    assert fixture.expire() == 3
    assert seen == [(3, sum(sizes)), (2, sum(sizes[1:])), (1, sizes[2])]
    assert (fixture.gauges.delete_lag_segments, fixture.gauges.delete_lag_bytes) == (0, 0)


def test_stats_count_copies_deletions_their_bytes_and_errors() -> None:
    fixture = TieredPartitionFixture()
    fixture.append(60)
    fixture.failures = [("copy", True)]
    assert fixture.copy() is None
    stats = fixture.stats
    assert (stats.copies, stats.copy_errors, stats.copied_bytes) == (1, 1, 0)
    assert (stats.deletions, stats.delete_errors) == (1, 0), "the failed copy"
    sizes = [segment.size_bytes for segment in fixture.log.segments][:-1]
    fixture.copy()
    assert (stats.copies, stats.copy_errors, stats.copied_bytes) == (1 + len(sizes), 1, sum(sizes))
    fixture.log.maybe_increment_log_start_offset(fixture.log.segments.base_offsets[2])
    fixture.failures = [("delete", True)]
    assert fixture.expire() is None
    assert (stats.deletions, stats.delete_errors) == (2, 1)
    assert fixture.expire() == 2
    assert (stats.deletions, stats.delete_errors) == (4, 1)


@pytest.mark.parametrize("seed", range(30))
def test_random_failures_and_starts_lose_no_record_and_leave_no_object(seed: int) -> None:
    rng = random.Random(seed)
    settings = replace(TIERED, retention_bytes=9000, tiering=TieringConfig(True, True, -1, rng.choice([0, 2500, 5000])))
    fixture = TieredPartitionFixture(seed, settings)
    for _ in range(60):
        fixture.failures = rng.choices(OPERATIONS, k=rng.choice([0, 0, 1, 2]))
        action = rng.choice(["append", "append", "copy", "copy", "expire", "retain", "restart"])
        start = fixture.log.log_start_offset
        match action:
            case "append":
                fixture.append(rng.randint(1, 25))
            case "copy":
                fixture.copy()
            case "expire":
                fixture.expire()
            case "retain":
                fixture.retain_locally()
            case _:
                fixture.restart(clean=rng.random() < 0.5)
        assert fixture.log.log_end_offset == fixture.records * 3
        assert fixture.log.log_start_offset >= start or action == "restart"
        fixture.readable_from_store()
        assert not fixture.orphans()
    fixture.failures = []
    fixture.copy()
    fixture.expire()
    fixture.expire()
    fixture.retain_locally()
    fixture.readable_from_store()
    started = [each for each in fixture.topic.cache.list_segments() if each.segment_id not in fixture.store.objects]
    assert all(each.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED for each in started)
