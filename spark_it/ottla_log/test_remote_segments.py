"""Data source ``ottla-log``: segments of tiered storage in a directory store that was written without a node."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ottla.broker.storage.tiered.segment_format import CHECKSUM_CHUNK_BYTES
from ottla.spark import log_source
from ottla.wire.record_batch.control_record import ControlRecordType
from spark_it.ottla_log.build_jar import build_jar
from spark_it.ottla_log.log_directories import (
    FIRST_TIMESTAMP_MS,
    batch_of,
    marker,
    transactional_batch,
    write_checkpoint,
    write_high_watermark,
    write_partition,
    write_transaction_index,
)
from spark_it.ottla_log.remote_segments import copy_to_store
from spark_it.ottla_log.test_log_source import load, numbers, offsets

pytestmark = pytest.mark.xdist_group("spark")
LOG_START = "log-start-offset-checkpoint"
READ_COMMITTED = {"isolation_level": "read_committed"}


def batches(start: int, end: int) -> list[bytes]:
    """Return batches of ten records each from offset `start` to before `end`."""
    return [batch_of(first, 10) for first in range(start, end, 10)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with the segments 0 to 39 and 40 to 79 of topic `t`."""
    folder = tmp_path / "store"
    copy_to_store(folder, batches(0, 40))
    copy_to_store(folder, batches(40, 80))
    return folder


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a log directory: log start offset 0, local segments from offset 60 on, high watermark 95."""
    folder = tmp_path / "logs"
    write_partition(folder, "t", {60: batches(60, 80), 80: batches(80, 100)})
    write_high_watermark(folder, "t", 95)
    write_checkpoint(folder, LOG_START, {("t", 0): 0})
    return folder


def test_store_alone_is_read_by_offset_and_by_time(spark: SparkSession, store: Path) -> None:
    assert offsets(load(spark, remoteStore=store)) == numbers(range(80))
    by_offset = load(
        spark, remoteStore=store, startingOffsets='{"t":{"0":13}}', endingOffsets='{"t":{"0":57}}', minPartitions="3"
    )
    assert offsets(by_offset) == numbers(range(13, 57))
    start, end = FIRST_TIMESTAMP_MS + 35, FIRST_TIMESTAMP_MS + 62
    by_time = load(spark, remoteStore=store.as_uri(), startingTimestamp=start, endingTimestamp=end)
    assert offsets(by_time) == numbers(range(35, 62))


def test_offsets_in_both_tiers_are_read_once(spark: SparkSession, store: Path, log_dir: Path) -> None:
    assert offsets(load(spark, log_dir, remoteStore=store)) == numbers(range(95))
    assert offsets(load(spark, log_dir, remoteStore=store, minPartitions="9")) == numbers(range(95))
    within = load(spark, log_dir, remoteStore=store, startingTimestamp=FIRST_TIMESTAMP_MS + 55)
    assert offsets(within) == numbers(range(55, 95))
    write_checkpoint(log_dir, LOG_START, {("t", 0): 47})
    assert offsets(load(spark, log_dir, remoteStore=store)) == numbers(range(47, 95))


def test_copies_of_former_leader_with_records_that_log_has_not_are_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, log_dir = tmp_path / "store", tmp_path / "logs"
    copy_to_store(store, batches(0, 40), leader_epochs={3: 0})
    copy_to_store(store, batches(40, 90), leader_epochs={3: 0})
    own = [batch_of(40, 10), batch_of(50, 12, leader_epoch=5), batch_of(62, 8, leader_epoch=5)]
    copy_to_store(store, own, leader_epochs={3: 0, 5: 50})
    assert offsets(load(spark, remoteStore=store)) == numbers(range(70))
    directory = write_partition(log_dir, "t", {70: batches(70, 100)})
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n3 0\n5 50\n")
    write_high_watermark(log_dir, "t", 100)
    assert offsets(load(spark, log_dir, remoteStore=store)) == numbers(range(100))


def test_aborted_transaction_with_marker_in_later_segment_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    store, log_dir = tmp_path / "store", tmp_path / "logs"
    first = [transactional_batch(0, 5, 1), transactional_batch(5, 5, 2), batch_of(10, 10)]
    second = [marker(20, 1, ControlRecordType.ABORT), transactional_batch(21, 4, 3), batch_of(25, 5)]
    third = [marker(30, 2, ControlRecordType.COMMIT), marker(31, 3, ControlRecordType.ABORT), batch_of(32, 8)]
    copy_to_store(store, first)
    copy_to_store(store, second, aborted=[(1, 0, 20)])
    directory = write_partition(log_dir, "t", {30: third})
    write_transaction_index(directory, 30, [(3, 21, 31)])
    write_high_watermark(log_dir, "t", 40)
    uncommitted = numbers(range(20), range(21, 30), range(32, 40))
    assert offsets(load(spark, log_dir, remoteStore=store)) == uncommitted
    committed = numbers(range(5, 20), range(25, 30), range(32, 40))
    assert offsets(load(spark, log_dir, remoteStore=store, **READ_COMMITTED)) == committed
    copy_to_store(store, third, aborted=[(3, 21, 31)])
    assert offsets(load(spark, remoteStore=store, **READ_COMMITTED)) == committed


def damage(path: Path, position: int) -> None:
    """Change a byte of an object."""
    raw = bytearray(path.read_bytes())
    raw[position] ^= 0x10
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("position", "reason"), [(70, "records at position 0 are damaged"), (-40, "descriptor"), (-12, "footer")]
)
def test_damaged_object_is_named_and_never_served(
    spark: SparkSession, store: Path, tmp_path: Path, position: int, reason: str
) -> None:
    path = copy_to_store(store, batches(80, 100))
    damage(path, position)
    with pytest.raises(Py4JJavaError, match=f"Damaged object: .*{path.name}: .*{reason}"):
        load(spark, remoteStore=store).count()
    with pytest.raises(Py4JJavaError, match=f"Damaged object: .*{path.name}: .*{reason}"):
        load(spark, remoteStore=store).select("value").collect()
    rest = load(spark, remoteStore=store, skipDamagedBatches="true").select("offset", "value").collect()
    assert sorted(row.offset for row in rest) == numbers(range(80), range(90, 100) if position > 0 else ())


def test_damaged_transaction_index_of_object_is_named_or_replaced_by_markers(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, skip = tmp_path / "store", {"skipDamagedBatches": "true"}
    abort = ControlRecordType.ABORT
    copy_to_store(store, [transactional_batch(0, 5, 1), transactional_batch(5, 5, 2), batch_of(10, 10)])
    index = [(1, 0, 20), (2, 5, 21)]
    path = copy_to_store(store, [marker(20, 1, abort), marker(21, 2, abort), batch_of(22, 8)], aborted=index)
    committed = numbers(range(10, 20), range(22, 30))
    assert offsets(load(spark, remoteStore=store, **READ_COMMITTED)) == committed
    damage(path, path.read_bytes().index(struct.pack(">qqq", *index[0])) + 3)
    with pytest.raises(Py4JJavaError, match=f"Damaged object: .*{path.name}: transaction is damaged: wrong checksum"):
        load(spark, remoteStore=store, **READ_COMMITTED).count()
    assert offsets(load(spark, remoteStore=store, **READ_COMMITTED, **skip)) == committed
    path.unlink()
    own = [marker(20, 1, abort), marker(21, 2, abort), batch_of(22, 8)]
    path = copy_to_store(store, own, aborted=[(1, 0, 20), (2, 5, 31)])  # damaged before it was copied
    with pytest.raises(Py4JJavaError, match=f"Damaged transaction index: .*{path.name}: offset 31 is beyond the seg"):
        load(spark, remoteStore=store, **READ_COMMITTED).count()
    assert offsets(load(spark, remoteStore=store, **READ_COMMITTED, **skip)) == committed


def test_ranges_of_large_object_are_read_and_verified_by_chunks(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    many = [batch_of(first, 1000) for first in range(0, 70_000, 1000)]
    path = copy_to_store(store, many)
    assert sum(map(len, many)) > 6 * CHECKSUM_CHUNK_BYTES
    assert offsets(load(spark, remoteStore=store, minPartitions="5")) == numbers(range(70_000))
    within = load(spark, remoteStore=store, startingOffsets='{"t":{"0":33333}}', endingOffsets='{"t":{"0":55555}}')
    assert offsets(within) == numbers(range(33_333, 55_555))
    damage(path, sum(map(len, many[:69])) + 500)
    assert offsets(load(spark, remoteStore=store, endingOffsets='{"t":{"0":20000}}')) == numbers(range(20_000))
    with pytest.raises(Py4JJavaError, match=r"Damaged object: .* records at position \d+ are damaged"):
        load(spark, remoteStore=store).count()
    rest = load(spark, remoteStore=store, skipDamagedBatches="true").select("offset").collect()
    assert sorted(row.offset for row in rest) == numbers(range(69_000))


def test_stream_continues_from_store_to_log_directory(
    spark: SparkSession, store: Path, log_dir: Path, tmp_path: Path
) -> None:
    read: list[list[int]] = []
    reader = spark.readStream.format("ottla-log").option("subscribe", "t").option("remoteStore", str(store))
    query = (
        reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="50")
        .load(str(log_dir))
        .writeStream.foreachBatch(lambda rows, _: read.append(offsets(rows)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert read == [numbers(range(50)), numbers(range(50, 95))]


def test_missing_object_is_data_loss(spark: SparkSession, store: Path) -> None:
    copy_to_store(store, batches(90, 100))
    with pytest.raises(Py4JJavaError, match=r"Offsets \[80, 90\) of t-0 .* were deleted"):
        load(spark, remoteStore=store).count()
    assert offsets(load(spark, remoteStore=store, failOnDataLoss="false")) == numbers(range(80), range(90, 100))


@pytest.mark.parametrize("fails", [True, False])
def test_object_deleted_after_planning_is_data_loss(spark: SparkSession, store: Path, *, fails: bool) -> None:
    frame = load(spark, remoteStore=store, failOnDataLoss=str(fails).lower())
    frame._jdf.queryExecution().executedPlan().execute()  # plans the offsets
    next(store.rglob(f"{0:020}-*.segment")).unlink()
    if fails:
        with pytest.raises(Py4JJavaError, match=r"Offsets \[0, 40\) of t-0 .* were deleted"):
            frame.collect()
    else:
        assert sorted(row.offset for row in frame.collect()) == numbers(range(40, 80))


def test_local_segments_that_move_to_store_after_planning_are_read_there(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    log_dir = tmp_path / "logs"
    directory = write_partition(log_dir, "t", {base: batches(base, base + 20) for base in (60, 80, 100)})
    write_high_watermark(log_dir, "t", 110)
    frame = load(spark, log_dir, remoteStore=store)
    frame._jdf.queryExecution().executedPlan().execute()  # plans the offsets
    copy_to_store(store, batches(80, 100))
    for base in (60, 80):
        (directory / f"{base:020}.log").unlink()
    write_high_watermark(log_dir, "t", 119)  # a plan made now would read nine more records
    assert sorted(row.offset for row in frame.collect()) == numbers(range(110))


def test_topic_created_again_is_read_by_its_own_id(spark: SparkSession, store: Path, log_dir: Path) -> None:
    copy_to_store(store, batches(0, 20), topic_id="AAAAAAAAAAAAAAAAAAAAAg", copied_at_ms=5)
    assert offsets(load(spark, remoteStore=store)) == numbers(range(20))
    assert offsets(load(spark, log_dir, remoteStore=store)) == numbers(range(95))


def test_session_setting_is_the_default_of_the_option(spark: SparkSession, store: Path, log_dir: Path) -> None:
    name = "spark.datasource.ottla-log.remoteStore"
    spark.conf.set(name, str(store))
    try:
        assert offsets(load(spark, log_dir)) == numbers(range(95))
    finally:
        spark.conf.unset(name)


def test_log_source_with_remote_store_sets_the_option_and_adds_the_file_system_of_its_url() -> None:
    build_jar()
    builder = log_source(SparkSession.builder, remote_store="s3a://segments")
    options = builder._options
    assert options["spark.datasource.ottla-log.remoteStore"] == "s3a://segments"
    assert options["spark.jars.packages"].endswith(",org.apache.hadoop:hadoop-aws:3.4.1")
    builder = log_source(SparkSession.builder, remote_store="file:///mnt/tier")
    assert "hadoop-aws" not in builder._options["spark.jars.packages"]


def test_unfinished_uploads_are_no_objects_and_missing_stores_are_named(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    (path,) = store.rglob(f"{40:020}-*.segment")
    path.rename(path.with_name(f"{path.name}.upload"))
    assert offsets(load(spark, remoteStore=store)) == numbers(range(40))
    with pytest.raises(Py4JJavaError, match=r"No remote store: .*missing"):
        load(spark, remoteStore=tmp_path / "missing").count()
