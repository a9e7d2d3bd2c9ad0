"""Kafka's console tools against a node."""

from __future__ import annotations

import json
import time
from pathlib import Path

from confluent_kafka import Producer

from compat_tests.support.processes import OttlaProcess, java_tool


def test_topic_command_creates_describes_and_deletes_topic(node: OttlaProcess, topic: str) -> None:
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


def test_console_producer_and_consumer_with_every_codec_transfer_all_records(node: OttlaProcess, topic: str) -> None:
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


def test_offset_and_api_version_tools_print_offsets_and_versions(node: OttlaProcess, topic: str) -> None:
    at = ["--bootstrap-server", node.bootstrap]
    java_tool("ConsoleProducer", *at, "--topic", topic, stdin="a\nb\nc\n")
    assert java_tool("GetOffsetShell", *at, "--topic", topic).strip() == f"{topic}:0:3"
    versions = java_tool("BrokerApiVersionsCommand", *at)
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "Fetch(1): 4 to 18 [usable: 18]" in versions


def test_performance_tools_produce_and_consume_all_records(node: OttlaProcess, topic: str) -> None:
    java_tool(
        "ProducerPerformance",
        *("--bootstrap-server", node.bootstrap, "--topic", topic),
        *("--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
    )
    text = java_tool(
        "ConsumerPerformance", "--bootstrap-server", node.bootstrap, "--topic", topic, "--num-records", "20000"
    )
    assert ", 20000, " in text


def test_consumer_group_command_resets_offsets_and_deletes_group(node: OttlaProcess, topic: str) -> None:
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


def test_delete_records_command_moves_log_start_offset(node: OttlaProcess, topic: str, tmp_path: Path) -> None:
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


def offsets_after(command: list[str], *options: str) -> list[int]:
    """Reset the offsets of a group; return the new ones by partition."""
    text = java_tool(*command, "--reset-offsets", *options, "--execute")
    rows = [line.split() for line in text.split("\n")]
    return [int(row[3]) for row in rows if len(row) == 4 and row[2].isdigit()]


def test_consumer_group_command_with_each_reset_option_sets_offset(
    node: OttlaProcess, topic: str, tmp_path: Path
) -> None:
    base = time.time_ns() // 10**9 * 1000 - 3_600_000
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for i in range(10):
        producer.produce(topic, b"v%d" % i, partition=0, timestamp=base + 60_000 * i)
    assert producer.flush(120) == 0
    group = f"reset-{topic}"
    at = ["--bootstrap-server", node.bootstrap]
    command = ["consumer.group.ConsumerGroupCommand", *at, "--group", group]
    one = ["--topic", topic]
    when = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime((base + 300_000) / 1000))
    for options, wanted in (
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "4"], 4),
        (["--shift-by", "3"], 7),
        (["--shift-by", "-100"], 0),
        (["--to-datetime", when], 5),
        (["--by-duration", "PT0H30M0S"], 10),
        (["--to-current"], 10),
    ):
        assert offsets_after(command, *one, *options) == [wanted], options
    plan = tmp_path / "plan.csv"
    plan.write_text(f'"{topic}",0,6\n')
    assert offsets_after(command, "--from-file", str(plan)) == [6]
    exported = java_tool(*command, "--reset-offsets", *one, "--to-earliest", "--dry-run", "--export")
    assert f"{topic},0,0" in exported
    assert offsets_after(command, "--all-topics", "--to-latest") == [10]
    assert "Stable" not in java_tool(*command, "--describe", "--state")
    assert group in java_tool("consumer.group.ConsumerGroupCommand", *at, "--list", "--state")


def test_cluster_quorum_and_feature_tools_print_state(node: OttlaProcess) -> None:
    at = ["--bootstrap-server", node.bootstrap]
    assert java_tool("ClusterTool", "cluster-id", *at).startswith("Cluster ID: ")
    assert "127.0.0.1" in java_tool("ClusterTool", "list-endpoints", *at)
    quorum = java_tool("MetadataQuorumCommand", *at, "describe", "--status")
    assert "LeaderId:               1" in quorum
    assert "MaxFollowerLag:         0" in quorum
    replicas = java_tool("MetadataQuorumCommand", *at, "describe", "--replication")
    assert "Leader" in replicas
    features = java_tool("FeatureCommand", *at, "describe")
    assert "metadata.version" in features
    assert "4.3-IV0" in features
    java_tool("FeatureCommand", *at, "downgrade", "--feature", "transaction.version=1")
    assert "FinalizedVersionLevel: 1" in next(
        line for line in java_tool("FeatureCommand", *at, "describe").split("\n") if "transaction.version" in line
    )
    java_tool("FeatureCommand", *at, "upgrade", "--feature", "transaction.version=2")


def test_config_command_alters_topic_and_broker_configs_at_run_time(node: OttlaProcess, topic: str) -> None:
    at = ["--bootstrap-server", node.bootstrap]
    java_tool("TopicCommand", *at, "--create", "--topic", topic)

    def configs(*options: str) -> str:
        return java_tool("kafka.admin.ConfigCommand", *at, *options)

    of_topic = ["--entity-type", "topics", "--entity-name", topic]
    configs(*of_topic, "--alter", "--add-config", "max.message.bytes=500,cleanup.policy=[compact,delete]")
    assert "cleanup.policy=compact,delete" in configs(*of_topic, "--describe")
    configs(*of_topic, "--alter", "--delete-config", "max.message.bytes")
    configs("--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "message.max.bytes=700")
    assert "max.message.bytes=700" in configs(*of_topic, "--describe", "--all")
    producer = Producer({"bootstrap.servers": node.bootstrap})
    errors: list[str] = []
    producer.produce(topic, b"x" * 2000, b"k", on_delivery=lambda e, _: errors.append(e.name()))
    producer.flush(120)
    assert errors == ["MSG_SIZE_TOO_LARGE"], "a setting of the broker acts at once"
    configs("--entity-type", "brokers", "--entity-default", "--alter", "--delete-config", "message.max.bytes")
    producer.produce(topic, b"x" * 2000, b"k", on_delivery=lambda e, _: errors.append(str(e)))
    producer.flush(120)
    assert errors[1:] == ["None"]


def test_verifiable_clients_consume_all_produced_records(node: OttlaProcess, topic: str) -> None:
    at = ["--bootstrap-server", node.bootstrap, "--topic", topic]
    produced = [json.loads(x) for x in java_tool("VerifiableProducer", *at, "--max-messages", "200").splitlines()]
    assert produced[-1]["acked"] == 200
    group = ["--group-id", f"verify-{topic}", "--max-messages", "200"]
    share = ["--group-id", f"share-{topic}", "--max-messages", "200", "--offset-reset-strategy", "earliest"]
    for tool, more in (
        ("VerifiableConsumer", [*group, "--reset-policy", "earliest"]),
        ("VerifiableConsumer", [*group, "--reset-policy", "earliest", "--group-protocol", "consumer"]),
        ("VerifiableShareConsumer", [*share, "--acknowledgement-mode", "sync"]),
    ):
        more[1] += f"-{len(more)}"
        consumed = java_tool(tool, *at, *more)
        counts = [json.loads(x) for x in consumed.splitlines() if '"records_consumed"' in x]
        assert sum(c["count"] for c in counts) == 200, (tool, more)


def test_config_command_describes_sets_and_deletes_logger_levels(node: OttlaProcess) -> None:
    at = ["--bootstrap-server", node.bootstrap, "--entity-type", "broker-loggers", "--entity-name", "1"]
    java_tool("kafka.admin.ConfigCommand", *at, "--alter", "--add-config", "ottla.txn=TRACE,ottla.isr=ERROR")
    java_tool("kafka.admin.ConfigCommand", *at, "--alter", "--delete-config", "ottla.isr")
    described = java_tool("kafka.admin.ConfigCommand", *at, "--describe")
    assert "ottla.txn=TRACE" in described
    assert "ottla.isr=INFO" in described
    assert "Updated the log level of ottla.isr to ERROR" in node.log.read_text()
