"""Three data directories of an Apache Kafka cluster, used by three nodes of Ottla and then by Kafka again."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from compat_tests.cluster.test_mixed_cluster import CLUSTER_ID
from compat_tests.cluster.test_three_nodes import (
    WITHIN_S,
    OttlaFromFile,
    all_in_sync,
    combined_nodes,
    make_topic,
    read,
    running_nodes,
    wait_for,
)
from compat_tests.support.jars import classpath, jars

GROUP = "kept"


class KafkaFromFile(OttlaFromFile):
    """Apache Kafka, started with the same file."""

    def command(self) -> list[str]:
        """Return the command line."""
        return ["java", "-Xmx300m", "-cp", classpath(), "kafka.Kafka", str(self.file)]

    def stop(self) -> int:
        """Stop by SIGTERM. The last node of a cluster waits five minutes for a controller, so it is killed earlier."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()
            return 0


def to_kafka_nodes(nodes: list[OttlaFromFile]) -> list[OttlaFromFile]:
    """Return Kafka nodes with the same files, in directories that Kafka's tool has formatted."""
    jars("kafka")
    for node in nodes:
        shutil.rmtree(node.data_dir)
        tool = ["java", "-cp", classpath(), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID]
        subprocess.run([*tool, "-c", str(node.file)], check=True, capture_output=True)
    return [KafkaFromFile(node.file, node.data_dir, node.port) for node in nodes]


def write(bootstrap: str, topic: str, numbers: range) -> None:
    """Write records to all in-sync replicas."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    refused: list[object] = []
    for number in numbers:
        producer.produce(
            topic, str(number).encode(), str(number % 7).encode(), on_delivery=lambda e, _: e and refused.append(e)
        )
    assert producer.flush(WITHIN_S) == 0
    assert refused == []


def commit(bootstrap: str, topic: str, offset: int) -> None:
    """Commit an offset of the group; retry while its coordinator is loading."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})

    def is_committed() -> bool:
        with contextlib.suppress(KafkaException):
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
            return True
        return False

    wait_for(is_committed)
    consumer.close()


def committed(bootstrap: str, topic: str) -> int:
    """Return the committed offset of the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})

    def found() -> list[TopicPartition] | None:
        with contextlib.suppress(KafkaException):  # the coordinator may not have the new metadata yet
            return list(consumer.committed([TopicPartition(topic, 0)], WITHIN_S))
        return None

    (place,) = wait_for(found)
    consumer.close()
    return int(place.offset)


TOPIC_SETTING, NODE_SETTING = ("retention.ms", "864000001"), ("log.cleaner.threads", "2")


def has_settings(bootstrap: str, topic: str) -> bool:
    """Return True when the settings of a topic and of a node have their values."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    about = (ConfigResource(ResourceType.TOPIC, topic), ConfigResource(ResourceType.BROKER, "1"))
    reported = [admin.describe_configs([each])[each].result(WITHIN_S) for each in about]
    return all(
        row[name].value == value for row, (name, value) in zip(reported, (TOPIC_SETTING, NODE_SETTING), strict=True)
    )


def alter_settings(bootstrap: str, topic: str) -> None:
    """Set the settings of a topic and of a node."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for kind, name, (key, value) in (
        (ResourceType.TOPIC, topic, TOPIC_SETTING),
        (ResourceType.BROKER, "1", NODE_SETTING),
    ):
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        (done,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]).values()
        done.result(WITHIN_S)


@pytest.mark.xdist_group("three-kafkas")
def test_data_directories_of_kafka_used_by_ottla_and_back_keep_all_data(tmp_path: Path) -> None:
    ours = combined_nodes(tmp_path)
    theirs = to_kafka_nodes(ours)
    bootstrap = ",".join(node.bootstrap for node in ours)
    with running_nodes(theirs):
        make_topic(bootstrap, "t")
        write(bootstrap, "t", range(1000))
        commit(bootstrap, "t", 11)
        alter_settings(bootstrap, "t")
    for nodes, known in ((ours, 1000), (theirs, 1500), (ours, 2000)):
        with running_nodes(nodes):
            wait_for(lambda: all_in_sync(bootstrap, "t"))
            assert sorted(read(bootstrap, "t", known)) == list(range(known))
            assert committed(bootstrap, "t") == known // 500 + 9
            wait_for(lambda: has_settings(bootstrap, "t"))
            write(bootstrap, "t", range(known, known + 500))
            commit(bootstrap, "t", known // 500 + 10)
