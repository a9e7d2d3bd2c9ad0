"""A row of a response array is encoded in one step: its own lists are response arrays where they may be long."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.handlers.admin import metadata
from ottla.broker.handlers.transactions import describe_transactions
from ottla.broker.tests.group_coordinator_fixture import GroupCoordinatorNode, run
from ottla.broker.tests.handler_fixture import HandlerFixture, as_decoded, resolve, run_virtual, topic_id_of
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.codec.response_array import PENDING_ROWS, ResponseArray
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

LONG = PENDING_ROWS + 40


@pytest.fixture(autouse=True)
def limited_rows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The classes of the rows that were encoded, each of which holds at most `PENDING_ROWS` objects in a list."""
    encoded: list[str] = []
    encode = compiler.encode_element_chunks

    def encode_limited(whole: Any, version: int, row: Any) -> Any:
        for name in row.__struct_fields__:
            value = getattr(row, name)
            assert not isinstance(value, list) or len(value) <= PENDING_ROWS, f"{type(row).__name__}.{name}"
        encoded.append(type(row).__name__)
        return encode(whole, version, row)

    make_array = lambda whole, version: ResponseArray(partial(encode_limited, whole, version))  # noqa: E731
    monkeypatch.setattr(compiler, "response_array", make_array)
    return encoded


def test_metadata_of_a_topic_with_many_partitions_before_many_topics(limited_rows: list[str]) -> None:
    partition = PartitionRegistration((1,), (1,), 1, 0, 0)
    sizes = {"a": LONG, **{f"b{number:04}": 1 for number in range(LONG)}}
    topics = {
        name: TopicImage(name, topic_id_of(name), dict.fromkeys(range(n), partition)) for name, n in sizes.items()
    }

    async def main() -> None:
        fixture = HandlerFixture()
        fixture.hosted.image = MetadataImage(topics=topics)
        context = fixture.context(ApiKey.METADATA, 12)
        answer = as_decoded(await resolve(metadata.handle(context, MetadataRequest(None))), 12)
        assert {topic.name: len(topic.partitions) for topic in answer.topics} == sizes
        assert [row.partition_index for row in answer.topics[0].partitions] == list(range(LONG))

    run_virtual(main)
    assert {"MetadataResponseTopic", "MetadataResponsePartition"} <= set(limited_rows)


@pytest.mark.parametrize("is_known", [True, False])
def test_offsets_of_a_group_with_many_topics_before_many_groups(limited_rows: list[str], *, is_known: bool) -> None:
    node = GroupCoordinatorNode()
    names = [f"t{number}" for number in range(LONG)]
    if is_known:
        for name in names:
            node.commit("g", topic=name)
    topics = [OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in names]
    others = [OffsetFetchRequestGroup(f"g{number}", topics=topics[:1]) for number in range(LONG)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics), *others])

    async def scenario() -> None:
        answer = as_decoded(await resolve(node.ask(ApiKey.OFFSET_FETCH, 9, request)), 9)
        rows = answer.groups[0].topics
        assert [(row.name, row.partitions[0].committed_offset) for row in rows] == [
            (name, 5 if is_known else -1) for name in names
        ]
        assert len(answer.groups) == 1 + LONG

    with pytest.MonkeyPatch.context() as patch:
        if not is_known:
            patch.setattr(RequestContext, "may", lambda context, operation, resource, name: not name.startswith("t"))
        run(node, scenario)
    assert {"OffsetFetchResponseGroup", "OffsetFetchResponseTopics"} <= set(limited_rows)


def test_transactions_with_many_topics(monkeypatch: pytest.MonkeyPatch, limited_rows: list[str]) -> None:
    txn = SimpleNamespace(
        state=SimpleNamespace(state_name="Ongoing"),
        timeout_ms=1,
        start_ms=2,
        producer_id=3,
        producer_epoch=4,
        partitions=frozenset((f"t{number}", 0) for number in range(LONG)),
    )
    monkeypatch.setattr(
        describe_transactions, "state_machine_of", lambda _: SimpleNamespace(committed_transaction=lambda _: txn)
    )

    async def main() -> None:
        fixture = HandlerFixture()
        fixture.services.transaction_coordinator = SimpleNamespace(shard_for=lambda _: None)
        context = fixture.context(ApiKey.DESCRIBE_TRANSACTIONS, 0)
        request = DescribeTransactionsRequest([f"x{number}" for number in range(LONG)])
        answer = as_decoded(await resolve(describe_transactions.handle(context, request)), 0)
        assert [len(row.topics) for row in answer.transaction_states] == [LONG] * LONG

    run_virtual(main)
    assert {"TransactionState", "TopicData"} <= set(limited_rows)
