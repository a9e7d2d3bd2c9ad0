"""Quotas with the same requests at a node and at Apache Kafka 4.3.1: equal errors, throttle times within 10 %.

``OTTLA_QUOTAS=all`` also opens 260 connections under a limit of twenty a second, a minute more, and has clients produce
and fetch for as long at twice their quota: the measured rate is within 5 % of the bound.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from compat_tests.support.processes import KafkaProcess, OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until, wait_until_brokers_current
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import (
    alter_client_quotas,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
    fetch,
    incremental_alter_configs,
)
from ottla.wire.record_batch import records

ALL = os.environ.get("OTTLA_QUOTAS") == "all"
RecordedAnswers = tuple[str, Any, int]
"""Requests with their responses and the throttle time in milliseconds."""
BOUND, STEP_BYTES, STEP_S = 50_000, 5_000, 0.05
"""Quota in bytes per second, and a client that tries twice as many."""
WINDOWS_S = 55
"""Duration in seconds: five times the window of a rate."""


def limit(port: int, kind: str, name: str | None, key: str, value: float | None) -> None:
    """Set or delete a quota, and wait until the node describes it."""
    op = alter_client_quotas.OpData(key, value or 0.0, value is None)
    entry = alter_client_quotas.AlterClientQuotasRequestEntryData(
        [alter_client_quotas.AlterClientQuotasRequestEntityData(kind, name)], [op]
    )
    client = RawClient(port)
    answer = client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, alter_client_quotas.AlterClientQuotasRequest([entry]))
    assert answer.entries[0].error_code == 0
    request = describe_client_quotas.DescribeClientQuotasRequest(
        [describe_client_quotas.ComponentData(kind, 1 if name is None else 0, name)]
    )

    def on_result() -> bool:
        rows = client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request).entries or []
        found = {value.key: value.value for row in rows for value in row.values}
        return found.get(key) == value

    wait_until(on_result)
    client.close()


def changes(port: int) -> list[RecordedAnswers]:
    """Create and delete partitions under a quota of one in two seconds: a token bucket of five and a half."""
    limit(port, "client-id", "peer", "controller_mutation_rate", 0.5)
    out: list[RecordedAnswers] = []
    began_s = time.monotonic()

    def ask(label: str, key: ApiKey, version: int, body: Any, rows: str) -> None:
        client = RawClient(port)  # a client above its quota is muted for a while
        answer = client.call(key, version, body)
        client.close()
        response = [(row.error_code, row.error_message) for row in getattr(answer, rows)]
        passed_ms = round((time.monotonic() - began_s) * 1000)  # a later request has a shorter wait
        out.append((label, response, answer.throttle_time_ms and answer.throttle_time_ms + passed_ms))

    def create(name: str, partitions: int, version: int) -> None:
        request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(name, partitions, 1)], 9_000)
        ask(f"create {name} v{version}", ApiKey.CREATE_TOPICS, version, request, "topics")

    def widen(name: str, count: int, version: int) -> None:
        request = create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic(name, count, None)], 9_000
        )
        ask(f"widen {name} v{version}", ApiKey.CREATE_PARTITIONS, version, request, "results")

    def delete(name: str, version: int) -> None:
        named = {"topics": [delete_topics.DeleteTopicState(name)]} if version >= 6 else {"topic_names": [name]}
        ask(
            f"delete {name} v{version}",
            ApiKey.DELETE_TOPICS,
            version,
            delete_topics.DeleteTopicsRequest(**named, timeout_ms=9_000),
            "responses",
        )

    create("a", 15, 7)
    create("b", 1, 7)
    create("b", 1, 6)
    widen("a", 16, 3)
    delete("a", 6)
    delete("a", 5)
    create("c", 2, 5)
    widen("c", 4, 2)
    delete("c", 4)
    limit(port, "client-id", "peer", "controller_mutation_rate", None)
    create("d", 20, 7)
    return out


def configure(port: int, **settings: str) -> Any:
    """Alter the node's settings; return code and message."""
    configs = [
        incremental_alter_configs.AlterableConfig(key.replace("_", "."), 0, value) for key, value in settings.items()
    ]
    client = RawClient(port)
    answer = client.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(4, "", configs)]
        ),
    )
    wait_until_brokers_current(client)
    client.close()
    return answer.responses[0].error_code


class ConnectionAttempt:
    """Connection that requests the API versions; the response may be missing."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.came_s = time.monotonic()
        self._client = RawClient(port, source=host)
        self._client.send(ApiKey.API_VERSIONS, 3, api_versions.ApiVersionsRequest("compat", "1"))

    def is_answered(self, timeout_s: float = RawClient.timeout_s) -> bool | None:
        """Return True for a response; None if the connection was closed."""
        self._client.sock.settimeout(timeout_s)
        try:
            self._client.read()
        except TimeoutError:
            return False
        except OSError:
            return None
        return True

    def close(self) -> None:
        self._client.close()


def connections(port: int) -> list[RecordedAnswers]:
    """Return numbers and rates of connections."""
    out: list[RecordedAnswers] = []
    for name, value in (
        ("max_connections", "0"),
        ("max_connections", "-1"),
        ("max_connection_creation_rate", "0"),
        ("max_connections_per_ip", "-1"),
    ):
        out.append((f"set {name}={value}", configure(port, **{name: value}), 0))
    configure(port, max_connections_per_ip_overrides="127.0.0.2:2")
    several = [ConnectionAttempt(port, "127.0.0.2") for _ in range(4)]
    out.append(("of one address", [x.is_answered() for x in several], 0))
    for caller in several:
        caller.close()
    configure(port, max_connections="4")
    many = [ConnectionAttempt(port) for _ in range(5)]
    out.append(("at once", [*(x.is_answered() for x in many[:4]), many[4].is_answered(0.7)], 0))
    many[0].close()
    out.append(("once there is room", many[4].is_answered(), 0))
    for caller in many:
        caller.close()
    time.sleep(0.3)
    configure(port, max_connections="2147483647")
    limit(port, "ip", "127.0.0.3", "connection_creation_rate", 1)
    often = [ConnectionAttempt(port, "127.0.0.3") for _ in range(11)]
    out.append(("often from one address", [x.is_answered() for x in often], 0))
    kept_s = time.monotonic() - often[-1].came_s
    out.append(("is kept for a second", 0.9 < kept_s < 30, 0))
    if not ALL:
        return out
    time.sleep(10)  # the window of the rate is over
    began = time.monotonic()
    for number in range(260):
        caller = ConnectionAttempt(port)
        assert caller.is_answered()
        caller.close()
        if number == 219:
            began = time.monotonic()
    out.append(("forty over the rate", None, round((time.monotonic() - began) * 1000)))
    return out


def run_scenarios(port: int) -> list[RecordedAnswers]:
    return connections(port) + changes(port)  # Kafka keeps a throttled connection that the client has closed


def both(where: Path, scenario: Any, **settings: str) -> tuple[list[RecordedAnswers], list[RecordedAnswers]]:
    with OttlaProcess(where / "ottla", **settings) as node:
        ours = scenario(node.port)
    assert "Traceback" not in node.log.read_text()
    with KafkaProcess(where / "kafka", **settings) as kafka:
        theirs = scenario(kafka.port)
    return ours, theirs


@pytest.mark.xdist_group(__name__)
def test_mutation_and_connection_quotas_equal_kafka(tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, run_scenarios, max_connection_creation_rate="20")
    assert [x[:2] for x in ours] == [x[:2] for x in theirs]
    for (name, _, wait_ms), (_, _, kafkas_ms) in zip(ours, theirs, strict=True):
        assert wait_ms == pytest.approx(kafkas_ms, rel=0.1), name
    assert {code for name, expected, _ in ours if name.startswith("create") for code, _ in expected} == {0, 89}


def had(port: int, ask: Callable[[RawClient], int]) -> float:
    """Return the rate of a client that requests every ``STEP_S``: bytes over the time in which it was not muted."""
    client, began_s, size_bytes = RawClient(port, WINDOWS_S), time.monotonic(), 0
    while (requested_s := time.monotonic()) < began_s + WINDOWS_S:
        size_bytes += ask(client)
        time.sleep(max(0.0, requested_s + STEP_S - time.monotonic()))
    client.close()
    return size_bytes / (time.monotonic() - began_s)


def rates(port: int) -> dict[str, float]:
    """Return the measured rates of a client with produce and fetch quotas."""
    for key in ("producer_byte_rate", "consumer_byte_rate"):
        limit(port, "client-id", "peer", key, BOUND)
    client = RawClient(port)
    client.call(
        ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest([create_topics.CreatableTopic("rates", 1, 1)], 9_000)
    )
    wait_until_brokers_current(client)
    raw = bytes(records.build_batch([records.NewRecord(None, bytes(STEP_BYTES), int(time.time() * 1000))]))
    client.produce("rates", 0, raw)
    client.close()

    def bring(peer: RawClient) -> int:
        assert peer.produce("rates", 0, raw).error_code == 0
        return len(raw)

    part = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=STEP_BYTES)
    wanted = fetch.FetchRequest(
        max_wait_ms=0, max_bytes=STEP_BYTES, topics=[fetch.FetchTopic("rates", partitions=[part])]
    )

    def fetch_step(peer: RawClient) -> int:
        answer = peer.call(ApiKey.FETCH, 12, wanted)
        return sum(len(row.records) for topic in answer.responses for row in topic.partitions)

    with ThreadPoolExecutor() as clients:
        requested = {"brought": clients.submit(had, port, bring), "taken": clients.submit(had, port, fetch_step)}
    return {name: rate.result() for name, rate in requested.items()}


@pytest.mark.skipif(not ALL, reason="takes a minute: OTTLA_QUOTAS=all")
@pytest.mark.xdist_group(__name__)
def test_byte_rates_at_twice_the_quota_are_limited_as_by_kafka(tmp_path: Path) -> None:
    nodes = OttlaProcess(tmp_path / "ottla"), KafkaProcess(tmp_path / "kafka")
    with nodes[0], nodes[1], ThreadPoolExecutor() as both:
        ours, theirs = both.map(rates, [node.port for node in nodes])
    print(f"bound {BOUND}: ottla {ours}, kafka {theirs}")
    assert ours == pytest.approx(dict.fromkeys(ours, BOUND), rel=0.05)
    assert theirs == pytest.approx(dict.fromkeys(theirs, BOUND), rel=0.05)
