"""Test of data source ``ottla-log``: the offsets it reads from log directories that were written without a node."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession, functions

from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.control_record import ControlRecordType
from spark_it.ottla_log.log_directories import (
    FIRST_TIMESTAMP_MS,
    batch_of,
    compacted_batch,
    legacy_message,
    marker,
    transactional_batch,
    value_of,
    write_checkpoint,
    write_high_watermark,
    write_partition,
    write_snapshot,
    write_transaction_index,
)

pytestmark = pytest.mark.xdist_group("spark")
ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


def load(spark: SparkSession, *log_dirs: Path, **options: Any) -> DataFrame:
    """Return the batch read of topic `t` from log directories, or of the topics that ``options`` select.

    An option None is left out; ``isolation_level`` stands for ``isolation.level``.
    """
    reader = spark.read.format("ottla-log")
    places = {"logDirs": ",".join(map(str, log_dirs)) or None, "subscribe": "t"}
    for name, value in (places | options).items():
        if value is not None:
            reader = reader.option(name.replace("isolation_level", "isolation.level"), value)
    return reader.load()


def offsets(frame: DataFrame) -> list[int]:
    """Return the sorted offsets of a frame's rows, after a check of their values and of the frame's ``count()``."""
    rows = frame.select("offset", "value").collect()
    assert all(bytes(row.value) == value_of(row.offset) for row in rows)
    assert frame.count() == len(rows)
    return sorted(row.offset for row in rows)


def numbers(*ranges: Sequence[int]) -> list[int]:
    """Return the numbers of several ranges as one list."""
    return [number for each in ranges for number in each]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a log directory with topic `t`: three segments, offsets 0 to 99, and high watermark 95."""
    folder = tmp_path / "logs"
    segments = {
        base: [batch_of(first, 10) for first in range(base, end, 10)] for base, end in ((0, 40), (40, 80), (80, 100))
    }
    write_partition(folder, "t", segments)
    write_high_watermark(folder, "t", 95)
    return folder


def test_read_ends_at_checkpointed_high_watermark_and_on_request_at_log_end(spark: SparkSession, log_dir: Path) -> None:
    assert offsets(load(spark, log_dir)) == numbers(range(95))
    assert offsets(load(spark, log_dir, endOfLog="logEndOffset")) == numbers(range(100))


def test_read_begins_at_checkpointed_log_start_offset(spark: SparkSession, log_dir: Path) -> None:
    write_checkpoint(log_dir, "log-start-offset-checkpoint", {("t", 0): 47})
    assert offsets(load(spark, log_dir)) == numbers(range(47, 95))
    with pytest.raises(Py4JJavaError, match="Offset 5 of t-0 in option startingOffsets is out of range"):
        load(spark, log_dir, startingOffsets='{"t":{"0":5}}').count()
    allowed = load(spark, log_dir, startingOffsets='{"t":{"0":5}}', failOnDataLoss="false")
    assert offsets(allowed) == numbers(range(47, 95))


def test_read_without_high_watermark_file_names_the_option(spark: SparkSession, log_dir: Path) -> None:
    (log_dir / "replication-offset-checkpoint").unlink()
    with pytest.raises(Py4JJavaError, match="set the option endOfLog to logEndOffset"):
        load(spark, log_dir).count()


def test_high_watermark_beyond_the_log_is_data_loss(spark: SparkSession, log_dir: Path) -> None:
    write_high_watermark(log_dir, "t", 120)
    with pytest.raises(Py4JJavaError, match="High watermark 120 of t-0 is beyond the end of its log, 100"):
        load(spark, log_dir).count()
    assert offsets(load(spark, log_dir, failOnDataLoss="false")) == numbers(range(100))


def test_offset_and_time_ranges_select_records_within_batches(spark: SparkSession, log_dir: Path) -> None:
    by_offset = load(spark, log_dir, startingOffsets='{"t":{"0":13}}', endingOffsets='{"t":{"0":57}}')
    assert offsets(by_offset) == numbers(range(13, 57))
    start, end = FIRST_TIMESTAMP_MS + 35, FIRST_TIMESTAMP_MS + 82
    assert offsets(load(spark, log_dir, startingTimestamp=start, endingTimestamp=end)) == numbers(range(35, 82))
    with pytest.raises(Py4JJavaError, match="No offset of t-0 with a timestamp of at least"):
        load(spark, log_dir, startingTimestamp=FIRST_TIMESTAMP_MS + 96).count()


def test_aborted_and_open_transactions_and_markers_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    first = [transactional_batch(0, 5, 1), transactional_batch(5, 5, 2), marker(10, 1, ABORT), batch_of(11, 9)]
    second = [transactional_batch(20, 5, 3), marker(25, 2, COMMIT), batch_of(26, 4), transactional_batch(30, 5, 4)]
    third = [marker(40, 3, ABORT), batch_of(41, 4)]
    directory = write_partition(tmp_path, "t", {0: first, 20: second, 40: third})
    write_transaction_index(directory, 0, [(1, 0, 10)])
    write_snapshot(directory, 20, {2: 5})
    write_snapshot(directory, 40, {3: 20, 4: 30})
    write_high_watermark(tmp_path, "t", 45)
    uncommitted = numbers(range(10), range(11, 25), range(26, 35), range(41, 45))
    assert offsets(load(spark, tmp_path)) == uncommitted
    committed = numbers(range(5, 10), range(11, 20), range(26, 30))
    assert offsets(load(spark, tmp_path, isolation_level="read_committed")) == committed
    write_high_watermark(tmp_path, "t", 39)
    committed = numbers(range(5, 10), range(11, 20))
    assert offsets(load(spark, tmp_path, isolation_level="read_committed")) == committed


DAMAGED_INDEXES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut entry": (lambda raw: raw[:-4], "64 bytes, not a multiple of 34"),
    "version": (lambda raw: raw[:35] + b"\1" + raw[36:], "version 1 of entry 1"),
    "zeros": (lambda raw: bytes(len(raw)), "entry 0 has producer id 0 and offsets 0 to 0 behind offset 19"),
    "first offset": (lambda raw: raw[:10] + b"\1" + raw[11:], "entry 0 has producer id 1 and offsets 7205759403"),
    "order": (lambda raw: raw[34:] + raw[:34], "entry 1 has producer id 1 and offsets 0 to 20 behind offset 25"),
    "beyond": (lambda raw: raw[:59] + b"\x28" + raw[60:], "offset 40 is beyond the segment"),
}
"""Change of the contents of a transaction index, and the reason in the message about it."""


@pytest.mark.parametrize("name", DAMAGED_INDEXES)
def test_damaged_transaction_index_is_named_or_replaced_by_markers(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    first = [transactional_batch(0, 5, 1), batch_of(5, 15)]
    second = [marker(20, 1, ABORT), transactional_batch(21, 4, 2), marker(25, 2, ABORT), transactional_batch(26, 4, 2)]
    third = [marker(40, 2, COMMIT), transactional_batch(41, 4, 1), marker(45, 1, ABORT), batch_of(46, 4)]
    directory = write_partition(tmp_path, "t", {0: first, 20: second, 40: third, 50: [batch_of(50, 5)]})
    write_transaction_index(directory, 20, [(1, 0, 20), (2, 21, 25)])
    write_transaction_index(directory, 40, [(1, 41, 45)])
    write_snapshot(directory, 50, {})
    write_high_watermark(tmp_path, "t", 55)
    committed = numbers(range(5, 20), range(26, 30), range(46, 55))
    assert offsets(load(spark, tmp_path, isolation_level="read_committed")) == committed
    file = directory / f"{20:020}.txnindex"
    change, reason = DAMAGED_INDEXES[name]
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(Py4JJavaError, match=f"Damaged transaction index: {file}: {reason}"):
        load(spark, tmp_path, isolation_level="read_committed").count()
    assert 22 in offsets(load(spark, tmp_path))
    skipping = {"isolation_level": "read_committed", "skipDamagedBatches": "true"}
    assert offsets(load(spark, tmp_path, **skipping)) == committed
    within = load(spark, tmp_path, startingOffsets='{"t":{"0":3}}', endingOffsets='{"t":{"0":24}}', **skipping)
    assert offsets(within) == numbers(range(5, 20))


def test_damaged_marker_ends_a_committed_read_with_the_name_of_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    batches = [transactional_batch(0, 5, 1), marker(5, 1, ABORT), batch_of(6, 4)]
    directory = write_partition(tmp_path, "t", {0: batches})
    write_high_watermark(tmp_path, "t", 10)
    file, position = directory / f"{0:020}.log", len(batches[0])
    raw = bytearray(file.read_bytes())
    raw[position + 61] ^= 0x55  # length of the record
    file.write_bytes(raw)
    with pytest.raises(Py4JJavaError, match=f"Damaged batch: {file} at position {position}, offset 5: the checksum"):
        load(spark, tmp_path, isolation_level="read_committed").count()
    skipping = load(spark, tmp_path, isolation_level="read_committed", skipDamagedBatches="true")
    assert offsets(skipping) == []


def test_index_has_the_start_of_a_transaction_behind_a_damaged_marker(spark: SparkSession, tmp_path: Path) -> None:
    batches = [transactional_batch(0, 5, 1), marker(5, 1, COMMIT), transactional_batch(6, 4, 1), marker(10, 1, ABORT)]
    directory = write_partition(tmp_path, "t", {0: [*batches, batch_of(11, 4)]})
    write_transaction_index(directory, 0, [(1, 6, 10)])
    write_high_watermark(tmp_path, "t", 15)
    file = directory / f"{0:020}.log"
    raw = bytearray(file.read_bytes())
    raw[len(batches[0]) + 61] ^= 0x55  # length of the record
    file.write_bytes(raw)
    skipping = load(spark, tmp_path, isolation_level="read_committed", skipDamagedBatches="true")
    assert offsets(skipping) == numbers(range(5), range(11, 15))


def test_damage_within_an_open_transaction_does_not_end_a_committed_read(spark: SparkSession, tmp_path: Path) -> None:
    batches = [transactional_batch(0, 5, 1), batch_of(5, 5), marker(10, 1, COMMIT), batch_of(11, 9)]
    directory = write_partition(tmp_path, "t", {0: batches, 20: [batch_of(20, 5)]})
    write_high_watermark(tmp_path, "t", 25)
    file, position = directory / f"{0:020}.log", len(batches[0])
    raw = bytearray(file.read_bytes())
    raw[position + 8] ^= 0x55  # length of the batch
    file.write_bytes(raw)
    with pytest.raises(Py4JJavaError, match=f"Damaged batch: {file} at position {position}, offset 5: no whole batch"):
        load(spark, tmp_path, isolation_level="read_committed").count()
    skipping = load(spark, tmp_path, isolation_level="read_committed", skipDamagedBatches="true")
    assert offsets(skipping) == numbers(range(5), range(11, 25))


@pytest.mark.parametrize("codec", list(CompressionType), ids=lambda codec: codec.name)
def test_compacted_batches_of_each_codec_keep_their_offsets(
    spark: SparkSession, tmp_path: Path, codec: CompressionType
) -> None:
    batches = [compacted_batch(0, 9, [1, 8], codec), compacted_batch(20, 29, [], codec), batch_of(40, 300, codec)]
    write_partition(tmp_path, "t", {0: batches})
    write_high_watermark(tmp_path, "t", 400)
    write_high_watermark(tmp_path, "t", 340)
    assert offsets(load(spark, tmp_path)) == [1, 8, *range(40, 340)]
    within = load(spark, tmp_path, startingOffsets='{"t":{"0":2}}', endingOffsets='{"t":{"0":45}}')
    assert offsets(within) == [8, *range(40, 45)]


def test_messages_of_formats_0_and_1_are_read(spark: SparkSession, tmp_path: Path) -> None:
    write_partition(
        tmp_path, "t", {0: [legacy_message(0, 0), legacy_message(1, 1), batch_of(2, 3), legacy_message(5, 1)]}
    )
    write_high_watermark(tmp_path, "t", 6)
    frame = load(spark, tmp_path)
    assert offsets(frame) == numbers(range(6))
    stamps = {
        row.offset: row.ms for row in frame.select("offset", functions.unix_millis("timestamp").alias("ms")).collect()
    }
    assert stamps == {0: -1} | {offset: FIRST_TIMESTAMP_MS + offset for offset in range(1, 6)}


@pytest.mark.parametrize("position", [5, 16, 30, 100])
def test_damaged_batch_is_named_and_never_served(spark: SparkSession, log_dir: Path, position: int) -> None:
    file = log_dir / "t-0" / f"{40:020}.log"
    raw = bytearray(file.read_bytes())
    size = len(batch_of(40, 10))
    raw[size + position] ^= 0x10
    file.write_bytes(raw)
    with pytest.raises(Py4JJavaError, match=f"Damaged batch: {file} at position {size}, offset 50"):
        load(spark, log_dir).select("value").collect()
    rest = load(spark, log_dir, skipDamagedBatches="true").select("offset", "value").collect()
    assert sorted(row.offset for row in rest) == numbers(range(50), range(60, 95))


def test_most_complete_replica_of_the_latest_leader_epoch_is_read(spark: SparkSession, tmp_path: Path) -> None:
    behind, diverged, complete = (tmp_path / name for name in ("behind", "diverged", "complete"))
    write_partition(behind, "t", {0: [batch_of(0, 30)]}, leader_epoch=6)
    write_partition(diverged, "t", {0: [batch_of(0, 90)]}, leader_epoch=5)
    write_partition(complete, "t", {0: [batch_of(0, 50)]}, leader_epoch=6)
    for folder, high_watermark in ((behind, 30), (diverged, 20), (complete, 45)):
        write_high_watermark(folder, "t", high_watermark)
    frame = load(spark, behind, diverged, complete)
    assert offsets(frame) == numbers(range(45))


def test_replicas_of_different_topics_of_a_name_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    for number in (1, 2):
        write_partition(tmp_path / str(number), "t", {0: [batch_of(0, 3)]}, topic_id=f"topic-{number}")
        write_high_watermark(tmp_path / str(number), "t", 3)
    with pytest.raises(Py4JJavaError, match="Different topics of the name t"):
        load(spark, tmp_path / "1", tmp_path / "2").count()


def test_partitions_of_several_log_directories_are_selected_as_by_the_connector(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [("t", 0), ("t", 1), ("u", 0), ("__consumer_offsets", 0)]
    for number, (topic, partition) in enumerate(names):
        folder = tmp_path / str(number % 2)
        write_partition(folder, topic, {0: [batch_of(0, 4)]}, partition=partition)
    for folder in (tmp_path / "0", tmp_path / "1"):
        write_checkpoint(folder, "replication-offset-checkpoint", dict.fromkeys(names, 4))

    def selected(**options: Any) -> list[tuple[str, int]]:
        frame = load(spark, tmp_path / "0", tmp_path / "1", **options)
        return sorted((row.topic, row.partition) for row in frame.select("topic", "partition").distinct().collect())

    assert selected() == [("t", 0), ("t", 1)]
    assert selected(subscribe=None, subscribePattern=".*") == [("t", 0), ("t", 1), ("u", 0)]
    assert selected(subscribe=None, assign=json.dumps({"t": [1], "u": [0]})) == [("t", 1), ("u", 0)]
    with pytest.raises(Py4JJavaError, match="No partition of topic missing"):
        selected(subscribe="missing")
    with pytest.raises(Py4JJavaError, match="a log directory may be missing"):
        load(spark, tmp_path / "1").count()


def test_read_is_split_by_bytes_at_batch_bounds(spark: SparkSession, tmp_path: Path) -> None:
    batches = [batch_of(first, 1000) for first in range(0, 20_000, 1000)]
    write_partition(tmp_path, "t", {0: batches[:7], 7000: batches[7:]})
    write_high_watermark(tmp_path, "t", 20_000)
    frame = load(spark, tmp_path, minPartitions="4")
    assert 4 <= frame.rdd.getNumPartitions() <= 6
    assert offsets(frame) == numbers(range(20_000))


def test_segments_merged_or_deleted_after_planning(spark: SparkSession, log_dir: Path) -> None:
    frame = load(spark, log_dir)
    plan = frame._jdf.queryExecution().executedPlan()
    plan.execute()  # plans the offsets
    directory = log_dir / "t-0"
    kept = [compacted_batch(0, 9, [3], CompressionType.NONE), compacted_batch(40, 49, [44], CompressionType.NONE)]
    (directory / f"{0:020}.log").unlink()
    (directory / f"{0:020}.log.swap").write_bytes(b"".join(kept))
    (directory / f"{40:020}.log").unlink()
    write_high_watermark(log_dir, "t", 99)  # a plan made now would read four more records
    assert sorted(row.offset for row in frame.collect()) == [3, 44, *range(80, 95)]


def test_unknown_option_and_missing_selection_are_refused(spark: SparkSession, log_dir: Path) -> None:
    with pytest.raises(Py4JJavaError, match="Unknown option: subscribes"):
        load(spark, log_dir, subscribes="t").count()
    with pytest.raises(Py4JJavaError, match="One of the options subscribe, subscribePattern, assign must be set"):
        load(spark, log_dir, subscribe=None).count()


def test_stream_reads_each_offset_once_within_its_limit_and_resumes(
    spark: SparkSession, log_dir: Path, tmp_path: Path
) -> None:
    batches: list[list[int]] = []

    def run(**options: Any) -> None:
        reader = spark.readStream.format("ottla-log").option("logDirs", str(log_dir)).option("subscribe", "t")
        query = (
            reader.options(startingOffsets="earliest", **options)
            .load()
            .writeStream.foreachBatch(lambda rows, _: batches.append(offsets(rows)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run(maxOffsetsPerTrigger="40")
    assert batches == [numbers(range(40)), numbers(range(40, 80)), numbers(range(80, 95))]
    write_high_watermark(log_dir, "t", 98)
    run()
    assert batches[3:] == [numbers(range(95, 98))]
