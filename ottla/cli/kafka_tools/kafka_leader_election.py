"""``ottla kafka-leader-election``: the tool ``kafka-leader-election.sh``.

Source: ``LeaderElectionCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import sys

from ottla.cli.kafka_tools.java_errors import java_text
from ottla.cli.kafka_tools.partition_files import MAPPING_EXCEPTION, partition_entries, read_json
from ottla.cli.kafka_tools.tool_options import ToolFailed, ToolOptions, has, java_integer, run_tool
from ottla.client.cluster_client import ClusterClient
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import elect_leaders

TEXT = (
    "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are "
    "preferred replicas and unclean replicas."
)
TYPES = {"PREFERRED": 0, "UNCLEAN": 1}
SCOPES = ("topic", "all-topic-partitions", "path-to-json-file")
TIMEOUT_MS = 30_000


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-leader-election", TEXT)
    out.connection()
    out.option("admin.config", "Deprecated: --command-config.")
    out.option("path-to-json-file", 'Partitions: {"partitions": [{"topic": "foo", "partition": 1}]}.')
    out.option("topic", "Name of topic for which to perform an election.")
    out.option("partition", "Partition id for which to perform an election; with --topic.", java_integer)
    out.flag("all-topic-partitions", "Perform elections on all eligible partitions.")
    out.option("election-type", "REQUIRED: preferred or unclean.")
    return out


def _check(parser: ToolOptions, options: argparse.Namespace) -> None:
    """Check the combination of options; print Kafka's error message and exit with status 1 if it is invalid."""
    if options.election_type is not None and options.election_type.upper() not in TYPES:
        parser.error(f"Cannot parse argument '{options.election_type}' of option election-type")
    missing = [name for name in ("bootstrap-server", "election-type") if not has(options, name)]
    if missing:
        parser.error(f"Missing required option(s): {', '.join(missing)}")
    parser.exclude(options, "admin.config", "command-config")
    if sum(has(options, name) for name in SCOPES) != 1:
        parser.error(f"One and only one of the following options is required: {', '.join(SCOPES)}")
    if has(options, "topic") and options.partition is None:
        parser.error("Missing required option(s): partition")
    if not has(options, "topic") and options.partition is not None:
        parser.error("Option partition is only allowed if topic is used")
    if has(options, "admin.config"):
        print(
            "Option --admin.config has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        )
        options.command_config = getattr(options, "admin.config")


def _partitions(options: argparse.Namespace) -> list[elect_leaders.TopicPartitions] | None:
    """Return the partitions that the options or the JSON file name; None for all.

    Raises:
        ToolFailed: the file cannot be read, is malformed, or names a partition twice.
    """
    if has(options, "topic"):
        return [elect_leaders.TopicPartitions(options.topic, [options.partition])]
    if options.all_topic_partitions:
        return None
    content = read_json(options.path_to_json_file, "java.io.IOException: ")
    if content is None:
        raise ToolFailed("Replica election data is empty")
    missing = 'Replica election data is missing "partitions" field'
    keys = [
        (topic, number)
        for topic, number in partition_entries(content, ("topic", "partition"), missing, MAPPING_EXCEPTION)
    ]
    repeated = sorted({f"{topic}-{number}" for topic, number in keys if keys.count((topic, number)) > 1})
    if repeated:
        raise ToolFailed(f"Replica election data contains duplicate partitions: [{', '.join(repeated)}]")
    rows: dict[str, list[int]] = {}
    for topic, number in keys:
        rows.setdefault(topic, []).append(number)
    return [elect_leaders.TopicPartitions(topic, numbers) for topic, numbers in rows.items()]


async def _elect(client: ClusterClient, options: argparse.Namespace) -> None:
    name = options.election_type.upper()
    answer = await client.call(elect_leaders.ElectLeadersRequest(TYPES[name], _partitions(options), TIMEOUT_MS))
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        print("Not authorized to perform leader election")
        raise ToolFailed("Not authorized to perform leader election")
    if answer.error_code:
        raise ProtocolError(ErrorCode(answer.error_code))
    done, unneeded, failed = list[str](), list[str](), list[tuple[str, ProtocolError]]()
    for topic in answer.replica_election_results:
        for row in topic.partition_result:
            at, code = f"{topic.topic}-{row.partition_id}", ErrorCode(row.error_code)
            if code is ErrorCode.ELECTION_NOT_NEEDED:
                unneeded.append(at)
            elif code:
                failed.append((at, ProtocolError(code, row.error_message)))
            else:
                done.append(at)
    if done:
        print(f"Successfully completed leader election ({name}) for partitions {', '.join(sorted(done))}")
    if unneeded:
        print(f"Valid replica already elected for partitions {', '.join(sorted(unneeded))}")
    for at, error in sorted(failed, key=lambda item: item[0]):
        print(f"Error completing leader election ({name}) for partition: {at}: {java_text(error)}")
    if failed:
        sys.stdout.flush()
        raise ToolFailed(f"{len(failed)} replica(s) could not be elected")


def run(arguments: list[str]) -> int:
    """Run ``kafka-leader-election``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    _check(parser, options)
    return run_tool(options, lambda client: _elect(client, options))
