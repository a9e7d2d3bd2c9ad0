"""Deletion of share groups: persisted share state is deleted with the group, and kept where the group is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import trio

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.groups.share import offset_changes
from ottla.broker.groups.share.groups import INITIALIZE_RETRY_MS
from ottla.broker.groups.share.tests.test_groups import ShareGroupShard as Groups
from ottla.broker.groups.share.tests.test_groups import T
from ottla.broker.handlers.groups import delete_groups
from ottla.broker.share_state import state_machine
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.broker.tests.consumer_group_fixture import assignment_by_letter
from ottla.broker.tests.handler_fixture import resolve, topic_id_of
from ottla.broker.tests.share_group_fixture import ShareGroupNode
from ottla.jobs.bounded_concurrency import MAX_CONCURRENT
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.delete_groups import DeleteGroupsRequest

U = topic_id_of("u")


class ShareGroupDeletionFixture(Groups):
    """Share group "g", the machine of the share coordinator beside it, and DeleteGroups between them."""

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.states = state_machine.ShareStateMachine(state_machine.ShareCoordinatorSettings(), lambda _: 6)
        self.meanwhile: Callable[[], Any] = lambda: None
        """Happens as soon as the persister has forgotten something."""
        self.refusal: ProtocolError | None = None
        """Instead of forgetting anything."""

    def persister(self, event: Any) -> Any:
        fx = self.states.handle(0, event)
        for number, record in enumerate(fx.records):
            self.states.replay(number, record)
        return fx.replies[0].message

    def begin(self) -> None:
        """Have the persister initialize what was requested last, and complete the initialization in the group."""
        done = [
            self.persister(
                state_machine.InitializeShareState(None, SharePartitionKey("g", topic, number), self.group.epoch, -1)
            )
            is True
            for topic, numbers in self.requested[-1].items()
            for number in numbers
        ]
        self.ready(done=all(done))
        self.now += 5_000

    async def delete_state(self, group_id: str, places: dict[bytes, list[int]]) -> ProtocolError | None:
        if self.refusal is None:
            for topic, numbers in places.items():
                for number in numbers:
                    assert (
                        self.persister(state_machine.DeleteShareState(None, SharePartitionKey(group_id, topic, number)))
                        is True
                    )
            self.meanwhile()
        return self.refusal

    def _submit(self, _: str, event_of: Callable[[PendingBrokerRequest], Any]) -> PendingBrokerRequest:
        pending = PendingBrokerRequest()
        self.apply(self.machine.handle(self.now, event_of(pending)))
        pending.deliver(self.answers[pending])  # type: ignore[index]
        return pending

    def delete(self) -> int:
        """Delete "g"; return the error code."""
        groups = SimpleNamespace(shard_for=lambda _: SimpleNamespace(machine=self.machine), submit=self._submit)
        shares = SimpleNamespace(delete_state=self.delete_state)
        context: Any = SimpleNamespace(
            services=SimpleNamespace(groups=groups, share_partition_manager=shares), version=2, response_array=list
        )

        async def main() -> Any:
            return await resolve(delete_groups.handle(context, DeleteGroupsRequest(["g"])))

        code: int = trio.run(main).results[0].error_code
        return code

    @property
    def remembered(self) -> list[bytes]:
        """Return the topics with state in the persister."""
        return [key.topic_id for key in self.states.states.by_key]


def shared(*names: str) -> ShareGroupDeletionFixture:
    """Return a group without members in a later epoch that has share state for these topics."""
    fixture = ShareGroupDeletionFixture(dict.fromkeys(names, 1))
    for number in range(4):
        fixture.beat("m1", 0, list(names))
        if number == 3:
            fixture.begin()
        fixture.beat("m1", -1)
        fixture.now += 5_000
    return fixture


def read_again(fixture: ShareGroupDeletionFixture, *names: str) -> dict[str, list[int]] | None:
    """Return the partitions that a member of a new group with the same id reads."""
    fixture.beat("m9", 0, list(names))
    fixture.begin()
    return assignment_by_letter(fixture.beat("m9", fixture.group.members["m9"].epoch).assignment)


def test_delete_group_retries_pending_offset_deletions() -> None:
    fixture = shared("t", "u")
    fixture.ask(
        partial(offset_changes.delete_offsets, group_id="g", topics=["u"])
    )  # and the persister is not reachable
    assert (list(fixture.group.initialized), list(fixture.group.deleting)) == ([T], [U])
    assert fixture.delete() == ErrorCode.NONE
    assert (fixture.remembered, fixture.machine.find_share_group("g")) == ([], None)
    assert read_again(fixture, "t", "u") == {"t": [0], "u": [0]}


def test_delete_group_deletes_state_being_initialized() -> None:
    fixture = shared("t")
    fixture.image({"t": 1, "u": 1})
    fixture.beat("m1", 0, ["t", "u"])
    # the group is not notified
    fixture.persister(state_machine.InitializeShareState(None, SharePartitionKey("g", U, 0), fixture.group.epoch, -1))
    fixture.beat("m1", -1)
    assert fixture.delete() == ErrorCode.NONE
    assert fixture.remembered == []
    assert read_again(fixture, "t", "u") == {"t": [0], "u": [0]}


def test_delete_group_joined_meanwhile_returns_non_empty_and_reinitializes_state() -> None:
    fixture = shared("t")
    fixture.meanwhile = lambda: fixture.beat("m2", 0, ["t"])
    assert fixture.delete() == ErrorCode.NON_EMPTY_GROUP
    assert (fixture.requested, fixture.group.initialized) == ([], {}), "not begun before all of it is forgotten"
    fixture.now += 5_000
    assert assignment_by_letter(fixture.beat("m2", fixture.group.members["m2"].epoch).assignment) in ({}, None)
    fixture.begin()
    assert assignment_by_letter(fixture.beat("m2", fixture.group.members["m2"].epoch).assignment) == {"t": [0]}
    assert (fixture.remembered, fixture.group.deleting) == ([T], {})


def test_delete_group_ignores_initialization_completed_during_deletion() -> None:
    fixture = ShareGroupDeletionFixture({"t": 1})
    fixture.beat("m1", 0, ["t"])
    fixture.beat("m1", -1)

    def meanwhile() -> None:
        fixture.ready()
        fixture.beat("m2", 0, ["t"])

    fixture.meanwhile = meanwhile
    assert fixture.delete() == ErrorCode.NON_EMPTY_GROUP
    assert fixture.group.initialized == {}


def test_delete_group_persister_error_keeps_group_with_deleting_topics() -> None:
    fixture = shared("t")
    fixture.refusal = ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert fixture.delete() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    group = fixture.group
    assert (group.initializing, group.initialized, group.deleting) == ({}, {}, {T: "t"})
    fixture.beat("m2", 0, ["t"])
    assert fixture.requested == [], "it may still be forgotten"
    fixture.now += INITIALIZE_RETRY_MS
    fixture.beat("m2", fixture.group.members["m2"].epoch)
    fixture.begin()
    assert assignment_by_letter(fixture.beat("m2", fixture.group.members["m2"].epoch).assignment) == {"t": [0]}
    fixture.beat("m2", -1)
    fixture.refusal = None
    assert fixture.delete() == ErrorCode.NONE
    assert fixture.remembered == []


def test_delete_group_with_members_deletes_no_state() -> None:
    fixture = shared("t")
    fixture.beat("m2", 0, ["t"])
    assert fixture.delete() == ErrorCode.NON_EMPTY_GROUP
    assert (fixture.remembered, list(fixture.group.initialized)) == ([T], [T])


def test_alter_offsets_during_group_deletion_is_refused_and_later_accepted() -> None:
    fixture = shared("t")
    alter = partial(offset_changes.alter_offsets, group_id="g", topics={"t": frozenset([0])})

    def meanwhile() -> None:
        answer = fixture.ask(alter)
        if isinstance(answer, offset_changes.ShareOffsetsToAlter):  # then the persister initializes it
            fixture.persister(state_machine.InitializeShareState(None, SharePartitionKey("g", T, 0), answer.epoch, 7))

    fixture.meanwhile = meanwhile
    assert fixture.delete() == ErrorCode.NONE
    assert (fixture.remembered, fixture.machine.find_share_group("g")) == ([], None)
    assert read_again(fixture, "t") == {"t": [0]}
    fixture.beat("m9", -1)
    fixture.refusal = ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert fixture.delete() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fixture.ask(alter).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    fixture.now += INITIALIZE_RETRY_MS
    assert fixture.ask(alter).partitions == {T: frozenset([0])}


def test_topic_reinitialized_during_offset_deletion_is_not_shared_without_state() -> None:
    """Each step of both is in order; only the group learns of the initialization after the deletion was requested."""
    fixture = shared("t")
    fixture.image({"t": 2})
    altered = fixture.ask(partial(offset_changes.alter_offsets, group_id="g", topics={"t": frozenset([1])}))
    assert (
        fixture.persister(state_machine.InitializeShareState(None, SharePartitionKey("g", T, 1), altered.epoch, 7))
        is True
    )
    doomed = fixture.ask(partial(offset_changes.delete_offsets, group_id="g", topics=["t"]))
    assert doomed.partitions == {T: frozenset([0, 1])}
    for number in (0, 1):
        assert fixture.persister(state_machine.DeleteShareState(None, SharePartitionKey("g", T, number))) is True
    fixture.requested.append(altered.partitions)
    fixture.ready()
    fixture.ask(partial(offset_changes.complete_offset_deletion, group_id="g", topics=frozenset([T])))
    assert (fixture.remembered, fixture.group.initializing, fixture.group.initialized) == ([], {}, {})
    assert read_again(fixture, "t") == {"t": [0, 1]}


def test_delete_group_stops_queued_initializations() -> None:
    """At most `MAX_CONCURRENT` are initialized at once: the others would follow after the deletion."""
    node = ShareGroupNode()
    numbers, known = range(2 * MAX_CONCURRENT + 1), set[SharePartitionKey]()

    async def initialize(key: SharePartitionKey, *_: int) -> None:
        await trio.sleep(1)
        known.add(key)

    async def delete(key: SharePartitionKey) -> None:
        await trio.sleep(1)
        known.discard(key)

    async def scenario() -> None:
        node.persister.initialize, node.persister.delete = initialize, delete
        shares, refused, result = (
            node.fixture.services.share_partition_manager,
            list[tuple[str, ErrorCode]](),
            dict[int, ErrorCode](),
        )

        async def begin(group_id: str) -> None:
            try:
                await shares.initialize(group_id, 1, {T: numbers}, -1)
            except ProtocolError as error:
                refused.append((group_id, error.code))

        def failed(key: SharePartitionKey, error: ProtocolError) -> None:
            result[key.partition] = error.code

        starts = [(SharePartitionKey("g", U, number), number) for number in numbers]
        async with trio.open_nursery() as nursery:
            for group_id in ("g", "another"):
                nursery.start_soon(begin, group_id)
            nursery.start_soon(shares.initialize_each, "g", 1, starts, failed)
            await trio.sleep(0.5)
            assert await shares.delete_state("g", {T: numbers, U: numbers}) is None
        assert known == {SharePartitionKey("another", T, number) for number in numbers}
        assert result == {
            number: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for number in numbers if number >= MAX_CONCURRENT
        }
        assert refused == [("g", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)], "whoever wants it asks again"
        await begin("g")
        assert len(known) == 2 * len(numbers), "what is begun afterwards is another group's"

    node.run(scenario)
