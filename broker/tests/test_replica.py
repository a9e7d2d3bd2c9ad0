"""What of a leader's own log counts as committed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from ottla.broker.replica.replica import IsrRules, Replica
from ottla.broker.tests.ground import Ground, topic
from ottla.controller.image import Partition
from ottla.log.tests.world import NOW, SMALL, TOPIC_ID, fill, memory_disk, new_log, opened
from ottla.wire import records as r

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
    fill(log, SYNCED // 3)
    log.flush()
    fill(log, UNSYNCED // 3)
    settings = replace(SMALL, flush_messages=flush_messages)
    found = opened(memory, settings, point=SYNCED)  # by the next process: the page cache is still there
    due: list[Replica] = []
    replica = Replica(found, TOPIC_ID, lambda _: None, due.append, IsrRules(30_000, lambda *_: True))
    assert replica.follow_image(1, Partition((1,), (1,), leader=1, leader_epoch=3, partition_epoch=0), NOW)
    replica.count_what_was_found(NOW)
    assert found.high_watermark == committed
    assert bool(due) == (committed == SYNCED), "and its sync is asked for at once"


def test_an_isr_without_the_slow_commits_and_whoever_waits_for_that_hears_of_it() -> None:
    ground = Ground()
    committed: list[int] = []
    ground.replicas.on_committed.append(lambda r: committed.append(r.log.high_watermark))

    async def story() -> None:
        ground.say(topic("t", 1, replicas=(1, 2), isr=(1, 2)))
        await ground.applier.settled()
        replica = ground.replicas.leader("t", 0)
        replica.append(bytearray(r.build([r.NewRecord(None, b"x", NOW)])), NOW)
        assert (replica.log.high_watermark, committed) == (0, []), "the other one has fetched nothing yet"
        ground.woken.clear()
        ground.say(topic("t", 1, replicas=(1, 2), isr=(1,), partition_epoch=1))
        await ground.applier.settled()
        assert replica.log.high_watermark == replica.log.log_end_offset
        assert set(ground.woken) == {("fetch", "t", 0), ("hw", "t", 0)}
        assert committed == [replica.log.log_end_offset]
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
        replica.append(bytearray(r.build([r.NewRecord(None, b"x", NOW)])), ground.env.now_ms())
        assert ("hw", "t", 0) in ground.woken

    ground.play(story)
