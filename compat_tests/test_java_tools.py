"""Kafka's own console tools against a node."""

from __future__ import annotations

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
