"""A replica whose place is none of this node's directories, for its disk was replaced; and one that lies in two."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.tests.ground import ME, Ground, topic
from ottla.broker.tests.world import NOW_MS, run_virtual
from ottla.controller.image import MetadataImage, TopicImage
from ottla.log.settings import LogConfig
from ottla.wire import records as r

GONE = b"gone".ljust(16, b"-")
OTHER = 2
AT = ("t", 0)


def lying(place: bytes, leader: int, **more: Any) -> TopicImage:
    """A topic with one partition, a copy of which lay in that directory of this node."""
    made = topic("t", 1, replicas=(ME, OTHER), isr=(OTHER,), leader=leader, **more)
    told = replace(made.partitions[0], directories=(place, b"other".ljust(16, b"-")))
    return replace(made, partitions={0: told})


def test_on_a_disk_that_was_replaced_a_copy_is_made_again_and_follows() -> None:
    ground = Ground()

    async def story() -> None:
        ground.say(lying(GONE, OTHER))
        await ground.applier.settled()
        assert ground.hosted() == {AT}
        assert not ground.replicas.offline

    ground.play(story)
    assert ground.places == [(b"t".ljust(16, b"-"), 0, ground.storage.directories[0].id)]
    assert not ground.led


@pytest.mark.parametrize("leader", [-1, ME])
def test_where_nobody_else_leads_no_empty_copy_is_made_for_it_might_be_elected(
    leader: int, caplog: pytest.LogCaptureFixture
) -> None:
    ground = Ground()

    async def story() -> None:
        ground.say(lying(GONE, leader))
        await ground.applier.settled()
        assert not ground.hosted()
        assert ground.replicas.offline == {AT}
        assert "t-0 lay in a directory that is not there" in caplog.text
        ground.say(lying(GONE, OTHER, leader_epoch=1, partition_epoch=1))
        await ground.applier.settled()
        assert ground.hosted() == {AT}, "there is a log it can be filled from"
        assert not ground.replicas.offline

    ground.play(story)


def test_while_a_directory_has_failed_it_may_lie_there() -> None:
    ground = Ground("/a,/b")
    ground.storage.take_out(ground.storage.directories[1], OSError(errno.EIO, "gone"))

    async def story() -> None:
        for place in (GONE, ground.storage.directories[1].id):
            ground.say(lying(place, OTHER))
            await ground.applier.settled()
            assert ground.replicas.offline == {AT}
        assert not ground.hosted()

    ground.play(story)


def left(ground: Ground, directory: int, *epochs: int) -> None:
    """A log of an earlier process, with a record of each of these leader epochs."""
    where = ground.storage.directories[directory]
    log = where.create_partition("t", 0, topic("t", 1).id, LogConfig(), NOW_MS)
    for epoch in epochs:
        log.append_as_leader(bytearray(r.build_batch([r.NewRecord(None, b"x", NOW_MS)])), epoch, NOW_MS)
    log.close()
    where.logs.clear()


@pytest.mark.parametrize(
    ("one", "other", "kept"),
    [
        ((0, 0), (0, 0, 0), 1),
        ((0, 0, 0), (0, 0), 0),
        ((0, 0, 0), (0, 1), 1),
        ((0, 1), (0, 0, 0), 0),
        ((), (0,), 1),
    ],
)
def test_of_two_copies_the_one_that_is_left_from_before_is_set_aside(
    one: tuple[int, ...], other: tuple[int, ...], kept: int
) -> None:
    """Moved away and back, and the power failed: the old directory's new name was not on the disk yet."""
    ground = Ground("/a,/b")
    left(ground, 0, *one)
    left(ground, 1, *other)
    known = lying(ground.storage.directories[0].id, OTHER)
    ground.image = MetadataImage(topics={"t": known}, topic_names={known.id: "t"})
    run_virtual(lambda: ground.replicas.load(ground.image))
    replica = ground.replicas.get("t", 0)
    assert replica is not None
    assert replica.log.directory == ("/a/t-0", "/b/t-0")[kept]
    assert replica.log.log_end_offset == len((one, other)[kept])
    assert [len(d.logs) for d in ground.storage.directories] == [1 - kept, kept]
    assert [name.endswith("-stray") for name in ground.env.disk.listdir(("/a", "/b")[1 - kept]) if "t-0" in name] == [
        True
    ]
