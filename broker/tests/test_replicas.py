"""The partitions a node hosts: what it finds at its start, and how it follows the image."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from typing import Any

import pytest
import trio

from ottla.broker.replica.partition import Following, Leading
from ottla.broker.replica.replica import Replica
from ottla.broker.tests.ground import ME, Ground, told, topic
from ottla.broker.tests.world import NOW_MS, run_virtual
from ottla.controller.directories import MIGRATING, UNASSIGNED
from ottla.controller.image import MetadataImage, TopicImage
from ottla.log.checkpoints import CorruptFile, write_partition_metadata
from ottla.log.settings import LogConfig
from ottla.wire import records as r
from ottla.wire.errors import ErrorCode as E
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import metadata_records as m


def made(ground: Ground, directory: int, name: str, *, topic_id: bytes | None = None, records: int = 0) -> None:
    """A partition an earlier process has left, closed cleanly."""
    where = ground.storage.directories[directory]
    log = where.create_partition(name, 0, topic_id or topic(name, 1).id, LogConfig(), NOW_MS)
    for _ in range(records):
        log.append_as_leader(bytearray(r.build_batch([r.NewRecord(None, b"x", NOW_MS)])), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    log.close()
    where.logs.clear()


def load(ground: Ground, *names: str) -> None:
    """The start of a process whose image has these topics."""
    topics = {name: topic(name, 1) for name in names}
    ground.image = MetadataImage(topics=topics, topic_names={t.id: t.name for t in topics.values()})

    async def main() -> None:
        await ground.replicas.load(ground.image)

    run_virtual(main)


def names(ground: Ground, path: str) -> list[str]:
    return sorted(name for name in ground.env.disk.listdir(path) if "-" in name and "." not in name.split("-")[0])


# ---------------------------------------------------------------------- the start


def test_what_lies_there_and_belongs_to_a_topic_is_opened_and_not_led_yet() -> None:
    ground = Ground("/a,/b")
    made(ground, 0, "t", records=3)
    made(ground, 1, "u")
    load(ground, "t", "u", "nowhere")
    assert ground.hosted() == {("t", 0), ("u", 0)}
    assert len(ground.replicas) == 2
    replica = ground.replicas.get("t", 0)
    assert replica is not None
    assert replica.log.log_end_offset == 3
    assert ground.replicas.id_of(("t", 0)) == replica.topic_id == topic("t", 1).id
    assert ground.replicas.id_of(("nowhere", 0)) is None
    assert (replica.is_leader, replica.is_alone, replica.leader_epoch, replica.state) == (
        False,
        False,
        -1,
        Following(-1),
    )


@pytest.mark.parametrize("known", [False, True])
def test_what_belongs_to_no_topic_is_kept_under_another_name(known: bool, caplog: pytest.LogCaptureFixture) -> None:
    ground = Ground()
    made(ground, 0, "t", topic_id=b"an older topic--", records=1)
    made(ground, 0, "u")
    with caplog.at_level(logging.WARNING):
        load(ground, *(["t", "u"] if known else ["u"]))
    assert ground.hosted() == {("u", 0)}
    assert not ground.storage.directories[0].logs.get(("t", 0))
    [stray] = [name for name in ground.env.disk.listdir("/a") if name.startswith("t-0.")]
    assert stray.endswith("-stray")
    assert ground.env.disk.exists(f"/a/{stray}/00000000000000000000.log")
    assert f"belongs to no topic of the cluster; kept as /a/{stray}" in caplog.text


def test_a_number_the_topic_does_not_have_is_a_stray_too() -> None:
    ground = Ground()
    where = ground.storage.directories[0]
    where.create_partition("t", 1, topic("t", 1).id, LogConfig(), NOW_MS).close()
    where.logs.clear()
    load(ground, "t")
    assert ground.hosted() == set()


def test_a_partition_without_a_topic_id_is_a_stray_for_nothing_was_written_to_it_yet() -> None:
    """The id is on the disk before the first batch; taken for its topic's it could stand beside the real one."""
    ground = Ground("/a,/b")
    made(ground, 0, "t")
    made(ground, 1, "t")
    write_partition_metadata(ground.env.disk, "/a/t-0", bytes(16), sync=True)
    load(ground, "t")
    replica = ground.replicas.get("t", 0)
    assert replica is not None
    assert replica.log.directory == "/b/t-0"
    assert [name for name in ground.env.disk.listdir("/a") if name.endswith("-stray")]


def test_what_was_given_to_others_meanwhile_is_a_stray() -> None:
    ground = Ground()
    made(ground, 0, "t", records=2)
    known = topic("t", 1)
    elsewhere = TopicImage(
        "t", known.id, {0: replace(known.partitions[0], replicas=(ME + 1,), isr=(ME + 1,), leader=ME + 1)}
    )
    ground.image = MetadataImage(topics={"t": elsewhere}, topic_names={known.id: "t"})

    async def main() -> None:
        await ground.replicas.load(ground.image)

    run_virtual(main)
    assert ground.hosted() == set()
    assert [name for name in ground.env.disk.listdir("/a") if name.endswith("-stray")]


def test_a_partition_that_lies_twice_is_no_start() -> None:
    ground = Ground("/a,/b")
    made(ground, 0, "t")
    made(ground, 1, "t")
    with pytest.raises(CorruptFile, match="t-0 lies twice: in /a/t-0 and in /b/t-0"):
        load(ground, "t")


def test_what_an_earlier_process_was_to_remove_is_removed() -> None:
    ground = Ground()
    made(ground, 0, "t")
    ground.storage.directories[0].rename_for_deletion("t", 0, "0" * 32)
    load(ground)
    assert [n for n in ground.env.disk.listdir("/a") if n.startswith("t-")] == []


def test_a_directory_that_fails_while_it_is_opened_takes_its_partitions_along() -> None:
    ground = Ground("/a,/b")
    made(ground, 0, "t")
    made(ground, 1, "u")
    made(ground, 1, "v")
    opened: dict[str, None] = {}

    def fault(_: str, path: str) -> OSError | None:  # the second of them, whichever that is
        if path.startswith(("/b/u-0/", "/b/v-0/")):
            opened[path[3]] = None
        return OSError(errno.EIO, "injected") if len(opened) > 1 else None

    ground.env.disk.fault = fault
    load(ground, "t", "u", "v")
    assert list(ground.storage.failed) == ["/b"]
    assert ground.hosted() == {("t", 0)}
    assert ground.replicas.offline == {(next(iter(opened)), 0)}, "the other was never seen"


@pytest.mark.parametrize(("where", "number"), [("/a", errno.EIO), ("/b", errno.EMFILE)])
def test_what_the_node_cannot_be_without_or_is_itself_short_of_is_no_start(where: str, number: int) -> None:
    ground = Ground("/a,/b")
    made(ground, int(where == "/b"), "t")
    ground.break_disk(f"{where}/t-0", number)
    with pytest.raises(OSError, match="injected"):
        load(ground, "t")


def test_very_many_partitions_are_opened_while_others_run() -> None:
    ground = Ground()
    for number in range(60):
        made(ground, 0, f"t{number}")
    turns = [0]
    clock = [0.0]

    def ticking() -> float:  # every look at the clock costs a millisecond
        clock[0] += 1.0
        return clock[0]

    ground.env.monotonic_ms = ticking
    topics = {f"t{n}": topic(f"t{n}", 1) for n in range(60)}

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                while True:
                    turns[0] += 1
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(other)
            await ground.replicas.load(MetadataImage(topics=topics))
            nursery.cancel_scope.cancel()

    run_virtual(main)
    assert len(ground.hosted()) == 60
    assert turns[0] >= 20


# ---------------------------------------------------------------------- who may ask


def test_what_is_asked_of_a_partition_that_is_not_led_here() -> None:
    ground = Ground()

    def refused(name: str, number: int = 0) -> E:
        with pytest.raises(ProtocolError) as caught:
            ground.replicas.leader(name, number)
        return caught.value.code

    async def story() -> None:
        ground.say(topic("mine", 1), topic("followed", 1, leader=2, replicas=(2, ME), isr=(2, ME)))
        ground.say(topic("elsewhere", 1, leader=2, replicas=(2,), isr=(2,)))
        await ground.applier.settled()
        assert ground.replicas.leader("mine", 0) is ground.replicas.get("mine", 0)
        assert refused("followed") is E.NOT_LEADER_OR_FOLLOWER
        assert refused("elsewhere") is E.NOT_LEADER_OR_FOLLOWER
        assert refused("elsewhere", 1) is E.UNKNOWN_TOPIC_OR_PARTITION
        assert refused("nowhere") is E.UNKNOWN_TOPIC_OR_PARTITION
        ground.replicas.offline.add(("elsewhere", 0))
        assert refused("elsewhere") is E.KAFKA_STORAGE_ERROR

    ground.play(story)


@pytest.mark.parametrize(
    ("fenced", "leaving", "epoch", "joins"),
    [
        (False, False, 7, True),
        (False, False, -1, True),
        (False, False, 6, False),
        (False, False, 8, False),
        (True, False, 7, False),
        (False, True, 7, False),
        (None, False, 7, False),
        (None, False, -1, False),
    ],
)
def test_r331_who_may_join_an_isr(fenced: bool | None, leaving: bool, epoch: int, joins: bool) -> None:
    ground = Ground()
    if fenced is not None:
        record = m.RegisterBrokerRecord(2, broker_epoch=7, fenced=fenced, in_controlled_shutdown=leaving)
        ground.replicas.image = MetadataImage(brokers={2: record})
    assert ground.replicas._rules.eligible(2, epoch) is joins, "KIP-841, KIP-903"


def test_how_long_a_follower_may_lag_is_the_nodes_setting() -> None:
    assert Ground(replica_lag_time_max_ms="1234").replicas._rules.lag_max_ms == 1234


# ---------------------------------------------------------------------- following


def test_a_leader_of_the_epoch_before_keeps_what_followers_said_and_one_that_followed_forgets_it() -> None:
    """R-329."""
    ground = Ground()

    async def story() -> None:
        ground.say(topic("t", 1, replicas=(ME, 2), isr=(ME, 2)))
        await ground.applier.settled()
        replica = ground.replicas.leader("t", 0)
        first = replica.state
        assert isinstance(first, Leading)
        assert not replica.is_alone
        first.fetched(2, -1, 0, 0, 0, NOW_MS)
        ground.say(topic("t", 1, replicas=(ME, 2), isr=(ME, 2), partition_epoch=1, recovering=1))
        await ground.applier.settled()
        assert replica.state is first, "the same epoch"
        assert first.followers[2].end_offset == 0
        assert first.isr == ((ME, 2), True)
        ground.say(topic("t", 1, replicas=(ME, 2), isr=(ME, 2), partition_epoch=2, leader_epoch=1))
        await ground.applier.settled()
        assert isinstance(replica.state, Leading)
        assert replica.state is not first
        assert (replica.state.epoch, replica.state.followers[2].end_offset) == (1, 0)
        assert replica.leader_epoch == replica.log.epochs.latest_epoch() == 1
        for epoch, leader in ((2, 2), (3, ME)):
            more = {"leader": leader, "leader_epoch": epoch, "partition_epoch": epoch + 1}
            ground.say(topic("t", 1, replicas=(ME, 2), isr=(ME, 2), **more))
            await ground.applier.settled()
        assert isinstance(replica.state, Leading)
        assert replica.state.followers[2].end_offset == -1

    ground.play(story)
    assert ground.led == [("t", 0)] * 3, "once an epoch"


def test_whether_a_leader_is_alone_goes_with_its_replicas() -> None:
    ground = Ground()

    async def story() -> None:
        alone: list[bool] = []
        for epoch, replicas in enumerate([(ME,), (ME, 2), (ME,)]):
            ground.say(topic("t", 1, replicas=replicas, isr=(ME,), partition_epoch=epoch))
            await ground.applier.settled()
            alone.append(ground.replicas.leader("t", 0).is_alone)
        assert alone == [True, False, True]

    ground.play(story)


def test_who_leads_no_more_says_so_to_all_who_wait_and_once() -> None:
    ground = Ground()
    resigned: list[Replica] = []
    ground.replicas.on_resigned.append(resigned.append)

    async def story() -> None:
        ground.say(topic("t", 1))
        await ground.applier.settled()
        replica = ground.replicas.leader("t", 0)
        assert replica.is_alone
        ground.woken.clear()
        for epoch in (1, 2):
            ground.say(topic("t", 1, leader=2, leader_epoch=epoch, replicas=(ME, 2), partition_epoch=epoch))
            await ground.applier.settled()
            assert {("fetch", "t", 0), ("hw", "t", 0)} <= set(ground.woken)
            assert replica.state == Following(epoch, 2)
            assert (replica.is_leader, replica.is_alone) == (False, False)
        assert resigned == [replica], "who has not led does not resign"

    ground.play(story)


@pytest.mark.parametrize("lost", [False, True])
def test_a_partition_that_goes_is_led_no_more_and_whoever_waits_hears_of_it(lost: bool) -> None:
    ground = Ground("/a,/b")
    resigned: list[tuple[bool, Any]] = []
    ground.replicas.on_resigned.append(lambda r: resigned.append((r.is_leader, r.state)))

    async def story() -> None:
        ground.say(topic("t", 2, leader_epoch=4))
        await ground.applier.settled()
        replica = ground.replicas.leader("t", 1)
        assert replica.log.directory == "/b/t-1"
        ground.woken.clear()
        if lost:
            ground.losses.fail(OSError(errno.EIO, "gone"), replica.log)
        else:
            ground.replicas.remove(("t", 1))
        assert resigned == [(False, Following(4))]
        assert not replica.is_alone
        assert ground.woken == [(what, "t", 1) for what in ("fetch", "end", "hw", "start")]
        assert ground.hosted() == {("t", 0)}
        assert (("t", 1) in ground.replicas.offline) is lost
        assert ground.doomed == ([] if lost else ground.doomed[:1])
        ground.replicas.remove(("t", 1))
        assert ("t", 1) not in ground.replicas.offline, "of a topic that is gone nothing is missed"
        assert len(resigned) == 1

    ground.play(story)


def test_a_directory_that_cannot_be_renamed_for_deletion_is_told() -> None:
    ground = Ground("/a,/b")

    async def story() -> None:
        ground.say(topic("t", 2))
        await ground.applier.settled()
        ground.break_disk("/b/t-1")
        ground.replicas.remove(("t", 1))
        assert list(ground.storage.failed) == ["/b"]
        assert ground.doomed == []

    ground.play(story)


@pytest.mark.parametrize(("known", "told_of"), [("own", 0), ("other", 1), ("none", 1)])
def test_the_controller_is_told_where_a_partition_lies_if_it_knows_otherwise(known: str, told_of: int) -> None:
    ground = Ground("/a,/b")

    async def story() -> None:
        ground.say(topic("t", 1))
        await ground.applier.settled()
        ids = {"own": ground.storage.directories[0].id, "other": ground.storage.directories[1].id, "none": UNASSIGNED}
        ground.places.clear()
        partition = replace(told(ground, "t", 0), directories=(ids[known],))
        ground.replicas.follow(("t", 0), partition)
        expected = [(topic("t", 1).id, 0, ids["own"])]
        assert ground.places == expected * told_of
        assert MIGRATING not in ids.values()

    ground.play(story)


def test_who_begins_to_lead_counts_what_was_found_before_anybody_hears_of_it() -> None:
    ground = Ground()
    made(ground, 0, "t", records=3)
    load(ground, "t")
    replica = ground.replicas.get("t", 0)
    assert replica is not None
    replica.log.append_as_leader(bytearray(r.build_batch([r.NewRecord(None, b"x", NOW_MS)])), 0, NOW_MS)
    seen: list[int] = []
    ground.replicas.on_leader.append(lambda led: seen.append(led.log.high_watermark))
    ground.replicas.follow(("t", 0), ground.image.topics["t"].partitions[0])
    assert seen == [4]
