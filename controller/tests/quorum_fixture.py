"""Controllers on in-memory disks and an in-memory network, in virtual time."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.snapshot_files import SnapshotContents, SnapshotId, encode_snapshot, write_snapshot
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine.quorum_timeouts import QuorumTimeouts
from ottla.controller.tests.controller_fixture import ControllerTestEnv
from ottla.env.memory_disk import MemoryDisk
from ottla.jobs.job import run_to_end
from ottla.log.directory.log_directory import METADATA_TOPIC, LogDirectory
from ottla.log.directory.meta_properties import MetaProperties
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.codec import compiler
from ottla.wire.codec.primitives import uuid_to_string
from ottla.wire.framing import encode_response, parse_request
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse, SupportedFeatureKey
from ottla.wire.messages.control_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter

MAX_VERSIONS = {
    ApiKey.API_VERSIONS: 4,
    ApiKey.FETCH: 18,
    ApiKey.VOTE: 2,
    ApiKey.BEGIN_QUORUM_EPOCH: 1,
    ApiKey.END_QUORUM_EPOCH: 1,
    ApiKey.FETCH_SNAPSHOT: 1,
    ApiKey.ADD_RAFT_VOTER: 1,
    ApiKey.REMOVE_RAFT_VOTER: 0,
    ApiKey.UPDATE_RAFT_VOTER: 0,
}
CLUSTER_ID = uuid_to_string(bytes(range(16)))
LISTENER = "CONTROLLER"


def endpoint(node_id: int) -> ListenerEndpoint:
    return ListenerEndpoint(LISTENER, f"host{node_id}", 9093)


class QuorumConnection:
    """Client end of a connection to the controller of another node."""

    peer = "here"
    local = ("here", 0)

    def __init__(self, quorum: ControllerQuorum, home: int, to: int) -> None:
        self._quorum, self._home, self._to = quorum, home, to
        self._incarnation = quorum.nodes[to].incarnation
        self._frames: list[bytes] = []
        self._responses = bytearray()
        self._wakeup = trio.Event()

    def _broken(self) -> bool:
        other = self._quorum.nodes[self._to]
        return other.controller is None or other.incarnation != self._incarnation

    async def send(self, chunks: Sequence[Any]) -> None:
        if self._broken():
            raise OSError("reset")
        frame = b"".join(bytes(c) for c in chunks)
        node = self._quorum.nodes[self._to]
        assert node.nursery is not None
        node.nursery.start_soon(self._serve, frame[4:])

    async def _serve(self, frame: bytes) -> None:
        if not self._quorum.can_connect(self._home, self._to):
            return
        node = self._quorum.nodes[self._to]
        request = parse_request(memoryview(frame))
        body = compiler.decode(request_class(request.key), request.version, frame, request.body_position)[0]
        if request.key is ApiKey.API_VERSIONS:
            spoken = MAX_VERSIONS | self._quorum.nodes[self._to].max_versions
            keys = [ApiVersion(key, 0, newest) for key, newest in spoken.items()]
            answer: Any = ApiVersionsResponse(0, keys)
            answer.supported_features = [SupportedFeatureKey("kraft.version", 0, 1)]
        else:
            assert node.controller is not None
            answer = await node.controller.handle_raft_request(body, request.version, LISTENER)
        await trio.sleep(0.001)
        if self._quorum.can_connect(self._to, self._home):
            for part in encode_response(request.key, request.version, request.correlation_id, answer):
                self._responses += part
            self.wake()

    def wake(self) -> None:
        self._wakeup.set()
        self._wakeup = trio.Event()

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        with trio.move_on_after(timeout_s):
            while not self._responses:
                if self._broken():
                    raise OSError("reset")
                await self._wakeup.wait()
        count = min(len(buffer), len(self._responses))
        buffer[:count] = self._responses[:count]
        del self._responses[:count]
        return count

    def close(self) -> None:
        self._quorum.connections.discard(self)


class QuorumNetwork:
    """Network of one node."""

    def __init__(self, quorum: ControllerQuorum, home: int) -> None:
        self._quorum, self._home = quorum, home

    async def listen(self, host: str, port: int, buffers: Any = None) -> Any:
        raise NotImplementedError

    async def connect(self, host: str, port: int) -> QuorumConnection:
        to = self._quorum.node_on_host(int(host.removeprefix("host")))
        if not self._quorum.can_connect(self._home, to):
            await trio.sleep_forever()
        if self._quorum.nodes[to].controller is None:
            raise ConnectionRefusedError(111, "refused")
        line = QuorumConnection(self._quorum, self._home, to)
        self._quorum.connections.add(line)
        return line


class ControllerQuorumNode:
    """Host on which a controller runs at times."""

    def __init__(self, quorum: ControllerQuorum, node_id: int, *, votes: bool = True) -> None:
        self.quorum, self.node_id, self.votes = quorum, node_id, votes
        self.disk = MemoryDisk(random.Random(node_id), lambda: 0)
        self.identity = MetaProperties(CLUSTER_ID, node_id, bytes([node_id] * 16))
        self.incarnation = 0
        self.auto_joins = False
        """The node joins the voters by itself."""
        self.may_vote = False
        """The node has a controller listener, as a voter or an observer."""
        self.moved_to: int | None = None
        """Another node now has the address of its listener."""
        self.is_starting = False
        self.max_versions: dict[ApiKey, int] = {}
        """Highest version per request, for a node of an older release."""
        self.controller: QuorumController | None = None
        self.env: ControllerTestEnv
        self.nursery: trio.Nursery | None = None
        self.published: list[tuple[MetadataImage, MetadataDelta]] = []
        self.failures: list[OSError] = []

    @property
    def running_controller(self) -> QuorumController:
        assert self.controller is not None
        return self.controller

    def kill(self) -> None:
        """Kill the process and cut the power: unsynced data may be lost."""
        assert self.nursery is not None
        self.nursery.cancel_scope.cancel()
        self.controller = None
        self.incarnation += 1
        self.disk.lose_power()
        for line in list(self.quorum.connections):
            line.wake()


class ControllerQuorum:
    """Controllers and observers of a quorum."""

    def __init__(
        self, voters: int, observers: int = 0, *, static: bool = False, fetch_bytes: int = 1 << 20, **settings: str
    ) -> None:
        self.timeouts = QuorumTimeouts(fetch_bytes=fetch_bytes)
        self.partitioned_nodes: set[int] = set()
        """Nodes that are partitioned from all others."""
        self.connections: set[QuorumConnection] = set()
        self.settings = settings
        self._ids = itertools.count(1)
        self._nursery: trio.Nursery
        ids = range(1, voters + 1)
        self.nodes = {i: ControllerQuorumNode(self, i) for i in ids}
        self.nodes |= {i: ControllerQuorumNode(self, i, votes=False) for i in range(voters + 1, voters + observers + 1)}
        self.static = tuple((i, endpoint(i)) for i in ids) if static else ()
        self.bootstrap = tuple((f"host{i}", 9093) for i in ids)
        rows = [VotersRecordVoter(i, bytes([i] * 16), [Endpoint(*endpoint(i))], KRaftVersionFeature(0, 1)) for i in ids]
        for member in self.nodes.values():
            directory = f"/data/{METADATA_TOPIC}-0"
            session = member.disk.session()
            session.makedirs(directory)
            if member.votes and not static:
                raw = run_to_end(encode_snapshot(SnapshotContents([], 1, VotersRecord(0, rows)), 0, 0))
                write_snapshot(session, f"{directory}/{SnapshotId(0, 0).file_name}", raw)
            session.fsync_dir("/data")
            session.fsync_dir(directory)

    def can_connect(self, one: int, other: int) -> bool:
        return one not in self.partitioned_nodes and other not in self.partitioned_nodes

    def node_on_host(self, host: int) -> int:
        """Return the node on a host."""
        return next((i for i, m in self.nodes.items() if m.moved_to == host), host)

    def start(self, node_id: int) -> None:
        self.nodes[node_id].is_starting = True
        self._nursery.start_soon(self._run_node, self.nodes[node_id])

    async def _run_node(self, member: ControllerQuorumNode) -> None:
        member.env = ControllerTestEnv(member.disk, self._ids)
        member.env.net = QuorumNetwork(self, member.node_id)
        rng = random.Random(f"{member.node_id} {member.incarnation}")
        member.env.random = rng.random  # type: ignore[method-assign]
        here = member.node_id if member.moved_to is None else member.moved_to
        endpoints = (endpoint(here),) if member.votes or member.may_vote else ()
        bootstrap = () if self.static else self.bootstrap
        config = QuorumConfig(LISTENER, endpoints, self.static, bootstrap, self.timeouts, auto_join=member.auto_joins)
        directory = LogDirectory(member.env.disk, "/data")
        made = QuorumController(
            member.env,
            directory,
            member.identity,
            ControllerDefaults(static_config=self.settings),
            member.failures.append,
            config,
        )
        made.load()
        made.subscribe(lambda image, delta: member.published.append((image, delta)))
        async with trio.open_nursery() as nursery:
            member.nursery, member.controller, member.is_starting = nursery, made, False
            nursery.start_soon(made.run)

    @asynccontextmanager
    async def running(self, *ids: int) -> AsyncIterator[ControllerQuorum]:
        """Run those nodes, or all of them; all are killed at the end."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for node_id in ids or self.nodes:
                self.start(node_id)
            await trio.lowlevel.checkpoint()
            yield self
            nursery.cancel_scope.cancel()
        for member in self.nodes.values():
            member.controller = None

    async def leader(self, seconds: float = 20) -> QuorumController:
        """Return the active controller once there is one; of two, the one with the higher epoch."""
        with trio.fail_after(seconds):
            while True:
                near = [
                    x.running_controller
                    for x in self.nodes.values()
                    if x.controller is not None and x.node_id not in self.partitioned_nodes
                ]
                active = [x for x in near if x.is_active]
                if active:
                    return max(active, key=lambda x: x.epoch)
                await trio.sleep(0.01)

    async def wait_converged(self) -> None:
        """Wait until all running, connected nodes have the same image."""
        leader = await self.leader()
        with trio.fail_after(20):
            while True:
                live = [
                    x.running_controller
                    for x in self.nodes.values()
                    if x.controller is not None and x.node_id not in self.partitioned_nodes
                ]
                starting = any(x.is_starting for x in self.nodes.values())
                if not starting and all(x.image.topics == leader.image.topics and x._ready.is_set() for x in live):
                    return
                await trio.sleep(0.01)
