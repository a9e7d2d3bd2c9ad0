"""``ottla kafka-*`` beside Kafka's tools on one node: the same output, exit status and error text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.support.processes import OttlaProcess
from compat_tests.tools.kafka_tool_runs import SCRIPTS, SIDES, ToolPair, differences, load_script

pytestmark = pytest.mark.xdist_group(__name__)
KEEP = {"retention.ms": "-1"}
"""Settings of topics whose records have old timestamps."""
SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
"""Settings of the node."""
FILES = {
    "list.json": "[1]",
    "empty.json": "{}",
    "field.json": '{"partitions": [{"topic": "a", "partition": 0}]}',
    "type.json": '{"partitions": [{"topic": "a", "partition": "x", "offset": 0}]}',
}
"""Files in the folder of a script."""
_ROW = '{"topic": "SIDE.%s", "partition": %d, "offset": %d}'
_ROWS = '{"partitions": [%s, %s]}'
SIDE_FILES = {
    ".properties": "retention.bytes = 5000\nsegment.bytes:2000000\n",
    ".csv": "SIDE.t,0,1\nSIDE.t,1,99\n",
    ".client": "client.id=x\n",
    ".delete.json": _ROWS % (_ROW % ("u", 0, 0), _ROW % ("t", 0, 999)),
    ".twice.json": _ROWS % (_ROW % ("u", 0, 0), _ROW % ("u", 0, 1)),
    ".elect.json": _ROWS % (_ROW % ("t", 0, 0), _ROW % ("t", 1, 0)),
}
"""Files of each side, by the ends of their names; SIDE stands for its first word."""


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
    for future in admin.create_topics([NewTopic(topic, 2, config=KEEP), NewTopic(f"{side}.u", 1)]).values():
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
        reader = _consumer(node, f"{side}-{group}", **{"group.protocol": protocol, "auto.offset.reset": "earliest"})
        stack.callback(reader.close)
        reader.subscribe([topic])
        while (message := reader.poll(0.1)) is None or message.error():
            pass
        reader.commit(asynchronous=False)


def prepared(node: OttlaProcess, folder: Path, stack: ExitStack) -> ToolPair:
    """Return both implementations of the tools, for a node with topics, records and groups of each side."""
    pair = ToolPair(node.port, folder=str(folder))
    stack.callback(pair.close)
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "tx"})
    for side in SIDES:
        _prepare(node, side, stack)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("transactions", "in a transaction")
    producer.commit_transaction(60)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for side in SIDES:
        for name, text in SIDE_FILES.items():
            (folder / f"{side}{name}").write_text(text.replace("SIDE", side))
    return pair


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    with OttlaProcess(tmp_path_factory.mktemp("node") / "data", **SETTINGS) as process:
        yield process


@pytest.fixture(scope="module")
def tools(node: OttlaProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolPair]:
    with ExitStack() as stack:
        yield prepared(node, tmp_path_factory.mktemp("tools"), stack)
