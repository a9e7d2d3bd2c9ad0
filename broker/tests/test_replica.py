"""What of a leader's own log counts as committed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.broker.replica.replica import IsrRules, Replica
from ottla.controller.image import Partition
from ottla.log.tests.world import NOW, SMALL, TOPIC_ID, fill, memory_disk, new_log, opened

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
