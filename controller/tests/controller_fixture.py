"""Controller on an in-memory disk in virtual time."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio

from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.storage_formatter import format_directory
from ottla.env.memory_disk import MemoryDisk
from ottla.log.directory.log_directory import LogDirectory
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, Feature

T = TypeVar("T")
ENDPOINT = ListenerEndpoint("CONTROLLER", "localhost", 9093)
SINGLE_NODE_QUORUM = QuorumConfig(endpoints=(ENDPOINT,))
DIRECTORY_ID = bytes(15) + b"\x77"


class ControllerTestEnv:
    """Environment of a controller. Threads wait until `thread_gate` is open."""

    __test__ = False

    def __init__(self, disk: MemoryDisk, ids: Iterator[int]) -> None:
        self.disk = disk.session()
        self.net: Any = None
        self.threads = 0
        self.thread_gate: trio.Event | None = None
        self.blocked_pools: dict[Any, trio.Event] = {}
        """Thread pools that are blocked until an event."""
        self.wall_ms = 1_000
        self.thread_error: OSError | None = None
        self._ids = ids

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> float:
        return trio.current_time() * 1000

    def uuid(self) -> bytes:
        return bytes([3, *next(self._ids).to_bytes(15, "big")])

    def random(self) -> float:
        return 0.5

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    def timeout(self, seconds: float) -> Any:
        return trio.move_on_after(seconds)

    async def in_thread(self, work: Callable[[], T], lane: Any = None) -> T:
        self.threads += 1
        await trio.lowlevel.checkpoint()
        if lane in self.blocked_pools:
            await self.blocked_pools[lane].wait()
        if self.thread_gate is not None:
            await self.thread_gate.wait()
        if self.thread_error is not None:
            raise self.thread_error
        return work()

    async def in_process(self, work: Any, argument: Any) -> Any:
        raise NotImplementedError


async def register_broker(controller: QuorumController, directory_id: bytes = DIRECTORY_ID) -> int:
    """Register and unfence the broker of the controller's node; return its broker epoch."""
    known = controller.image.brokers.get(controller.node_id)
    request = BrokerRegistrationRequest(
        controller.node_id,
        controller.machine.cluster_id,
        controller._env.uuid(),
        [],
        [Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
        None,
        log_dirs=[directory_id],
        previous_broker_epoch=-1 if known is None else known.broker_epoch,
    )
    answer = await controller.submit(request)
    assert answer.error_code == 0
    epoch: int = answer.broker_epoch
    await send_heartbeat(controller, epoch)
    return epoch


async def send_heartbeat(
    controller: QuorumController, epoch: int, *, want_shut_down: bool = False
) -> BrokerHeartbeatResponse:
    """Send a heartbeat of that broker."""
    controller.record_heartbeat(controller.node_id, epoch)
    request = BrokerHeartbeatRequest(controller.node_id, epoch, controller.image.offset, False, want_shut_down)
    answer: BrokerHeartbeatResponse = await controller.submit(request)
    return answer


async def shut_down_broker(controller: QuorumController) -> int:
    """Run a controlled shutdown; return the number of heartbeats, at most ten."""
    epoch = controller.image.brokers[controller.node_id].broker_epoch
    for number in range(1, 10):
        if (await send_heartbeat(controller, epoch, want_shut_down=True)).should_shut_down:
            return number
    return 10


class ControllerFixture:
    """Formatted directory on which controllers are started."""

    def __init__(self, **defaults: str) -> None:
        self.disk = MemoryDisk(random.Random(1), lambda: 0)
        self.defaults = ControllerDefaults(static_config=defaults)
        self.failures: list[OSError] = []
        self._ids = itertools.count(1)
        self.env = ControllerTestEnv(self.disk, self._ids)
        directory = LogDirectory(self.env.disk, "/data")
        directory.lock()
        self.identity = format_directory(directory, 1, None, ENDPOINT, 0, self.env.uuid)
        directory.unlock()

    @asynccontextmanager
    async def controller(self, *, broker: bool = True) -> AsyncIterator[QuorumController]:
        """Run an active controller, with an unfenced broker by default."""
        self.env = ControllerTestEnv(self.disk, self._ids)
        directory = LogDirectory(self.env.disk, "/data")
        out = QuorumController(
            self.env, directory, self.identity, self.defaults, self.failures.append, SINGLE_NODE_QUORUM
        )
        out.load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(out.run)
            await out.wait_ready()
            if broker:
                await register_broker(out)
            yield out
            nursery.cancel_scope.cancel()
