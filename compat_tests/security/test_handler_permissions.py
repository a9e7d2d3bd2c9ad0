"""Permissions of the rows in the registry of APIs: exactly those that a node passes to its authorizer.

A node in this process serves the requests of `acl_requests`, and others that reach the remaining permissions, while
each call of its authorizer is recorded and answered as the test wants: all allowed, all denied, one allowed, one
denied.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ottla
from compat_tests.security.acl_requests import acl_requests, fill_message
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.broker.api_spec import ApiSpec, Permission
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.handlers.security import delegation_tokens, describe_delegation_token
from ottla.broker.security.authz.authorizer import STANDARD_AUTHORIZER, Authorizer
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.messages import (
    alter_configs,
    create_topics,
    find_coordinator,
    init_producer_id,
    metadata,
    produce,
    share_acknowledge,
)
from ottla.wire.messages import consumer_group_heartbeat as cgh
from ottla.wire.messages import create_delegation_token as cdt
from ottla.wire.messages import incremental_alter_configs as iac
from ottla.wire.messages import share_group_heartbeat as sgh
from ottla.wire.messages import streams_group_heartbeat as sth
from ottla.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from ottla.wire.record_batch.batch_header import TRANSACTIONAL_BIT
from ottla.wire.record_batch.records import NewRecord, build_batch

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "delegation.token.secret.key": "a secret of the test",
    "group.initial.rebalance.delay.ms": "0",
}
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
Question = tuple[AclOperation, ResourceType]


class PermissionRecorder:
    """Calls of the authorizer of this process by API, and their results."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.questions: dict[ApiKey, set[Question]] = defaultdict(set)
        self.allows: Callable[[Question], bool] = lambda question: True

        def may(
            context: RequestContext,
            operation: AclOperation,
            resource: ResourceType,
            name: str = CLUSTER_NAME,
            *,
            is_look: bool = False,
        ) -> bool:
            self.questions[context.key].add((operation, resource))
            return self.allows((operation, resource))

        monkeypatch.setattr(RequestContext, "may", may)
        monkeypatch.setattr(RequestContext, "may_any", may)
        # Otherwise an allowed result is cached with the connection and not requested again.
        monkeypatch.setattr(Authorizer, "may_read", lambda self, asking, topic: may(asking, *READ_TOPIC, topic))
        monkeypatch.setattr(Authorizer, "may_write", lambda self, asking, topic: may(asking, *WRITE_TOPIC, topic))


READ_TOPIC = AclOperation.READ, ResourceType.TOPIC
WRITE_TOPIC = AclOperation.WRITE, ResourceType.TOPIC


def expected_questions(spec: ApiSpec) -> set[Question]:
    """Return the permissions of a row that a broker checks; at a controller, handlers of the broker are unused."""
    assert spec.broker is not None
    rules = list(spec.broker.authorization)
    if spec.forwarding is not None and spec.controller is not None:
        rules += [rule for rule in spec.controller.authorization if not isinstance(rule, Permission)]
    return {(permission.operation, permission.resource) for rule in rules for permission in rule.permissions}


def policies(spec: ApiSpec) -> Iterator[Callable[[Question], bool]]:
    """Yield results of an authorizer."""
    yield lambda question: False
    # Descending: with CREATE on the cluster denied first, CREATE on a topic is checked while the topic is missing.
    for permission in sorted(expected_questions(spec), reverse=True):
        yield lambda question, only=permission: question == only  # type: ignore[misc]
        yield lambda question, but=permission: question != but  # type: ignore[misc]
    yield lambda question: True


class RecordedNode:
    """Node in this process with topics, groups, a transaction and a delegation token."""

    def __init__(self, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._port = port
        self.recorder = PermissionRecorder(monkeypatch)
        for module in (delegation_tokens, describe_delegation_token):
            monkeypatch.setattr(module, "may_use_tokens", lambda context: True)
        # A token of the client itself is returned without a check.
        monkeypatch.setattr(describe_delegation_token, "_owners_and_renewers", lambda token: set())
        self.topic_id = bytes(16)

    def call(self, key: ApiKey, version: int, request: Any) -> Any:
        client = RawClient(self._port)
        try:
            return client.call(key, version, request)
        finally:
            client.close()

    def succeed(self, key: ApiKey, version: int, request: Any) -> Any:
        """Call until the response has no error: coordinators load in the background."""
        answers: list[Any] = []

        def is_answered() -> bool:
            answers.append(self.call(key, version, request))
            return re.search(r"error_code=[^0]", repr(answers[-1])) is None

        wait_until(is_answered)
        return answers[-1]

    def prepare(self) -> None:
        topics = [create_topics.CreatableTopic(name, 1, 1) for name in ("walk", "other")]
        made = self.succeed(ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest(topics, 9000))
        self.topic_id = made.topics[0].topic_id
        for kind, name in ((0, "walkers"), (1, "walking")):
            self.succeed(ApiKey.FIND_COORDINATOR, 4, find_coordinator.FindCoordinatorRequest("", kind, [name]))
        requests = {requested.label: requested for requested in acl_requests()}
        self.succeed(*requests["commit"][1:4])
        begin = init_producer_id.InitProducerIdRequest("walking", 60_000)
        producer = self.succeed(ApiKey.INIT_PRODUCER_ID, 4, begin)
        add: Any = requests["add partitions"].body
        add.v3_and_below_producer_id = producer.producer_id
        add.v3_and_below_producer_epoch = producer.producer_epoch
        self.succeed(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add)
        for join in self.joins():
            self.succeed(*join)
        # A description names the topics of an assignment, which may be made after the heartbeat was answered.
        share = self.joins()[2]
        wait_until(lambda: getattr(self.call(*share).assignment, "topic_partitions", None))
        self.succeed(ApiKey.CREATE_DELEGATION_TOKEN, 3, self.new_token())

    @staticmethod
    def new_token() -> Any:
        return cdt.CreateDelegationTokenRequest("User", "bob", [], 60_000)

    def share_fetch(self) -> Any:
        """Return a request that opens a share session."""
        topic = FetchTopic(self.topic_id, [FetchPartition(0)])
        return ShareFetchRequest("walkers share", MEMBER, max_records=1, topics=[topic])

    @staticmethod
    def joins() -> list[tuple[ApiKey, int, Any]]:
        """Return heartbeats of new members."""
        topology = sth.Topology(0, [sth.Subtopology("0", ["walk"])])
        streams = sth.StreamsGroupHeartbeatRequest("walkers streams", MEMBER, 0, 0)
        streams.rebalance_timeout_ms, streams.topology, streams.process_id = 60_000, topology, "p"
        streams.active_tasks = streams.standby_tasks = streams.warmup_tasks = []
        consumer = cgh.ConsumerGroupHeartbeatRequest("walkers consumer", MEMBER, 0)
        consumer.rebalance_timeout_ms, consumer.subscribed_topic_names, consumer.topic_partitions = 60_000, ["walk"], []
        share = sgh.ShareGroupHeartbeatRequest("walkers share", MEMBER, 0, None, ["walk"])
        return [
            (ApiKey.STREAMS_GROUP_HEARTBEAT, 0, streams),
            (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, consumer),
            (ApiKey.SHARE_GROUP_HEARTBEAT, 1, share),
        ]

    def requests(self) -> Iterator[tuple[ApiKey, int, Any]]:
        """Yield requests that reach every permission of the rows."""
        for query in acl_requests():
            yield query.key, query.version, query.body
        yield from self.joins()
        topic = metadata.MetadataRequestTopic(name="walking-automatically")
        yield ApiKey.METADATA, 12, metadata.MetadataRequest([topic], allow_auto_topic_creation=True)
        info = sth.TopicInfo("internal")
        topology = sth.Topology(0, [sth.Subtopology("0", ["walk"], [], [info])])
        streams = self.joins()[0][2]
        streams.group_id, streams.topology = "walkers new streams", topology
        yield ApiKey.STREAMS_GROUP_HEARTBEAT, 0, streams
        for key, group in (
            (ApiKey.STREAMS_GROUP_DESCRIBE, "walkers streams"),
            (ApiKey.CONSUMER_GROUP_DESCRIBE, "walkers consumer"),
            (ApiKey.SHARE_GROUP_DESCRIBE, "walkers share"),
        ):
            yield key, BROKER_APIS[key].min_version, fill_message(request_class(key), {"group_ids": [group]})
        for kind in (2, 4, 32):
            name = "1" if kind == 4 else "walk"
            request = alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(kind, name)], True)
            yield ApiKey.ALTER_CONFIGS, 2, request
        level = iac.AlterableConfig("ottla.made.up", 0, "INFO")
        logger = iac.AlterConfigsResource(8, "1", [level])
        yield ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, iac.IncrementalAlterConfigsRequest([logger], True)
        yield ApiKey.SHARE_FETCH, 1, self.share_fetch()
        batch = share_acknowledge.AcknowledgementBatch(0, 0, [1])
        acknowledged = [
            share_acknowledge.AcknowledgeTopic(self.topic_id, [share_acknowledge.AcknowledgePartition(0, [batch])])
        ]
        query = share_acknowledge.ShareAcknowledgeRequest("walkers share", MEMBER, 1, topics=acknowledged)
        yield ApiKey.SHARE_ACKNOWLEDGE, 1, query
        state = find_coordinator.FindCoordinatorRequest("", 2, [f"walkers share:{MEMBER}:0"])
        yield ApiKey.FIND_COORDINATOR, 6, state
        yield ApiKey.ADD_RAFT_VOTER, 1, fill_message(request_class(ApiKey.ADD_RAFT_VOTER), {"cluster_id": "another"})
        records = build_batch([NewRecord(None, b"v", 0)], producer_id=1, attributes=TRANSACTIONAL_BIT, base_sequence=0)
        produced = produce.TopicProduceData("walk", partition_data=[produce.PartitionProduceData(0, records)])
        yield ApiKey.PRODUCE, 9, produce.ProduceRequest("walking", -1, 1000, [produced])
        yield ApiKey.CREATE_DELEGATION_TOKEN, 3, self.new_token()
        key = ApiKey.DESCRIBE_DELEGATION_TOKEN
        yield key, 3, fill_message(request_class(key), {"owners": None})
        for key, group in (
            (ApiKey.ALTER_SHARE_GROUP_OFFSETS, "walkers share"),
            (ApiKey.DELETE_SHARE_GROUP_OFFSETS, "walkers share"),
        ):
            yield key, 0, fill_message(request_class(key), {"group_id": group, "topic_name": "walk"})
        request = fill_message(request_class(ApiKey.DELETE_TOPICS), {"topic_names": [], "name": "walks none"})
        yield ApiKey.DELETE_TOPICS, 6, request

    def run(self) -> None:
        """Send every request under every policy of its row."""
        for key, version, request in self.requests():
            for policy in policies(BROKER_APIS[key]):
                client = RawClient(self._port)
                self.recorder.allows = lambda question: True
                if key is ApiKey.SHARE_ACKNOWLEDGE:
                    client.call(ApiKey.SHARE_FETCH, 1, self.share_fetch())
                self.recorder.allows = policy
                with contextlib.suppress(ConnectionError):
                    client.call(key, version, request)
                client.close()


@pytest.fixture(scope="module")
def questions() -> Iterator[dict[ApiKey, set[Question]]]:
    with pytest.MonkeyPatch.context() as monkeypatch, ottla.Broker(settings=SETTINGS) as broker:
        node = RecordedNode(broker.port, monkeypatch)
        node.prepare()
        node.run()
        yield node.recorder.questions


@pytest.mark.parametrize("key", sorted(BROKER_APIS), ids=lambda key: str(key.name))
def test_handler_checks_the_permissions_of_its_row(questions: dict[ApiKey, set[Question]], key: ApiKey) -> None:
    assert questions[key] == expected_questions(BROKER_APIS[key])
