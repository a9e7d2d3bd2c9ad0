"""``ottla kafka-get-offsets``: the tool ``kafka-get-offsets.sh``, which prints an offset of each partition.

Source: ``GetOffsetShell`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence

from ottla.cli.arguments import parse_integer
from ottla.cli.kafka_tools.java_errors import java_text
from ottla.cli.kafka_tools.tool_options import FailureFormat, ToolFailed, ToolOptions, compile_regex, has, run_tool
from ottla.client.cluster_client import ClusterClient
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

TEXT = "An interactive shell for getting topic-partition offsets."
FAILURES = FailureFormat("Error occurred: ", has_class=True, to_stderr=True)
SPECS = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
"""Special timestamps of ListOffsets by their names."""
TIME_FORMS = " / ".join(f"{number} or {name}" for name, number in SPECS.items())
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
NO_LIMIT = 2**31 - 1
TopicPartitionKey = tuple[str, int]


class PartitionRule:
    """Condition that selects topics, and partitions of a selected topic.

    Args:
        topics: regular expression that a topic name must match as a whole; a comma stands for ``|``.
        allows: function that returns True for the number of a selected partition.

    Raises:
        ToolFailed: the regular expression is invalid.
    """

    def __init__(self, topics: str, allows: Callable[[int], bool]) -> None:
        pattern = re.sub(r"^[\"']+|[\"']+$", "", topics.strip().replace(",", "|").replace(" ", ""))
        self.allows_topic = compile_regex(pattern).fullmatch
        self.allows_partition = allows


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-get-offsets", TEXT)
    out.connection()
    out.option("topic-partitions", "Patterns separated by commas: topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3.")
    out.option("topic", "The topic to get the offsets for, or a regular expression; all topics by default.")
    out.option("partitions", "Partition ids separated by commas; all by default.")
    out.option("time", f"Timestamp of the offsets: {TIME_FORMS} (default: latest).")
    out.flag("exclude-internal-topics", "Leave internal topics out.")
    return out


def _timestamp(text: str) -> int:
    if text in SPECS:
        return SPECS[text]
    number = parse_integer(text)
    if number is None:
        raise ToolFailed(
            f"Malformed time argument {text}. Please use {TIME_FORMS}, or a specified long format timestamp"
        )
    return number


def _rule(text: str) -> PartitionRule:
    """Return the condition of one pattern of ``--topic-partitions``; the range ``topic:0-3`` excludes partition 3.

    Raises:
        ToolFailed: the pattern is malformed.
    """
    found = _RULE.fullmatch(text)
    if found is None:
        raise ToolFailed(f"org.apache.kafka.tools.TerseException: Invalid rule specification: {text}")
    topics, only, low, high = found.groups()
    if only:
        return PartitionRule(topics or ".*", lambda number: number == int(only))
    return PartitionRule(topics or ".*", lambda number: int(low or 0) <= number < int(high or NO_LIMIT))


def _rules(options: argparse.Namespace) -> list[PartitionRule]:
    if has(options, "topic-partitions"):
        return [_rule(text) for text in options.topic_partitions.split(",")]
    texts = options.partitions.split(",") if options.partitions else []
    numbers = [parse_integer(text) for text in texts]
    if None in numbers:
        raise ToolFailed(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {options.partitions}"
        )
    return [PartitionRule(options.topic or ".*", lambda number: not numbers or number in numbers)]


async def _offsets(
    client: ClusterClient, partitions: Sequence[TopicPartitionKey], timestamp: int
) -> Mapping[TopicPartitionKey, int]:
    """Return the offset of each partition for a timestamp or special timestamp of ListOffsets.

    Partitions without such an offset are left out, as are those with an error, which is printed on standard error.
    """
    out: dict[TopicPartitionKey, int] = {}
    for at in partitions:
        try:
            channel = await client.leader(*at)
            rows = [ListOffsetsPartition(at[1], timestamp=timestamp)]
            answer = await channel.call(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(at[0], rows)]))
            row = answer.topics[0].partitions[0]
            if row.error_code:
                raise ProtocolError(ErrorCode(row.error_code))
        except ProtocolError as error:
            print(
                f"Skip getting offsets for topic-partition {at[0]}-{at[1]} due to error: {java_text(error)}",
                file=sys.stderr,
            )
            continue
        if row.offset >= 0:
            out[at] = row.offset
    return out


async def _get_offsets(client: ClusterClient, options: argparse.Namespace) -> None:
    if has(options, "topic-partitions") and (has(options, "topic") or has(options, "partitions")):
        raise ToolFailed("--topic-partitions cannot be used with --topic or --partitions")
    timestamp, rules = _timestamp(options.time or "latest"), _rules(options)
    chosen = [
        (topic.name or "", row.partition_index)
        for topic in (await client.metadata(None)).topics
        if not (topic.is_internal and options.exclude_internal_topics)
        for row in topic.partitions
        if any(rule.allows_topic(topic.name or "") and rule.allows_partition(row.partition_index) for rule in rules)
    ]
    if not chosen:
        raise ToolFailed("Could not match any topic-partitions with the specified filters")
    offsets = await _offsets(client, chosen, timestamp)
    for topic, number in sorted(offsets, key=lambda at: f"{at[0]}-{at[1]}"):
        print(topic, number, offsets[topic, number], sep=":")


def run(arguments: list[str]) -> int:
    """Run ``kafka-get-offsets``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    The status is 0 also if partitions are skipped for an error, which is printed to standard error.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    parser.error_prefix = "Error occurred: "
    options = parser.parse(arguments)
    parser.require(options, "bootstrap-server")
    parser.check_bootstrap(options)
    return run_tool(options, lambda client: _get_offsets(client, options), FAILURES)
