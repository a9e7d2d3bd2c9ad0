"""``ottla kafka-log-dirs``: the tool ``kafka-log-dirs.sh``, which prints the log directories of brokers as JSON.

Source: ``LogDirsCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterable
from typing import Any

from ottla.cli.arguments import parse_integer
from ottla.cli.kafka_tools.java_errors import java_class
from ottla.cli.kafka_tools.tool_options import ToolFailed, ToolOptions, raise_for, run_tool
from ottla.client.cluster_client import ClusterClient
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult

TEXT = "This tool helps to query log directory usage on the specified brokers."


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-log-dirs", TEXT)
    out.connection()
    out.flag("describe", "Describe the specified log directories on the specified brokers.")
    out.option("topic-list", "The topics to be queried: topic1,topic2; all by default.")
    out.option("broker-list", "The brokers to be queried: 0,1,2; all by default.")
    return out


def _words(text: str | None) -> list[str]:
    return [word for word in (text or "").split(",") if word]


def _directory(result: DescribeLogDirsResult, topics: Collection[str]) -> dict[str, Any]:
    partitions = [
        {
            "partition": f"{topic.name}-{row.partition_index}",
            "size": row.partition_size,
            "offsetLag": row.offset_lag,
            "isFuture": row.is_future_key,
        }
        for topic in result.topics
        if not topics or topic.name in topics
        for row in topic.partitions
    ]
    error = java_class(ErrorCode(result.error_code)) if result.error_code else None
    return {"partitions": partitions, "error": error, "logDir": result.log_dir}


def _ids(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    there = {broker.node_id for broker in (await client.metadata([])).brokers}
    wanted: set[int] = set()
    for word in _words(options.broker_list):
        number = parse_integer(word)
        if number is None:
            raise ToolFailed(f'For input string: "{word}"')
        wanted.add(number)
    if wanted - there:
        raise ToolFailed(
            f"ERROR: The given brokers do not exist from --broker-list: {_ids(wanted - there)}. "
            f"Current existent brokers: {_ids(there)}"
        )
    print("Querying brokers for log directories information")
    topics, brokers = _words(options.topic_list), []
    for number in sorted(wanted or there):
        answer = await (await client.broker(number)).call(DescribeLogDirsRequest(None))
        raise_for(answer.error_code, None)
        brokers.append({"broker": number, "logDirs": [_directory(result, topics) for result in answer.results]})
    print(f"Received log directory information from brokers {_ids(wanted or there)}")
    print(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":")))


def run(arguments: list[str]) -> int:
    """Run ``kafka-log-dirs``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    parser.require(options, "bootstrap-server", "describe")
    return run_tool(options, lambda client: _describe(client, options))
