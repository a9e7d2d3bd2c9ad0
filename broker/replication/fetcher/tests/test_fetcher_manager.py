"""Assignment of partitions to fetchers, and the lifetime of a fetcher (R-310, R-317)."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.quotas.replication_quota import FOLLOWER, ReplicationQuota
from ottla.broker.replication.fetcher.fetcher_manager import ReplicaFetcherManager, fetcher_index
from ottla.broker.tests.handler_fixture import NOW_MS, HandlerFixture, VirtualEnv, run_virtual
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.record_serde import OLDEST_METADATA_VERSION
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.messages.metadata_records import BrokerEndpoint, RegisterBrokerRecord


# As `Utils.abs(31 * topic.hashCode() + partition) % count` of a JVM gives them.
@pytest.mark.behaviour("R-310")
@pytest.mark.parametrize(
    ("topic", "partition", "count", "wanted"),
    [
        ("t", 0, 1, 0),
        ("t", 0, 7, 5),
        ("t", 1, 7, 6),
        ("t", 49, 4, 1),
        ("b", 1, 4, 3),
        ("orders", 0, 7, 6),  # -1207109189
        ("orders", 49, 7, 6),
        ("payments", 0, 4, 1),  # -86518157
        ("payments", 5, 7, 0),
        ("__consumer_offsets", 0, 4, 3),  # -16741367
        ("__consumer_offsets", 49, 7, 6),
        ("zzzzzz", 5, 7, 6),  # 215480901
        ("polygenelubricants", 0, 7, 0),  # -2147483648, without an absolute value in Java
        ("polygenelubricants", 1, 7, 1),
        ("polygenelubricants", 49, 4, 3),
    ],
)
def test_fetcher_index_equals_hash_of_jvm(topic: str, partition: int, count: int, wanted: int) -> None:
    assert fetcher_index(topic, partition, count) == wanted


class FollowingNode(HandlerFixture):
    """Node with follower partitions and no reachable leader."""

    def __init__(self, **settings: str) -> None:
        super().__init__()
        self.failed: list[tuple[OSError, Any]] = []
        hosted: Any = self.hosted
        hosted.follower_quota = ReplicationQuota(FOLLOWER, 1)
        brokers = {
            2: RegisterBrokerRecord(broker_id=2, end_points=[BrokerEndpoint("AMONG", "h2", 9094, 0)], fenced=False)
        }
        hosted.image = MetadataImage(brokers=brokers, features={"metadata.version": 21})
        self.config = NodeConfig({k.replace("_", "."): v for k, v in settings.items()}, "/a", 1)
        self.requested: list[tuple[str, int]] = []
        env: Any = VirtualEnv()
        env.disk = self.services.env.disk
        env.net = SimpleNamespace(connect=self._connect)
        self.fetchers = ReplicaFetcherManager(
            env, self.config, hosted, lambda: 77, lambda error, log: self.failed.append((error, log)), "AMONG"
        )

    async def _connect(self, host: str, port: int) -> Any:
        self.requested.append((host, port))
        raise OSError("refused")

    @property
    def running(self) -> list[tuple[int, int]]:
        """Return (leader, fetcher number) of the running fetchers."""
        return sorted(self.fetchers._fetchers)

    def follower(self, name: str, partitions: int = 1) -> Any:
        image = self.hosted.image
        self.hosted.host(name, partitions=partitions, leader=2, isr=(2,), replicas=(1, 2))
        self.hosted.image = image
        return [self.hosted.replicas[name, number] for number in range(partitions)]


def test_fetcher_count_and_limits_come_from_settings() -> None:
    node = FollowingNode(num_replica_fetchers="4", replica_socket_timeout_ms="4500", replica_fetch_wait_max_ms="123")
    for replica in node.follower("t", 3):
        node.fetchers.add_partition(replica, 2, 3)
    assert node.running == [(2, 0), (2, 1), (2, 2)]
    dependencies = node.fetchers._dependencies()
    assert (dependencies.timeout_s, dependencies.limits.max_wait_ms, dependencies.node_id) == (4.5, 123, 1)
    assert (dependencies.broker_epoch(), dependencies.metadata_version()) == (77, 21)
    assert (dependencies.address(2), dependencies.address(3)) == (("h2", 9094), None), "where brokers reach each other"
    node.hosted.image = MetadataImage()
    assert dependencies.metadata_version() == OLDEST_METADATA_VERSION, "where nothing is said"


def test_fetcher_without_partitions_is_stopped() -> None:
    node = FollowingNode()
    first, second = node.follower("t", 2)
    node.fetchers.add_partition(first, 2, 3)
    node.fetchers.add_partition(second, 2, 3)
    assert [len(f) for f in node.fetchers._fetchers.values()] == [2]
    node.fetchers.add_partition(first, 0, 4)
    assert node.running == [(0, 0), (2, 0)], "broker 0 is a broker as others"
    was = node.fetchers._fetchers[2, 0]
    node.fetchers.add_partition(second, -1, 5)
    assert node.running == [(0, 0)]
    assert was._stopped
    node.fetchers.remove_partition(("t", 1))
    node.fetchers.remove_partition(("t", 0))
    node.fetchers.remove_partition(("t", 0))
    assert node.running == []


def test_add_partition_again_keeps_fetcher_and_new_replica_replaces_old() -> None:
    node = FollowingNode()
    (replica,) = node.follower("t")
    node.fetchers.add_partition(replica, 2, 3)
    one = node.fetchers._fetchers[2, 0]
    node.fetchers.add_partition(replica, 2, 4)
    assert node.fetchers._fetchers == {(2, 0): one}
    node.hosted._env.memory = type(node.hosted._env.memory)(node.hosted._env._rng, node.hosted._env.now_ms)
    node.hosted._env.disk = node.hosted._env.memory.session()
    (anew,) = node.follower("t")
    node.fetchers.add_partition(anew, 2, 5)
    assert [*node.fetchers._fetchers[2, 0]._partitions.values()] == [anew]


def test_run_starts_all_fetchers_and_stops_them_at_its_end() -> None:
    node = FollowingNode()
    first, second = (node.follower(name)[0] for name in ("t", "u"))

    async def scenario() -> None:
        node.fetchers.add_partition(first, 2, 3)
        await trio.sleep(1)
        assert node.requested == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.fetchers.run)
            await trio.sleep(1)
            assert node.requested
            assert {*node.requested} == {("h2", 9094)}
            node.fetchers.add_partition(second, 0, 3)
            assert len(node.running) == 2
            await trio.sleep(1)
            assert node.fetchers._fetchers[0, 0]._is_unreachable_logged, (
                "it looks for its leader, of whom no address is known"
            )
            nursery.cancel_scope.cancel()
        assert node.fetchers._nursery is None

    run_virtual(scenario)


@pytest.mark.behaviour("R-317", "P-50")
@pytest.mark.parametrize(("epoch", "end"), [(-1, 6), (0, 12), (3, 12)])
def test_log_without_leader_epochs_is_truncated_to_high_watermark(epoch: int, end: int) -> None:
    node = FollowingNode()
    (replica,) = node.follower("t")
    for _ in range(4):
        replica.log.append_as_leader(make_batch(10), epoch, NOW_MS)
    replica.log.set_high_watermark(6)
    node.fetchers.add_partition(replica, 2, 3)
    assert replica.log.log_end_offset == end
    assert node.failed == []


def test_truncation_error_reports_log_directory_and_adds_no_partition() -> None:
    node = FollowingNode()
    (replica,) = node.follower("t")
    replica.log.append_as_leader(make_batch(10), -1, NOW_MS)

    node.env.disk.fault = lambda call, path: OSError(errno.EIO, "injected") if "/t-0/" in path else None
    node.fetchers.add_partition(replica, 2, 3)
    assert [(error.errno, log) for error, log in node.failed] == [(errno.EIO, replica.log)]
    assert node.running == []


def test_follower_throttle_checks_partition_and_records_bytes() -> None:
    node = FollowingNode()
    (replica,) = node.follower("t")
    named: list[tuple[str, int]] = []
    counted: list[int] = []
    throttle = node.fetchers._replica_manager.follower_quota = SimpleNamespace(  # type: ignore[assignment]
        is_throttled=lambda image, topic, partition: named.append((topic, partition)) or True,
        record=lambda size_bytes, now_ms: counted.append(size_bytes),
        is_exceeded=lambda image, now_ms: sum(counted) > 10,
    )
    dependencies = node.fetchers._dependencies()
    assert throttle is not None
    assert dependencies.is_throttled(replica)
    assert named == [("t", 0)]
    assert not dependencies.is_quota_exceeded()
    dependencies.record_throttled_bytes(11)
    assert (counted, dependencies.is_quota_exceeded()) == ([11], True)
