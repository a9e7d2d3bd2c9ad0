"""Part of a node that handlers need: real components with an in-memory disk, in virtual time, without connections."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from types import GeneratorType, SimpleNamespace
from typing import Any, TypeVar

import trio
import trio.testing

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.fetch_sessions.fetch_session_cache import FetchSessionCache
from ottla.broker.quotas.replication_quota import LEADER, ReplicationQuota
from ottla.broker.replication.hosted_partition import HostedPartition, IsrDependencies, TopicTraffic
from ottla.broker.requests.decompression_limiter import DecompressionLimiter
from ottla.broker.requests.peer import Peer
from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.services import QuotaHolder
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.env.disk import FileSlice
from ottla.env.memory_disk import MemoryDisk
from ottla.jobs.job import as_job
from ottla.jobs.time_slice import SLICE_MS, TimeSlice
from ottla.log.log_config import LogConfig
from ottla.log.recovery.log_loader import create_log
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.codec.chunk_sequence import flatten_chunks
from ottla.wire.errors import ErrorCode, ProtocolError

T = TypeVar("T")
NOW_MS = 1_000_000


class AdvancingClock:
    """Clock that advances at each reading."""

    def __init__(self, by_ms: float = SLICE_MS) -> None:
        self.now = 0.0
        self._by_ms = by_ms

    def monotonic_ms(self) -> float:
        self.now += self._by_ms
        return self.now


class VirtualEnv:
    """`Env` with trio's clock as its time, and random numbers from a seed."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self.memory = MemoryDisk(self._rng, self.now_ms)
        self.disk = self.memory.session()

    def now_ms(self) -> int:
        return NOW_MS + int(self.monotonic_ms())

    def monotonic_ms(self) -> float:
        try:
            return trio.current_time() * 1000
        except RuntimeError:
            return 0.0  # before the run

    def uuid(self) -> bytes:
        return b"\x01" + self._rng.randbytes(15)

    def random(self) -> float:
        return self._rng.random()

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    def timeout(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(seconds)

    async def in_thread(self, work: Callable[[], T], lane: Any = None) -> T:
        await trio.lowlevel.checkpoint()
        return work()


def run_virtual(main: Callable[[], Awaitable[T]]) -> T:
    """Run a task in virtual time."""
    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def start(answer: Any, each_ms: float = 0) -> Any:
    """Return the response of a handler when its job neither waits nor uses up its slice, otherwise its awaitable.

    Each step of the job takes ``each_ms``.
    """
    return TimeSlice(AdvancingClock(each_ms)).start(as_job(answer))  # type: ignore[arg-type]


async def resolve(answer: Any) -> Any:
    """Return the response of a handler, or of its awaitable."""
    if isinstance(answer, GeneratorType):
        answer = start(answer)
    return await answer if isinstance(answer, Awaitable) else answer


def as_decoded(answer: Any, version: int) -> Any:
    """Return a response as its reader decodes it: long arrays keep only their last rows as objects before that."""
    chunks = flatten_chunks(compiler.encode_chunks(answer, version))
    raw = b"".join(chunk.read() if isinstance(chunk, FileSlice) else chunk for chunk in chunks)
    return compiler.decode(type(answer), version, raw)[0]


def topic_id_of(name: str) -> bytes:
    return name.encode().ljust(16, b"-")[:16]


class FakeReplicaManager:
    """Partitions of a test, led by this node unless stated otherwise."""

    def __init__(self, env: VirtualEnv, purgatory: Purgatory) -> None:
        self._env = env
        self._purgatory = purgatory
        self.image = MetadataImage()
        self.replicas: dict[tuple[str, int], HostedPartition] = {}
        self.leader_quota = ReplicationQuota(LEADER, 1)
        self.traffic: dict[str, TopicTraffic] = {}
        self.unknown_traffic = TopicTraffic()

    def host(
        self,
        name: str,
        *,
        partitions: int = 1,
        leader: int = 1,
        isr: tuple[int, ...] = (1,),
        replicas: tuple[int, ...] = (1,),
        settings: LogConfig | None = None,
    ) -> HostedPartition:
        """Host a topic; return its first partition."""
        topic_id = topic_id_of(name)
        registration = PartitionRegistration(replicas, isr, leader, 3, 0)
        topic = TopicImage(name, topic_id, dict.fromkeys(range(partitions), registration))
        self.image = MetadataImage(
            topics={**self.image.topics, name: topic}, topic_names={**self.image.topic_names, topic_id: name}
        )
        rules = IsrDependencies(30_000, lambda broker, epoch: True)
        for number in range(partitions):
            path = f"/data/{name}-{number}"
            log = create_log(self._env.disk, path, name, number, topic_id, settings or LogConfig(), NOW_MS)
            replica = HostedPartition(log, topic_id, self._purgatory.check_and_complete, lambda r: None, rules)
            replica.apply_partition_state(1, registration, NOW_MS)
            replica.traffic = self.traffic.setdefault(name, replica.traffic)
            self.replicas[name, number] = replica
        return self.replicas[name, 0]

    def get(self, topic: str, partition: int) -> HostedPartition | None:
        return self.replicas.get((topic, partition))

    def topic_traffic(self, topic: str) -> TopicTraffic:
        return self.traffic.get(topic, self.unknown_traffic)

    def hosted(self, topic: str, partition: int) -> HostedPartition:
        replica = self.replicas.get((topic, partition))
        if replica is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return replica

    def leader(self, topic: str, partition: int) -> HostedPartition:
        replica = self.hosted(topic, partition)
        if not replica.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica


class HandlerFixture:
    """Services of a node that the data plane needs."""

    def __init__(self, **settings: str) -> None:
        self.env = VirtualEnv()
        self.config = NodeConfig({name.replace("_", "."): value for name, value in settings.items()})
        self.failures: list[OSError] = []
        purgatory = Purgatory(self.env)  # type: ignore[arg-type]
        self.hosted = FakeReplicaManager(self.env, purgatory)
        hosted = self.hosted

        class Metadata:
            cluster_id = "cluster"
            kraft_version = 1

            @property
            def image(self) -> MetadataImage:
                return hosted.image

            def endpoints(self, peer: Peer, *, fenced: bool = False) -> list[Any]:
                return [(1, *peer.local, None)]

        self.services: Any = SimpleNamespace(
            env=self.env,
            config=self.config,
            metadata=Metadata(),
            replica_manager=hosted,
            log_creator=(),
            purgatory=purgatory,
            fetch_sessions=FetchSessionCache(self.env, 3),  # type: ignore[arg-type]
            fetch_max_bytes=self.config.number("fetch.max.bytes"),
            fail=lambda error, where=None: self.failures.append(error),
            authorizer=None,
            audit=None,
            quota_holder=QuotaHolder(),
            decompression_limiter=DecompressionLimiter(),
            remote_reads=None,
        )

    def context(self, key: ApiKey, version: int, client_id: str = "client") -> RequestContext:
        peer = Peer("127.0.0.1", ("here", 9092))
        return RequestContext(self.services, peer, key, version, client_id, self.env.now_ms(), BROKER_APIS)
