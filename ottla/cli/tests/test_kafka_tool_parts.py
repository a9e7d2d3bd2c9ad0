"""Parts of tools under Kafka's names: reassignment files, feature levels, dumps of records, and measured numbers."""

from __future__ import annotations

import argparse
import json
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.cli.kafka_tools import hanging_transactions
from ottla.cli.kafka_tools.feature_levels import dependencies_text, parse_level, parse_release, version_mapping
from ottla.cli.kafka_tools.java_errors import default_text
from ottla.cli.kafka_tools.kafka_reassign_partitions import replica_text
from ottla.cli.kafka_tools.log_record_parsers import INTERNAL_PARSERS, plain_parser
from ottla.cli.kafka_tools.performance import (
    MAX_PAUSE_S,
    ProducerStatistics,
    check_record_size,
    decimal,
    format_date,
    pause_s,
    ratio,
    split_payloads,
)
from ottla.cli.kafka_tools.reassignment_files import (
    PartitionReplica,
    assignment_json,
    check_targets,
    parse_brokers,
    read_reassignments,
)
from ottla.cli.kafka_tools.reassignment_requests import clear_throttles
from ottla.cli.kafka_tools.replica_log_dirs import ReplicaLogDirs
from ottla.cli.kafka_tools.tool_options import ToolFailed
from ottla.cli.tests.command_runs import run_command
from ottla.controller.metadata.image import RESOURCE_BROKER
from ottla.controller.metadata.record_serde import encode_record
from ottla.tools.message_json import message_to_json
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import incremental_alter_configs
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from ottla.wire.messages.metadata_records import ConfigRecord, FeatureLevelRecord, UserScramCredentialRecord
from ottla.wire.record_batch.records import Record

REPLICA = PartitionReplica(1, "t", 0)


@pytest.mark.parametrize(
    ("dirs", "text"),
    [
        (ReplicaLogDirs("/a"), "Reassignment of replica t-0-1 completed successfully."),
        (ReplicaLogDirs("/b", "/a"), "Reassignment of replica t-0-1 is still in progress."),
        (ReplicaLogDirs("/b", "/c"), "Partition t-0 on broker 1 is being moved to log dir /c instead of /a."),
        (ReplicaLogDirs("/b"), "Partition t-0 on broker 1 is not being moved from log dir /b to /a."),
        (ReplicaLogDirs(), "Partition t-0 is not found in any live log dir on broker 1. There is likely an offline"),
    ],
)
def test_replica_text_names_the_state_of_a_move_between_directories(dirs: ReplicaLogDirs, text: str) -> None:
    assert replica_text(REPLICA, dirs, "/a").startswith(text)


def test_assignment_json_is_read_back_with_log_directories(tmp_path: Path) -> None:
    text = assignment_json({("t", 1): [2, 1], ("t", 0): [1]}, {REPLICA: "/d"})
    (tmp_path / "f").write_text(text)
    content = read_reassignments(str(tmp_path / "f"))
    assert content.partitions == [(("t", 0), [1]), (("t", 1), [2, 1])]
    assert content.log_dirs == {REPLICA: "/d"}
    assert text.startswith('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["/d"]}')


@pytest.mark.parametrize(
    ("targets", "text"),
    [
        ([], "list cannot be empty"),
        ([(("t", 0), [])], "replica list cannot be empty"),
        ([(("t", 0), [1]), (("t", 0), [1])], "duplicate topic partitions: t-0"),
        ([(("t", 0), [1, 2, 1])], "t-0 contains multiple entries for 1"),
    ],
)
def test_targets_with_duplicates_or_gaps_are_refused(
    targets: list[tuple[tuple[str, int], list[int]]], text: str
) -> None:
    with pytest.raises(ToolFailed, match=text):
        check_targets(targets)


@pytest.mark.parametrize(("text", "message"), [("1,1", r"duplicate entries: \[1\]"), ("1,", 'input string: ""')])
def test_broker_list_with_duplicate_or_without_number_is_refused(text: str, message: str) -> None:
    with pytest.raises(ToolFailed, match=message):
        parse_brokers(text)


@pytest.mark.parametrize(("text", "level"), [("4.1", 27), ("4.1.2", 27), ("4.1-IV0", 26), ("3.3", 7), ("4.4-IV0", 31)])
def test_release_names_its_newest_metadata_version(text: str, level: int) -> None:
    assert parse_release(text) == level


@pytest.mark.parametrize("text", ["4.4", "4", "", "3.3-IV0"])
def test_unknown_release_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ToolFailed, match=rf"Unknown metadata.version '{text}'. Supported .*4.4-IV0"):
        parse_release(text)


def test_version_mapping_has_the_default_level_of_each_feature() -> None:
    assert version_mapping("3.9").splitlines() == [
        "metadata.version=21 (3.9)",
        "kraft.version=1",
        "transaction.version=0",
        "group.version=0",
        "eligible.leader.replicas.version=0",
        "share.version=0",
        "streams.version=0",
    ]


def test_dependency_of_a_level_is_a_metadata_version() -> None:
    text = dependencies_text("eligible.leader.replicas.version", 1, "")
    assert text.splitlines()[1] == "    metadata.version=23 (4.0-IV1)"
    with pytest.raises(ToolFailed, match="why"):
        dependencies_text("group.version", 2, "why")


@pytest.mark.parametrize("text", ["a", "a=x", "a=32768", "a="])
def test_malformed_level_is_refused(text: str) -> None:
    with pytest.raises(ToolFailed, match=f"Can't parse feature=level string {text}"):
        parse_level(text)


def test_tagged_fields_with_their_default_are_left_out_of_json() -> None:
    assert message_to_json(FeatureLevelRecord("group.version", 1), 0) == {"name": "group.version", "featureLevel": 1}


def test_secrets_of_metadata_records_are_hidden() -> None:
    parse = INTERNAL_PARSERS["cluster-metadata-decoder"]
    for message, hidden in (
        (UserScramCredentialRecord("a", 1, b"salt", b"stored", b"server", 4096), ("salt", "storedKey", "serverKey")),
        (ConfigRecord(RESOURCE_BROKER, "1", "ssl.key.password", "secret"), ("value",)),
    ):
        row = json.loads(parse(Record(0, 0, None, encode_record(message))).value or "")
        assert [row["data"][name] for name in hidden] == ["(hidden)"] * len(hidden)
    row = json.loads(parse(Record(0, 0, None, encode_record(FeatureLevelRecord("x", 1)))).value or "")
    assert row == {"type": "FEATURE_LEVEL_RECORD", "version": 0, "data": {"name": "x", "featureLevel": 1}}


def test_malformed_records_are_skipped_with_their_offset() -> None:
    for name, parse in INTERNAL_PARSERS.items():
        found = parse(Record(7, 0, b"\0", b"\xff"))
        text = found.key if found.value is None else found.value
        assert text is not None
        assert text.startswith(("Error at offset 7", "Error at 7")), name


@pytest.mark.parametrize(
    ("decoder", "raw", "shown"), [("IntegerDecoder", bytes(4), "0"), ("LongDecoder", bytes(8), "0")]
)
def test_number_decoders_of_kafka_are_known(decoder: str, raw: bytes, shown: str) -> None:
    parse = plain_parser(f"org.apache.kafka.tools.api.{decoder}", decoder)
    assert parse(Record(0, 0, raw, raw)) == ("0", "0")
    with pytest.raises(ToolFailed):
        parse(Record(0, 0, b"x", None))


def test_unknown_decoder_is_refused() -> None:
    with pytest.raises(ToolFailed, match="Failed to load decoder class"):
        plain_parser("my.Decoder", "StringDecoder")


@pytest.mark.parametrize(("value", "text"), [(1.25, "1.25"), (inf, "Infinity"), (-inf, "-Infinity"), (nan, "NaN")])
def test_decimal_prints_numbers_as_java(value: float, text: str) -> None:
    assert decimal(value, 2) == text


def test_ratio_divides_by_zero_as_java() -> None:
    assert ratio(1, 0) == inf
    assert decimal(ratio(0, 0), 1) == "NaN"


@pytest.mark.parametrize(
    ("pattern", "text"), [("'o''clock' S", "o'clock 7"), ("SSS", "007"), ("''", "'"), ("yy", "20")]
)
def test_format_date_follows_the_pattern(pattern: str, text: str) -> None:
    assert format_date(1_600_000_000_007, pattern) == text
    with pytest.raises(ToolFailed, match="Illegal pattern character 'E'"):
        format_date(0, "EEE")


def test_producer_statistics_print_intervals_and_percentiles(capsys: pytest.CaptureFixture[str]) -> None:
    stats = ProducerStatistics(4, 1000, 0)
    for number in range(4):
        stats.record(10 * number, 1024 * 1024, 500 * (number + 1))
    stats.print_total(2000)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 records sent, 2.0 records/sec (2.00 MB/sec), 5.0 ms avg latency, 10.0 ms max latency."
    assert lines[2].startswith("4 records sent, 2.000000 records/sec (2.00 MB/sec), 15.00 ms avg latency, 30.00 ms max")
    assert lines[2].endswith("20 ms 50th, 30 ms 95th, 30 ms 99th, 30 ms 99.9th.")


def test_storage_info_names_problems_of_directories(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in "abc"]
    (tmp_path / "c").write_text("")
    dirs[1].mkdir()
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:9093\n"
        f"log.dirs={','.join(map(str, dirs))}\n"
    )
    done = run_command("kafka-storage", "info", "-c", str(config))
    assert done.status == 1
    assert done.out.decode().splitlines() == [
        *("Found log directory:", f"  {dirs[1]}", "", "Found problems:"),
        *(f"  {dirs[0]} does not exist", f"  {dirs[1]} is not formatted.", f"  {dirs[2]} is not a directory", ""),
    ]


def _write_server_properties(directory: Path, *names: str) -> str:
    """Write the settings of a controller with these log directories and return the path of the file."""
    config = directory / "server.properties"
    config.write_text(
        "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:9093\n"
        f"log.dirs={','.join(str(directory / name) for name in names)}\n"
    )
    return str(config)


def test_storage_info_reports_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a" / "meta.properties").mkdir(parents=True)
    done = run_command("kafka-storage", "info", "-c", _write_server_properties(tmp_path, "a"))
    assert (done.status, done.err) == (1, "")
    assert f"Error loading {tmp_path}/a/meta.properties: " in done.out.decode()


@pytest.mark.parametrize("flags", [(), ("--ignore-formatted",)])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("cluster.id=x\nnode.id=1\n", "Invalid cluster.id in: {}. Expected abc, but read x"),
        ("cluster.id=abc\nnode.id=2\n", "Stored node id 2 doesn't match previous node id 1 in {}. If you moved"),
        ("", "Error loading {}: Failed to find node.id"),
    ],
)
def test_storage_format_refuses_directories_of_others_and_changes_nothing(
    tmp_path: Path, content: str, text: str, flags: tuple[str, ...]
) -> None:
    file = tmp_path / "b" / "meta.properties"
    file.parent.mkdir()
    file.write_text(content)
    config = _write_server_properties(tmp_path, "a", "b")
    done = run_command("kafka-storage", "format", "-c", config, "-t", "abc", "--standalone", *flags)
    assert (done.status, done.out) == (1, b"")
    assert done.err.startswith(text.format(file))
    assert file.read_text() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "server.properties"]


@pytest.mark.parametrize(
    ("feature", "text"),
    [
        ("metadata.version=99", "No MetadataVersion with feature level 99. Valid feature levels are from 7 to 31.\n"),
        ("metadata.version=31", "metadata.version 4.4-IV0 is not yet stable.\n"),
        ("group.version=9", "No feature:group.version with feature level 9\n"),
        ("kraft.version=2", "No feature:kraft.version with feature level 2\n"),
        ("kraft.version=0", "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags"),
    ],
)
def test_storage_format_names_wrong_feature_levels_as_kafka(tmp_path: Path, feature: str, text: str) -> None:
    config = _write_server_properties(tmp_path, "a")
    done = run_command("kafka-storage", "format", "-c", config, "-t", "abc", "--standalone", "-f", feature)
    assert (done.status, done.out) == (1, b"")
    assert done.err.startswith(text)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("text", "delimiter", "payloads"),
    [
        ("a,b,,c\n", ",", ["a", "b", "", "c\n"]),
        ("a\nb\n", "\n", ["a", "b"]),
        ("a|b", "\\|", ["a", "b"]),
        ("abc", "", ["a", "b", "c"]),
        ("a1b22c", "[0-9]+", ["a", "b", "c"]),
    ],
)
def test_payloads_are_split_by_a_regular_expression(text: str, delimiter: str, payloads: list[str]) -> None:
    assert split_payloads(text, delimiter) == payloads
    with pytest.raises(ToolFailed, match="is an invalid regex"):
        split_payloads(text, "[")


def test_record_larger_than_a_request_is_refused_before_it_is_created() -> None:
    check_record_size(1_048_488, {})
    with pytest.raises(ToolFailed, match=r"^The message is 2147483736 bytes when serialized which is"):
        check_record_size(2**31 - 1, {})
    check_record_size(2_000_000, {"max.request.size": "2000088"})
    with pytest.raises(ToolFailed, match=r"larger than 2000087, which is the value of the max.request.size conf"):
        check_record_size(2_000_000, {"max.request.size": "2000087"})
    with pytest.raises(ToolFailed, match=r"Invalid value x for configuration max.request.size"):
        check_record_size(1, {"max.request.size": "x"})


@pytest.mark.parametrize(
    ("throughput", "seconds"), [(-1.0, 0), (0.0, 0), (nan, 0), (inf, 0), (10.0, 0.5), (1e-300, MAX_PAUSE_S)]
)
def test_pause_of_a_producer_is_bounded(throughput: float, seconds: float) -> None:
    assert pause_s(10, throughput, 500.0) == seconds
    assert pause_s(10, 5e-324, 500.0) == MAX_PAUSE_S


class OneBrokerCluster:
    """Client of a cluster with one broker, 1, which records the configurations that it is asked to change."""

    def __init__(self) -> None:
        self.changed: list[tuple[int, str]] = []

    async def bootstrap_channel(self) -> OneBrokerCluster:
        return self

    async def broker(self, node_id: int) -> OneBrokerCluster:
        if node_id != 1:
            raise ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id}")
        return self

    async def leader(self, topic: str, partition: int) -> OneBrokerCluster:
        raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")

    async def metadata(self, topics: list[str]) -> MetadataResponse:
        return MetadataResponse(brokers=[MetadataResponseBroker(1, "h", 1)])

    async def call(
        self, request: incremental_alter_configs.IncrementalAlterConfigsRequest
    ) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
        self.changed += [(row.resource_type, row.resource_name) for row in request.resources]
        return incremental_alter_configs.IncrementalAlterConfigsResponse()


def test_throttles_are_cleared_on_live_brokers_though_another_is_not_available() -> None:
    client: Any = OneBrokerCluster()
    options = argparse.Namespace(bootstrap_controller=None)
    with pytest.raises(ProtocolError, match="BROKER_NOT_AVAILABLE: broker 0"):
        trio.run(clear_throttles, client, options, [(("t", 0), [0, 1, 2])])
    assert client.changed == [(RESOURCE_BROKER, "1")]


def test_abort_in_a_partition_without_leader_fails_with_the_text_of_kafkas_client() -> None:
    client: Any = OneBrokerCluster()
    options = argparse.Namespace(topic="t", partition=9, start_offset=0, producer_id=None)
    options.producer_epoch = options.coordinator_epoch = None
    with pytest.raises(ToolFailed) as failure:
        trio.run(hanging_transactions.abort, client, options)
    operation = "Failed to validate producer state for partition t-9"
    text = default_text(ErrorCode.LEADER_NOT_AVAILABLE)
    assert str(failure.value) == f"{operation}: {text}. Enable debug logging for additional detail."
