"""Simulated run of three nodes with tiered storage and a faulty remote store.

Violations besides those of a cluster: ``in-no-tier`` (a record is neither in a local segment nor in a copied one),
``object-lost`` (a copied segment has no object), ``orphan`` (an object has no metadata), ``not-copied`` (rolled
segments are not copied within a minute after the faults), ``not-deleted`` (objects remain a minute after their topic is
deleted).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import trio

from ottla.broker.node import Node
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentMetadata
from ottla.broker.storage.tiered.segment_format import object_name
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import delete_topics
from sim.engine.object_store import SimObjectStore, SimStoreFaults
from sim.engine.processes import SimProcess
from sim.faults.node_lifecycle import NodeLifecycle
from sim.scenarios.cluster import RUN_S, ClusterScenario, ClusterStopPolicy, node_settings
from sim.scenarios.single_node import SimulationResult
from sim.workload.clients import TOPIC, RetriableError, SimClient, create_topic

TIERED_SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "700",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
}
TIERED_TOPIC = {"remote.storage.enable": "true", "internal.segment.bytes": "900", "local.retention.bytes": "3000"}
CHECK_INTERVAL_S = 0.3
CATCH_UP_S = 60.0


class TieredNodeLifecycle(NodeLifecycle):
    """Repeated runs of a node with tiered storage in the simulated ``store``, which is set after the creation."""

    store: SimObjectStore

    def create_node(self, process: SimProcess) -> Node:
        """Create the node of a new run, with a session of the store."""
        process.env.open_remote_storage = partial(self.store.segment_store, process)
        return super().create_node(process)


class TieredClusterScenario(ClusterScenario):
    """Simulated run of a cluster with a tiered topic and a faulty remote store, and its verification."""

    def __init__(self, seed: int, run_s: float = RUN_S) -> None:
        super().__init__(seed, run_s=run_s)
        plan, rng = self.fault_plan, self.simulation.rng
        plan.settings |= TIERED_SETTINGS
        self.store = SimObjectStore(self.simulation, _draw_faults(rng.random))
        names, guard = list(self.numbers), ClusterStopPolicy(self)
        for name, number in self.numbers.items():
            made = TieredNodeLifecycle(self.simulation, plan, number, name, node_settings(number, names), guard)
            made.store = self.store
            self.lifecycles[name] = made

    async def _work(self) -> None:
        await create_topic(self.simulation, TOPIC, TIERED_TOPIC, self.service)
        async with trio.open_nursery() as checks:
            checks.start_soon(self._check_tiers)
            checks.start_soon(self._fail_store)
            await super()._work()
            checks.cancel_scope.cancel()

    async def _fail_store(self) -> None:
        """Make the store unreachable for up to 8 s, every 5 to 25 s until cancelled, if calls to it may fail at all."""
        while True:
            await trio.sleep(5 + 20 * self.store.rng.random())
            if self.store.faults.failing:
                self.store.faults.down_until_s = self.simulation.now_s() + 8 * self.store.rng.random()
                self.fault_plan.counts["store-down"] += 1

    async def _verify_progress(self) -> None:
        self.store.faults = SimStoreFaults()
        await super()._verify_progress()

    # ------------------------------------------------------------------ checks

    def _replicas(self) -> Iterator[tuple[HostedPartition, RemoteLogMetadataCache]]:
        """Yield each hosted replica of the tiered topic with its cache, if the remote metadata are loaded."""
        for parts in self.live_nodes().values():
            manager = parts.remote_log_manager
            assert manager is not None
            for replica in parts.replica_manager:
                cache = manager.cache(replica.topic_id, replica.partition)
                if replica.topic == TOPIC and cache is not None and not replica.log.closed:
                    yield replica, cache

    async def _check_tiers(self) -> None:
        while True:
            await trio.sleep(CHECK_INTERVAL_S)
            for replica, cache in self._replicas():
                self._remote_segments(replica, cache)

    def _remote_segments(
        self, replica: HostedPartition, cache: RemoteLogMetadataCache
    ) -> list[RemoteLogSegmentMetadata]:
        """Return the remote segments with the records below the local ones.

        A missing segment is reported as ``in-no-tier``, a missing object as ``object-lost``.
        """
        log, ledger, out = replica.log, self.simulation.ledger, []
        offset = log.log_start_offset
        while offset < log.local_log_start_offset:
            segment = cache.segment_for(log.epochs.epoch_for_offset(offset), offset)
            if segment is None:
                where = f"local start {log.local_log_start_offset}, leader epochs {log.epochs.entries}"
                ledger.report_violation("in-no-tier", f"offset {offset} of {log.describe()}, {where}")
                break
            if object_name(segment) not in self.store.objects:
                ledger.report_violation("object-lost", f"offset {offset} of {log.describe()}")
            out.append(segment)
            offset = segment.end_offset + 1
        return out

    def _leaders(self) -> list[tuple[HostedPartition, RemoteLogMetadataCache]]:
        return [(replica, cache) for replica, cache in self._replicas() if replica.is_leader]

    def _is_copied(self) -> bool:
        """Return True if every partition has a leader that has copied all of its rolled segments."""
        leaders = self._leaders()
        ends = [
            replica.log.highest_remote_offset + 1 - replica.log.segments.active.base_offset for replica, _ in leaders
        ]
        return len(leaders) == self.service.partitions and not any(ends)

    async def _wait_until(self, condition: Callable[[], bool]) -> bool:
        with trio.move_on_after(CATCH_UP_S):
            while True:
                if condition():
                    return True
                await trio.sleep(CHECK_INTERVAL_S)
        return False

    async def _verify(self, client: SimClient) -> None:
        ledger = self.simulation.ledger
        if not await self._wait_until(self._is_copied):
            ledger.report_violation("not-copied", str([replica.log.describe() for replica, _ in self._leaders()]))
            return
        known = set()
        for replica, cache in self._leaders():
            self._remote_segments(replica, cache)
            known |= {object_name(each) for each in cache.list_segments()}
        self.fault_plan.counts["objects"] = len(self.store.objects)
        for name in self.store.orphans(known):
            ledger.report_violation("orphan", name)
        await super()._verify(client)
        await client.retry_until_done(partial(self._delete_topic, client))
        if not await self._wait_until(lambda: not self.store.objects):
            ledger.report_violation("not-deleted", str(sorted(self.store.objects)[:5]))

    async def _delete_topic(self, client: SimClient) -> None:
        answer = await client.call(delete_topics.DeleteTopicsRequest([], [TOPIC], 5000), 4)
        code = ErrorCode(answer.responses[0].error_code)
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise RetriableError(code.name)


def _draw_faults(random: Callable[[], float]) -> SimStoreFaults:
    """Return random faults of a store, none in a fifth of the runs; ``random`` returns numbers from 0 to below 1."""
    share = 0.0 if random() < 0.2 else random()
    return SimStoreFaults(
        slow=0.1 * share,
        slow_s=4.0,
        failing=0.2 * share,
        lost_response=0.2 * share,
        denied=0.05 * share,
        truncated=0.1 * share,
        unfinished=0.5 * share,
        timeout_s=1.0,
    )


def simulate_tiered_cluster(
    seed: int, run_s: float = RUN_S, listen: Callable[[str], None] | None = None
) -> SimulationResult:
    """Simulate a cluster with tiered storage and return the result; ``listen`` gets each line of the trace."""
    cluster = TieredClusterScenario(seed, run_s)
    cluster.simulation.trace.listen = listen
    cluster.simulation.run(cluster.run)
    return cluster.result()
