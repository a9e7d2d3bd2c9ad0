"""Kafka's own console tools against a node."""

from __future__ import annotations

import json
from pathlib import Path

from compat_tests.cluster import OttlaProcess, java_tool


def test_topics_are_made_described_and_deleted(node: OttlaProcess, topic: str) -> None:
    at = ["--bootstrap-server", node.bootstrap]
    java_tool("TopicCommand", *at, "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=5000")
    text = java_tool("TopicCommand", *at, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in text
    assert "retention.ms=5000" in text
    assert text.count("Leader: 1") == 3
    java_tool("TopicCommand", *at, "--alter", "--topic", topic, "--partitions", "4")
    assert topic in java_tool("TopicCommand", *at, "--list").split()
    java_tool("TopicCommand", *at, "--delete", "--topic", topic)
    assert topic not in java_tool("TopicCommand", *at, "--list").split()


def test_console_producer_and_consumer_with_every_codec(node: OttlaProcess, topic: str) -> None:
    sent = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        lines = [f"{codec}-{i}:value of {i}" for i in range(20)]
        sent += [line.split(":")[1] for line in lines]
        java_tool(
            "ConsoleProducer",
            *("--bootstrap-server", node.bootstrap, "--topic", topic),
            *("--compression-codec", codec, "--reader-property", "parse.key=true"),
            *("--reader-property", "key.separator=:", "--request-required-acks", "all"),
            stdin="\n".join(lines) + "\n",
        )
    text = java_tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", node.bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(len(sent)), "--timeout-ms", "30000", "--group", f"java-{topic}"),
    )
    assert sorted(text.split("\n")[:-1]) == sorted(sent)
    described = java_tool(
        "consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", node.bootstrap, "--describe", "--group", f"java-{topic}"),
    )
    row = next(line.split() for line in described.split("\n") if topic in line)
    assert row[3:6] == ["100", "100", "0"]


def test_offsets_and_versions_are_told(node: OttlaProcess, topic: str) -> None:
    at = ["--bootstrap-server", node.bootstrap]
    java_tool("ConsoleProducer", *at, "--topic", topic, stdin="a\nb\nc\n")
    assert java_tool("GetOffsetShell", *at, "--topic", topic).strip() == f"{topic}:0:3"
    versions = java_tool("BrokerApiVersionsCommand", *at)
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "Fetch(1): 4 to 18 [usable: 18]" in versions


def test_the_load_tools_run(node: OttlaProcess, topic: str) -> None:
    java_tool(
        "ProducerPerformance",
        *("--bootstrap-server", node.bootstrap, "--topic", topic),
        *("--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
    )
    text = java_tool(
        "ConsumerPerformance", "--bootstrap-server", node.bootstrap, "--topic", topic, "--num-records", "20000"
    )
    assert ", 20000, " in text


def test_positions_are_reset_and_groups_deleted(node: OttlaProcess, topic: str) -> None:
    at = ["--bootstrap-server", node.bootstrap]
    group = f"java-{topic}"
    java_tool("ConsoleProducer", *at, "--topic", topic, stdin="a\nb\nc\n")
    java_tool(
        "consumer.ConsoleConsumer",
        *(*at, "--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "30000", "--group", group),
    )
    command = ["consumer.group.ConsumerGroupCommand", *at, "--group", group]
    reset = java_tool(*command, "--reset-offsets", "--topic", topic, "--shift-by", "-2", "--execute")
    assert next(line.split() for line in reset.split("\n") if topic in line)[-1] == "1"
    java_tool(*command, "--delete-offsets", "--topic", topic)
    assert group in java_tool("consumer.group.ConsumerGroupCommand", *at, "--list").split()
    java_tool(*command, "--delete")
    assert group not in java_tool("consumer.group.ConsumerGroupCommand", *at, "--list").split()


def test_records_are_deleted_and_stay_deleted(node: OttlaProcess, topic: str, tmp_path: Path) -> None:
    at = ["--bootstrap-server", node.bootstrap]
    java_tool("ConsoleProducer", *at, "--topic", topic, stdin="a\nb\nc\n")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 2}], "version": 1}))
    assert "low_watermark: 2" in java_tool("DeleteRecordsCommand", *at, "--offset-json-file", str(plan))
    assert java_tool("GetOffsetShell", *at, "--topic", topic, "--time", "-2").strip() == f"{topic}:0:2"
    sizes = java_tool("LogDirsCommand", *at, "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in sizes
    text = java_tool(
        "consumer.ConsoleConsumer",
        *(*at, "--topic", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "30000"),
    )
    assert text == "c\n"
