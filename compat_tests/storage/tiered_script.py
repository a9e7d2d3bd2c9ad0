"""Requests to a node with tiered storage: Fetch, ListOffsets, DeleteRecords, leader epochs and settings."""

from __future__ import annotations

from typing import Any

from compat_tests.storage.tiered_session import (
    BATCH_BYTES,
    COPIED_END,
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING,
    END_OFFSET,
    LATEST,
    LATEST_TIERED,
    LOCAL_START,
    LOCAL_TOPIC,
    NO_LIMIT,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RECORDS_PER_BATCH,
    SEGMENT_BYTES,
    SEGMENT_RECORDS,
    TOPIC,
    TXN_TOPIC,
    TieredSession,
    timestamp_of,
)
from ottla.wire.messages import fetch

FUTURE_REPLICA_ID, DEBUGGING_REPLICA_ID = -3, -2
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE = 0, 1
LIST_OFFSETS_VERSIONS = range(1, 12)
SPECIAL_TIMESTAMPS = range(-1, -8, -1)
FETCH_VERSIONS = (4, 6, 11, 12, 13, 15, 16, 17, 18)
FIRST_KEPT_OFFSET = 7
"""Offset up to which DeleteRecords deletes, within the second batch."""
TOPIC_KEYS = (
    "remote.storage.enable",
    "local.retention.ms",
    "local.retention.bytes",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
)
BROKER_KEYS = (
    "remote.log.storage.system.enable",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.task.interval.ms",
    "remote.log.reader.threads",
    "remote.log.reader.max.pending.tasks",
    "remote.log.metadata.custom.metadata.max.bytes",
    "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms",
    "log.local.retention.ms",
    "log.local.retention.bytes",
    "follower.fetch.last.tiered.offset.enable",
)


def run_script(session: TieredSession) -> None:
    """Fill the topics and send all requests; DeleteRecords and changed settings come last."""
    session.fill_topics()
    fetch_with_limits(session)
    fetch_at_offsets(session)
    fetch_in_versions(session)
    fetch_several_partitions(session)
    fetch_transactions(session)
    list_offsets(session)
    look_up_leader_epochs(session)
    describe_settings(session)
    validate_settings(session)
    change_settings(session)
    delete_records(session)


def fetch_with_limits(session: TieredSession) -> None:
    """Fetch the remote start of the log with limits around the sizes of batches and segments."""
    sizes = (0, 1, 61, BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 3 * BATCH_BYTES, SEGMENT_BYTES, SEGMENT_BYTES + 1)
    for size in (*sizes, NO_LIMIT):
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            session.fetch_offset(f"fetch 0, {size} bytes, isolation {isolation}", 0, size, isolation_level=isolation)
    for size in (0, 1, BATCH_BYTES + 1, SEGMENT_BYTES):
        session.fetch_offset(f"fetch 0, {size} bytes in the request", 0, max_bytes=size)
    session.fetch_offset("fetch 0, more than a segment wanted", 0, min_bytes=SEGMENT_BYTES + 1)
    session.fetch_offset("fetch 0, no wait", 0, max_wait_ms=0)
    session.fetch_offset("fetch 0, invalid isolation", 0, isolation_level=2)


def fetch_at_offsets(session: TieredSession) -> None:
    """Fetch from offsets around the bounds of batches, segments and tiers."""
    bounds = (RECORDS_PER_BATCH, SEGMENT_RECORDS, LOCAL_START, COPIED_END, END_OFFSET)
    for offset in sorted({-1, 1, *(bound + step for bound in bounds for step in (-1, 0, 1))}):
        session.fetch_offset(f"fetch {offset}", offset)
        session.fetch_offset(f"fetch {offset}, one byte", offset, 1)
    session.fetch_offset("fetch 0, current epoch", 0, epochs=(0, -1))
    session.fetch_offset("fetch 0, unknown epoch", 0, epochs=(1, -1))
    session.fetch_offset("fetch 30, last epoch", 30, epochs=(-1, 0))
    session.fetch_offset("fetch 30, later last epoch", 30, epochs=(-1, 1))
    session.fetch_offset("fetch beyond the end, last epoch", END_OFFSET + 5, epochs=(-1, 0))
    for replica in (FUTURE_REPLICA_ID, DEBUGGING_REPLICA_ID):
        for offset in (0, LOCAL_START - 1, LOCAL_START):
            session.fetch_offset(f"fetch {offset}, replica {replica}", offset, replica_id=replica)


def fetch_in_versions(session: TieredSession) -> None:
    """Fetch from both tiers in several versions."""
    for version in FETCH_VERSIONS:
        for offset in (0, LOCAL_START):
            session.fetch_offset(f"fetch {offset} v{version}", offset, BATCH_BYTES, version=version)


def fetch_several_partitions(session: TieredSession) -> None:
    """Fetch partitions of both tiers in one request, also with limits that the first of them uses up."""

    def row(topic: str, offset: int, size: int = NO_LIMIT) -> tuple[str, fetch.FetchPartition]:
        return topic, fetch.FetchPartition(0, fetch_offset=offset, partition_max_bytes=size)

    remote, local, other = row(TOPIC, 0), row(LOCAL_TOPIC, 0), row(TXN_TOPIC, 0)
    session.fetch_partitions("remote, local", remote, local)
    session.fetch_partitions("local, remote", local, remote)
    session.fetch_partitions("remote, remote", remote, other)
    session.fetch_partitions("remote, remote, local", remote, other, local)
    sized = [row(TOPIC, 0, SEGMENT_BYTES), row(TXN_TOPIC, 0, BATCH_BYTES), row(LOCAL_TOPIC, 0, BATCH_BYTES)]
    session.fetch_partitions("limits of the partitions", *sized)
    session.fetch_partitions(
        "limits of the partitions, not enough for all", *sized, max_bytes=SEGMENT_BYTES + BATCH_BYTES
    )
    for size in (1, BATCH_BYTES, SEGMENT_BYTES, 2 * SEGMENT_BYTES):
        session.fetch_partitions(f"remote, remote, local, {size} bytes", remote, other, local, max_bytes=size)
        session.fetch_partitions(f"local, remote, {size} bytes", local, remote, max_bytes=size)
    session.fetch_partitions("remote, out of range", remote, row(LOCAL_TOPIC, 99))
    session.fetch_partitions("remote, at the end", remote, row(LOCAL_TOPIC, RECORDS_PER_BATCH))
    small = row(TOPIC, 0, BATCH_BYTES)
    session.fetch_partitions("remote, at the end, not enough", small, row(LOCAL_TOPIC, 4), min_bytes=2 * BATCH_BYTES)


def fetch_transactions(session: TieredSession) -> None:
    """Fetch aborted and committed transactions of the remote tier and across the tiers."""
    end = session.offset_of(TXN_TOPIC, LATEST)
    local = session.offset_of(TXN_TOPIC, EARLIEST_LOCAL)
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        for offset in (0, 13, 14, 20, 30, local - 1, local, end - 1, end):
            label = f"fetch transactions {offset}, isolation {isolation}"
            session.fetch_offset(label, offset, topic=TXN_TOPIC, isolation_level=isolation)
            session.fetch_offset(f"{label}, one batch", offset, BATCH_BYTES, topic=TXN_TOPIC, isolation_level=isolation)
        for timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING):
            session.list_offsets(
                f"list {timestamp} of transactions, isolation {isolation}",
                *(timestamp, 11),
                topic=TXN_TOPIC,
                isolation=isolation,
            )


def list_offsets(session: TieredSession) -> None:
    """Request special and ordinary timestamps of both tiers."""
    for version in LIST_OFFSETS_VERSIONS:
        for timestamp in SPECIAL_TIMESTAMPS:
            session.list_offsets(f"list {timestamp} v{version}", timestamp, version)
        session.list_offsets(f"list by time v{version}", timestamp_of(30), version)
    offsets = (0, 1, 30, LOCAL_START - 1, LOCAL_START, COPIED_END - 1, COPIED_END, END_OFFSET - 1)
    for offset in offsets:
        session.list_offsets(f"list the time of {offset}", timestamp_of(offset))
        session.list_offsets(f"list after the time of {offset}", timestamp_of(offset) + 1)
    session.list_offsets("list before the first time", 0)
    session.list_offsets("list by time, committed", timestamp_of(30), isolation=READ_COMMITTED)
    session.list_offsets("list by time, unknown epoch", timestamp_of(30), epoch=1)
    session.list_offsets("list by time, replica -2", timestamp_of(30), replica=DEBUGGING_REPLICA_ID)
    for timestamp in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING):
        session.list_offsets(f"list {timestamp} without tiered storage", timestamp, topic=LOCAL_TOPIC)
        session.list_offsets(f"list {timestamp}, replica -2", timestamp, replica=DEBUGGING_REPLICA_ID)
        session.list_offsets(f"list {timestamp}, unknown epoch", timestamp, epoch=1)


def look_up_leader_epochs(session: TieredSession) -> None:
    """Request end offsets of leader epochs."""
    for version in (2, 3, 4):
        for epoch in (-1, 0, 1):
            session.epoch_end(f"end of epoch {epoch} v{version}", epoch, version=version)
    session.epoch_end("end of epoch 0, unknown epoch", 0, 1)


def describe_settings(session: TieredSession) -> None:
    """Describe the settings of tiered storage."""
    for topic in (TOPIC, LOCAL_TOPIC):
        session.describe_configs(f"settings of {topic}", TOPIC_RESOURCE, topic, *TOPIC_KEYS)
    session.describe_configs("settings of the broker", BROKER_RESOURCE, "1", *BROKER_KEYS)


def validate_settings(session: TieredSession) -> None:
    """Validate topics with right and wrong combinations of settings."""
    enabled = {"remote_storage_enable": "true"}
    cases: list[dict[str, str]] = [
        enabled,
        {"remote_storage_enable": "false"},
        {"remote_storage_enable": "yes"},
        {**enabled, "cleanup_policy": "compact"},
        {**enabled, "cleanup_policy": "compact,delete"},
        {**enabled, "cleanup_policy": "delete"},
        {**enabled, "retention_ms": "1000", "local_retention_ms": "1000"},
        {**enabled, "retention_ms": "1000", "local_retention_ms": "1001"},
        {**enabled, "retention_ms": "1000", "local_retention_ms": "-1"},
        {**enabled, "retention_ms": "1000", "local_retention_ms": "-2"},
        {**enabled, "retention_ms": "-1", "local_retention_ms": "-1"},
        {**enabled, "local_retention_ms": "-3"},
        {**enabled, "retention_bytes": "1000", "local_retention_bytes": "1001"},
        {**enabled, "retention_bytes": "1000", "local_retention_bytes": "-1"},
        {**enabled, "retention_bytes": "1000", "local_retention_bytes": "1000"},
        {**enabled, "local_retention_bytes": "-3"},
        {"retention_ms": "1000", "local_retention_ms": "1001"},
        {"local_retention_ms": "1"},
        {**enabled, "remote_log_copy_disable": "true"},
        {**enabled, "remote_log_copy_disable": "true", "retention_ms": "1000", "local_retention_ms": "1000"},
        {**enabled, "remote_log_copy_disable": "true", "retention_ms": "1000", "local_retention_ms": "500"},
        {**enabled, "remote_log_copy_disable": "true", "retention_bytes": "1000", "local_retention_bytes": "500"},
        {"remote_log_copy_disable": "true"},
        {"remote_storage_enable": "false", "remote_log_delete_on_disable": "true"},
        {**enabled, "remote_log_delete_on_disable": "maybe"},
    ]
    for case in cases:
        session.validate_topic("validate " + ", ".join(f"{name}={value}" for name, value in case.items()), **case)


def change_settings(session: TieredSession) -> None:
    """Change settings of the topics, without effect where Kafka rejects the change."""
    changes: list[tuple[str, tuple[tuple[str, int, str | None], ...]]] = [
        (TOPIC, (("remote.storage.enable", SET, "false"),)),
        (TOPIC, (("remote.storage.enable", DELETE, None),)),
        (TOPIC, (("cleanup.policy", SET, "compact"),)),
        (TOPIC, (("local.retention.bytes", SET, "-1"), ("retention.bytes", SET, "1000000"))),
        (TOPIC, (("local.retention.ms", SET, "1000"), ("retention.ms", SET, "999"))),
        (TOPIC, (("remote.log.copy.disable", SET, "true"),)),
        (TOPIC, (("remote.log.delete.on.disable", SET, "true"),)),
        (LOCAL_TOPIC, (("remote.log.copy.disable", SET, "true"),)),
        (LOCAL_TOPIC, (("remote.log.delete.on.disable", SET, "true"),)),
        (LOCAL_TOPIC, (("local.retention.ms", SET, "1000"),)),
        (LOCAL_TOPIC, (("cleanup.policy", SET, "compact"), ("remote.storage.enable", SET, "true"))),
    ]
    for topic, rows in changes:
        label = ", ".join(f"{name}={value}" for name, _, value in rows)
        session.alter_configs(f"change {topic}: {label}", TOPIC_RESOURCE, topic, *rows, dry=True)
    broker: list[tuple[tuple[str, int, str | None], ...]] = [
        (("remote.log.reader.threads", SET, "0"),),
        (("remote.log.manager.copier.thread.pool.size", SET, "-2"),),
        (("remote.fetch.max.wait.ms", SET, "0"),),
        (("remote.log.storage.system.enable", SET, "false"),),
        (("remote.log.manager.fetch.max.bytes.per.second", SET, "0"),),
        (("log.local.retention.ms", SET, "-3"),),
        (("follower.fetch.last.tiered.offset.enable", SET, "true"),),
    ]
    for rows in broker:
        label = ", ".join(f"{name}={value}" for name, _, value in rows)
        session.alter_configs(f"change the broker: {label}", BROKER_RESOURCE, "1", *rows, dry=True)


def delete_records(session: TieredSession) -> None:
    """Delete records of the remote tier, then of both; read below the log start."""
    for offset in (END_OFFSET + 1, -2):
        session.delete_records(f"delete below {offset}", offset)
    session.delete_records("delete within a remote batch", FIRST_KEPT_OFFSET)
    _read_after_deletion(session, FIRST_KEPT_OFFSET)
    session.delete_records("delete less", 3)
    session.delete_records("delete up to the local start", LOCAL_START)
    _read_after_deletion(session, LOCAL_START)
    session.delete_records("delete within a local batch", LOCAL_START + 2)
    _read_after_deletion(session, LOCAL_START + 2)
    session.delete_records("delete all", -1)
    _read_after_deletion(session, END_OFFSET)


def _read_after_deletion(session: TieredSession, start: int) -> None:
    for offset in (0, start - 1, start, start + 1):
        session.fetch_offset(f"fetch {offset} after deletion below {start}", offset, BATCH_BYTES)
    for timestamp in (EARLIEST, timestamp_of(0), timestamp_of(start)):
        session.list_offsets(f"list {timestamp} after deletion below {start}", timestamp)
    session.epoch_end(f"end of epoch 0 after deletion below {start}", 0)


def answers_of(port: int) -> list[tuple[str, Any]]:
    """Return the labels and responses of the script."""
    session = TieredSession(port)
    run_script(session)
    return session.answers
