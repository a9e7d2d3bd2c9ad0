"""Replication throttling of lagging replicas (R-341). Source: ``ReplicationQuotaManager.java``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio

from ottla.broker.quotas.replication_quota import FOLLOWER, LEADER, ReplicationQuota
from ottla.broker.replication.tests.broker_cluster import BrokerCluster, wait_until
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage
from ottla.wire.errors import ErrorCode

ME = 7
RATE, LIST = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"


def image(rate: dict[str, str] | None = None, listed: str = "*") -> MetadataImage:
    """Return an image with ``rate`` by broker; an empty name is the cluster default."""
    brokers: dict[Any, Any] = {(RESOURCE_BROKER, name): {RATE: text} for name, text in (rate or {}).items()}
    return MetadataImage(configs={**brokers, (RESOURCE_TOPIC, "t"): {LIST: listed}})


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ({}, None),
        ({"7": "100"}, 100),
        ({"": "50"}, 50),
        ({"7": "100", "": "50"}, 100),
        ({"8": "100"}, None),
        ({"7": "much"}, None),
    ],
)
def test_replication_rate_of_broker_overrides_cluster_default(rate: dict[str, str], expected: int | None) -> None:
    assert ReplicationQuota(LEADER, ME).bytes_per_second(image(rate)) == expected
    assert ReplicationQuota(FOLLOWER, ME).bytes_per_second(image(rate)) is None


@pytest.mark.behaviour("P-100", "S-354")
@pytest.mark.parametrize(
    ("listed", "named"),
    [("*", {0, 1, 2}), ("", set()), ("0:7,1:8, 2:7", {0, 2}), ("0:77,1:8", set()), ("none", set())],
)
def test_throttled_replicas_of_topic_select_partitions(listed: str, named: set[int]) -> None:
    throttle, now = ReplicationQuota(LEADER, ME), image(listed=listed)
    assert {n for n in range(3) if throttle.is_throttled(now, "t", n)} == named
    assert not throttle.is_throttled(now, "another", 0)
    assert throttle.is_throttled(image(), "t", 1), "and may name others later"


def test_replication_quota_measures_mean_of_eleven_seconds() -> None:
    throttle, limit = ReplicationQuota(LEADER, ME), image({"7": "100"})
    assert not throttle.is_exceeded(limit, 0)
    throttle.record(100, 0)
    assert not throttle.is_exceeded(limit, 0), "just so much"
    throttle.record(1, 10)
    assert throttle.is_exceeded(limit, 10)
    assert not throttle.is_exceeded(image(), 10), "no rate, no limit"
    assert not throttle.is_exceeded(limit, 1010), "1.01 s have gone by"
    throttle.record(999, 1020)
    for now, over in ((1020, True), (9000, True), (10_900, True), (11_001, True), (11_020, False), (12_021, False)):
        assert throttle.is_exceeded(limit, now) is over, now


@pytest.mark.behaviour("R-341", "P-100", "S-354")
@pytest.mark.parametrize(
    ("side", "broker"), [pytest.param(LEADER, 1, id="at the leader"), pytest.param(FOLLOWER, 3, id="at the follower")]
)
def test_replication_throttle_slows_lagging_follower_only(side: str, broker: int) -> None:
    brokers = BrokerCluster(replica_fetch_max_bytes="1000")
    configs: Any = {
        (RESOURCE_BROKER, str(broker)): {f"{side}.replication.throttled.rate": "1000"},
        (RESOURCE_TOPIC, "t"): {f"{side}.replication.throttled.replicas": "*"},
    }

    async def scenario() -> None:
        brokers.image = replace(brokers.image, configs=configs)
        brokers.commit_partition()
        brokers[3].kill()
        brokers.fence(3)
        for _ in range(40):
            assert await brokers[1].produce(b"x" * 400) is ErrorCode.NONE
        assert trio.current_time() < 5, "who is in sync is not held back"
        brokers[3].start()
        brokers.register()
        took = await wait_until(lambda: 3 in brokers.partition().isr, 60)
        assert 12 < took < 35  # at the leader, bytes for the replica in sync count too
        began = trio.current_time()
        assert await brokers[1].produce(b"x" * 4000) is ErrorCode.NONE
        assert trio.current_time() - began < 1

    brokers.run(scenario)
