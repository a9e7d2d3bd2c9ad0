"""Requests on the controller listener, and their refusal where this node is not the active controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch.api_registry import API_SPECS, CONTROLLER_APIS
from ottla.broker.dispatch.dispatcher import Dispatcher, load_handler
from ottla.broker.requests.error_responses import contains_error
from ottla.broker.requests.peer import Peer
from ottla.broker.tests.handler_fixture import VirtualEnv, resolve, run_virtual
from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.metadata.image import MetadataImage
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import ApiKey, request_class, request_spec, response_class
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.framing import encode_request, parse_request
from ottla.wire.messages import create_topics, incremental_alter_configs
from ottla.wire.messages import describe_configs as dcf
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasRequestEntryData
from ottla.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.metadata_records import ControllerEndpoint, RegisterControllerRecord

NOT_ACTIVE = ProtocolError(ErrorCode.NOT_CONTROLLER)
RAFT = {
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
}
HERE = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    *(ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_CONFIGS),
    *(
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    ),  # not advertised at all
}
CREATE = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("a", 1, 1)])
MADE = create_topics.CreateTopicsResponse(topics=[create_topics.CreatableTopicResult("a", error_message=None)])


class FakeQuorum:
    """Quorum of this process with scripted responses."""

    def __init__(self) -> None:
        self.leader_id = 2
        self.received: list[Any] = []
        self.answer: Any = NOT_ACTIVE

    def record_heartbeat(self, broker_id: int, broker_epoch: int) -> None:
        self.received.append((broker_id, broker_epoch))

    async def submit(self, request: Any, version: int = 0) -> Any:
        self.received.append((request, version))
        await trio.lowlevel.checkpoint()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def handle_raft_request(self, message: Any, version: int, listener: str) -> Any:
        return await self.submit((message, listener), version)


class ControllerListenerFixture:
    """Controller listener without connections."""

    def __init__(self, **settings: str) -> None:
        self.env: Any = VirtualEnv()
        self.quorum = FakeQuorum()
        self.image = MetadataImage()
        listener = self

        class Metadata:
            cluster_id, kraft_version = "cluster", 1

            @property
            def image(self) -> MetadataImage:
                return listener.image

        services: Any = SimpleNamespace(
            env=self.env,
            config=NodeConfig({k.replace("_", "."): v for k, v in settings.items()}),
            controller=self.quorum,
            liveness_probe=lambda: SimpleNamespace(on_heartbeat=lambda *x: self.quorum.received.append(x[1:])),
            metadata=Metadata(),
            log_creator=(),
            authorizer=None,
            quota_holder=SimpleNamespace(quotas=None, times_requests=False),
        )
        self.dispatcher = Dispatcher(services, CONTROLLER_APIS, "CONTROLLER")

    def ask(self, request: Any, version: int) -> Any:
        """Return the response as the client decodes it."""
        key = ApiKey(request.SPEC.key)
        frame = memoryview(encode_request(key, version, 5, "7", request)[4:])

        async def scenario() -> Any:
            peer = Peer("10.0.0.2", ("here", 9093), "CONTROLLER")
            return await resolve(self.dispatcher.handle_request(peer, parse_request(frame)))

        answer = run_virtual(scenario)
        return compiler.decode_exact(response_class(key), version, compiler.encode(answer, version))


QUORUM_RESPONSES = {
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest([CreatePartitionsTopic("a", 3)]),
    ApiKey.ALTER_CONFIGS: AlterConfigsRequest([AlterConfigsResource(2, "a")]),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(2, "a")]
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsRequest([ScramCredentialDeletion("a", 1)]),
    ApiKey.CREATE_ACLS: CreateAclsRequest([AclCreation()]),
    ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasRequest([AlterClientQuotasRequestEntryData()]),
    ApiKey.DELETE_ACLS: DeleteAclsRequest([DeleteAclsFilter()]),
    ApiKey.ELECT_LEADERS: ElectLeadersRequest(0, [TopicPartitions("a", [0])]),
}


def of(key: ApiKey, version: int) -> Any:
    """Return a request with a row wherever its response has errors in rows."""
    match key:
        case ApiKey.CREATE_TOPICS:
            return CREATE
        case ApiKey.DELETE_TOPICS:
            names = ["a"] if version < 6 else []
            return DeleteTopicsRequest([] if names else [DeleteTopicState("a")], names)
        case _:
            return QUORUM_RESPONSES.get(key) or request_class(key)()


VERSIONS = [
    (key, version)
    for key, route in CONTROLLER_APIS.items()
    for version in range(route.min_version, route.max_version + 1)
]


# ------------------------------------------------------------------ the table


def test_advertised_apis_are_controller_apis_with_known_versions() -> None:
    for key, route in CONTROLLER_APIS.items():
        spec = request_spec(key)
        assert "controller" in spec.listeners, key.name
        newest = spec.versions.high - (1 if spec.latest_unstable else 0)
        assert (route.min_version, route.max_version) == (spec.versions.low, newest), key.name
        assert callable(load_handler(route.endpoint(at_controller=True).handler_module))


def test_all_controller_apis_with_a_handler_in_kafka_are_served() -> None:
    advertised = {key for key in ApiKey if "controller" in request_spec(key).listeners}
    without_handler = {ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS}
    assert advertised - set(CONTROLLER_APIS) == without_handler


@pytest.mark.parametrize("authorizer", [None, SimpleNamespace(decisions={}, may=lambda *_: True)])
def test_describe_acls_at_controller_returns_acls(authorizer: Any) -> None:
    listener = ControllerListenerFixture()
    services: Any = listener.dispatcher.services
    services.authorizer, services.audit = authorizer, None
    answer = listener.ask(DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
    assert answer.error_code == (ErrorCode.SECURITY_DISABLED if authorizer is None else ErrorCode.NONE)


@pytest.mark.parametrize("version", [1, 3])
def test_describe_acls_at_controller_without_permission_is_refused(version: int) -> None:
    listener = ControllerListenerFixture()
    services: Any = listener.dispatcher.services
    services.authorizer, services.audit = SimpleNamespace(decisions={}, may=lambda *_: False), None
    answer = listener.ask(DescribeAclsRequest(1, None, 1, None, None, 1, 1), version)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_forwarded_apis_have_a_controller_endpoint() -> None:
    assert {spec.key for spec in API_SPECS if spec.forwarding is not None} < set(CONTROLLER_APIS)


def test_unknown_api_at_controller_closes_connection() -> None:
    with pytest.raises(WireError):
        ControllerListenerFixture().ask(request_class(ApiKey.METADATA)(), 12)


@pytest.mark.behaviour("R-264")
@pytest.mark.parametrize(
    ("key", "version"), [x for x in VERSIONS if x[0] not in RAFT | HERE | {ApiKey.ENVELOPE}], ids=str
)
def test_inactive_controller_returns_not_controller_in_error_fields(key: ApiKey, version: int) -> None:
    listener = ControllerListenerFixture()
    assert run_to_end(contains_error(listener.ask(of(key, version), version), ErrorCode.NOT_CONTROLLER))
    assert listener.quorum.received[-1] == (of(key, version), version)


@pytest.mark.parametrize(
    ("leader_id", "text"),
    [(2, "The active controller appears to be node 2."), (-1, "No controller appears to be active.")],
)
def test_inactive_controller_message_names_active_controller(leader_id: int, text: str) -> None:
    listener = ControllerListenerFixture()
    listener.quorum.leader_id = leader_id
    assert listener.ask(CREATE, 7).topics[0].error_message == text


def test_active_controller_returns_its_result() -> None:
    listener = ControllerListenerFixture()
    listener.quorum.answer = MADE
    assert listener.ask(CREATE, 7) == MADE
    listener.quorum.answer = ProtocolError(ErrorCode.POLICY_VIOLATION, "too many")
    row = listener.ask(CREATE, 7).topics[0]
    assert (row.error_code, row.error_message) == (ErrorCode.POLICY_VIOLATION, "too many")


@pytest.mark.behaviour("R-276")
def test_broker_heartbeat_is_recorded_before_it_is_processed() -> None:
    listener = ControllerListenerFixture()
    beat = BrokerHeartbeatRequest(3, 17, 100)
    listener.ask(beat, 2)
    assert listener.quorum.received == [(3, 17), (3, 17), (beat, 2)]  # by the lease, and by the watch of the connection


@pytest.mark.parametrize(("version", "code"), [(1, 42), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_delete_topics_with_deletion_disabled_returns_error(version: int, code: int) -> None:
    listener = ControllerListenerFixture(delete_topic_enable="false")
    assert [r.error_code for r in listener.ask(of(ApiKey.DELETE_TOPICS, version), version).responses] == [code]
    assert listener.quorum.received == []


@pytest.mark.parametrize("key", sorted(RAFT & set(CONTROLLER_APIS)), ids=lambda key: str(key.name))
def test_raft_requests_are_passed_on_with_their_listener(key: ApiKey) -> None:
    listener = ControllerListenerFixture()
    version = CONTROLLER_APIS[key].max_version
    request, answer = request_class(key)(), response_class(key)()
    listener.quorum.answer = answer
    assert listener.ask(request, version) == answer
    assert listener.quorum.received == [((request, "CONTROLLER"), version)]
    listener.quorum.answer = ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert run_to_end(contains_error(listener.ask(request, version), ErrorCode.UNKNOWN_SERVER_ERROR))


@pytest.mark.behaviour("R-248")
def test_api_versions_at_controller_returns_versions_and_features() -> None:
    answer = ControllerListenerFixture().ask(ApiVersionsRequest("ottla", "1"), 4)
    assert {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys} == {
        key: (route.min_version, route.max_version) for key, route in CONTROLLER_APIS.items()
    }
    response = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
    assert response == SUPPORTED_FEATURES


def test_describe_configs_at_controller_returns_its_own_configs() -> None:
    request = dcf.DescribeConfigsRequest([dcf.DescribeConfigsResource(4, "1", ["node.id", "min.insync.replicas"])])
    (row,) = ControllerListenerFixture(min_insync_replicas="2").ask(request, 4).results
    assert (row.error_code, {c.name: c.value for c in row.configs}["min.insync.replicas"]) == (0, "2")


# ------------------------------------------------------------------ DescribeCluster


def controller(node_id: int, *names: str) -> RegisterControllerRecord:
    ends = [ControllerEndpoint(name, f"h{node_id}", 9000 + node_id, 0) for name in names]
    return RegisterControllerRecord(node_id, b"i" * 16, False, ends, [])


@pytest.mark.parametrize(("leader", "expected"), [(2, 2), (1, 1), (3, -1), (9, -1), (-1, -1)])
def test_describe_cluster_returns_controllers_with_endpoint_of_listener(leader: int, expected: int) -> None:
    listener = ControllerListenerFixture()
    listener.image = MetadataImage(
        controllers={1: controller(1, "OTHER", "CONTROLLER"), 3: controller(3, "OTHER"), 2: controller(2, "CONTROLLER")}
    )
    listener.quorum.leader_id = leader
    answer = listener.ask(DescribeClusterRequest(endpoint_type=2), 2)
    assert (answer.error_code, answer.endpoint_type, answer.cluster_id) == (0, 2, "cluster")
    assert answer.controller_id == expected
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [(1, "h1", 9001), (2, "h2", 9002)]
    assert answer.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize(
    ("version", "kind", "code"),
    [
        (2, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (1, 7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (0, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_describe_cluster_for_brokers_at_controller_is_refused(version: int, kind: int, code: ErrorCode) -> None:
    assert ControllerListenerFixture().ask(DescribeClusterRequest(endpoint_type=kind), version).error_code == code
