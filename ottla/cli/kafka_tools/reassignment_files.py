"""JSON files of ``kafka-reassign-partitions``: topics to move, and target replicas and log directories."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cli.kafka_tools.partition_files import field_value, json_object, json_objects
from ottla.cli.kafka_tools.tool_options import ToolFailed, java_integer
from ottla.controller.partitions.reassignment_plan import PlannedPartition

ANY_LOG_DIR = "any"
VERSION = 1
_INVALID = "The input string is not a valid JSON"


class PartitionReplica(NamedTuple):
    """Replica of a partition on a broker; the fields are in the order in which Kafka's tool sorts replicas."""

    broker: int
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker}"


class ReassignmentFile(NamedTuple):
    """Content of a reassignment file.

    Attributes:
        partitions: target replicas of each row; a partition may occur in several rows.
        log_dirs: target log directory of each replica for which the file names one.
    """

    partitions: list[tuple[PlannedPartition, list[int]]]
    log_dirs: dict[PartitionReplica, str]


def partition_text(partition: PlannedPartition) -> str:
    """Return ``TOPIC-PARTITION``."""
    return f"{partition[0]}-{partition[1]}"


def numbers(ids: Iterable[int]) -> str:
    """Return ids separated by commas."""
    return ",".join(map(str, ids))


def _content(path: str) -> dict[str, Any]:
    """Return the JSON object in the file at ``path``; its version must be 1, which is the default.

    Raises:
        ToolFailed: the file cannot be read, or has other content.
    """
    try:
        with open(path, "rb") as file:
            content = json_object(json.loads(file.read()))
    except OSError:
        raise ToolFailed(f"Unable to read file {path}") from None
    except (ValueError, RecursionError):  # the latter: deeply nested
        raise ToolFailed(_INVALID) from None
    version = field_value(content, "version") if "version" in content else VERSION
    if version != VERSION:
        raise ToolFailed(f"Not supported version field value {version}")
    return content


def read_topics(path: str) -> list[str]:
    """Return the topics of a file ``{"topics": [{"topic": "foo"}], "version": 1}``.

    Raises:
        ToolFailed: the file cannot be read, is malformed, or has a topic twice.
    """
    content = _content(path)
    topics = [field_value(row, "topic") for row in json_objects(content.get("topics", []))]
    if twice := _duplicates(topics):
        raise ToolFailed(f"List of topics to reassign contains duplicate entries: [{', '.join(twice)}]")
    return topics


def parse_brokers(text: str) -> list[int]:
    """Return the broker ids of ``--broker-list``, in its order.

    Raises:
        ToolFailed: an id is no number, or occurs twice.
    """
    out = []
    for word in text.split(","):
        try:
            out.append(java_integer(word))
        except ValueError:
            raise ToolFailed(f'For input string: "{word}"') from None
    if twice := _duplicates(out):
        raise ToolFailed(f"Broker list contains duplicate entries: [{', '.join(map(str, twice))}]")
    return out


def read_reassignments(path: str) -> ReassignmentFile:
    """Return the content of a reassignment file; its partitions are not checked for duplicates.

    Raises:
        ToolFailed: the file cannot be read or is malformed.
    """
    content = _content(path)
    out = ReassignmentFile([], {})
    for row in json_objects(content.get("partitions", [])):
        topic, partition = field_value(row, "topic"), field_value(row, "partition")
        replicas: list[int] = field_value(row, "replicas")
        log_dirs = field_value(row, "log_dirs") if "log_dirs" in row else [ANY_LOG_DIR] * len(replicas)
        if len(log_dirs) != len(replicas):
            raise ToolFailed(
                f"Size of replicas list {replicas} is different from size of log dirs list [{', '.join(log_dirs)}] "
                f"for partition {topic}-{partition}"
            )
        out.partitions.append(((topic, partition), replicas))
        named = zip(replicas, log_dirs, strict=True)
        out.log_dirs.update(
            {PartitionReplica(broker, topic, partition): path for broker, path in named if path != ANY_LOG_DIR}
        )
    return out


def check_targets(partitions: Sequence[tuple[PlannedPartition, list[int]]]) -> None:
    """Check that there are partitions, and that each occurs once and has replicas on different brokers.

    Raises:
        ToolFailed: the check fails.
    """
    if not partitions:
        raise ToolFailed("Partition reassignment list cannot be empty")
    if not all(replicas for _, replicas in partitions):
        raise ToolFailed("Partition replica list cannot be empty")
    if twice := _duplicates(partition for partition, _ in partitions):
        shown = ",".join(map(partition_text, twice))
        raise ToolFailed(f"Partition reassignment contains duplicate topic partitions: {shown}")
    found = [
        f"{partition_text(partition)} contains multiple entries for {numbers(twice)}"
        for partition, replicas in partitions
        if (twice := _duplicates(replicas))
    ]
    if found:
        raise ToolFailed(f"Partition replica lists may not contain duplicate entries: {'. '.join(found)}")


def _duplicates(items: Iterable[Any]) -> list[Any]:
    return sorted(item for item, count in Counter(items).items() if count > 1)


def assignment_json(
    partitions: Mapping[PlannedPartition, Sequence[int]], log_dirs: Mapping[PartitionReplica, str]
) -> str:
    """Return the content of a reassignment file with these replicas; a replica without log directory gets ``any``."""
    rows = [
        {
            "topic": topic,
            "partition": number,
            "replicas": list(replicas),
            "log_dirs": [log_dirs.get(PartitionReplica(broker, topic, number), ANY_LOG_DIR) for broker in replicas],
        }
        for (topic, number), replicas in sorted(partitions.items())
    ]
    return json.dumps({"version": VERSION, "partitions": rows}, separators=(",", ":"), ensure_ascii=False)
