"""Failure of one of several log directories: only this one goes offline, and both brokers report it alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.storage.ext4_image import Ext4Image, unavailable_reason
from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import (
    create_topics,
    describe_log_dirs,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
)
from ottla.wire.record_batch import records

PARTITIONS = 4
NOT_YET = (3, 5, 6)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Ext4Image]:
    made = Ext4Image(tmp_path, "b", 24)
    yield made
    made.remove()


def wait_for(node: NodeProcess, key: ApiKey, version: int, body: Any, good: Any) -> Any:
    deadline = time.monotonic() + 30
    while True:
        answer = RawClient(node.port).call(key, version, body)
        if good(answer) or time.monotonic() > deadline:
            return answer
        time.sleep(0.1)


def partitions(node: NodeProcess) -> list[metadata.MetadataResponsePartition]:
    body = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")], False)
    answer = wait_for(node, ApiKey.METADATA, 12, body, lambda a: len(a.topics[0].partitions) == PARTITIONS)
    return sorted(answer.topics[0].partitions, key=lambda x: x.partition_index)


def retry(ask: Callable[[], Any], code_of: Callable[[Any], int]) -> Any:
    """Repeat a request until its error is not retriable: a node that has just started leads a moment later."""
    deadline = time.monotonic() + 30
    while code_of(row := ask()) in NOT_YET and time.monotonic() < deadline:
        time.sleep(0.1)
    return row


def produce(node: NodeProcess, partition: int, size: int) -> int:
    raw = records.build_batch([records.NewRecord(None, bytes(size), time.time_ns() // 10**6)])

    def ask() -> Any:
        return RawClient(node.port).produce("t", partition, raw)

    return int(retry(ask, lambda row: row.error_code).error_code)


def fetch_code(node: NodeProcess, partition: int) -> int:
    part = fetch.FetchPartition(partition, fetch_offset=0, partition_max_bytes=1 << 20)
    body = fetch.FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[fetch.FetchTopic("t", partitions=[part])]
    )

    def ask() -> Any:
        return RawClient(node.port).call(ApiKey.FETCH, 12, body).responses[0].partitions[0]

    return int(retry(ask, lambda row: row.error_code).error_code)


def offset(node: NodeProcess, partition: int) -> tuple[int, int]:
    body = list_offsets.ListOffsetsRequest(
        -1, 0, [list_offsets.ListOffsetsTopic("t", [list_offsets.ListOffsetsPartition(partition, timestamp=-1)])]
    )

    def ask() -> Any:
        return RawClient(node.port).call(ApiKey.LIST_OFFSETS, 5, body).topics[0].partitions[0]

    row = retry(ask, lambda row: row.error_code)
    return row.error_code, row.offset


def ends(node: NodeProcess, numbers: list[int], expected: int) -> list[int]:
    """Return high watermarks once they are as expected: a restarted node syncs its log before it serves it."""
    deadline = time.monotonic() + 30
    while (found := [offset(node, n)[1] for n in numbers]) != [expected] * len(numbers) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def log_dirs(node: NodeProcess) -> list[tuple[str, int, list[int]]]:
    body = describe_log_dirs.DescribeLogDirsRequest(
        [describe_log_dirs.DescribableLogDirTopic("t", list(range(PARTITIONS)))]
    )
    rows = RawClient(node.port).call(ApiKey.DESCRIBE_LOG_DIRS, 4, body).results
    return sorted(
        (Path(x.log_dir).name, x.error_code, sorted(y.partition_index for t in x.topics for y in t.partitions))
        for x in rows
    )


def kind(node_class: type[NodeProcess], tmp_path: Path) -> NodeProcess:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b' / 'data'}"
    return node_class(tmp_path / "a", None, log_dirs=dirs, log_flush_interval_messages="1")  # type: ignore[call-arg]


def start_with_topic(node: NodeProcess) -> list[int]:
    """Start, create the topic, write a record into each partition; return the partitions of the second directory."""
    node.start()
    body = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", PARTITIONS, 1)], 30_000)
    assert RawClient(node.port).call(ApiKey.CREATE_TOPICS, 7, body).topics[0].error_code == 0
    assert all(x.leader_id == 1 for x in partitions(node))
    for number in range(PARTITIONS):
        deadline = time.monotonic() + 120
        while produce(node, number, 100) and time.monotonic() < deadline:
            time.sleep(0.1)
    rows = {name: found for name, _, found in log_dirs(node)}
    assert [len(found) for found in rows.values()] == [2, 2]
    return rows["data"]


@pytest.mark.skipif(unavailable_reason() is not None, reason=unavailable_reason() or "")
@pytest.mark.xdist_group(__name__)
@pytest.mark.parametrize("node_class", [OttlaProcess, KafkaProcess])
@pytest.mark.parametrize("fault", ["full", "broken"])
def test_failed_log_dir_goes_offline_alone_and_recovers_after_repair(
    tmp_path: Path, disk: Ext4Image, fault: str, node_class: type[NodeProcess]
) -> None:
    node = kind(node_class, tmp_path)
    bad = start_with_topic(node)
    good = [x for x in range(PARTITIONS) if x not in bad]
    if fault == "full":
        disk.fill()
    else:
        disk.fail_writes()
    assert produce(node, bad[0], 900_000) == 56
    wait_for(
        node,
        ApiKey.METADATA,
        12,
        metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")], False),
        lambda a: {x.partition_index for x in a.topics[0].partitions if x.error_code} == set(bad),
    )
    rows = {x.partition_index: x for x in partitions(node)}
    reported = {
        n: (x.error_code, x.leader_id, x.replica_nodes, x.isr_nodes, x.offline_replicas) for n, x in rows.items()
    }
    assert reported == {n: (5, -1, [1], [], [1]) if n in bad else (0, 1, [1], [1], []) for n in range(PARTITIONS)}
    for number in bad:
        assert (produce(node, number, 10), fetch_code(node, number), offset(node, number)[0]) == (56, 56, 56)
    for number in good:
        assert (produce(node, number, 10), fetch_code(node, number)) == (0, 0)
    assert log_dirs(node) == [("a", 0, good), ("data", 56, [])]
    node.kill()
    if fault == "full":
        disk.free_space()
    else:
        disk.repair()
    node.start()
    wait_for(
        node,
        ApiKey.METADATA,
        12,
        metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")], False),
        lambda a: not any(x.error_code for x in a.topics[0].partitions),
    )
    assert ends(node, bad, 1) == [1, 1]
    assert ends(node, good, 2) == [2, 2]
    assert [produce(node, n, 10) for n in range(PARTITIONS)] == [0] * PARTITIONS
    assert node.stop() == 0 or node_class is KafkaProcess


@pytest.mark.xdist_group(__name__)
def test_kafka_on_log_dirs_of_ottla_and_ottla_again_read_the_same(tmp_path: Path) -> None:
    first = kind(OttlaProcess, tmp_path)
    in_second = start_with_topic(first)
    assert first.stop() == 0
    for number, node_class in enumerate((KafkaProcess, OttlaProcess), start=1):
        with kind(node_class, tmp_path) as node:
            wait_for(
                node,
                ApiKey.METADATA,
                12,
                metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")], False),
                lambda a: all(x.leader_id == 1 for x in a.topics[0].partitions),
            )
            assert log_dirs(node)[1] == ("data", 0, in_second)
            assert [offset(node, n) for n in range(PARTITIONS)] == [(0, number)] * PARTITIONS
            assert [produce(node, n, 10) for n in range(PARTITIONS)] == [0] * PARTITIONS


def cordon(node: NodeProcess, *paths: Path) -> None:
    """Alter the setting at run time, and wait until the node applies it."""
    config = incremental_alter_configs.AlterableConfig("cordoned.log.dirs", 0, ",".join(map(str, paths)))
    body = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(4, "1", [config])]
    )
    assert RawClient(node.port).call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0].error_code == 0
    wanted = {str(path) for path in paths}
    request = describe_log_dirs.DescribeLogDirsRequest([])
    answer = wait_for(node, ApiKey.DESCRIBE_LOG_DIRS, 5, request, lambda a: cordoned(a) == wanted)
    assert cordoned(answer) == wanted


def cordoned(answer: describe_log_dirs.DescribeLogDirsResponse) -> set[str]:
    return {x.log_dir for x in answer.results if x.is_cordoned}


def new_topic(node: NodeProcess, name: str) -> int:
    """Return the error code of creating a topic, once the controller knows the cordoned directories."""
    body = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(name, PARTITIONS, 1)], 30_000)
    return int(RawClient(node.port).call(ApiKey.CREATE_TOPICS, 7, body).topics[0].error_code)


@pytest.mark.xdist_group(__name__)
@pytest.mark.parametrize("node_class", [OttlaProcess, KafkaProcess])
def test_cordoned_log_dir_gets_no_new_partitions(tmp_path: Path, node_class: type[NodeProcess]) -> None:
    with kind(node_class, tmp_path) as node:
        first, second = tmp_path / "a", tmp_path / "b" / "data"
        cordon(node, first)
        assert new_topic(node, "t") == 0
        assert all(x.leader_id == 1 for x in partitions(node))
        deadline = time.monotonic() + 120
        while log_dirs(node)[1][2] != list(range(PARTITIONS)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert log_dirs(node) == [("a", 0, []), ("data", 0, list(range(PARTITIONS)))]
        cordon(node, first, second)
        deadline = time.monotonic() + 120
        while (code := new_topic(node, f"u{time.monotonic_ns()}")) == 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert code == 38, "INVALID_REPLICATION_FACTOR: nobody may have it"
        cordon(node)
        deadline = time.monotonic() + 120
        while (code := new_topic(node, f"v{time.monotonic_ns()}")) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert code == 0
