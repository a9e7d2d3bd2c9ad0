"""Several brokers in memory: real logs, replicas and fetchers, real Fetch messages, in virtual time.

The controller is minimal: it commits what a test requests, applies ISR changes by the real rule, and elects a leader
when a test kills one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.dispatcher import Dispatcher, RequestContext
from ottla.broker.fetch_sessions.fetch_session_cache import FetchSessionCache
from ottla.broker.handlers.produce import produce
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.publisher import BrokerMetadataPublisher
from ottla.broker.replication.alter_partition_sender import AlterPartitionSender
from ottla.broker.replication.fetcher.fetcher_manager import ReplicaFetcherManager
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.log_creator import LogCreator
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.requests.decompression_limiter import DecompressionLimiter
from ottla.broker.requests.peer import Peer
from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.services import QuotaHolder
from ottla.broker.storage.log_dir_failures import LogDirFailureHandler
from ottla.broker.storage.log_dirs import LogDirs
from ottla.broker.tests.handler_fixture import VirtualEnv, resolve
from ottla.broker.tests.run_steps import run_steps
from ottla.controller.control.alter_partition import alter_partition
from ottla.controller.metadata.delta import MetadataDelta, TopicDelta
from ottla.controller.metadata.directory_id import UNASSIGNED
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage, merge_partition_change
from ottla.env.disk import FileSlice
from ottla.jobs.time_slice import run_in_background
from ottla.log.directory.meta_properties import MetaProperties
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.framing import encode_response, parse_request
from ottla.wire.messages.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_batch.records import NewRecord, build_batch, iterate_records

TOPIC_ID = b"the topic's id--"
THREAD_WORK_S = 0.001
"""Latency of a message between brokers."""


class BrokerStream:
    """End of a connection with frames that a broker answers."""

    def __init__(self, brokers: BrokerCluster, here: ReplicatedBroker, there: ReplicatedBroker) -> None:
        self._brokers, self._here, self._there = brokers, here, there
        self._received = bytearray()
        self._wakeup = trio.Event()
        self.closed = False
        self.peer, self.local = f"h{here.id}", (f"h{there.id}", 9092)
        self._peer = Peer(f"h{here.id}", self.local)
        self._scope: trio.CancelScope | None = None

    async def send(self, chunks: Sequence[Any]) -> None:
        if self.closed:
            raise OSError("hung up")
        self._brokers.nursery.start_soon(self._answer, b"".join(chunks))

    async def _answer(self, raw: bytes) -> None:
        with trio.CancelScope() as self._scope:
            await trio.sleep(THREAD_WORK_S)
            request = parse_request(memoryview(bytearray(raw[4:])))
            self._brokers.requests.append((self._here.id, self._there.id, request.key, request.version))
            answer = await resolve(self._there.dispatcher.handle_request(self._peer, request))
            out = encode_response(request.key, request.version, request.correlation_id, answer)
            out = b"".join(c.read() if isinstance(c, FileSlice) else bytes(c) for c in out)
            while self._brokers.is_cut(self._here, self._there):  # noqa: ASYNC110
                await trio.sleep(0.01)
            await trio.sleep(THREAD_WORK_S)
            self._received += out
            self._wakeup.set()

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        with trio.move_on_after(timeout_s):
            while not self._received and not self.closed:
                self._wakeup = trio.Event()
                await self._wakeup.wait()
        count = min(len(buffer), len(self._received))
        buffer[:count] = self._received[:count]
        del self._received[:count]
        return count

    def close(self) -> None:
        self.closed = True
        if self._scope is not None:
            self._scope.cancel()
        self._wakeup.set()


class ReplicatedBroker:
    """Broker of the cluster. After a kill it restarts from its disk."""

    def __init__(self, brokers: BrokerCluster, number: int, **settings: str) -> None:
        self.brokers, self.id = brokers, number
        self.env: Any = VirtualEnv(number)
        self.config = NodeConfig({k.replace("_", "."): v for k, v in settings.items()}, "/a", number)
        self.epoch = number * 100
        self.wires: list[BrokerStream] = []
        self.is_up = False
        self.env.net = SimpleNamespace(connect=self._connect)

    async def _connect(self, host: str, port: int) -> BrokerStream:
        await trio.sleep(THREAD_WORK_S)
        there = self.brokers[int(host[1:])]
        if not there.is_up:
            raise OSError("refused")
        wire = BrokerStream(self.brokers, self, there)
        self.wires.append(wire)
        there.wires.append(wire)
        return wire

    def start(self) -> None:
        """Start the process."""
        env, config = self.env, self.config
        env.disk = env.memory.session()
        self.is_up = True
        self.epoch += 1
        self.storage = storage = LogDirs(env.disk, config.data_dirs)
        storage.lock()
        ids = iter(bytes([self.id, n]) * 8 for n in range(10))
        storage.initialize(MetaProperties("c", self.id, next(ids)), env.now_ms(), lambda: next(ids))
        self.failed = 0
        losses = LogDirFailureHandler(storage, self._fail)
        fail = losses.handle_failure
        self.purgatory = Purgatory(env)
        self.replicas = ReplicaManager(
            env, config, storage, self.purgatory.check_and_complete, lambda replica: None, fail
        )
        self.log_creator = LogCreator(env, config, storage, self.replicas, fail)
        self.cache = MetadataCache(config, "c", lambda: 1)
        self.applier = BrokerMetadataPublisher(env, config, self.cache, self.replicas, self.log_creator)
        self.fetchers = ReplicaFetcherManager(env, config, self.replicas, lambda: self.epoch, fail)
        lag_ms = config.number("replica.lag.time.max.ms")
        self.changes = AlterPartitionSender(env, self.id, self, self.replicas, lambda: self.epoch, lag_ms)
        self.committed: list[int] = []
        replicas = self.replicas
        replicas.on_follower.append(self.fetchers.add_partition)
        replicas.on_resigned.append(lambda replica: self.fetchers.remove_partition((replica.topic, replica.partition)))
        replicas.on_leader.append(lambda replica: self.fetchers.remove_partition((replica.topic, replica.partition)))
        replicas.on_isr_change.append(self.changes.submit)
        replicas.on_high_watermark_moved.append(lambda replica: self.committed.append(replica.log.high_watermark))
        self.services: Any = SimpleNamespace(
            decompression_limiter=DecompressionLimiter(),
            env=env,
            config=config,
            metadata=self.cache,
            replica_manager=replicas,
            log_creator=self.log_creator,
            purgatory=self.purgatory,
            fetch_sessions=FetchSessionCache(env, 10),
            authorizer=None,
            audit=None,
            quota_holder=QuotaHolder(),
            log_dirs=storage,
            fetch_max_bytes=config.number("fetch.max.bytes"),
            fail=fail,
            remote_reads=None,
        )
        self.dispatcher = Dispatcher(self.services)
        self.cancel_scope = trio.CancelScope()
        self.brokers.nursery.start_soon(self._live)

    async def _live(self) -> None:
        with self.cancel_scope:
            image = self.brokers.image
            await run_in_background(self.env, self.replicas.load(image))
            self.applier.publish(image, MetadataDelta.from_empty(image))
            async with trio.open_nursery() as nursery:
                for task in (
                    self.applier.run,
                    self.log_creator.run,
                    self.fetchers.run,
                    self.changes.run,
                    self.changes.run_isr_expiration,
                ):
                    nursery.start_soon(task)

    def _fail(self) -> None:
        self.failed += 1

    def kill(self) -> None:
        """kill -9: connections end, the page cache stays."""
        self.is_up = False
        self.cancel_scope.cancel()
        for wire in self.wires:
            wire.close()
        self.wires.clear()
        self.storage.unlock()

    async def submit(self, request: Any, version: int = 0) -> Any:
        """Submit a request to the controller."""
        await trio.sleep(THREAD_WORK_S)
        answer = self.brokers.handle_alter_partition(request, version)
        await trio.sleep(THREAD_WORK_S)
        return answer

    @property
    def replica(self) -> HostedPartition:
        found = self.replicas.get("t", 0)
        assert found is not None
        return found

    @property
    def is_leader(self) -> bool:
        found = self.replicas.get("t", 0)
        return found is not None and found.is_leader

    @property
    def log(self) -> Any:
        return self.replica.log

    def values(self) -> list[bytes]:
        """Return the values in the log."""
        return [x.value or b"" for header, raw in self.log.segments.batches() for x in iterate_records(raw, header)]

    async def produce(self, *values: bytes, acks: int = -1, timeout_ms: int = 60_000) -> ErrorCode:
        """Append a batch as a client does; return its error code."""
        batch = bytearray(build_batch([NewRecord(None, value, self.env.now_ms()) for value in values]))
        topic = TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])
        peer = Peer("client", ("here", 9092))
        context = RequestContext(self.services, peer, ApiKey.PRODUCE, 12, "client", self.env.now_ms(), BROKER_APIS)
        answer = await resolve(produce.handle(context, ProduceRequest(None, acks, timeout_ms, [topic])))
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)


class BrokerCluster:
    """Cluster of brokers with one controller."""

    def __init__(self, count: int = 3, **settings: str) -> None:
        self.all = {number: ReplicatedBroker(self, number, **settings) for number in range(1, count + 1)}
        self.image = MetadataImage(features={"metadata.version": 30})
        self.nursery: Any = None
        self.requests: list[tuple[int, int, ApiKey, int]] = []
        self.cut: set[int] = set()
        """Brokers whose fetches get no answer."""
        self.refuses: list[int] = []
        """Top-level errors the next ISR changes are answered with."""

    def __getitem__(self, number: int) -> ReplicatedBroker:
        return self.all[number]

    def is_cut(self, here: ReplicatedBroker, there: ReplicatedBroker) -> bool:
        return here.id in self.cut

    def partition(self) -> PartitionRegistration:
        return self.image.topics["t"].partitions[0]

    @property
    def leader(self) -> ReplicatedBroker:
        return self[self.partition().leader]

    def register(self, *, fenced: tuple[int, ...] = ()) -> None:
        """Register all running brokers."""
        known = {
            b.id: RegisterBrokerRecord(
                broker_id=b.id,
                broker_epoch=b.epoch,
                end_points=[BrokerEndpoint("PLAINTEXT", f"h{b.id}", 9092, 0)],
                fenced=b.id in fenced or not b.is_up,
            )
            for b in self.all.values()
        }
        self._publish(
            replace(self.image, offset=self.image.offset + 1, brokers=known), MetadataDelta(brokers=frozenset(known))
        )

    def commit_partition(self, **expected: Any) -> None:
        """Commit a partition state; leader epoch and partition epoch increase by themselves."""
        before = self.image.topics.get("t")
        if before is None:
            members = tuple(self.all)
            base = PartitionRegistration(members, members, 1, 0, 0, (UNASSIGNED,) * len(members))
        else:
            base = before.partitions[0]
            base = replace(base, partition_epoch=base.partition_epoch + 1)
        if expected.get("leader", base.leader) != base.leader:
            expected.setdefault("leader_epoch", base.leader_epoch + 1)
        topic = TopicImage("t", TOPIC_ID, {0: replace(base, **expected)})
        image = replace(self.image, offset=self.image.offset + 1, topics={"t": topic}, topic_names={TOPIC_ID: "t"})
        self._publish(image, MetadataDelta({"t": TopicDelta(before, topic, frozenset({0}))}))

    def _publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.image = image
        for broker in self.all.values():
            if broker.is_up and broker.id not in self.cut:
                broker.applier.publish(image, delta)

    def handle_alter_partition(self, request: Any, version: int) -> Any:
        """Handle an ISR change by the controller's own rule."""
        if self.refuses:
            code = self.refuses.pop(0)
            if code == ErrorCode.NOT_CONTROLLER:
                raise ProtocolError(ErrorCode.NOT_CONTROLLER)
            return SimpleNamespace(error_code=code, topics=[])
        decision = run_steps(alter_partition(self.image, request, version, {}))
        for record in decision.records:
            now = merge_partition_change(self.partition(), record)
            self.commit_partition(isr=now.isr, partition_epoch=now.partition_epoch, leader_epoch=now.leader_epoch)
        return decision.response

    def fence(self, number: int, leader: int | None = None) -> None:
        """Fence a broker: it leaves the ISR, and another one leads."""
        self.register(fenced=(number,))
        isr = tuple(i for i in self.partition().isr if i != number)
        self.commit_partition(isr=isr, leader=leader or isr[0], leader_epoch=self.partition().leader_epoch + 1)

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Run a scenario: all brokers are up, and the partition has its replicas in sync under broker 1."""

        async def main() -> None:
            async with trio.open_nursery() as self.nursery:
                for broker in self.all.values():
                    broker.start()
                self.register()
                self.commit_partition()
                with trio.fail_after(600):
                    await trio.sleep(0.1)
                    await scenario()
                self.nursery.cancel_scope.cancel()

        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def wait_until(is_so: Callable[[], bool], within_s: float = 20, every_s: float = 0.005) -> float:
    """Wait for a condition; return the seconds it took."""
    began = trio.current_time()
    with trio.fail_after(within_s):
        while not is_so():  # noqa: ASYNC110
            await trio.sleep(every_s)
    return trio.current_time() - began
