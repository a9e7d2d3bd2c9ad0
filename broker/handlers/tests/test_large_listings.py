"""Listings of all topics, rules or users are sorted in steps: a node may have very many of them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from ottla.broker.fetch_sessions import fetch_session_cache
from ottla.broker.fetch_sessions.fetch_session import PARTITIONS_PER_STEP
from ottla.broker.handlers.admin import (
    alter_configs,
    describe_client_quotas,
    describe_log_dirs,
    list_config_resources,
    metadata,
)
from ottla.broker.handlers.admin.alter_configs import select_resources
from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.security import describe_acls, describe_user_scram_credentials
from ottla.broker.handlers.transactions import describe_transactions
from ottla.broker.requests.peer import Peer
from ottla.broker.tests.handler_fixture import HandlerFixture, as_decoded, resolve, run_virtual
from ottla.controller.metadata.acl import AclOperation, AclPermissionType, PatternType, ResourceType, StandardAcl
from ottla.controller.metadata.image import RESOURCE_CLIENT_METRICS, MetadataImage, PartitionRegistration, TopicImage
from ottla.jobs import sequences
from ottla.wire.api_keys import ApiKey, response_class
from ottla.wire.codec.compiler import response_array
from ottla.wire.framing import encode_request
from ottla.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.metadata_records import ClientQuotaRecord, EntityData, UserScramCredentialRecord

COUNT = 60
NAMES = [f"name-{number * 7 % COUNT:03}" for number in range(COUNT)]
PART = PartitionRegistration((1,), (1,), 1, 0, 0)
TOPICS = MetadataImage(topics=Map({name: TopicImage(name, name.encode().ljust(16), {0: PART}) for name in NAMES}))
CLIENTS = MetadataImage(configs=Map({(RESOURCE_CLIENT_METRICS, name): Map() for name in NAMES}))
QUOTAS = MetadataImage(
    others=Map(
        {
            ("quota", (("user", name),), "request_percentage"): ClientQuotaRecord(
                [EntityData("user", name)], "request_percentage", 5.0, False
            )
            for name in NAMES
        }
    )
)
USERS = MetadataImage(
    others=Map({("scram", name, 1): UserScramCredentialRecord(name, 1, b"", b"", b"", 4096) for name in NAMES})
)
RULES = MetadataImage(
    acls=Map(
        {
            StandardAcl(
                ResourceType.TOPIC, name, PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
            ): name.encode()
            for name in NAMES
        }
    )
)


def counted(job: Any) -> tuple[Any, int]:
    """Return the result of a job, and the number of its pauses."""
    pauses = 0
    try:
        while True:
            assert next(job) is None
            pauses += 1
    except StopIteration as end:
        return end.value, pauses


def response_of(
    handle: Callable[..., Any], image: MetadataImage, request: Any, version: int, services: Any = None
) -> Any:
    key = ApiKey[type(request).__module__.rpartition(".")[2].upper()]
    context = SimpleNamespace(
        image=image,
        version=version,
        client_id="",
        has_authorizer=True,
        may=lambda *_, **__: True,
        peer=Peer("127.0.0.1", ("here", 9092)),
        services=services or HandlerFixture().services,
        response_array=lambda: response_array(response_class(key), version),
    )
    return counted(handle(context, request))


def directory(*partitions: tuple[str, int]) -> Any:
    """Return the part of a node with one data directory and these partitions."""
    logs = {at: SimpleNamespace(is_future=False, size_bytes=5) for at in partitions}
    at = SimpleNamespace(path="/a", full_path="/a", logs=logs, disk=SimpleNamespace(usage=lambda path: (1, 1)))
    storage = SimpleNamespace(directories=[at], offline={}, is_cordoned=lambda directory: False)
    return SimpleNamespace(log_dirs=storage)


def transaction(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the part of a coordinator with one open transaction."""
    txn = SimpleNamespace(
        state=SimpleNamespace(state_name="Ongoing"),
        timeout_ms=1,
        start_ms=2,
        producer_id=3,
        producer_epoch=4,
        partitions=frozenset((name, number) for name in NAMES for number in (1, 0)),
    )
    monkeypatch.setattr(
        describe_transactions, "state_machine_of", lambda _: SimpleNamespace(committed_transaction=lambda _: txn)
    )
    return SimpleNamespace(transaction_coordinator=SimpleNamespace(shard_for=lambda _: None))


def all_in_order(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> Any:
    """Return the response; check that it takes more steps when fewer items are sorted per step."""
    answer, few = response_of(*arguments)
    monkeypatch.setattr(sequences, "SORT_CHUNK", 10)
    again, more = response_of(*arguments)
    assert again == answer
    assert more >= few + COUNT / 10
    return answer


EVERYBODY = DescribeClientQuotasRequest([ComponentData("user", 2, None)], False)
EVERY_RULE = DescribeAclsRequest(1, None, 1, None, None, 1, 1)


def test_describe_client_quotas_sorts_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = all_in_order(monkeypatch, describe_client_quotas.handle, QUOTAS, EVERYBODY, 1)
    assert [row.entity[0].entity_name for row in answer.entries] == sorted(NAMES)


def test_describe_user_scram_credentials_sorts_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    request = DescribeUserScramCredentialsRequest(None)
    answer = all_in_order(monkeypatch, describe_user_scram_credentials.handle, USERS, request, 0)
    assert [row.user for row in answer.results] == sorted(NAMES)


def test_describe_acls_sorts_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = all_in_order(monkeypatch, describe_acls.handle, RULES, EVERY_RULE, 3)
    assert [row.resource_name for row in answer.resources] == sorted(NAMES)


def test_metadata_sorts_topics_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = all_in_order(monkeypatch, metadata.handle, TOPICS, MetadataRequest(None), 12)
    assert [row.name for row in answer.topics] == sorted(NAMES)


@pytest.mark.parametrize(("image", "kind"), [(TOPICS, 2), (CLIENTS, 16)], ids=["topics", "client metrics"])
def test_list_config_resources_sorts_in_steps(monkeypatch: pytest.MonkeyPatch, image: MetadataImage, kind: int) -> None:
    request = ListConfigResourcesRequest([kind])
    answer = all_in_order(monkeypatch, list_config_resources.handle, image, request, 1)
    assert [(row.resource_name, row.resource_type) for row in answer.config_resources] == [
        (name, kind) for name in sorted(NAMES)
    ]


def test_list_config_resources_visits_resources_in_steps() -> None:
    _, count = response_of(list_config_resources.handle, TOPICS, ListConfigResourcesRequest([2]), 1)
    assert count >= COUNT


def test_describe_log_dirs_sorts_topics_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    found = directory(*((name, 0) for name in NAMES))
    answer = all_in_order(monkeypatch, describe_log_dirs.handle, TOPICS, DescribeLogDirsRequest(None), 5, found)
    assert [row.name for row in answer.results[0].topics] == sorted(NAMES)


def test_describe_log_dirs_sorts_partitions_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    found = directory(*(("t", number * 7 % COUNT) for number in range(COUNT)))
    answer = all_in_order(monkeypatch, describe_log_dirs.handle, TOPICS, DescribeLogDirsRequest(None), 5, found)
    assert [row.partition_index for row in answer.results[0].topics[0].partitions] == list(range(COUNT))


def test_describe_transactions_sorts_partitions_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    found = transaction(monkeypatch)
    request = DescribeTransactionsRequest(["x"])
    answer = all_in_order(monkeypatch, describe_transactions.handle, TOPICS, request, 0, found)
    assert [(t.topic, t.partitions) for t in answer.transaction_states[0].topics] == [
        (name, [0, 1]) for name in sorted(NAMES)
    ]


def test_fetch_with_invalid_isolation_level_yields_for_each_topic() -> None:
    request = FetchRequest(topics=[FetchTopic("t")] * COUNT, isolation_level=5, session_epoch=-1)
    answer, steps = response_of(fetch.handle, MetadataImage(), request, 12)
    assert len(answer.responses) == COUNT
    assert steps >= COUNT


class CountedParts(list[Any]):
    """Counts its elements as they are taken."""

    created = 0

    def __iter__(self) -> Any:
        for part in super().__iter__():
            CountedParts.created += 1
            yield part


@pytest.mark.parametrize("is_repeated", [True, False])
def test_long_fetch_yields_for_repeated_partitions_and_empty_topics(
    monkeypatch: pytest.MonkeyPatch, is_repeated: bool
) -> None:
    monkeypatch.setattr(fetch_session_cache, "MAX_FETCH_SESSION_PARTITIONS", 10)
    parts = [FetchPartition(1)] * 1000 if is_repeated else []
    topics = CountedParts([FetchTopic("t", partitions=CountedParts(parts))] * (1 if is_repeated else 1000))
    topics.append(FetchTopic("u", partitions=[FetchPartition(number) for number in range(20)]))
    most = 0

    request = FetchRequest(topics=topics, session_epoch=-1, max_wait_ms=0)
    job = fetch.handle(HandlerFixture().context(ApiKey.FETCH, 12), request)
    answer: Any = None
    while answer is None:
        CountedParts.created = 0
        try:
            next(job)
        except StopIteration as end:
            answer = end.value
        most = max(most, CountedParts.created)
    assert sum(len(topic.partitions) for topic in answer.responses) == 20 + is_repeated
    assert most <= 2 * PARTITIONS_PER_STEP


def test_partial_request_of_long_alter_configs_is_encoded_in_steps() -> None:
    topics = [AlterConfigsResource(2, f"t{number}", [AlterableConfig("a", "1")]) for number in range(2000)]
    whole = AlterConfigsRequest(topics, True)
    context = HandlerFixture().context(ApiKey.ALTER_CONFIGS, 2)
    context.frame = encode_request(ApiKey.ALTER_CONFIGS, 2, 7, "client", whole)[4:]
    part = AlterConfigsRequest([*topics[:5], *topics[6:]], True)
    (in_part, left), pauses = counted(select_resources(context, whole, {5}))
    assert in_part.frame == encode_request(ApiKey.ALTER_CONFIGS, 2, 7, "client", part)[4:]
    assert (list(left.resources), len(left.resources)) == (part.resources, len(topics) - 1)
    assert pauses > 10


def test_locally_refused_rows_follow_those_of_the_controller() -> None:
    rows: list[Any] = response_array(AlterConfigsResponse, 2)
    for number in range(1000):
        rows.append(AlterConfigsResourceResponse(0, None, 2, f"a{number}"))

    async def forward(context: Any, request: Any) -> Any:
        assert [resource.resource_name for resource in request.resources] == ["a"]
        return AlterConfigsResponse(responses=rows)

    async def run() -> None:
        context = HandlerFixture().context(ApiKey.ALTER_CONFIGS, 2)
        context.services.controller_forwarder = SimpleNamespace(forward=forward)  # type: ignore[misc]
        twice = [AlterConfigsResource(2, f"b{number}", []) for number in range(500)] * 2
        request = AlterConfigsRequest([*twice, AlterConfigsResource(2, "a", [])], False)
        answer = as_decoded(await resolve(alter_configs.handle(context, request)), 2)
        names = [f"a{number}" for number in range(1000)] + [f"b{number}" for number in range(500)] * 2
        assert [row.resource_name for row in answer.responses] == names

    run_virtual(run)
