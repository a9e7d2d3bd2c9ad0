"""Future logs that a previous process left, and their recovery at startup."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace

import pytest

from ottla.broker.tests.broker_storage_fixture import NODE_ID, led_topic
from ottla.broker.tests.handler_fixture import NOW_MS, run_virtual
from ottla.broker.tests.log_dir_moves_fixture import TOPIC_PARTITION, LogDirMovesFixture
from ottla.controller.metadata.image import MetadataImage
from ottla.log.checkpoints.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    CorruptFile,
    read_offsets,
    write_offsets,
    write_partition_metadata,
)
from ottla.log.directory.future_log import create_future_log
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.wire.record_batch.records import NewRecord, build_batch

ID = led_topic("t", 1).id
TAG = "0123456789abcdef" * 2


def filled(log: PartitionLog, epochs: tuple[int, ...]) -> None:
    """Append a record in each of these leader epochs; the process ends cleanly."""
    for epoch in epochs:
        log.append_as_leader(bytearray(build_batch([NewRecord(None, b"x", NOW_MS)])), epoch, NOW_MS)
    log.close()


def whole(fixture: LogDirMovesFixture, directory: int, *epochs: int) -> None:
    """Create a partition's log in a directory."""
    where = fixture.log_dirs.directories[directory]
    filled(where.create_partition("t", 0, ID, LogConfig(), NOW_MS), epochs)
    where.logs.clear()


def copy(fixture: LogDirMovesFixture, directory: int, *epochs: int, tag: str = TAG, topic_id: bytes = ID) -> None:
    """Create a future log in a directory."""
    where = fixture.log_dirs.directories[directory]
    filled(create_future_log(where, "t", 0, topic_id, LogConfig(), NOW_MS, tag), epochs)


def start(fixture: LogDirMovesFixture, place: int, *, there: bool = True, **state: tuple[int, ...]) -> None:
    """Start again with an image that assigns the partition to that directory."""
    known = led_topic("t", 1, **state)
    registration = known.partitions[0]
    registration = replace(registration, directories=(fixture.ids[place],) * len(registration.replicas))
    topics = {"t": replace(known, partitions={0: registration})} if there else {}
    fixture.image = MetadataImage(topics=topics, topic_names={t.id: t.name for t in topics.values()})

    run_virtual(fixture.open)


def test_future_log_is_resumed_at_startup() -> None:
    fixture = LogDirMovesFixture()
    whole(fixture, 0, 1, 1, 2)
    copy(fixture, 1, 1, 1)
    known = led_topic("t", 1)
    registration = replace(known.partitions[0], directories=(fixture.ids[0],))
    fixture.image = MetadataImage(topics={"t": replace(known, partitions={0: registration})}, topic_names={ID: "t"})

    async def scenario() -> None:
        await fixture.open()
        assert (fixture.serving_directory(), fixture.future_log.log_end_offset) == ("/a", 2)
        assert fixture.replica.log.has_future_log
        fixture.commit(fixture.ids[0], leader_epoch=3)
        await fixture.alter_and_wait("/b")
        assert fixture.replica.log.epochs.entries[:2] == [(1, 0), (2, 2)]
        fixture.write()
        assert fixture.replica.log.log_end_offset == 4

    fixture.run_moves(scenario, made=False)
    assert (fixture.directory_names("/a"), fixture.directory_names("/b")) == (["delete"], ["0"])


@pytest.mark.parametrize(
    ("log", "future", "place", "served", "a", "b"),
    [
        # the controller has no assignment to the future log's directory
        ((1, 1), (1, 1), 0, "/a", ["0"], ["future"]),
        ((1,), (1, 1), 0, "/a", ["0"], ["future"]),
        # it has: the future log is used where it is complete, otherwise the rest is copied first
        ((1, 1), (1, 1), 1, "/b", ["delete"], ["0"]),
        ((1, 1), (1, 1, 2), 1, "/b", ["delete"], ["0"]),
        ((1, 1), (1, 2), 1, "/b", ["delete"], ["0"]),
        ((1, 1), (1,), 1, "/a", ["0"], ["future"]),
        ((1, 2), (1, 1, 1), 1, "/a", ["0"], ["future"]),
        # there is no current log
        (None, (1,), 1, "/b", [], ["0"]),
        (None, (1,), 0, None, [], ["future"]),
        (None, (1,), 2, None, [], ["future"]),
    ],
)
def test_startup_chooses_between_current_and_future_log(
    log: tuple[int, ...] | None, future: tuple[int, ...], place: int, served: str | None, a: list[str], b: list[str]
) -> None:
    fixture = LogDirMovesFixture()
    if log is not None:
        whole(fixture, 0, *log)
    copy(fixture, 1, *future)
    start(fixture, place)
    replica = fixture.replica_manager.get(*TOPIC_PARTITION)
    assert (None if replica is None else fixture.serving_directory()) == served
    assert (fixture.directory_names("/a"), fixture.directory_names("/b")) == (a, b)
    assert (TOPIC_PARTITION in fixture.replica_manager.future_logs) == (served == "/a")
    assert all(not x.is_future for x in fixture.log_dirs.logs())
    counts = {"/a": (1, 1), "/b": (0, 1), None: (0, 0)}[served]
    assert tuple(len(d.logs) for d in fixture.log_dirs.directories[:2]) == counts
    if replica is not None:
        assert replica.log.log_end_offset == len(future if served == "/b" else log or ())


@pytest.mark.parametrize("expected", [True, False])
def test_future_log_with_gaps_is_copied_again_unless_assigned(*, expected: bool) -> None:
    """A future log that the controller assigned was synced before: a gap in it is the work of the cleaner."""
    fixture = LogDirMovesFixture()
    whole(fixture, 0, 1, 1, 1)
    there = fixture.log_dirs.directories[1]
    made = create_future_log(there, "t", 0, ID, LogConfig(), NOW_MS, TAG)
    for _ in range(3):
        made.append_as_leader(bytearray(build_batch([NewRecord(None, b"x", NOW_MS)])), 1, NOW_MS)
        made.roll(NOW_MS)
    filled(made, (1,) if expected else ())
    there.disk.unlink(f"{made.directory}/{1:020d}.log")
    there.checkpoints.cleaner.offsets = {("t", 0): 3}
    start(fixture, 1 if expected else 0)
    log = fixture.replica.log if expected else fixture.future_log
    assert (log.directory[:2], log.log_end_offset, log.segments.base_offsets) == (
        "/b",
        *((4, [0, 2, 3]) if expected else (1, [0])),
    )


def test_future_log_in_assigned_directory_is_used_and_others_are_deleted() -> None:
    fixture = LogDirMovesFixture()
    whole(fixture, 0, 1)
    copy(fixture, 1, 1)
    copy(fixture, 2, 1)
    copy(fixture, 2, 1, tag="f" * 32)
    start(fixture, 2)
    assert fixture.serving_directory() == "/c"
    assert [fixture.directory_names(f"/{x}") for x in "abc"] == [["delete"], ["delete"], ["0", "delete"]]
    assert not fixture.replica_manager.future_logs
    assert len(fixture.scheduled_deletes) == 3


def test_future_log_beside_its_current_log_is_deleted() -> None:
    fixture = LogDirMovesFixture()
    whole(fixture, 1, 1)
    copy(fixture, 1)
    start(fixture, 1)
    assert (fixture.serving_directory(), fixture.directory_names("/b")) == ("/b", ["0", "delete"])
    assert not fixture.replica_manager.future_logs


@pytest.mark.parametrize("there", [False, True])
def test_future_log_of_other_topic_id_is_renamed_to_stray(there: bool, caplog: pytest.LogCaptureFixture) -> None:
    fixture = LogDirMovesFixture()
    copy(fixture, 1, 1, topic_id=b"an older topic--")
    with caplog.at_level(logging.WARNING):
        start(fixture, 0, there=there)
    assert fixture.directory_names("/b") == ["stray"]
    assert "no replica of this broker" in caplog.text
    assert not fixture.log_dirs.directories[1].logs


def test_future_log_without_partition_metadata_is_deleted() -> None:
    fixture = LogDirMovesFixture()
    whole(fixture, 0, 1)
    copy(fixture, 1)
    fixture.env.disk.unlink(f"/b/t-0.{TAG}-future/partition.metadata")
    start(fixture, 0)
    assert (fixture.serving_directory(), fixture.directory_names("/b")) == ("/a", ["delete"])
    assert not fixture.log_dirs.directories[1].logs


def corrupt_log(fixture: LogDirMovesFixture, where: str = "/b") -> None:
    write_partition_metadata(fixture.env.disk, f"{where}/t-0.{TAG}-future", ID, sync=True)
    fixture.env.disk.open(f"{where}/t-0.{TAG}-future/partition.metadata").truncate(3)


def test_unreadable_future_log_is_deleted_unless_it_is_the_only_log() -> None:
    fixture = LogDirMovesFixture()
    whole(fixture, 0, 1)
    copy(fixture, 1, 1)
    corrupt_log(fixture)
    start(fixture, 1)
    assert (fixture.serving_directory(), fixture.directory_names("/b")) == ("/a", ["delete"])
    fixture = LogDirMovesFixture()
    copy(fixture, 1, 1)
    corrupt_log(fixture)
    with pytest.raises(CorruptFile):
        start(fixture, 1)


def test_read_error_of_future_log_takes_its_directory_offline() -> None:
    fixture = LogDirMovesFixture()
    whole(fixture, 0, 1)
    copy(fixture, 1, 1)
    fixture.break_disk("-future/", errno.EIO)
    start(fixture, 0)
    assert list(fixture.log_dirs.offline) == ["/b"]
    assert (fixture.serving_directory(), fixture.replica_manager.future_logs) == ("/a", {})


def test_unreadable_unassigned_future_log_is_left_unchanged() -> None:
    fixture = LogDirMovesFixture()
    whole(fixture, 0, 1)
    copy(fixture, 1, 1)
    path = f"/b/t-0.{TAG}-future"
    fixture.env.disk.fault = lambda call, at: (
        PermissionError(errno.EACCES, "permission denied", at) if at.startswith(path) and call == "open" else None
    )
    start(fixture, 0)
    assert not fixture.log_dirs.offline
    assert fixture.env.disk.exists(path)


@pytest.mark.parametrize(
    ("isr", "counts"), [((), False), ((NODE_ID,), False), ((NODE_ID, NODE_ID + 1), True), ((NODE_ID + 1,), True)]
)
def test_future_log_waits_for_offline_directory_unless_isr_has_others(
    isr: tuple[int, ...], counts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fixture = LogDirMovesFixture()
    whole(fixture, 1, 1, 1)
    copy(fixture, 2, 1)
    fixture.break_disk("/b/t-0")
    start(fixture, 2, replicas=(NODE_ID, NODE_ID + 1), isr=isr)
    assert list(fixture.log_dirs.offline) == ["/b"]
    assert (fixture.replica_manager.get(*TOPIC_PARTITION) is not None) == counts
    assert fixture.replica_manager.offline_partitions == (set() if counts else {TOPIC_PARTITION})
    assert fixture.directory_names("/c") == (["0"] if counts else ["future"])
    assert ("or remove it from log.dirs" in caplog.text) != counts


def test_future_log_is_used_when_offline_directory_is_removed_from_settings() -> None:
    fixture = LogDirMovesFixture()
    there = fixture.log_dirs.directories[2]
    made = create_future_log(there, "t", 0, ID, LogConfig(), NOW_MS, TAG)
    for _ in range(3):
        made.append_as_leader(bytearray(build_batch([NewRecord(None, b"x", NOW_MS)])), 1, NOW_MS)
        made.roll(NOW_MS)
    filled(made, (1,))
    there.disk.unlink(f"{made.directory}/{1:020d}.log")  # no batch of it outlived the cleaner, which got as far as 3
    write_offsets(there.disk, f"/c/{CLEANER_OFFSET_CHECKPOINT}", {TOPIC_PARTITION: 3})
    there.load_checkpoints()
    whole(fixture, 1, 1, 1, 1, 1, 1)
    fixture.break_disk("/b/t-0")
    start(fixture, 2)
    there.checkpoints.write()
    there.unlock()
    fixture.log_dirs.directories[0].unlock()
    fixture.break_disk("nowhere")
    again = LogDirMovesFixture("/a,/c", env=fixture.env)
    start(again, 1)
    assert (again.replica.log.log_end_offset, again.replica.log.segments.base_offsets) == (4, [0, 2, 3])


def test_waiting_unreadable_future_log_does_not_fail_startup() -> None:
    fixture = LogDirMovesFixture()
    whole(fixture, 1, 1, 1)
    copy(fixture, 2, 1)
    corrupt_log(fixture, "/c")
    fixture.break_disk("/b/t-0")
    start(fixture, 2)
    assert fixture.replica_manager.offline_partitions == {TOPIC_PARTITION}
    assert fixture.directory_names("/c") == ["future"]


def test_future_log_short_of_descriptors_fails_startup() -> None:
    fixture = LogDirMovesFixture()
    whole(fixture, 0, 1)
    copy(fixture, 1, 1)
    fixture.break_disk("-future/", errno.EMFILE)
    with pytest.raises(OSError, match="injected"):
        start(fixture, 0)
    assert fixture.log_dirs.offline == {}


def test_future_log_replacing_current_log_does_not_sync_on_event_loop() -> None:
    fixture = LogDirMovesFixture()
    where = fixture.log_dirs.directories[1]
    log = create_future_log(where, "t", 0, ID, LogConfig(), NOW_MS, TAG)
    log.truncate_fully_and_start_at(5, NOW_MS)
    filled(log, (1, 1))
    waited = fixture.watch_disk()
    start(fixture, 1)
    assert (fixture.serving_directory(), fixture.directory_names("/b")) == ("/b", ["0"])
    assert read_offsets(fixture.env.disk, f"/b/{CLEANER_OFFSET_CHECKPOINT}") == {TOPIC_PARTITION: 5}
    assert [path for _, path in waited if CLEANER_OFFSET_CHECKPOINT in path or path == "/b"] == []


@pytest.mark.parametrize(
    ("place", "one", "other", "served"),
    [
        (1, (1, 1), (1, 1), "/b"),  # the process ended between the two renames
        (0, (1, 1), (1, 1), "/a"),
        (1, (1, 1), (1, 1, 2), "/b"),  # the second one was lost with the power
        (1, (1, 1), (1,), "/a"),  # and what was copied last, too
    ],
)
def test_duplicate_logs_are_resolved_by_newness_and_assignment(
    place: int, one: tuple[int, ...], other: tuple[int, ...], served: str
) -> None:
    fixture = LogDirMovesFixture()
    whole(fixture, 0, *one)
    whole(fixture, 1, *other)
    start(fixture, place)
    assert fixture.serving_directory() == served
    assert fixture.directory_names("/a" if served == "/b" else "/b") == ["stray"]


def test_kept_future_log_is_synced_at_clean_shutdown() -> None:
    fixture = LogDirMovesFixture()
    log = create_future_log(fixture.log_dirs.directories[1], "t", 0, ID, LogConfig(), NOW_MS, TAG)
    log.append_as_leader(bytearray(build_batch([NewRecord(None, b"x", NOW_MS)])), 1, NOW_MS)
    log.close_files()
    start(fixture, 2)
    assert fixture.directory_names("/b") == ["future"]
    fixture.log_dirs.close(1)
    unsynced = {path for path, file in fixture.env.memory.files.items() if file.pending}
    assert f"/b/t-0.{TAG}-future/00000000000000000000.log" not in unsynced, "the next start believes it"


def test_future_log_lost_at_startup_keeps_the_other_future_log() -> None:
    """The directory of the used future log fails while its cleaner offset is written."""
    fixture = LogDirMovesFixture()
    copy(fixture, 1, 1, 1)
    copy(fixture, 2, 1, 1)
    fixture.log_dirs.directories[1].checkpoints.cleaner._is_synced = False  # a power failure might lose the file
    fixture.break_disk(f"/b/{CLEANER_OFFSET_CHECKPOINT}")
    start(fixture, 1)
    assert set(fixture.log_dirs.offline) == {"/b"}
    assert fixture.directory_names("/c") == ["future"], "it may be the only one that is left"
