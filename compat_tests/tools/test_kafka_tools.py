"""``ottla kafka-*`` beside Kafka's tools on one node: the same output, exit status and error text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until
from compat_tests.tools.kafka_tool_runs import SCRIPTS, SIDES, ToolPair, differences, load_script
from compat_tests.tools.tool_files import copy_logs, write_files
from ottla.runtime.blocking_env import BlockingEnv
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import describe_quorum, streams_group_heartbeat
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.record_batch.batch_header import TRANSACTIONAL_BIT
from ottla.wire.record_batch.records import NewRecord, build_batch

pytestmark = pytest.mark.xdist_group(__name__)
KEEP = {"retention.ms": "-1"}
"""Settings of topics whose records have old timestamps."""
SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
    "group_share_max_session_timeout_ms": "600000",
    "group_share_session_timeout_ms": "600000",
    "group_streams_max_session_timeout_ms": "600000",
    "group_streams_session_timeout_ms": "600000",
    "transaction_partition_verification_enable": "false",
}
"""Settings of the node: members of share and streams groups remain until the tests end, and a transaction may hang."""
HANGING_ID = 77_000
"""Producer id of a transaction that no coordinator knows of."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_kafka_tools_script_prints_the_output_of_kafkas_tools(name: str, tools: ToolPair) -> None:
    found = differences(tools, load_script(name))
    assert not found, "\n".join(found)


def _consumer(node: OttlaProcess, group: str, **settings: str) -> Consumer:
    return Consumer({"bootstrap.servers": node.bootstrap, "group.id": group, "client.id": "reader", **settings})


def _prepare(node: OttlaProcess, side: str, stack: ExitStack) -> None:
    """Create topics, records, committed offsets, and groups with a member: a classic and a consumer group."""
    topic = f"{side}.t"
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.create_topics(
        [NewTopic(topic, 2, config=KEEP), *(NewTopic(f"{side}.{name}", 1) for name in ("u", "open", "hang", "perf"))]
    ).values():
        future.result(120)
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 1})
    for number in range(6):
        producer.produce(topic, f"v{number}", f"k{number}", number % 2, timestamp=1_600_000_000_000 + number)
    producer.flush(120)
    for group in ("g", "h", "i"):
        reader = _consumer(node, f"{side}-{group}")
        reader.commit(offsets=[TopicPartition(topic, 0, 2), TopicPartition(topic, 1, 3)], asynchronous=False)
        reader.close()
    for group, protocol in (("live", "classic"), ("new", "consumer")):
        settings = {"group.protocol": protocol, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        reader = _consumer(node, f"{side}-{group}", **settings)
        stack.callback(reader.close)
        reader.subscribe([topic])
        for _ in range(3000):
            if (message := reader.poll(0.1)) is not None and not message.error():
                break
        reader.commit(offsets=[TopicPartition(topic, 1, 1)], asynchronous=False)
    sharer = ShareConsumer({"bootstrap.servers": node.bootstrap, "group.id": f"{side}-sharing", "client.id": "sharer"})
    stack.callback(sharer.close)
    sharer.subscribe([topic])
    for _ in range(100):
        if _has_member(node.port, f"{side}-sharing", sharer):
            break
    _open_transactions(node, side, stack)
    _join_streams_group(node.port, f"{side}-app", topic, leaves=False)
    for group in ("left", "gone"):
        _join_streams_group(node.port, f"{side}-{group}", topic, leaves=True)
        reader = _consumer(node, f"{side}-{group}")
        reader.commit(offsets=[TopicPartition(topic, 0, 1), TopicPartition(topic, 1, 2)], asynchronous=False)
        reader.close()


def _join_streams_group(port: int, group: str, topic: str, *, leaves: bool) -> None:
    """Make a streams group of a topology with an internal topic, whose member remains or leaves."""
    peer = RawClient(port)
    changelog = streams_group_heartbeat.TopicInfo(f"{group}-store-changelog")
    topology = streams_group_heartbeat.Topology(
        0, [streams_group_heartbeat.Subtopology("0", [topic], state_changelog_topics=[changelog])]
    )
    request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(
        group, "m", 0, rebalance_timeout_ms=30_000, topology=topology
    )
    request.process_id, request.active_tasks, request.standby_tasks, request.warmup_tasks = "p", [], [], []

    def has_tasks() -> bool:
        nonlocal request
        answer = peer.call(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, request)
        if answer.error_code or answer.active_tasks:
            return bool(answer.active_tasks)
        request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(group, "m", answer.member_epoch)
        return False

    wait_until(has_tasks)
    if leaves:
        peer.call(
            ApiKey.STREAMS_GROUP_HEARTBEAT, 0, streams_group_heartbeat.StreamsGroupHeartbeatRequest(group, "m", -1)
        )


def _has_member(port: int, group: str, sharer: ShareConsumer) -> bool:
    """Poll, and return True if the share group has a member with an assignment."""
    sharer.poll(0.1)
    request = ShareGroupDescribeRequest([group])
    answer = RawClient(port).call(ApiKey.SHARE_GROUP_DESCRIBE, 1, request)
    return any(member.assignment.topic_partitions for member in answer.groups[0].members)


def _open_transactions(node: OttlaProcess, side: str, stack: ExitStack) -> None:
    """Leave a transaction open, and one of a producer id that no coordinator knows of."""
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "transactional.id": f"{side}-open", "transaction.timeout.ms": 900_000}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(f"{side}.open", "open")
    producer.flush(60)
    stack.callback(producer.purge)
    record = NewRecord(None, b"hanging", BlockingEnv().now_ms() - 60_000)
    batch = build_batch(
        [record], attributes=TRANSACTIONAL_BIT, producer_id=HANGING_ID, producer_epoch=0, base_sequence=0
    )
    data = TopicProduceData(f"{side}.hang", partition_data=[PartitionProduceData(0, batch)])
    answer = RawClient(node.port).call(ApiKey.PRODUCE, 9, ProduceRequest(f"{side}-hang", -1, 10_000, [data]))
    assert not answer.responses[0].partition_responses[0].error_code, answer


def _controller_port(node: OttlaProcess) -> int:
    """Return the port of the node's controller."""
    topics = [
        describe_quorum.DescribeQuorumRequestTopicData(
            "__cluster_metadata", [describe_quorum.DescribeQuorumRequestPartitionData(0)]
        )
    ]
    answer = RawClient(node.port).call(ApiKey.DESCRIBE_QUORUM, 2, describe_quorum.DescribeQuorumRequest(topics))
    return int(answer.nodes[0].listeners[0].port)


def prepared(node: OttlaProcess, folder: Path, stack: ExitStack) -> ToolPair:
    """Return both implementations of the tools, for a node with topics, records and groups of each side."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "tx"})
    for side in SIDES:
        _prepare(node, side, stack)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("transactions", "in a transaction")
    producer.commit_transaction(60)
    write_files(folder, node.data_dir)
    controller = f"--bootstrap-controller 127.0.0.1:{_controller_port(node)}"
    pair = ToolPair(node.port, folder=str(folder), ctl=controller, **copy_logs(node.data_dir, folder))
    stack.callback(pair.close)
    return pair


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    with OttlaProcess(tmp_path_factory.mktemp("node") / "data", **SETTINGS) as process:
        yield process


@pytest.fixture(scope="module")
def tools(node: OttlaProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolPair]:
    with ExitStack() as stack:
        yield prepared(node, tmp_path_factory.mktemp("tools"), stack)
