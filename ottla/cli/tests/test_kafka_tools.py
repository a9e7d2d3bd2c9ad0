"""Parts of the tools under Kafka's names: line reader, formatter, Java's texts, options, and unreachable clusters."""

from __future__ import annotations

import json
import struct
from math import inf, nan
from pathlib import Path

import pytest

from ottla.cli.kafka_tools.consumer_group_offsets import parse_topic_partitions
from ottla.cli.kafka_tools.java_errors import java_text
from ottla.cli.kafka_tools.line_message_reader import LineMessageReader
from ottla.cli.kafka_tools.message_formatter import MessageFormatter
from ottla.cli.kafka_tools.partition_files import partition_entries, read_json
from ottla.cli.kafka_tools.quota_configs import java_double
from ottla.cli.kafka_tools.tool_options import ToolFailed, compile_regex, java_integer
from ottla.cli.main import COMMANDS
from ottla.cli.tests.command_runs import run_command
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.records import Record

TOOLS = [name for name in COMMANDS if name.startswith("kafka-")]
ONLINE = (
    "kafka-topics --list",
    "kafka-consumer-groups --list",
    "kafka-configs --describe --topic t",
    "kafka-console-producer --topic t",
    "kafka-console-consumer --topic t",
    "kafka-get-offsets",
    "kafka-groups --list",
    "kafka-broker-api-versions",
    "kafka-cluster cluster-id",
    "kafka-metadata-quorum describe --status",
    "kafka-transactions list",
    "kafka-acls --list",
    "kafka-log-dirs --describe",
    "kafka-leader-election --election-type preferred --all-topic-partitions",
    "kafka-reassign-partitions --list",
    "kafka-features describe",
    "kafka-features upgrade --feature group.version=1",
    "kafka-share-groups --list",
    "kafka-streams-groups --list",
    "kafka-transactions find-hanging --topic t",
    "kafka-transactions forceTerminateTransaction --transactionalId t",
    "kafka-consumer-perf-test --topic t --num-records 1 --hide-header",
    "kafka-producer-perf-test --topic t --num-records 1 --record-size 1 --throughput -1",
)
WITH_VERBS = ("kafka-cluster", "kafka-metadata-quorum", "kafka-transactions", "kafka-features", "kafka-storage")
PRINTS_HELP = "kafka-producer-perf-test"
"""Tool that without arguments prints its options on standard output, with status 0."""


@pytest.mark.parametrize("name", TOOLS)
def test_tool_without_arguments_or_with_wrong_option_returns_kafkas_status(name: str) -> None:
    done = run_command(name, "--no-such-option")
    assert (done.status, done.out) == (1, b"")
    assert "no-such-option" in done.err.splitlines()[0] or name in (*WITH_VERBS, PRINTS_HELP)
    done = run_command(name)
    assert done.status == int(name != PRINTS_HELP)
    assert "usage: ottla " + name in done.err + done.out.decode() or name in WITH_VERBS


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("kafka-console-consumer --topic t --partition 1_0", "Cannot parse argument '1_0' of option partition"),
        ("kafka-console-consumer --topic t --max-messages 2147483648", "'2147483648' of option max-messages"),
        ("kafka-console-consumer --topic t --timeout-ms 1.5", "Cannot parse argument '1.5' of option timeout-ms"),
        ("kafka-leader-election --topic t --partition 2147483648", "'2147483648' of option partition"),
        (f"kafka-consumer-groups --reset-offsets --to-offset {2**63}", f"'{2**63}' of option to-offset"),
        ("kafka-topics --create --topic t --partitions 2147483648", "'2147483648' of option partitions"),
    ],
)
def test_number_that_java_does_not_parse_is_refused(words: str, message: str) -> None:
    done = run_command(*words.split())
    assert done.status == 1
    assert message in done.err


@pytest.mark.parametrize(("text", "value"), [("+7", 7), ("-1", -1), (str(2**31 - 1), 2**31 - 1)])
def test_number_that_java_parses_is_accepted(text: str, value: int) -> None:
    assert java_integer(text) == value


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999999999}", "(" * 3000 + ")" * 3000])
def test_invalid_regular_expression_is_a_failure_of_the_tool(pattern: str) -> None:
    with pytest.raises(ToolFailed, match="is an invalid regex"):
        compile_regex(pattern)
    with pytest.raises(ToolFailed, match="is an invalid regex"):
        LineMessageReader({"headers.separator": pattern})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"topic": "t", "partition": 2147483648, "offset": 1}', "Expected `Integer` value, received 2147483648"),
        (f'{{"topic": "t", "partition": 1, "offset": {2**63}}}', f"Expected `Long` value, received {2**63}"),
        ('{"topic": "t", "partition": true, "offset": 1}', "Expected `Integer` value, received true"),
        ('{"topic": "t", "partition": 1, "offset": 1.0}', "Expected `Long` value, received 1.0"),
        ('{"topic": 1, "partition": 1, "offset": 1}', "Expected `String` value, received 1"),
    ],
)
def test_partition_entry_of_wrong_type_is_named_with_its_java_class(text: str, message: str) -> None:
    with pytest.raises(ToolFailed, match=message):
        partition_entries({"partitions": [json.loads(text)]}, ("topic", "partition", "offset"), "")


def test_deeply_nested_json_file_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("[" * 100_000)
    assert read_json(str(tmp_path / "f")) is None


@pytest.mark.parametrize("text", ["t:1-", "t:--1", "t:2147483648", "t:", "t:\u0663"])
def test_partition_list_with_something_else_than_numbers_fails(text: str) -> None:
    messages: list[str] = []
    assert parse_topic_partitions(text, messages.append) == []
    assert messages == [f"Invalid partition '{text[2:]}' specified in topic arg '{text}''"]


@pytest.mark.parametrize("words", ONLINE)
def test_unreachable_cluster_is_one_line_and_status_1(words: str) -> None:
    name, *rest = words.split()
    at = ("--bootstrap-server", "127.0.0.1:1")
    given = (*at, *rest) if name in WITH_VERBS[1:] else (*rest, *at)
    done = run_command(name, *given, stdin=b"x\n")
    lines = [line for line in done.err.splitlines() if not line.startswith("Processed a total")]
    assert done.status == 1
    assert lines == ["ottla: cannot connect to 127.0.0.1:1: Connection refused"]


@pytest.mark.parametrize(
    ("properties", "line", "key", "value", "headers"),
    [
        ({}, b"a\tb", None, b"a\tb", ()),
        ({}, b"a\r", None, b"a", ()),
        ({"parse.key": "true"}, b"a\tb\tc", b"a", b"b\tc", ()),
        ({"parse.key": " TRUE "}, b"\tb", b"", b"b", ()),
        ({"parse.key": "true", "key.separator": "::"}, b"a::b", b"a", b"b", ()),
        ({"parse.key": "true", "ignore.error": "true"}, b"ab", None, b"ab", ()),
        ({"parse.key": "true", "null.marker": "N"}, b"N\tN", None, None, ()),
        ({"parse.headers": "true"}, b"h:1,i:\tv", None, b"v", (("h", b"1"), ("i", b""))),
        ({"parse.headers": "true", "null.marker": "N"}, b"N\tv", None, b"v", ()),
        ({"parse.headers": "true", "null.marker": "N"}, b"h:N\tv", None, b"v", (("h", None),)),
        ({"parse.headers": "true", "ignore.error": "true"}, b"h\tv", None, b"v", (("h", None),)),
        ({"parse.headers": "true", "parse.key": "true"}, b"h:1\tk\tv", b"k", b"v", (("h", b"1"),)),
        ({}, b"\xff\xfe", None, b"\xff\xfe", ()),
        ({"parse.key": "true", "key.separator": ""}, b"ab", b"", b"ab", ()),
    ],
)
def test_line_message_reader_parses_as_kafkas(
    properties: dict[str, str], line: bytes, key: bytes | None, value: bytes | None, headers: object
) -> None:
    record = LineMessageReader(properties).parse(line)
    assert (record.key, record.value, record.headers) == (key, value, headers)


@pytest.mark.parametrize(
    ("properties", "line", "text"),
    [
        ({"parse.key": "true"}, b"ab", "No key separator found on line number 1: 'ab'"),
        ({"parse.headers": "true"}, b"h\tv", "No header key separator found in pair 'h' on line number 1"),
        ({"parse.headers": "true", "null.marker": "N"}, b"N:1\tv", "Header keys should not be equal"),
        ({"headers.delimiter": ","}, b"", "headers.delimiter and headers.separator may not be equal"),
        ({"null.marker": ":"}, b"", "null.marker and headers.key.separator may not be equal"),
    ],
)
def test_line_message_reader_refuses_as_kafkas(properties: dict[str, str], line: bytes, text: str) -> None:
    with pytest.raises(ToolFailed, match=text):
        LineMessageReader(properties).parse(line)


RECORD = Record(7, 1700, b"k", None, (("h", b"1"), ("i", None)))
ALL = {f"print.{name}": "true" for name in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")}


def test_message_formatter_prints_all_columns_in_kafkas_order() -> None:
    shown = MessageFormatter(ALL).format(3, RECORD, has_append_time=False)
    columns = b"CreateTime:1700 Partition:3 Offset:7 Delivery:NOT_PRESENT Epoch:NOT_PRESENT h:1,i:null k null\n"
    assert shown == columns.replace(b" ", b"\t")


@pytest.mark.parametrize(
    ("properties", "shown"),
    [
        ({}, b"null\n"),
        ({"print.value": "false"}, b""),
        ({"print.timestamp": "true", "print.value": "false"}, b"LogAppendTime:1700\n"),
        ({"print.key": "true", "key.separator": "|", "line.separator": ";", "null.literal": "-"}, b"k|-;"),
        ({"print.headers": "true", "headers.separator": "&"}, b"h:1&i:null\tnull\n"),
    ],
)
def test_message_formatter_honours_properties(properties: dict[str, str], shown: bytes) -> None:
    assert MessageFormatter(properties).format(0, RECORD, has_append_time=True) == shown


@pytest.mark.parametrize(
    ("name", "raw", "shown"),
    [
        ("StringDeserializer", b"a\xff", "a�"),
        ("org.apache.kafka.common.serialization.IntegerDeserializer", struct.pack(">i", -5), "-5"),
        ("LongDeserializer", struct.pack(">q", 1 << 40), str(1 << 40)),
        ("DoubleDeserializer", struct.pack(">d", 1.5e9), "1.5E9"),
        ("BooleanDeserializer", b"\x01", "true"),
        ("UUIDDeserializer", b"123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
    ],
)
def test_message_formatter_deserializes_values(name: str, raw: bytes, shown: str) -> None:
    record = Record(0, -1, None, raw)
    text = MessageFormatter({"value.deserializer": name}).format(0, record, has_append_time=False)
    assert text == shown.encode() + b"\n"


@pytest.mark.parametrize("name", ["LongDeserializer", "BooleanDeserializer", "UUIDDeserializer"])
def test_message_formatter_refuses_wrong_bytes(name: str) -> None:
    with pytest.raises(ToolFailed, match="SerializationException"):
        MessageFormatter({"value.deserializer": name}).format(0, Record(0, 0, None, b"abc"), has_append_time=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (1024, "1024.0"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (1.25e9, "1.25E9"),
        (0.0005, "5.0E-4"),
        (inf, "Infinity"),
        (-inf, "-Infinity"),
        (nan, "NaN"),
    ],
)
def test_java_double_equals_javas(value: float, text: str) -> None:
    assert java_double(value) == text


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopicOrPartitionException"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TopicAuthorizationException"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "InvalidTopicException"),
        (ErrorCode.REQUEST_TIMED_OUT, "TimeoutException"),
        (ErrorCode.NON_EMPTY_GROUP, "GroupNotEmptyException"),
    ],
)
def test_java_text_has_class_of_error_code(code: ErrorCode, name: str) -> None:
    assert java_text(ProtocolError(code, "why")) == f"org.apache.kafka.common.errors.{name}: why"
