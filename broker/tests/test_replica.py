"""One partition: what of a leader's own log counts as committed, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio

from ottla.broker.replica.partition import Leading
from ottla.broker.replica.replica import IsrRules, Replica
from ottla.broker.tests.ground import ME, Ground, topic
from ottla.broker.tests.world import NOW_MS, topic_id_of
from ottla.controller.image import PartitionRegistration
from ottla.log.settings import LogConfig
from ottla.log.tests.world import NOW, SMALL, TOPIC_ID, append_batches, memory_disk, new_log, reopen_in_new_session
from ottla.log.validate import ValidationPending
from ottla.wire import records as r
from ottla.wire.errors import ErrorCode as E
from ottla.wire.errors import ProtocolError

NEVER = 2**63 - 1
SYNCED, UNSYNCED = 30, 12


@pytest.mark.parametrize(
    ("flush_messages", "committed"),
    [
        pytest.param(NEVER, SYNCED + UNSYNCED, id="answers do not wait for the disk: all that was found"),
        pytest.param(UNSYNCED + 1, SYNCED + UNSYNCED, id="fewer than may be unsynced: all that was found"),
        pytest.param(UNSYNCED, SYNCED, id="as many as must be synced: what is known to be on the disk"),
        pytest.param(1, SYNCED, id="answers wait for the disk: what is known to be on the disk"),
    ],
)
def test_what_a_killed_process_left_unsynced_is_no_answer_to_a_batch_sent_again(
    flush_messages: int, committed: int
) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, SYNCED // 3)
    log.flush()
    append_batches(log, UNSYNCED // 3)
    settings = replace(SMALL, flush_messages=flush_messages)
    found = reopen_in_new_session(memory, settings, point=SYNCED)  # by the next process: the page cache is still there
    due: list[Replica] = []
    replica = Replica(found, TOPIC_ID, lambda _: None, due.append, IsrRules(30_000, lambda *_: True))
    assert replica.follow_image(1, PartitionRegistration((1,), (1,), leader=1, leader_epoch=3, partition_epoch=0), NOW)
    replica.count_what_was_found(NOW)
    assert found.high_watermark == committed
    assert bool(due) == (committed == SYNCED), "and its sync is asked for at once"


def test_follow_without_the_leader_epoch_in_between_forgets_what_followers_said() -> None:
    """Another broker may have led in it, and a member of its ISR have truncated what it had of this log."""
    ground = Ground()

    async def story() -> None:
        ground.say(topic("t", 1, replicas=(ME, 2), isr=(ME, 2)))
        await ground.applier.settled()
        replica = ground.replicas.leader("t", 0)
        replica.append(bytearray(r.build_batch([r.NewRecord(None, b"x", NOW_MS)])), NOW_MS)
        assert isinstance(replica.state, Leading)
        replica.state.fetched(2, -1, 1, 0, 1, NOW_MS)
        ground.say(topic("t", 1, replicas=(ME, 2), isr=(ME, 2), partition_epoch=2, leader_epoch=2))
        await ground.applier.settled()
        assert isinstance(replica.state, Leading)
        assert replica.state.followers[2].end_offset == -1
        assert replica.log.high_watermark == 0
        replica.fetched(2, -1, 1, 0, 1, NOW_MS)
        assert replica.log.high_watermark == 1

    ground.play(story)


def test_an_isr_without_the_slow_commits_and_whoever_waits_for_that_hears_of_it() -> None:
    ground = Ground()
    committed: list[int] = []
    ground.replicas.on_committed.append(lambda r: committed.append(r.log.high_watermark))

    async def story() -> None:
        ground.say(topic("t", 1, replicas=(1, 2), isr=(1, 2)))
        await ground.applier.settled()
        replica = ground.replicas.leader("t", 0)
        replica.append(bytearray(r.build_batch([r.NewRecord(None, b"x", NOW)])), NOW)
        assert (replica.log.high_watermark, committed) == (0, [0]), "the other one has fetched nothing yet"
        ground.woken.clear()
        ground.say(topic("t", 1, replicas=(1, 2), isr=(1,), partition_epoch=1))
        await ground.applier.settled()
        assert replica.log.high_watermark == replica.log.log_end_offset
        assert set(ground.woken) == {("fetch", "t", 0), ("hw", "t", 0), ("start", "t", 0)}
        assert committed == [0, replica.log.log_end_offset]
        ground.woken.clear()
        ground.say(topic("t", 1, replicas=(1, 2), isr=(1,), partition_epoch=1))
        await ground.applier.settled()
        assert ground.woken == [], "nothing has changed"

    ground.play(story)


def test_with_followers_an_append_that_commits_tells_those_who_wait_for_that() -> None:
    ground = Ground()

    async def story() -> None:
        ground.say(topic("t", 1, replicas=(1, 2), isr=(1,)))
        await ground.applier.settled()
        replica = ground.replicas.leader("t", 0)
        await trio.sleep(31)  # the follower was never seen, and is waited for no longer
        ground.woken.clear()
        assert replica.advance(replica.log.log_end_offset, ground.env.now_ms()) is False
        replica.append(bytearray(r.build_batch([r.NewRecord(None, b"x", NOW)])), ground.env.now_ms())
        assert ("hw", "t", 0) in ground.woken

    ground.play(story)


def hosted(**settings: Any) -> Replica:
    ground = Ground()
    log = ground.storage.directories[0].create_partition("t", 0, topic_id_of("t"), LogConfig(**settings), NOW_MS)
    ground.replicas.host(log, topic_id_of("t"))
    replica = ground.replicas.get("t", 0)
    assert replica is not None
    return replica


@pytest.mark.parametrize(
    ("claimed", "code"),
    [(-1, None), (5, None), (4, E.FENCED_LEADER_EPOCH), (6, E.UNKNOWN_LEADER_EPOCH), (0, E.FENCED_LEADER_EPOCH)],
)
def test_a_clients_idea_of_the_leader_epoch(claimed: int, code: E | None) -> None:
    replica = hosted()
    replica.follow_image(ME, PartitionRegistration((ME,), (ME,), ME, 5, 0), NOW_MS)
    if code is None:
        replica.check_epoch(claimed)
        return
    with pytest.raises(ProtocolError) as caught:
        replica.check_epoch(claimed)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("replicas", "isr", "least", "refused"),
    [
        ((ME,), (ME,), 1, False),
        ((ME,), (ME,), 2, False),
        ((ME, 2), (ME, 2), 2, False),
        ((ME, 2), (ME,), 2, True),
        ((ME, 2), (ME,), 1, False),
        ((ME, 2, 3), (ME, 2), 3, True),
    ],
)
def test_r337_acks_all_is_refused_while_too_few_are_in_sync(
    replicas: tuple[int, ...], isr: tuple[int, ...], least: int, refused: bool
) -> None:
    replica = hosted(min_insync_replicas=least)
    replica.check_min_isr()  # who does not lead refuses otherwise
    replica.follow_image(ME, PartitionRegistration(replicas, isr, ME, 5, 0), NOW_MS)
    if not refused:
        replica.check_min_isr()
        return
    with pytest.raises(ProtocolError) as caught:
        replica.check_min_isr()
    assert caught.value.code is E.NOT_ENOUGH_REPLICAS


def test_where_records_must_be_looked_at_only_a_client_is_put_off() -> None:
    replica = hosted(validate_records=True)
    replica.follow_image(ME, PartitionRegistration((ME,), (ME,), ME, 5, 0), NOW_MS)
    many = r.build_batch([r.NewRecord(b"k", b"v" * 100, NOW_MS) for _ in range(8_000)])
    with pytest.raises(ValidationPending):
        replica.append(bytearray(many), NOW_MS, at_once=False)
    assert replica.append(bytearray(many), NOW_MS).last_offset == 7_999


def test_a_batch_sent_again_moves_nothing() -> None:
    replica = hosted(flush_messages=1)
    due: list[Replica] = []
    replica._flush_due = due.append
    replica.follow_image(ME, PartitionRegistration((ME,), (ME,), ME, 5, 0), NOW_MS)
    batch = r.build_batch([r.NewRecord(b"k", b"v", NOW_MS)], producer_id=9, producer_epoch=0, base_sequence=0)
    assert not replica.append(bytearray(batch), NOW_MS).duplicate
    assert (len(due), replica.log.high_watermark) == (1, 0), "it counts once it is on the disk"
    assert replica.append(bytearray(batch), NOW_MS).duplicate
    assert len(due) == 1
    replica.flushed(1, NOW_MS)
    assert replica.log.high_watermark == 1


def test_behind_a_sync_under_way_an_append_waits_for_the_next() -> None:
    replica = hosted()
    replica.follow_image(ME, PartitionRegistration((ME,), (ME,), ME, 5, 0), NOW_MS)
    for flushing, committed in ((False, 1), (True, 1)):
        replica.flushing = flushing
        replica.append(bytearray(r.build_batch([r.NewRecord(b"k", b"v", NOW_MS)])), NOW_MS)
        assert replica.log.high_watermark == committed


def test_who_does_not_lead_commits_nothing() -> None:
    replica = hosted()
    replica.log.append_as_leader(bytearray(r.build_batch([r.NewRecord(b"k", b"v", NOW_MS)])), 0, NOW_MS)
    assert replica.advance(1, NOW_MS) is False
    assert replica.log.high_watermark == 0
