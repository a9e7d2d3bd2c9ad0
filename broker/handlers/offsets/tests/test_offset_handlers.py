"""OffsetCommit, OffsetFetch and OffsetDelete with a real coordinator in virtual time."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.coordinator import state_machine_of
from ottla.broker.groups.offset_commit import CommitOffsets
from ottla.broker.tests.group_coordinator_fixture import UNKNOWN_ID, GroupCoordinatorNode, codes, run
from ottla.broker.tests.handler_fixture import as_decoded, topic_id_of
from ottla.controller.metadata.delta import MetadataDelta, TopicDelta
from ottla.controller.metadata.image import MetadataImage, TopicImage
from ottla.jobs.state_machine import RECORDS_PER_STEP
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)


def fetch(version: int, *partitions: int, topic: str = "t", topic_id: bytes | None = None, group: str = "g") -> Any:
    if version < 8:
        return OffsetFetchRequest(group, [OffsetFetchRequestTopic(topic, list(partitions))])
    topics = [OffsetFetchRequestTopics(topic, topic_id or topic_id_of(topic), list(partitions))]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])


def rows(topics: list[Any]) -> list[tuple[str, int, int, int, str, int]]:
    return [
        (t.name, p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code)
        for t in topics
        for p in t.partitions
    ]


NONE_ROW = (-1, -1, "", 0)


@pytest.mark.parametrize("version", [1, 2, 7, 8, 9, 10])
def test_offset_fetch_returns_minus_one_for_uncommitted_partitions(version: int) -> None:
    node = GroupCoordinatorNode()
    node.commit(partition=1)
    answer = node.ask(ApiKey.OFFSET_FETCH, version, fetch(version, 1, 0, 1, 99))
    topics = answer.topics if version < 8 else answer.groups[0].topics
    found = ("t", 1, 5, 3, "meta", 0)
    assert rows(topics) == [found, ("t", 0, *NONE_ROW), found, ("t", 99, *NONE_ROW)]
    assert answer.error_code == 0


def test_offset_fetch_unknown_topic_id_rows_come_last() -> None:
    node = GroupCoordinatorNode()
    node.commit()
    topics = [OffsetFetchRequestTopics("", UNKNOWN_ID, [7]), OffsetFetchRequestTopics("", topic_id_of("t"), [0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])
    answer = node.ask(ApiKey.OFFSET_FETCH, 10, request)
    assert [t.topic_id for t in answer.groups[0].topics] == [topic_id_of("t"), UNKNOWN_ID]
    assert rows(answer.groups[0].topics)[1] == ("", 7, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize(("version", "names"), [(9, ["gone", "t"]), (10, ["t"])])
def test_offset_fetch_all_topics_from_v10_omits_topics_without_id(version: int, names: list[str]) -> None:
    node = GroupCoordinatorNode()
    node.commit(partition=0)
    node.commit(partition=2)
    node.commit(topic="gone")
    requests = [OffsetFetchRequestGroup(group, topics=None) for group in ("g", "other", "g")]
    answer = node.ask(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=requests))
    assert [g.group_id for g in answer.groups] == ["g", "other"], "each once: what it costs is bounded by the request"
    assert sorted(t.name for t in answer.groups[0].topics) == names
    assert {row[1] for row in rows(answer.groups[0].topics) if row[0] == "t"} == {0, 2}
    assert answer.groups[1].topics == []
    old = node.ask(ApiKey.OFFSET_FETCH, 5, OffsetFetchRequest("g", None))
    assert len(rows(old.topics)) == 3


def test_offset_fetch_ignores_offsets_of_former_topic_id() -> None:
    node = GroupCoordinatorNode()
    new = [OffsetToCommit("t", UNKNOWN_ID, 0, 5, 3, ""), OffsetToCommit("t", bytes(16), 1, 6, 3, "")]
    node.groups.submit("g", lambda own: CommitOffsets(own, "g", "", None, -1, -1, new, 9))
    answer = node.ask(ApiKey.OFFSET_FETCH, 8, fetch(8, 0, 1))
    assert [row[2] for row in rows(answer.groups[0].topics)] == [-1, 6], "one without an id is believed"


@pytest.mark.parametrize(
    ("version", "top", "each"), [(1, ErrorCode.NOT_COORDINATOR, True), (2, ErrorCode.NOT_COORDINATOR, False)]
)
def test_offset_fetch_not_coordinator_error_position_by_version(version: int, top: ErrorCode, each: bool) -> None:
    answer = GroupCoordinatorNode(led=False).ask(ApiKey.OFFSET_FETCH, version, fetch(version, 0, 1))
    assert answer.error_code == top
    assert [row[1:] for row in rows(answer.topics)] == ([(n, -1, -1, "", top) for n in (0, 1)] if each else [])
    answer = GroupCoordinatorNode(led=False).ask(ApiKey.OFFSET_FETCH, 8, fetch(8, 0))
    assert (answer.groups[0].error_code, answer.groups[0].topics) == (top, [])


@pytest.mark.parametrize("version", [5, 9])
def test_offset_fetch_waits_until_offsets_are_committed(version: int) -> None:
    node = GroupCoordinatorNode(followed=True)

    async def scenario() -> None:
        node.commit()
        waiting = node.ask(ApiKey.OFFSET_FETCH, version, fetch(version, 0))
        assert isawaitable(waiting)
        async with trio.open_nursery() as nursery:
            got: list[Any] = []

            async def wait() -> None:
                got.append(await waiting)

            nursery.start_soon(wait)
            await trio.sleep(4)
            assert not got
            node.commit_log()
        topics = got[0].topics if version < 8 else got[0].groups[0].topics
        assert rows(topics) == [("t", 0, 5, 3, "meta", 0)]

    run(node, scenario)


@pytest.mark.parametrize("version", [1, 5, 9])
def test_offset_fetch_of_uncommitted_offsets_times_out(version: int) -> None:
    node = GroupCoordinatorNode(followed=True)

    async def scenario() -> None:
        node.commit()
        answer = await node.ask(ApiKey.OFFSET_FETCH, version, fetch(version, 0))
        assert trio.current_time() == pytest.approx(5, abs=0.1)
        group = answer if version < 8 else answer.groups[0]
        assert group.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(group.topics) == (version == 1)

    run(node, scenario)


def commit_request(*topics: Any, group: str = "g", generation: int = -1) -> Any:
    return OffsetCommitRequest(group, generation, topics=list(topics))


def commit_topic(name: str, *partitions: int, metadata: str = "", topic_id: bytes | None = None) -> Any:
    parts = [OffsetCommitRequestPartition(n, 40 + n, 3, metadata) for n in partitions]
    return OffsetCommitRequestTopic(name, topic_id or topic_id_of(name), parts)


def test_offset_commit_returns_rows_per_topic_unknown_first() -> None:
    node = GroupCoordinatorNode()
    request = commit_request(
        commit_topic("t", 0, 99), commit_topic("unheard", 0), commit_topic("t", 1), commit_topic("t", 2)
    )
    answer = node.ask(ApiKey.OFFSET_COMMIT, 9, request)
    assert codes(answer) == [
        ("t", [(99, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, 0), (1, 0), (2, 0)]),
        ("unheard", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]
    offsets = state_machine_of(node.groups.shard_for("g")).offsets
    stored = offsets.get("g", "t", 1)
    assert stored is not None
    assert (stored.offset, stored.leader_epoch, stored.topic_id) == (41, 3, topic_id_of("t"))


def test_offset_commit_v10_identifies_topics_by_id() -> None:
    node = GroupCoordinatorNode()
    request = commit_request(commit_topic("", 0, topic_id=topic_id_of("t")), commit_topic("", 0, topic_id=UNKNOWN_ID))
    answer = node.ask(ApiKey.OFFSET_COMMIT, 10, request)
    assert [(t.topic_id, t.partitions[0].error_code) for t in answer.topics] == [
        (UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID),
        (topic_id_of("t"), 0),
    ]


@pytest.mark.parametrize(
    ("metadata", "generation", "code"),
    [
        ("12345", -1, ErrorCode.NONE),
        ("123456", -1, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("1234é", -1, ErrorCode.NONE),
        ("123\U0001f600", -1, ErrorCode.NONE),
        ("1234\U0001f600", -1, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("123456", 7, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_offset_commit_metadata_limit_counts_utf16_after_group_checks(
    metadata: str, generation: int, code: ErrorCode
) -> None:
    node = GroupCoordinatorNode()
    request = commit_request(commit_topic("t", 0, metadata=metadata), generation=generation)
    assert codes(node.ask(ApiKey.OFFSET_COMMIT, 9, request)) == [("t", [(0, code)])]
    assert (state_machine_of(node.groups.shard_for("x")).offsets.get("g", "t", 0) is not None) is (
        code is ErrorCode.NONE
    )


def test_offset_commit_of_unknown_topics_needs_no_coordinator() -> None:
    node = GroupCoordinatorNode(led=False)
    answer = node.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(commit_topic("unheard", 0)))
    assert codes(answer) == [("unheard", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])]
    answer = node.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(commit_topic("t", 0)))
    assert codes(answer) == [("t", [(0, ErrorCode.NOT_COORDINATOR)])]


@pytest.mark.parametrize("known", [True, False])
def test_large_offset_commit_and_fetch_yield_to_event_loop(known: bool) -> None:
    node = GroupCoordinatorNode()
    many = 20 * RECORDS_PER_STEP
    image = node.fixture.hosted.image
    topic = TopicImage("t", topic_id_of("t"), dict.fromkeys(range(many), image.topics["t"].partitions[0]))
    node.fixture.hosted.image = MetadataImage(topics={**image.topics, "t": topic}, topic_names=image.topic_names)

    async def scenario() -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            at = 0 if known else many
            request = commit_request(commit_topic("t", *range(at, at + many)))
            answer = as_decoded(await node.ask(ApiKey.OFFSET_COMMIT, 9, request, each_ms=0.02), 9)
            assert {code for _, parts in codes(answer) for _, code in parts} == {0 if known else 3}
            assert sum(len(parts) for _, parts in codes(answer)) == many
            assert turns >= (50 if known else 15), "sorted out, written and answered"
            turns = 0
            if known:
                got = as_decoded(await node.ask(ApiKey.OFFSET_FETCH, 9, fetch(9, *range(many)), each_ms=0.02), 9)
                assert [row[2] for row in rows(got.groups[0].topics)] == [40 + n for n in range(many)]
                assert turns >= 15
            nursery.cancel_scope.cancel()

    run(node, scenario)


def test_offset_delete_returns_row_per_partition() -> None:
    node = GroupCoordinatorNode()
    node.commit(partition=0)
    node.commit(partition=1)
    parts = [OffsetDeleteRequestPartition(n) for n in (0, 99)]
    request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", parts)])
    answer = node.ask(ApiKey.OFFSET_DELETE, 0, request)
    assert codes(answer) == [("t", [(0, 0), (99, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])]
    assert list(state_machine_of(node.groups.shard_for("g")).offsets.topic_offsets("g", "t")) == [1]
    request.group_id = "nobody"
    answer = node.ask(ApiKey.OFFSET_DELETE, 0, request)
    assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    request.group_id = ""
    assert node.ask(ApiKey.OFFSET_DELETE, 0, request).error_code == ErrorCode.INVALID_GROUP_ID


def test_topic_deletion_removes_offsets_of_its_topic_id() -> None:
    node = GroupCoordinatorNode()
    new = [
        OffsetToCommit("t", topic_id_of("t"), 0, 5, 3, ""),
        OffsetToCommit("t", UNKNOWN_ID, 1, 5, 3, ""),
        OffsetToCommit("t", bytes(16), 2, 5, 3, ""),
    ]
    node.groups.submit("g", lambda own: CommitOffsets(own, "g", "", None, -1, -1, new, 9))
    node.commit(topic="other")
    topic = node.fixture.hosted.image.topics["t"]
    node.groups.publish(MetadataImage(), MetadataDelta({"t": TopicDelta(topic, topic, frozenset({1}))}))
    offsets = state_machine_of(node.groups.shard_for("g")).offsets
    assert len(offsets.topic_offsets("g", "t")) == 3
    node.groups.publish(MetadataImage(), MetadataDelta({"t": TopicDelta(topic, None, frozenset())}))
    assert list(offsets.topic_offsets("g", "t")) == [1], "O onTopicsDeleted: the deleted id, or none"
    assert list(offsets.topic_offsets("g", "other")) == [0]
