"""``ottla kafka-delete-records``: the tool ``kafka-delete-records.sh``.

Source: ``DeleteRecordsCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.cli.kafka_tools.java_errors import java_text
from ottla.cli.kafka_tools.partition_files import partition_entries, read_json
from ottla.cli.kafka_tools.tool_options import ToolFailed, ToolOptions, run_tool
from ottla.client.cluster_client import ClusterClient
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import delete_records

TEXT = "This tool helps to delete records of the given partitions down to the specified offset."
TIMEOUT_MS = 60_000


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-delete-records", TEXT)
    out.connection()
    out.option(
        "offset-json-file",
        'REQUIRED: {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}',
    )
    return out


def _offsets(path: str) -> dict[tuple[str, int], int]:
    """Return the offset of each partition in a JSON file; records before it are to be deleted.

    Raises:
        ToolFailed: the file cannot be read, is malformed, has a version other than 1, or names a partition twice.
    """
    content = read_json(path)
    if content is None:
        raise ToolFailed("The input string is not a valid JSON")
    version = content.get("version", 1) if isinstance(content, dict) else 1
    if version != 1:
        raise ToolFailed(f"Not supported version field value {version}")
    rows = partition_entries(content, ("topic", "partition", "offset"), "Missing partitions field")
    keys = [(topic, number) for topic, number, _ in rows]
    repeated = sorted({f"{topic}-{number}" for topic, number in keys if keys.count((topic, number)) > 1})
    if repeated:
        raise ToolFailed(f"Offset json file contains duplicate topic partitions: {','.join(repeated)}")
    return {(topic, number): offset for topic, number, offset in rows}


async def _delete(client: ClusterClient, path: str) -> None:
    offsets = _offsets(path)
    print("Executing records delete operation")
    lines = []
    for (topic, number), offset in offsets.items():
        try:
            await client.metadata([topic])
            channel = await client.leader(topic, number)
            rows = [delete_records.DeleteRecordsPartition(number, offset)]
            answer = await channel.call(
                delete_records.DeleteRecordsRequest([delete_records.DeleteRecordsTopic(topic, rows)], TIMEOUT_MS)
            )
            row = answer.topics[0].partitions[0]
            if row.error_code:
                raise ProtocolError(ErrorCode(row.error_code))
            lines.append(f"partition: {topic}-{number}\tlow_watermark: {row.low_watermark}")
        except ProtocolError as error:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            known = ProtocolError(code) if error.code is ErrorCode.LEADER_NOT_AVAILABLE else error
            lines.append(f"partition: {topic}-{number}\terror: {java_text(known)}")
    print("Records delete operation completed:", *lines, sep="\n")


def run(arguments: list[str]) -> int:
    """Run ``kafka-delete-records``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    parser.require(options, "bootstrap-server", "offset-json-file")
    return run_tool(options, lambda client: _delete(client, options.offset_json_file))
