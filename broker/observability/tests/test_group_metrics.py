"""Samples of groups: members, committed offsets, lag, and samples omitted at the limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinator.shard_state import CoordinatorState
from ottla.broker.observability import group_metrics
from ottla.broker.observability.group_metrics import GroupMetricsCollector
from ottla.broker.observability.metrics_builder import MetricsBuilder
from ottla.broker.observability.tests.metrics_fixture import collect, hosted, shard_of_groups


def group(name: str, state: Any, members: int) -> Any:
    return SimpleNamespace(id=name, state=state, members=dict.fromkeys(range(members)))


def found(*shards: Any) -> dict[str, float]:
    page, replicas = MetricsBuilder(), hosted()
    made = GroupMetricsCollector(page, replicas)  # type: ignore[arg-type]
    return collect(made.collect(shards), page)


def test_lag_is_the_high_watermark_minus_the_committed_offset() -> None:
    rows = found(shard_of_groups({"g": {"a": {0: 140, 1: 150}, "b": {7: 900, 9: 3}}}))
    name = "kafka_consumergroup"
    assert rows[f"{name}_current_offset{{consumergroup=g,topic=a,partition=0}}"] == 140
    assert rows[f"{name}_lag{{consumergroup=g,topic=a,partition=0}}"] == 10
    assert rows[f"{name}_group_lag{{group=g,topic=a,partition=0}}"] == 10
    assert rows[f"{name}_lag{{consumergroup=g,topic=a,partition=1}}"] == 0
    assert rows[f"{name}_lag{{consumergroup=g,topic=b,partition=7}}"] == 0, "committed beyond the high watermark"
    assert f"{name}_lag{{consumergroup=g,topic=b,partition=9}}" not in rows, "no replica here"
    assert rows[f"{name}_current_offset_sum{{consumergroup=g,topic=a}}"] == 290
    assert rows[f"{name}_lag_sum{{consumergroup=g,topic=a}}"] == 10
    assert rows[f"{name}_group_max_lag{{group=g}}"] == rows[f"{name}_group_sum_lag{{group=g}}"] == 10
    assert rows["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 4


def test_offsets_and_lag_have_the_names_of_kafka_lag_exporter() -> None:
    rows = found(shard_of_groups({"g": {"a": {0: 140, 1: 143}, "b": {9: 3}}}))
    name = "kafka_consumergroup_group"
    assert {key: value for key, value in rows.items() if key.startswith(name)} == {
        f"{name}_offset{{group=g,topic=a,partition=0}}": 140,
        f"{name}_offset{{group=g,topic=a,partition=1}}": 143,
        f"{name}_offset{{group=g,topic=b,partition=9}}": 3,
        f"{name}_lag{{group=g,topic=a,partition=0}}": 10,
        f"{name}_lag{{group=g,topic=a,partition=1}}": 7,
        f"{name}_topic_sum_lag{{group=g,topic=a}}": 17,
        f"{name}_max_lag{{group=g}}": 10,
        f"{name}_sum_lag{{group=g}}": 17,
    }


def test_groups_of_all_types_are_counted_by_state() -> None:
    rows = found(
        shard_of_groups({}, classic=[group("a", SimpleNamespace(value="Stable"), 2)], share=[group("b", "Empty", 0)]),
        shard_of_groups({}, consumer=[group("c", "Stable", 1), group("d", "Stable", 1)], streams=[group("e", "x", 3)]),
        SimpleNamespace(state=CoordinatorState.LOADING),
    )
    assert rows["ottla_groups{type=classic,state=Stable}"] == 1
    assert rows["ottla_groups{type=consumer,state=Stable}"] == 2
    assert rows["ottla_groups{type=share,state=Empty}"] == rows["ottla_groups{type=streams,state=x}"] == 1
    assert rows["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 5
    assert [rows[f"kafka_consumergroup_members{{consumergroup={name}}}"] for name in "abcde"] == [2, 0, 1, 1, 3]


def test_group_ids_are_escaped_and_long_ones_have_no_series() -> None:
    long = "x" * 250
    rows = found(shard_of_groups({'a"\n\\': {"a": {0: 1}}, long: {"a": {0: 1}}}, consumer=[group(long, "Empty", 0)]))
    assert rows['kafka_consumergroup_lag{consumergroup=a"\n\\,topic=a,partition=0}'] == 149
    assert not [name for name in rows if long in name]
    assert rows["ottla_metrics_omitted_group_offsets"] == 1
    assert rows["ottla_groups{type=consumer,state=Empty}"] == 1


def test_groups_beyond_the_limit_are_omitted_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_metrics, "MAX_METRICS_GROUP_OFFSETS", 3)
    offsets = {f"g{number}": {"a": {0: 1, 1: 1}} for number in range(3)}
    rows = found(shard_of_groups(offsets, consumer=[group(f"c{number}", "Empty", 0) for number in range(5)]))
    assert len([name for name in rows if name.startswith("kafka_consumergroup_current_offset{")]) == 2
    assert rows["ottla_metrics_omitted_group_offsets"] == 4
    assert len([name for name in rows if name.startswith("kafka_consumergroup_members{")]) == 3
