"""Random histories of classic groups: with arbitrary stored records and requests, every request is answered."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from ottla.broker.coordinator.events import RequestDisconnected, ShardLoaded
from ottla.broker.groups.classic.classic_group import ClassicGroup, ClassicGroupState, GroupRequest
from ottla.broker.groups.classic.tests.test_groups import GroupShardFixture
from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.offset_commit import CommitOffsets
from ottla.broker.groups.records import GroupRecord, decode, encode
from ottla.broker.groups.state_machine import DeleteGroup, DeleteOffsets
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import heartbeat, join_group, leave_group, offset_records, sync_group

NAMES = ("g0", "g1", "g2")
NOTHING_READ = b"\0\0\0\0"


def any_value(rng: random.Random) -> offset_records.GroupMetadataValue:
    """Return a group record with arbitrary values, as clients with write access to the topic can produce."""
    rows = [
        offset_records.MemberMetadata(
            *(rng.choice(["a", "b", "", "c"]), rng.choice([None, "i", "k", ""]), "c", "h"),
            *(rng.choice([-1, 0, 1000]), rng.choice([-5, 0, 6000]), rng.choice([b"", NOTHING_READ, b"xx"]), b""),
        )
        for _ in range(rng.randrange(4))
    ]
    generation = rng.choice([-1, 0, 5, 2**31 - 100_000])
    protocol, leader = rng.choice([None, "", "range"]), rng.choice([None, "a", "z", ""])
    return offset_records.GroupMetadataValue(rng.choice(["consumer", "", "x"]), generation, protocol, leader, -1, rows)


class RandomClassicGroupHistory:
    """Random history of a classic group."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        delay, largest = self.rng.choice([0, 3000]), self.rng.choice([2, 100])
        self.shard = GroupShardFixture(initial_rebalance_delay_ms=delay, max_size=largest)
        self.requested: list[str] = []

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        return self.shard.machine.classic_groups.groups

    def step(self) -> None:
        """Advance the clock or submit an event; refuse some of the writes."""
        rng, shard = self.rng, self.shard
        if rng.random() < 0.3:
            shard.wait(rng.choice([10, 1000, 7000]))
        shard.commits = rng.random() < 0.8
        shard.apply(shard.machine.handle(shard.now, self.event()))
        if not shard.commits:
            shard.complete_writes(rng.choice([ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]))
        for group in self.groups.values():
            members = group.members.values()
            assert group.protocol_counts == Counter(name for m in members for name, _ in m.protocols)
            assert group.awaiting_join_count == sum(m.awaiting_join is not None for m in members)
            assert group.static_member_ids == {m.instance_id: m.id for m in members if m.instance_id is not None}

    def event(self) -> Any:
        """Return an event mostly as a member would send it, for itself or for another member."""
        rng = self.rng
        pending = f"t{len(self.requested)}"
        self.requested.append(pending)
        name = rng.choice(NAMES)
        group = self.groups.get(name) or ClassicGroup(name)
        member = rng.choice([*group.members, *group.pending_join_members, ""])
        known = group.members.get(member)
        instance = known.instance_id if known is not None and rng.random() < 0.8 else rng.choice([None, None, "i", "k"])
        generation = group.generation if rng.random() < 0.8 else rng.choice([-1, 0, 3])
        match rng.randrange(8):
            case 0 | 1 | 2:
                return self._call(pending, self._join(name, group, member, instance), rng.choice([3, 5, 9]))
            case 3:
                shares = [sync_group.SyncGroupRequestAssignment(member, b"x")]
                return self._call(
                    pending, sync_group.SyncGroupRequest(name, generation, member, instance, assignments=shares), 5
                )
            case 4:
                return self._call(pending, heartbeat.HeartbeatRequest(name, generation, member, instance), 4)
            case 5:
                leaves = leave_group.LeaveGroupRequest(name, member, [leave_group.MemberIdentity(member, instance)])
                return self._call(pending, leaves, rng.choice([2, 5]))
            case 6:
                new = OffsetToCommit("t", bytes(16), 0, 5, -1, "m")
                commit = CommitOffsets(pending, name, member, instance, generation, -1, [new], 9)
                return rng.choice([commit, DeleteGroup(pending, name), DeleteOffsets(pending, name, [("t", 0)])])
        self.requested.pop()
        return RequestDisconnected(name, rng.choice([*self.requested, ""]))

    def _join(self, name: str, group: ClassicGroup, member: str, instance: str | None) -> join_group.JoinGroupRequest:
        rng, known = self.rng, group.members.get(member)
        fields = [(n, NOTHING_READ) for n in rng.sample(["range", "rr", ""], rng.randrange(3))]
        if known is not None and rng.random() < 0.5:
            fields = known.protocols
        kind, rows = group.protocol_type or "consumer", [join_group.JoinGroupRequestProtocol(*x) for x in fields]
        return join_group.JoinGroupRequest(
            name, rng.choice([6000, 9000]), rng.choice([-1, 0, 5000]), member, instance, kind, rows
        )

    def _call(self, pending: str, request: Any, version: int) -> GroupRequest:
        return GroupRequest(pending, request, version, "c", "h", f"id-{pending}")


@pytest.mark.parametrize("seed", range(100))
def test_random_operations_answer_every_request_and_expire_silent_members(seed: int) -> None:
    history = RandomClassicGroupHistory(seed)
    shard = history.shard
    for name in NAMES if seed % 2 else ():
        record = decode(*encode(GroupRecord(offset_records.GroupMetadataKey(name), any_value(history.rng))))
        assert record is not None
        shard.machine.replay(0, record)
    shard.apply(shard.machine.handle(shard.now, ShardLoaded()))
    for _ in range(150):
        history.step()
    shard.wait(30 * 60_000)
    assert {group.state for group in history.groups.values()} <= {ClassicGroupState.EMPTY}
    assert [pending for pending in history.requested if pending not in shard.answers] == []


def test_from_record_value_member_listed_twice_last_entry_wins() -> None:
    def row(member: str, instance: str | None, fields: bytes) -> offset_records.MemberMetadata:
        return offset_records.MemberMetadata(member, instance, "c", "h", 1, 1, fields, b"")

    rows = [row("a", None, b"1"), row("b", "i", b"2"), row("a", None, b"3"), row("c", "i", b"4")]
    group = ClassicGroup.from_record_value(
        "g", offset_records.GroupMetadataValue("consumer", 1, "range", "a", -1, rows)
    )
    assert {m.id: m.metadata_for("range") for m in group.members.values()} == {"a": b"3", "c": b"4"}
    assert (group.protocol_counts, group.static_member_ids, group.leader) == ({"range": 2}, {"i": "c"}, "a")
