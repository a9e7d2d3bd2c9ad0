"""CVEs of Apache Kafka, tested at this broker; docs/reference/cves.md lists all of them."""

from __future__ import annotations

import tracemalloc
from functools import partial

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.handlers.admin import describe_configs
from ottla.broker.handlers.fetch.tests.test_fetch import rows_of, send
from ottla.broker.handlers.fetch.tests.test_follower_fetch import LeaderPartitionFixture, by
from ottla.broker.handlers.groups.tests.test_consumer_group_handlers import beat, served
from ottla.broker.handlers.produce import produce
from ottla.broker.handlers.produce.tests.test_txn_verification import data, verifying_fixture
from ottla.broker.handlers.produce.tests.test_txn_verification import request as bringing
from ottla.broker.observability.tests.test_client_metrics import MOST, A
from ottla.broker.observability.tests.test_client_metrics import TelemetryNode as Pushing
from ottla.broker.security.authn.listener_security import build_listener_security, find_listener_problems
from ottla.broker.security.authz.tests.test_authorizer import acl, holding
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time, job_of
from ottla.broker.tests.handler_fixture import HandlerFixture, as_decoded, resolve, run_virtual
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, ResourceType, StandardAcl
from ottla.controller.metadata.image import RESOURCE_BROKER, MetadataImage
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_describe
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.record_batch.compression import CompressionType, compress

PRINCIPAL = "User:ANONYMOUS"
READ = acl(operation=AclOperation.READ, principal=PRINCIPAL)
WRITE = acl(operation=AclOperation.WRITE, principal=PRINCIPAL)
ACTION = acl(CLUSTER_NAME, AclOperation.CLUSTER_ACTION, principal=PRINCIPAL, kind=ResourceType.CLUSTER)
WRITE_AS = acl("x", AclOperation.WRITE, principal=PRINCIPAL, kind=ResourceType.TRANSACTIONAL_ID)

# ---------------------------------------------------------------- authorization


@pytest.mark.parametrize(
    ("rules", "code", "high_watermark"),
    [((READ,), ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0), ((READ, ACTION), ErrorCode.NONE, 9)],
)
@pytest.mark.parametrize("version", [11, 14, 15])
def test_replica_id_without_cluster_action_does_not_act_as_replica(
    rules: tuple[StandardAcl, ...], code: ErrorCode, high_watermark: int, version: int
) -> None:
    """CVE-2018-1288: a fetch that named a replica moved the high watermark, so that records were lost later."""
    led = LeaderPartitionFixture()
    led.services.authorizer = holding(*rules)
    for replica, offset in ((2, 9), (3, 12)):
        value = by(replica, offset)
        if version < 15:
            value.replica_id = replica
        answer, _ = send(led, value, version)
        assert [row.error_code for row in rows_of(answer)] == [code]
    assert led.replica.log.high_watermark == high_watermark
    assert {x.end_offset > 0 for x in led.leading.followers.values()} == {code is ErrorCode.NONE}


@pytest.mark.parametrize("version", [3, 11, 12, 13])
@pytest.mark.parametrize("may", [False, True])
def test_transactional_batch_requires_permission_of_its_transactional_id(version: int, *, may: bool) -> None:
    """CVE-2018-17196: only the request's own fields were checked, and a crafted batch was not."""
    fixture, coordinator = verifying_fixture()
    fixture.services.authorizer = holding(WRITE, *([WRITE_AS] if may else []))
    for transactional_id in ("x", "somebody-else", "", None):
        value = bringing(
            ("t", 0, make_batch(0)), ("t", 1, make_batch(0)), ("t", 2, data()), transactional_id=transactional_id
        )
        answer = run_virtual(partial(resolve, produce.handle(fixture.context(ApiKey.PRODUCE, version), value)))
        codes = {row.error_code for topic in answer.responses for row in topic.partition_responses}
        allowed = may and transactional_id == "x"
        assert codes == ({ErrorCode.NONE} if allowed else {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}), (
            transactional_id
        )
    assert len(coordinator.requested) == may
    assert {x.log.log_end_offset > 0 for at, x in fixture.hosted.replicas.items() if at[0] == "t"} == {may}


@pytest.mark.parametrize("operation", [x for x in AclOperation if x not in (AclOperation.UNKNOWN, AclOperation.ANY)])
def test_consumer_group_describe_requires_describe_or_implying_operation(operation: AclOperation) -> None:
    """CVE-2026-41115: ConsumerGroupDescribe required another permission than documented."""
    node = served()
    beat(node)
    topic = acl(operation=AclOperation.DESCRIBE, principal=PRINCIPAL)
    node.fixture.services.authorizer = holding(topic, acl("g", operation, principal=PRINCIPAL, kind=ResourceType.GROUP))
    row = node.ask(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, consumer_group_describe.ConsumerGroupDescribeRequest(["g"])
    ).groups[0]
    implies = ("ALL", "READ", "WRITE", "DELETE", "ALTER", "DESCRIBE")
    assert row.error_code == (ErrorCode.NONE if operation.name in implies else ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert len(row.members) == (operation.name in implies)


# ---------------------------------------------------------------- secrets in settings

SECRET = "pl4nted"
SECRET_KEYS = [name for name, key in BROKER_KEYS.items() if key.type == "PASSWORD"]


def logged_by(fixture: HandlerFixture, broker: str) -> bytes:
    """Return the encoded description of a broker's configs."""
    request = DescribeConfigsRequest([DescribeConfigsResource(4, broker)], True, True)
    answer = run_virtual(
        partial(resolve, describe_configs.handle(fixture.context(ApiKey.DESCRIBE_CONFIGS, 4), request))
    )
    text = as_decoded(answer, 4)
    assert text.results[0].error_code == 0
    return b"".join(bytes(chunk) for chunk in compiler.encode_chunks(text, 4))


def test_describe_configs_of_broker_contains_no_secret() -> None:
    """CVE-2019-12399: secrets were shown to clients with the permission to describe configs."""
    assert len(SECRET_KEYS) >= 9
    fixture = HandlerFixture()
    fixture.services.config = fixture.config = NodeConfig({**dict.fromkeys(SECRET_KEYS, SECRET), "node.id": "1"})
    own = {
        "listener.name.in.plain.sasl.jaas.config": SECRET,
        "listener.name.in.ssl.key.password": SECRET,
        "somebody.elses.token": SECRET,
        "log.cleaner.threads": "7",
    }
    fixture.hosted.image = MetadataImage(configs={(RESOURCE_BROKER, "1"): own, (RESOURCE_BROKER, ""): own})
    for broker in ("1", ""):
        text = logged_by(fixture, broker)
        assert SECRET.encode() not in text
        assert b"\x027" in text, "what is no secret is told"


# ---------------------------------------------------------------- classes named in settings

LDAP = 'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://10.0.0.7/x"'
MODULES = [
    f"{LDAP};",
    'com.sun.security.auth.module.LdapLoginModule required userProvider="ldap://10.0.0.7/x";',
    "com.sun.security.auth.module.KeyStoreLoginModule required keyStoreURL=file:///etc/passwd;",
]


def listener_settings(**more: str) -> dict[str, str]:
    return {"sasl.enabled.mechanisms": "PLAIN", **{k.replace("_", "."): v for k, v in more.items()}}


@pytest.mark.parametrize("line", MODULES)
def test_login_module_name_loads_no_code(line: str) -> None:
    """CVE-2023-25194, CVE-2025-27818, CVE-2025-27819: modules that look names up executed data of a server.

    Without users of PLAIN the node does not start. With users beside the module, they alone count.
    """
    values = listener_settings(listener_name_in_plain_sasl_jaas_config=line)
    assert [key for key, _ in find_listener_problems(values, {"IN": "SASL_PLAINTEXT"})] == [
        "listener.name.in.plain.sasl.jaas.config"
    ]
    beside = line.removesuffix(";") + ' user_alice="alice-secret";'
    security = build_listener_security(
        listener_settings(listener_name_in_plain_sasl_jaas_config=beside), "IN", "SASL_PLAINTEXT", lambda *_: None
    )
    assert security is not None
    assert security.plain_digests is not None
    assert list(security.plain_digests) == ["alice"]


@pytest.mark.parametrize("handler", ["my.own.Handler", "", "os.system", "org.apache.kafka.common.security.plain.Plain"])
def test_callback_handler_must_be_a_known_class(handler: str) -> None:
    """CVE-2025-27818: the class of a handler is compared with known names, and never loaded."""
    values = listener_settings(sasl_enabled_mechanisms="OAUTHBEARER")
    values["listener.name.in.oauthbearer.sasl.server.callback.handler.class"] = handler
    assert [key for key, _ in find_listener_problems(values, {"IN": "SASL_PLAINTEXT"})] == [
        "listener.name.in.oauthbearer.sasl.server.callback.handler.class"
    ]


# ---------------------------------------------------------------- buffers


def of_both(number: int) -> bytes:
    """Return a value that contains its destination; sizes vary, so that the buffer grows, moves and shrinks."""
    return f"topic-{number % 7}/{number}:".encode() * (1 + number * number % 3_000)


@pytest.mark.parametrize("most", [97, 4_096, 2**31])
def test_produced_bytes_never_reach_another_partition(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """CVE-2026-35554: a buffer that was reused too early sent a client's bytes to another topic.

    Here it is the server's own: a request lies in the receive buffer while it waits, and more bytes arrive meanwhile.
    """
    fixture, line, kept = (
        DispatcherFixture(monkeypatch),
        ClientStream(),
        list[tuple[str, int, bytes]](),
    )
    line.most_bytes = most

    async def keep(row: TopicProduceData) -> ProduceResponse:
        part = row.partition_data[0]
        await trio.sleep(part.index % 3)
        assert part.records is not None
        kept.append((row.name, part.index, bytes(part.records)))
        return ProduceResponse()

    fixture.serve(ApiKey.PRODUCE, lambda context, request: job_of(keep(request.topic_data[0])), 3, 9)

    def request_frame(number: int) -> bytes:
        data = TopicProduceData(f"topic-{number % 7}", partition_data=[PartitionProduceData(number, of_both(number))])
        return frame(ApiKey.PRODUCE, 9, number, ProduceRequest(None, -1, 1000, [data]))

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fixture.connection(line).serve)
            for number in range(150):
                line.send_bytes(request_frame(number))
                if number % 10 == 0:
                    await trio.sleep(1.5)
            line.disconnect()

    in_virtual_time(run)
    assert kept == [(f"topic-{n % 7}", n, of_both(n)) for n in range(150)]


# ---------------------------------------------------------------- pushed metrics


@pytest.mark.parametrize("codec", [x for x in CompressionType if x is not CompressionType.NONE])
def test_pushed_metrics_decompression_is_bounded(codec: CompressionType) -> None:
    """CVE-2026-111073: any client may push metrics, and they were decompressed without a limit."""
    node, packed = Pushing(a=A), bytes(compress(codec, b"\xff" * (16 << 20)))
    ident = node.ask().subscription_id
    node.clock.ms += 1
    tracemalloc.start()
    code = node.push(ident, packed, codec)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert code is ErrorCode.INVALID_RECORD
    assert peak < 4 * MOST
