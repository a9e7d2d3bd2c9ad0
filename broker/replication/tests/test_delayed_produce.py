"""Delayed produce of a partition that moves between directories."""

from __future__ import annotations

from ottla.broker.replication.delayed_produce import DelayedProduce
from ottla.broker.tests.broker_storage_fixture import NODE_ID
from ottla.broker.tests.handler_fixture import NOW_MS
from ottla.broker.tests.log_dir_moves_fixture import TOPIC_PARTITION, LogDirMovesFixture
from ottla.controller.metadata.directory_id import UNASSIGNED
from ottla.controller.metadata.image import PartitionRegistration, TopicImage
from ottla.log.directory.future_log import create_future_log
from ottla.log.partition_log import PartitionLog
from ottla.wire.record_batch.records import NewRecord, build_batch

ID = b"t".ljust(16, b"-")
OTHER = 2


def led_by(leader: int, epoch: int) -> TopicImage:
    """Return a topic with a replica on this node and one on another."""
    state = PartitionRegistration((NODE_ID, OTHER), (NODE_ID, OTHER), leader, epoch, epoch, (UNASSIGNED,) * 2)
    return TopicImage("t", ID, {0: state})


def append(log: PartitionLog, epoch: int) -> None:
    log.append_as_follower(build_batch([NewRecord(None, b"of another leader", NOW_MS)], leader_epoch=epoch), NOW_MS)


async def swapped(fixture: LogDirMovesFixture, *, cut: bool) -> DelayedProduce:
    """Return a batch appended as the leader; then another node leads, and a future log replaces the log.

    ``cut``: the other leader did not have the batch, and has committed another one at its offset.
    """
    fixture.commit_topics(led_by(NODE_ID, 0))
    await fixture.publisher.wait_applied_and_created()
    replica = fixture.replica
    fixture.write()
    waiting = DelayedProduce.for_log_end(replica, None)
    assert not waiting.is_completed
    fixture.commit_topics(led_by(OTHER, 1))
    await fixture.publisher.wait_applied_and_created()
    old = replica.log
    if cut:
        old.truncate_to(0, NOW_MS)
        append(old, 1)
    future = create_future_log(fixture.log_dirs.directories[1], *TOPIC_PARTITION, ID, old.config, NOW_MS, "0" * 32)
    future.append_as_follower(old.read(0, 1000, old.log_end_offset, at_least_one=True).read(), NOW_MS)  # type: ignore[union-attr]
    for log in (old, future):
        log.set_high_watermark(1)
    assert waiting.is_outcome_unknown == cut
    assert future.truncations == 0, "it never had what was cut"
    fixture.log_dirs.directories[1].add_log(future)
    fixture.replica_manager.promote_future_log(replica, future)
    return waiting


def test_delayed_produce_truncated_before_log_swap_is_not_acknowledged() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        waiting = await swapped(fixture, cut=True)
        assert waiting.is_outcome_unknown
        assert waiting.is_failed

    fixture.run(scenario)


def test_delayed_produce_after_log_swap_on_follower_fails() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        assert (await swapped(fixture, cut=False)).is_failed, (
            "the copy's cuts say nothing of the batch: the producer tries again"
        )

    fixture.run(scenario)
