"""The same quotas and the same requests at a node and at Apache Kafka 4.3.1: equal refusals, waits within 10 %."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compat_tests.cluster import KafkaProcess, OttlaProcess
from compat_tests.raw import RawClient, until
from ottla.wire.apis import ApiKey
from ottla.wire.messages import alter_client_quotas as ac
from ottla.wire.messages import create_partitions as cp
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import delete_topics as dt
from ottla.wire.messages import describe_client_quotas as dc

Told = tuple[str, Any, int]
"""What was asked, what was answered, and how long to wait, in milliseconds."""


def limit(port: int, kind: str, name: str | None, key: str, value: float | None) -> None:
    """Set a quota, or take it away, and wait until the node tells it."""
    op = ac.OpData(key, value or 0.0, value is None)
    entry = ac.AlterClientQuotasRequestEntryData([ac.AlterClientQuotasRequestEntityData(kind, name)], [op])
    client = RawClient(port)
    answer = client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, ac.AlterClientQuotasRequest([entry]))
    assert answer.entries[0].error_code == 0
    asked = dc.DescribeClientQuotasRequest([dc.ComponentData(kind, 1 if name is None else 0, name)])

    def told() -> bool:
        rows = client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, asked).entries or []
        found = {value.key: value.value for row in rows for value in row.values}
        return found.get(key) == value

    until(told)
    client.close()


def changes(port: int) -> list[Told]:
    """Partitions made and removed under a quota of one in two seconds: a bucket of five and a half."""
    limit(port, "client-id", "peer", "controller_mutation_rate", 0.5)
    out: list[Told] = []

    def ask(what: str, key: ApiKey, version: int, body: Any, rows: str) -> None:
        client = RawClient(port)  # who is over it is not read for a while
        answer = client.call(key, version, body)
        client.close()
        told = [(row.error_code, row.error_message) for row in getattr(answer, rows)]
        out.append((what, told, answer.throttle_time_ms))

    def create(name: str, partitions: int, version: int) -> None:
        request = ct.CreateTopicsRequest([ct.CreatableTopic(name, partitions, 1)], 9_000)
        ask(f"create {name} v{version}", ApiKey.CREATE_TOPICS, version, request, "topics")

    def widen(name: str, count: int, version: int) -> None:
        request = cp.CreatePartitionsRequest([cp.CreatePartitionsTopic(name, count, None)], 9_000)
        ask(f"widen {name} v{version}", ApiKey.CREATE_PARTITIONS, version, request, "results")

    def delete(name: str, version: int) -> None:
        named = {"topics": [dt.DeleteTopicState(name)]} if version >= 6 else {"topic_names": [name]}
        ask(
            f"delete {name} v{version}",
            ApiKey.DELETE_TOPICS,
            version,
            dt.DeleteTopicsRequest(**named, timeout_ms=9_000),
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


def both(where: Path, story: Any, **settings: str) -> tuple[list[Told], list[Told]]:
    with OttlaProcess(where / "ottla", **settings) as node:
        ours = story(node.port)
    assert "Traceback" not in node.log.read_text()
    with KafkaProcess(where / "kafka", **settings) as kafka:
        theirs = story(kafka.port)
    return ours, theirs


@pytest.mark.xdist_group("kafka-9093")
def test_who_changes_too_much_is_refused_and_waits_as_at_kafka(tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, changes)
    assert [x[:2] for x in ours] == [x[:2] for x in theirs]
    for (what, _, wait_ms), (_, _, kafkas_ms) in zip(ours, theirs, strict=True):
        assert wait_ms == pytest.approx(kafkas_ms, rel=0.1), what
    assert {code for _, told, _ in ours for code, _ in told} == {0, 89}
