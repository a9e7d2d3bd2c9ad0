"""Loading of log directories at startup."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace

import pytest
import trio

from ottla.broker.replication.partition_state import FollowerState
from ottla.broker.tests.broker_storage_fixture import NODE_ID, BrokerStorageFixture, led_topic
from ottla.broker.tests.handler_fixture import NOW_MS, run_virtual
from ottla.controller.metadata.image import MetadataImage, TopicImage
from ottla.jobs.time_slice import run_in_background
from ottla.log.checkpoints.checkpoint_files import CorruptFile, write_partition_metadata
from ottla.log.log_config import LogConfig
from ottla.wire.record_batch.records import NewRecord, build_batch


def made(
    fixture: BrokerStorageFixture, directory: int, name: str, *, topic_id: bytes | None = None, records: int = 0
) -> None:
    """Create a partition that an earlier process closed cleanly."""
    where = fixture.log_dirs.directories[directory]
    log = where.create_partition(name, 0, topic_id or led_topic(name, 1).id, LogConfig(), NOW_MS)
    for _ in range(records):
        log.append_as_leader(bytearray(build_batch([NewRecord(None, b"x", NOW_MS)])), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    log.close()
    where.logs.clear()


def load(fixture: BrokerStorageFixture, *names: str) -> None:
    """Start a process with an image of these topics."""
    topics = {name: led_topic(name, 1) for name in names}
    fixture.image = MetadataImage(topics=topics, topic_names={t.id: t.name for t in topics.values()})

    async def main() -> None:
        await run_in_background(fixture.env, fixture.replica_manager.load(fixture.image))

    run_virtual(main)


def names(fixture: BrokerStorageFixture, path: str) -> list[str]:
    return sorted(name for name in fixture.env.disk.listdir(path) if "-" in name and "." not in name.split("-")[0])


def test_load_opens_known_partitions_without_leading() -> None:
    fixture = BrokerStorageFixture("/a,/b")
    made(fixture, 0, "t", records=3)
    made(fixture, 1, "u")
    load(fixture, "t", "u", "nowhere")
    assert fixture.hosted() == {("t", 0), ("u", 0)}
    assert len(fixture.replica_manager) == 2
    replica = fixture.replica_manager.get("t", 0)
    assert replica is not None
    assert replica.log.log_end_offset == 3
    assert fixture.replica_manager.topic_id_of(("t", 0)) == replica.topic_id == led_topic("t", 1).id
    assert fixture.replica_manager.topic_id_of(("nowhere", 0)) is None
    assert (replica.is_leader, replica.is_sole_replica, replica.leader_epoch, replica.state) == (
        False,
        False,
        -1,
        FollowerState(-1),
    )


@pytest.mark.behaviour("P-74")
@pytest.mark.parametrize("known", [False, True])
def test_load_renames_unknown_topic_id_to_stray(known: bool, caplog: pytest.LogCaptureFixture) -> None:
    fixture = BrokerStorageFixture()
    made(fixture, 0, "t", topic_id=b"an older topic--", records=1)
    made(fixture, 0, "u")
    with caplog.at_level(logging.WARNING):
        load(fixture, *(["t", "u"] if known else ["u"]))
    assert fixture.hosted() == {("u", 0)}
    assert not fixture.log_dirs.directories[0].logs.get(("t", 0))
    [stray] = [name for name in fixture.env.disk.listdir("/a") if name.startswith("t-0.")]
    assert stray.endswith("-stray")
    assert fixture.env.disk.exists(f"/a/{stray}/00000000000000000000.log")
    assert f"its topic does not exist; renamed to /a/{stray}" in caplog.text


def test_load_renames_unknown_partition_number_to_stray() -> None:
    fixture = BrokerStorageFixture()
    where = fixture.log_dirs.directories[0]
    where.create_partition("t", 1, led_topic("t", 1).id, LogConfig(), NOW_MS).close()
    where.logs.clear()
    load(fixture, "t")
    assert fixture.hosted() == set()


def test_load_renames_partition_without_topic_id_to_stray() -> None:
    """The id is on the disk before the first batch; a log taken for the topic's could stand beside the real one."""
    fixture = BrokerStorageFixture("/a,/b")
    made(fixture, 0, "t")
    made(fixture, 1, "t")
    write_partition_metadata(fixture.env.disk, "/a/t-0", bytes(16), sync=True)
    load(fixture, "t")
    replica = fixture.replica_manager.get("t", 0)
    assert replica is not None
    assert replica.log.directory == "/b/t-0"
    assert [name for name in fixture.env.disk.listdir("/a") if name.endswith("-stray")]


def test_load_renames_partition_reassigned_elsewhere_to_stray() -> None:
    fixture = BrokerStorageFixture()
    made(fixture, 0, "t", records=2)
    known = led_topic("t", 1)
    elsewhere = TopicImage(
        "t",
        known.id,
        {0: replace(known.partitions[0], replicas=(NODE_ID + 1,), isr=(NODE_ID + 1,), leader=NODE_ID + 1)},
    )
    fixture.image = MetadataImage(topics={"t": elsewhere}, topic_names={known.id: "t"})

    async def main() -> None:
        await run_in_background(fixture.env, fixture.replica_manager.load(fixture.image))

    run_virtual(main)
    assert fixture.hosted() == set()
    assert [name for name in fixture.env.disk.listdir("/a") if name.endswith("-stray")]


def test_load_duplicate_log_directories_raises_corrupt_file() -> None:
    fixture = BrokerStorageFixture("/a,/b")
    made(fixture, 0, "t")
    made(fixture, 1, "t")
    with pytest.raises(CorruptFile, match="Duplicate log directories for t-0 are found: /a/t-0 and /b/t-0"):
        load(fixture, "t")


def test_load_removes_partitions_marked_for_deletion() -> None:
    fixture = BrokerStorageFixture()
    made(fixture, 0, "t")
    fixture.log_dirs.directories[0].rename_for_deletion("t", 0, "0" * 32)
    load(fixture)
    assert [n for n in fixture.env.disk.listdir("/a") if n.startswith("t-")] == []


def test_load_directory_failure_takes_its_partitions_offline() -> None:
    fixture = BrokerStorageFixture("/a,/b")
    made(fixture, 0, "t")
    made(fixture, 1, "u")
    made(fixture, 1, "v")
    opened: dict[str, None] = {}

    def fault(_: str, path: str) -> OSError | None:  # the second of them, in either order
        if path.startswith(("/b/u-0/", "/b/v-0/")):
            opened[path[3]] = None
        return OSError(errno.EIO, "injected") if len(opened) > 1 else None

    fixture.env.disk.fault = fault
    load(fixture, "t", "u", "v")
    assert list(fixture.log_dirs.offline) == ["/b"]
    assert fixture.hosted() == {("t", 0)}
    assert fixture.replica_manager.offline_partitions == {(next(iter(opened)), 0)}, "the other was never seen"


@pytest.mark.parametrize(("where", "number"), [("/a", errno.EIO), ("/b", errno.EMFILE)])
def test_load_failure_of_metadata_directory_or_descriptors_fails_startup(where: str, number: int) -> None:
    fixture = BrokerStorageFixture("/a,/b")
    made(fixture, int(where == "/b"), "t")
    fixture.break_disk(f"{where}/t-0", number)
    with pytest.raises(OSError, match="injected"):
        load(fixture, "t")


def test_load_of_many_partitions_yields_to_event_loop() -> None:
    fixture = BrokerStorageFixture()
    for number in range(60):
        made(fixture, 0, f"t{number}")
    turns = [0]
    clock = [0.0]

    def ticking() -> float:  # every look at the clock costs a millisecond
        clock[0] += 1.0
        return clock[0]

    fixture.env.monotonic_ms = ticking
    topics = {f"t{n}": led_topic(f"t{n}", 1) for n in range(60)}

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                while True:
                    turns[0] += 1
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(other)
            await run_in_background(fixture.env, fixture.replica_manager.load(MetadataImage(topics=topics)))
            nursery.cancel_scope.cancel()

    run_virtual(main)
    assert len(fixture.hosted()) == 60
    assert turns[0] >= 20
