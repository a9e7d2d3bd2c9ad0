"""Partitions that are to be made: in batches beside the loop, what is asked for first, and never twice."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace

import pytest
import trio

from ottla.broker.replica.making import BATCH, ENOUGH_TO_TIDY, RETRY_S
from ottla.broker.tests.ground import MAKES_S, Ground, topic
from ottla.controller.image import RESOURCE_TOPIC, MetadataImage
from ottla.log.directory import METADATA_TOPIC
from ottla.log.tests.world import make_batch
from ottla.log.validate import AppendOrigin

ALL_S = 60.0


def test_what_is_wanted_is_made_in_batches_led_and_told_where_it_lies() -> None:
    ground = Ground("/a,/b")

    async def story() -> None:
        ground.say(topic("t", BATCH + 2))
        await ground.applier.caught_up()
        assert len(ground.making) == BATCH + 2
        assert not ground.hosted()
        assert await ground.making.made([("t", n) for n in range(BATCH + 2)], ALL_S)
        assert len(ground.making) == 0

    ground.play(story)
    assert ground.env.in_threads == 2
    assert sorted(ground.led) == sorted(ground.hosted()) == [("t", n) for n in range(BATCH + 2)]
    a, b = ground.storage.directories
    assert [sum(t == "t" for t, _ in d.logs) for d in (a, b)] == [BATCH // 2 + 1] * 2
    assert {(n, d) for _, n, d in ground.places} == {(n, (a, b)[n % 2].id) for n in range(BATCH + 2)}


def test_what_is_asked_for_is_made_before_what_waited_longer() -> None:
    ground = Ground()

    async def story() -> None:
        ground.say(topic("t", BATCH * 10))
        await ground.applier.caught_up()
        await trio.sleep(MAKES_S / 2)  # the first batch is under way
        last = ("t", BATCH * 10 - 1)
        assert await ground.making.made([last, ("other", 0)], ALL_S)
        assert trio.current_time() == pytest.approx(MAKES_S * 2)
        assert last in ground.hosted()
        assert len(ground.hosted()) == BATCH * 2

    ground.play(story)


def test_whoever_waits_too_long_is_told_so() -> None:
    ground = Ground()

    async def story() -> None:
        ground.say(topic("t", BATCH * 3))
        await ground.applier.caught_up()
        assert not await ground.making.made([("t", n) for n in range(BATCH * 3)], MAKES_S * 1.5)
        assert trio.current_time() == pytest.approx(MAKES_S * 1.5)
        await ground.making.all_made(1, ALL_S)  # more than one is left: nobody waits for so many
        assert trio.current_time() == pytest.approx(MAKES_S * 1.5)
        await ground.making.all_made(BATCH * 3, ALL_S)
        assert len(ground.hosted()) == BATCH * 3

    ground.play(story)


def test_two_workers_share_what_there_is_and_make_nothing_twice() -> None:
    ground = Ground()

    async def story() -> None:
        ground.say(topic("t", BATCH * 4))
        await ground.making.all_made(1000, ALL_S)
        await ground.applier.settled()
        assert trio.current_time() == pytest.approx(MAKES_S * 2)
        ground.say(topic("u", 1))  # both sleep, and both wake
        await ground.applier.settled()

    ground.play(story, workers=2)
    assert ground.env.in_threads == 5
    assert len(ground.led) == BATCH * 4 + 1


def test_a_partition_that_changes_while_it_is_made_follows_what_is_true_then() -> None:
    ground = Ground()

    async def story() -> None:
        ground.say(topic("t", 1))
        await ground.applier.caught_up()
        await trio.sleep(MAKES_S / 2)
        ground.say(topic("t", 1, leader_epoch=7), configs={(RESOURCE_TOPIC, "t"): {"retention.ms": "77"}})
        await ground.applier.settled()
        replica = ground.replicas.get("t", 0)
        assert replica is not None
        assert replica.leader_epoch == 7
        assert replica.log.config.retention_ms == 77

    ground.play(story)
    assert ground.env.in_threads == 1
    assert ground.led == [("t", 0)]


def test_a_topic_deleted_while_it_is_made_leaves_nothing_but_a_directory_to_remove() -> None:
    ground = Ground()

    async def story() -> None:
        ground.say(topic("t", BATCH + 1))
        await ground.applier.caught_up()
        await trio.sleep(MAKES_S / 2)
        ground.say(gone=("t",))
        await ground.applier.caught_up()
        assert len(ground.making) == BATCH  # what a thread is at comes to its end
        await trio.sleep(1)
        assert len(ground.making) == 0

    ground.play(story)
    assert not ground.hosted()
    assert not ground.storage.directories[0].logs
    assert len(ground.doomed) == BATCH
    assert all(path.endswith("-delete") for path in ground.doomed)
    assert ground.env.in_threads == 1


def test_a_topic_made_again_while_its_namesake_is_made_gets_files_of_its_own() -> None:
    ground = Ground()
    again = b"again".ljust(16, b"-")

    async def story() -> None:
        ground.say(topic("t", 1))
        await ground.applier.caught_up()
        await trio.sleep(MAKES_S / 2)
        ground.say(topic("t", 1, again))
        await ground.applier.settled()

    ground.play(story)
    replica = ground.replicas.get("t", 0)
    assert replica is not None
    assert replica.topic_id == replica.log.topic_id == again
    assert len(ground.doomed) == 1


def test_a_directory_that_fails_under_the_making_takes_its_partitions_along_and_no_others() -> None:
    ground = Ground("/a,/b")

    told: list[tuple[int, bytes]] = []
    ground.replicas.on_place = lambda _, number, directory: told.append((number, directory))

    async def story() -> None:
        ground.break_disk("/b/t-")
        ground.say(topic("t", 4))
        await ground.applier.settled()
        assert list(ground.storage.failed) == ["/b"]
        assert ground.hosted() == {("t", 0), ("t", 2)}
        assert ground.replicas.offline == {("t", 1), ("t", 3)}
        failed = ground.storage.directories[1].id
        assert [x for x in told if x[1] == failed] == [(1, failed), (3, failed)], "others are to lead them"
        assert len(ground.making) == 0
        ground.say(topic("t", 4, leader_epoch=1))  # told of them again, it does not make them elsewhere
        await ground.applier.settled()
        assert ground.hosted() == {("t", 0), ("t", 2)}

    ground.play(story)
    assert ground.ended == 0


def test_what_was_made_in_a_directory_that_failed_meanwhile_does_not_count() -> None:
    ground = Ground("/a,/b")

    told: list[int] = []
    failed = ground.storage.directories[1].id
    ground.replicas.on_place = lambda _, number, directory: told.append(number) if directory == failed else None

    async def story() -> None:
        ground.say(topic("t", 2))
        await ground.applier.caught_up()
        await trio.sleep(MAKES_S / 2)
        ground.losses.fail(OSError(errno.EIO, "gone"), ground.storage.directories[1])
        await ground.applier.settled()

    ground.play(story)
    assert told == [1]
    assert ground.hosted() == {("t", 0)}
    assert ground.replicas.offline == {("t", 1)}


def test_short_of_descriptors_it_tries_again_once_a_second_and_says_so_once_a_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ground = Ground()

    async def story() -> None:
        ground.break_disk("/a/t-", errno.EMFILE)
        ground.say(topic("t", BATCH))
        await ground.applier.caught_up()
        with caplog.at_level(logging.ERROR):
            await trio.sleep(RETRY_S * 3)
        assert ground.env.in_threads == 3
        assert len(caplog.records) == 3
        assert not ground.hosted()
        assert not ground.replicas.offline
        ground.heal_disk()
        await ground.making.all_made(1000, ALL_S)
        assert len(ground.hosted()) == BATCH

    ground.play(story)
    assert ground.ended == 0
    assert not ground.storage.failed


def test_one_that_was_half_made_is_made_again_where_it_was_begun() -> None:
    ground = Ground("/a,/b")

    async def story() -> None:
        ground.break_disk("/a/t-0", errno.EMFILE)
        ground.say(topic("t", 1))
        await ground.applier.caught_up()
        await trio.sleep(RETRY_S / 2)
        ground.heal_disk()
        ground.storage.directories[0].create_partition(
            "x", 0, bytes(16), ground.config.log_settings(ground.image, "x"), 0
        )
        await ground.making.all_made(10, ALL_S)

    ground.play(story)
    assert ("t", 0) in ground.storage.directories[0].logs


def test_a_topic_that_has_the_metadata_logs_name_is_not_made_and_goes_without_touching_that_log() -> None:
    ground = Ground("/a,/b")
    log = f"/a/{METADATA_TOPIC}-0/00000000000000000000.log"

    async def story() -> None:
        ground.env.disk.makedirs(f"/a/{METADATA_TOPIC}-0")
        ground.env.disk.open(log, create=True).pwrite(b"metadata", 0)
        ground.say(topic(METADATA_TOPIC, 2), topic("t", 1))
        await ground.applier.settled()
        assert ground.hosted() == {("t", 0)}
        ground.say(topic("t", 1))
        await ground.applier.settled()

    ground.play(story)
    assert ground.env.disk.stat(log).size_bytes == len(b"metadata")
    assert not ground.env.disk.exists(f"/a/{METADATA_TOPIC}-1")
    assert not ground.env.disk.exists(f"/b/{METADATA_TOPIC}-1")
    assert not ground.storage.failed


def test_where_records_lie_already_that_partition_is_offline_and_no_directory_is_given_up() -> None:
    """A deletion was short of memory, and left them there: nothing is wrong with the disk."""
    ground = Ground("/a")

    async def story() -> None:
        ground.say(topic("t", 1), topic("u", 1))
        await ground.applier.settled()
        log = ground.replicas.get("t", 0).log  # type: ignore[union-attr]
        log.append_as_leader(bytearray(make_batch(0, 1)), 0, 0, AppendOrigin.RAFT_LEADER)
        left = [OSError(errno.ENOMEM, "no memory")]
        ground.env.disk.fault = lambda what, path: left.pop() if left and what == "rename" and "t-0" in path else None
        ground.say(gone=("t",))
        await ground.applier.settled()
        ground.say(topic("t", 1, b"another".ljust(16, b"-")), topic("v", 1))
        await ground.applier.settled()
        assert ground.storage.failed == {}
        assert {at[0] for at in ground.hosted()} == {"u", "v"}
        assert ("t", 0) in ground.replicas.offline

    ground.play(story)


def test_at_the_start_what_is_not_found_may_lie_in_a_directory_that_has_failed() -> None:
    ground = Ground("/a,/b")
    ground.storage.take_out(ground.storage.directories[1], OSError(errno.EIO, "gone"))

    async def story() -> None:
        ground.say(topic("t", 1))
        await ground.applier.settled()
        assert ground.replicas.offline == {("t", 0)}
        ground.say(topic("new", 1))  # behind the start, what is new is new
        await ground.applier.settled()
        assert ground.hosted() == {("new", 0)}

    ground.play(story)


def test_many_that_have_come_are_told_once_for_so_many() -> None:
    ground = Ground()
    grown: list[int] = []
    ground.making.on_grown = lambda: grown.append(len(ground.hosted()))

    async def story() -> None:
        ground.say(topic("t", ENOUGH_TO_TIDY * 2 + 1))
        await ground.applier.caught_up()
        await ground.making.made([("t", n) for n in range(ENOUGH_TO_TIDY * 2 + 1)], ALL_S)

    ground.play(story)
    assert grown == [ENOUGH_TO_TIDY, ENOUGH_TO_TIDY * 2]


def test_however_much_of_it_is_not_wanted_any_more_it_goes_on() -> None:
    ground = Ground()

    async def story() -> None:
        ground.say(topic("t", BATCH * 1100))
        await ground.applier.caught_up()
        ground.replicas.image = MetadataImage()  # as it is while the applier takes partition after partition away
        await trio.sleep(1)
        assert len(ground.making) == 0
        ground.say(gone=("t",))
        ground.say(topic("u", 1))
        await ground.applier.settled()
        assert ground.hosted() == {("u", 0)}

    ground.play(story)


def test_whoever_waits_for_what_is_not_wanted_any_more_hears_of_it_before_the_others_are_made() -> None:
    ground = Ground("/a,/b")
    ground.storage.take_out(ground.storage.directories[1], OSError(errno.EIO, "gone"))
    gone, away = ("t", BATCH), ("t", BATCH + 1)

    async def story() -> None:
        ground.say(topic("t", BATCH + 2))
        await ground.applier.caught_up()
        await trio.sleep(MAKES_S / 2)  # the first batch is under way
        partitions = dict(ground.image.topics["t"].partitions)
        del partitions[gone[1]]
        partitions[away[1]] = replace(partitions[away[1]], directories=(ground.storage.directories[1].id,))
        ground.replicas.image = MetadataImage(topics={"t": replace(ground.image.topics["t"], partitions=partitions)})
        assert await ground.making.made([gone, away], ALL_S)
        assert trio.current_time() < MAKES_S * 2
        assert away in ground.replicas.offline, "where it lies nobody can look"
        assert gone not in ground.replicas.offline

    ground.making.starting = False
    ground.play(story)
    assert not {gone, away} & ground.hosted()
