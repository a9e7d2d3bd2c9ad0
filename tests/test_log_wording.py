"""Log lines and errors of events that Kafka logs as well: each has the words of Kafka, so that a search finds both."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

import ottla
from ottla.wire.errors import ErrorCode

PACKAGES = Path(ottla.__file__).parent
"""Folder with links to all packages."""


class LoggedEvent(NamedTuple):
    """Event with the words of Kafka's log line or error (apache/kafka 4.3.1)."""

    words: str
    module: str
    source: str
    """Class of Kafka that has the words."""


EVENTS = (
    LoggedEvent("ISR updated to ", "broker/replication/alter_partition_messages.py", "Partition.scala"),
    LoggedEvent("Failed to update ISR", "broker/replication/alter_partition_messages.py", "Partition.scala"),
    LoggedEvent("is insufficient to satisfy the min.isr", "broker/replication/hosted_partition.py", "Partition.scala"),
    LoggedEvent("Shrinking ISR from ", "broker/replication/alter_partition_messages.py", "Partition.scala"),
    LoggedEvent(" because its session has timed out", "controller/periodic_tasks.py", "ReplicationControlManager.java"),
    LoggedEvent("Fencing broker ", "broker/interbroker/broker_liveness_probe.py", "ReplicationControlManager.java"),
    LoggedEvent("Unable to register broker ", "broker/metadata/broker_lifecycle.py", "BrokerLifecycleManager.java"),
    LoggedEvent("Unable to send a heartbeat", "broker/metadata/broker_lifecycle.py", "BrokerLifecycleManager.java"),
    LoggedEvent("Becoming the active controller", "controller/quorum_controller.py", "QuorumController.java"),
    LoggedEvent("Renouncing the leadership", "controller/quorum_controller.py", "QuorumController.java"),
    LoggedEvent(" below high watermark ", "broker/replication/fetcher/replica_fetcher.py", "UnifiedLog.java"),
    LoggedEvent(
        "Error in response for fetch request",
        "broker/replication/fetcher/replica_fetcher.py",
        "AbstractFetcherThread.scala",
    ),
    LoggedEvent(
        "Error while processing data for partition",
        "broker/replication/fetcher/replica_fetcher.py",
        "AbstractFetcherThread.scala",
    ),
    LoggedEvent("under-replicated-partitions", "cli/kafka_tools/kafka_topics.py", "TopicCommand.java"),
    LoggedEvent("only under-replicated partitions", "cli/kafka_tools/kafka_topics.py", "TopicCommand.java"),
    LoggedEvent("_underreplicatedpartitions", "broker/observability/partition_metrics.py", "ReplicaManager.scala"),
    LoggedEvent(" under-replicated partitions", "console/pages/overview.py", "TopicCommand.java"),
    LoggedEvent("Corruption found in segment ", "log/recovery/log_loader.py", "LogLoader.java"),
    LoggedEvent(", truncating to offset ", "log/recovery/log_loader.py", "LogLoader.java"),
    LoggedEvent("Found a corrupted index file", "log/recovery/log_loader.py", "LogLoader.java"),
    LoggedEvent("as part of log recovery", "log/recovery/log_loader.py", "LogLoader.java"),
    LoggedEvent("because the log directory has failed", "broker/storage/log_dirs.py", "ReplicaManager.scala"),
    LoggedEvent("Stopping serving logs in dir ", "broker/storage/log_dirs.py", "LogManager.scala"),
    LoggedEvent("Found stray log dir ", "broker/replication/replica_manager.py", "LogManager.java"),
    LoggedEvent("is not in the form of ", "broker/replication/replica_manager.py", "LocalLog.java"),
    LoggedEvent("cleaned log ", "broker/storage/log_cleaner.py", "LogCleaner.java"),
    LoggedEvent("as uncleanable", "broker/storage/log_cleaner.py", "LogCleaner.java"),
    LoggedEvent("Failed to load metadata from ", "broker/coordinator/runtime.py", "CoordinatorRuntime.java"),
    LoggedEvent(
        " has permanently failed",
        "broker/transactions/marker_sender.py",
        "TransactionMarkerRequestCompletionHandler.scala",
    ),
    LoggedEvent(
        "Out of order sequence number for producer ",
        "log/producers/producer_state_manager.py",
        "ProducerAppendInfo.java",
    ),
    LoggedEvent(
        "which is smaller than the last seen epoch ",
        "log/producers/producer_state_manager.py",
        "UnifiedLog.java",
    ),
    LoggedEvent(
        "Auto topic creation failed for ", "broker/metadata/controller_forwarder.py", "AutoTopicCreationManager.scala"
    ),
    LoggedEvent("authentication with ", "broker/network/secure_connection.py", "Selector.java"),
    LoggedEvent("SSL handshake failed", "broker/network/secure_connection.py", "SslTransportLayer.java"),
    LoggedEvent(
        "Successfully recovered abandoned future log for ",
        "broker/replication/alter_log_dirs/future_log_recovery.py",
        "LogManager.scala",
    ),
    LoggedEvent(" new KRaft snapshot file ", "controller/snapshot_generator.py", "SnapshotGenerator.java"),
)
ERROR_TEXTS = {
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer in-sync replicas than required",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "fewer in-sync replicas than required",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator is not aware of this member",
    ErrorCode.ILLEGAL_GENERATION: "generation id is not valid",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing, so a rejoin is needed",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "out of order sequence number",
    ErrorCode.PRODUCER_FENCED: "There is a newer producer with the same transactionalId which fences the current one",
    ErrorCode.FENCED_LEADER_EPOCH: "older than the epoch on the broker",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition",
}


def literals(module: Path) -> list[str]:
    """Return the string literals of a module; those of an f-string piece by piece."""
    nodes = ast.walk(ast.parse(module.read_text()))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.words.strip())
def test_log_line_of_event_has_the_words_of_kafka(event: LoggedEvent) -> None:
    assert any(event.words in literal for literal in literals(PACKAGES / event.module))


@pytest.mark.parametrize("code", ERROR_TEXTS, ids=lambda code: code.name)
def test_error_text_has_the_words_of_kafka(code: ErrorCode) -> None:
    assert ERROR_TEXTS[code] in code.text
