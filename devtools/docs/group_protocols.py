"""Generator of the traces in ``docs/explanation/group-protocols.md``, by the state machines of the coordinators.

``python -m devtools.docs.group_protocols`` writes them into the blocks of the page that begin with ```` ```text NAME
````.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.broker.groups.classic.tests.test_groups import GroupShardFixture
from ottla.broker.groups.share.tests import test_groups as shares
from ottla.broker.share_partitions import acknowledgement as ack
from ottla.broker.share_partitions.acquisition import AcquireRequest, FetchedOffsets, acquire_records
from ottla.broker.share_partitions.in_flight import RecordState
from ottla.broker.share_partitions.share_partition import SharePartition, SharePartitionLimits
from ottla.broker.tests import streams_group_fixture as streams
from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard, ConsumerMemberClient
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import heartbeat, leave_group, sync_group

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "group-protocols.md"
BLOCK = re.compile(r"^```text (\S+)\n(.*?)^```$", re.M | re.S)
TOPIC = {"t": 4}
LOCK_MS = 30_000


def _row(label: str, answer: str, group: Any) -> str:
    epoch = group.generation if hasattr(group, "generation") else group.epoch
    state = getattr(group.state, "value", group.state)
    return f"{label:<38} -> {answer:<28} | {state}, {epoch}"


def _places(numbers: Any) -> str:
    return "assigned " + (" ".join(map(str, sorted(numbers))) or "none")


def _response_text(answer: Any) -> str:
    """Return the response to a member of a classic group as text: error code, assignment, or ``waits`` for None."""
    if answer is None:
        return "waits"
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    if getattr(answer, "assignment", b""):
        return str(answer.assignment.decode())
    if hasattr(answer, "leader"):
        return "joined as leader" if answer.leader == answer.member_id else "joined"
    return "NONE"


def classic() -> list[str]:
    """Return the trace of a classic group: all members stop, and the leader assigns the partitions."""
    stage, out, ids = GroupShardFixture(), [], {"a": "c-id-a", "b": "c-id-b"}

    def show(label: str, answer: Any) -> None:
        out.append(_row(label, _response_text(answer), stage.group))

    def sync(pending: str, generation: int, **given: str) -> Any:
        rows = [sync_group.SyncGroupRequestAssignment(ids[name], text.encode()) for name, text in given.items()]
        request = sync_group.SyncGroupRequest("g", generation, ids[pending[0]], None, "consumer", "range", rows)
        return stage.send(pending, request, 5)

    def beat(pending: str, generation: int) -> Any:
        return stage.send(pending, heartbeat.HeartbeatRequest("g", generation, ids[pending[0]]), 4)

    show("a: JoinGroup", stage.join("a", version=3))
    show("a: SyncGroup, all for a", sync("a-1", 1, a="assigned 0 1 2 3"))
    show("b: JoinGroup", stage.join("b", version=3))
    show("a: Heartbeat", beat("a-2", 1))
    show("a: revokes all, JoinGroup", stage.join("a-3", ids["a"], version=3))
    show("b: response to JoinGroup", stage.answers["b"])
    show("b: SyncGroup", sync("b-1", 2))
    show("a: SyncGroup, two for each", sync("a-4", 2, a="assigned 0 1", b="assigned 2 3"))
    show("b: response to SyncGroup", stage.answers["b-1"])
    show("a: LeaveGroup", stage.send("a-5", leave_group.LeaveGroupRequest("g", ids["a"]), 2))
    show("b: Heartbeat", beat("b-2", 2))
    show("b: revokes all, JoinGroup", stage.join("b-3", ids["b"], version=3))
    show("b: SyncGroup, all for b", sync("b-4", 3, b="assigned 0 1 2 3"))
    return out


def consumer() -> list[str]:
    """Return the trace of a consumer group: each member revokes only partitions that others get."""
    shard, out = ConsumerGroupShard(TOPIC), []
    a, b = ConsumerMemberClient(shard, "a"), ConsumerMemberClient(shard, "b")

    def show(label: str, answer: Any) -> None:
        given = answer.assignment
        rows = [] if given is None else [n for row in given.topic_partitions for n in row.partitions]
        out.append(
            _row(label, f"{answer.member_epoch}" + ("" if given is None else f", {_places(rows)}"), shard.consumer)
        )

    show("a: epoch 0, subscribes to t", a.beat())
    show("b: epoch 0, subscribes to t", b.beat())
    show("a: epoch 2, owns 0 1 2 3", a.beat())
    show("b: epoch 3, owns none", b.beat())
    show("a: epoch 2, owns 0 1", a.beat())
    show("b: epoch 3, owns none", b.beat())
    show("a: epoch -1", shard.heartbeat("a", -1))
    show("b: epoch 3, owns 2 3", b.beat())
    return out


def share() -> list[str]:
    """Return the trace of a share group: a partition may have several members."""
    stage, out = shares.ShareGroupShard({"t": 1}), []

    def show(label: str, answer: Any) -> None:
        given = answer.assignment
        rows = [] if given is None else [n for row in given.topic_partitions for n in row.partitions]
        out.append(_row(label, f"{answer.member_epoch}" + ("" if given is None else f", {_places(rows)}"), stage.group))
        stage.now += 5_000

    show("a: epoch 0, subscribes to t", stage.beat("a", 0, ["t"]))
    stage.ready()
    show("a: epoch 2, share state initialized", stage.beat("a", 2))
    show("b: epoch 0, subscribes to t", stage.beat("b", 0, ["t"]))
    show("a: epoch 3", stage.beat("a", 3))
    show("a: epoch -1", stage.beat("a", -1))
    return out


def records() -> list[str]:
    """Return the trace of one share partition: the state of its four records after each step."""
    held = SharePartition(0, (), SharePartitionLimits(max_delivery_count=2, lock_duration_ms=LOCK_MS))
    out: list[str] = []
    letters = {
        RecordState.AVAILABLE: "available",
        RecordState.ACQUIRED: "acquired",
        RecordState.ACKNOWLEDGED: "acknowledged",
    }

    def show(label: str) -> None:
        states = []
        for offset in range(4):
            batch = held.last_batch_at_or_before(offset)
            if offset < held.start_offset or batch is None:
                states.append("-")
                continue
            now = batch.state_at(offset)
            states.append(letters.get(now.state, "archived") + f" x{now.delivery_count}")
        out.append(f"{label:<38} | start {held.start_offset}: " + ", ".join(states))

    def acquire(member: str, now_ms: int) -> None:
        acquire_records(
            held, AcquireRequest(member, 100, 100), FetchedOffsets(held.next_fetch_offset(), [(0, 3)]), now_ms
        )

    def text_of(member: str, *words: tuple[int, int, list[int]], now_ms: int) -> None:
        changes = ack.acknowledge_records(
            held, member, [ack.ShareAcknowledgementBatch(*word) for word in words], now_ms
        )
        ack.complete_changes(held, changes, now_ms, written=True)

    acquire("a", 0)
    show("a: ShareFetch")
    text_of("a", (0, 0, [1]), (2, 2, [2]), now_ms=1)
    show("a: accepts 0, releases 2")
    acquire("b", 2)
    show("b: ShareFetch")
    ack.expire_locks(held, LOCK_MS + 1)
    held.advance_start_offset()
    show("acquisition locks of a expire")
    acquire("b", LOCK_MS + 2)
    text_of("b", (1, 1, [1]), (2, 2, [1]), (3, 3, [2]), now_ms=LOCK_MS + 3)
    show("b: ShareFetch, accepts 1 2, releases 3")
    return out


def tasks() -> list[str]:
    """Return the trace of a streams group: as a consumer group, but with tasks, and each step is an epoch."""
    stage, out = streams.StreamsGroupShard(TOPIC), []
    a, b = streams.StreamsThreadClient(stage, "a"), streams.StreamsThreadClient(stage, "b")

    def show(label: str, answer: Any) -> None:
        given = streams.from_task_ids(answer.active_tasks)
        names = [] if given is None else [f"0_{n}" for n in given.get("0", ())]
        out.append(
            _row(label, f"{answer.member_epoch}" + ("" if given is None else f", {_places(names)}"), stage.group)
        )

    show("a: epoch 0, its topology", a.beat())
    show("b: epoch 0, its topology", b.beat())
    show("a: epoch 2, owns 0_0 0_1 0_2 0_3", a.beat())
    show("b: epoch 3, owns none", b.beat())
    show("a: epoch 2, owns two", a.beat())
    show("b: epoch 3, owns none", b.beat())
    show("a: epoch -1", stage.beat("a", -1))
    show("b: epoch 3, owns two", b.beat())
    return out


MAKERS: dict[str, Callable[[], list[str]]] = {
    "classic": classic,
    "consumer": consumer,
    "share": share,
    "records": records,
    "streams": tasks,
}


def render_page(text: str) -> str:
    """Return the text of the page with all generated blocks replaced by new ones; ``text`` is the present page."""

    def made(match: re.Match[str]) -> str:
        return f"```text {match[1]}\n" + "".join(f"{line}\n" for line in MAKERS[match[1]]()) + "```"

    return BLOCK.sub(made, text)


def main() -> None:
    """Write all generated blocks into the page."""
    PAGE.write_text(render_page(PAGE.read_text()))


if __name__ == "__main__":
    main()
