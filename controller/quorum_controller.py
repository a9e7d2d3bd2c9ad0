"""Controller of a node: its replica of the metadata log, the image, and request processing while it is active.

A single task processes controller events in order. A follower replays committed records. An elected leader replays all
records before its own epoch, writes its first records and is then active: it processes requests until it loses the
leadership. Its uncommitted records may still be committed by the next leader; then they are read from the log.

Source: ``QuorumController.java``, ``MetadataLoader.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from ottla.controller import activation
from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.delta import MetadataListener
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.record_serde import METADATA_VERSION
from ottla.controller.metadata.subscriptions import MetadataSubscriptions
from ottla.controller.metadata_loader import MetadataLoader
from ottla.controller.periodic_tasks import (
    ERROR_RETRY_MS,
    PERIODIC_TASKS,
    REPEAT_DELAY_MS,
    TASKS_FOR_OTHER_BROKERS,
    WRITE_NO_OP_RECORD,
    PeriodicTask,
)
from ottla.controller.raft.driver.raft_driver import RaftDriver
from ottla.controller.raft.quorum_config import QuorumConfig
from ottla.controller.raft.state_machine import events
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.store.metadata_log_config import MetadataLogConfig
from ottla.controller.raft.store.metadata_store import IncompatibleQuorum, MetadataStore
from ottla.controller.request_processor import RequestProcessor
from ottla.controller.snapshot_generator import SnapshotGenerator
from ottla.env.disk import is_transient
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.pending_request import ChargeQuota, PendingRequest, no_quota
from ottla.jobs.time_slice import run_in_background
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.meta_properties import MetaProperties
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError

logger = logging.getLogger("ottla.controller")

RESIGN_TIMEOUT_S = 0.5
"""Maximum wait of a clean shutdown for another leader (R-210), in seconds; Kafka waits 5 s. A majority needs some
milliseconds; without one, waiting does not help. Voters that miss EndQuorumEpoch soon find that the port is closed.
"""
SHORTAGE_RETRY_S = 0.1
"""Pause in seconds before a controller that is short of descriptors or memory tries again."""
__all__ = ["QuorumController", "IncompatibleQuorum", "PendingRequest"]


class QuorumController:
    """Controller of a node, also of a broker: voter or observer of the quorum, the active controller while it leads."""

    def __init__(
        self,
        env: Env,
        directory: LogDirectory,
        identity: MetaProperties,
        defaults: ControllerDefaults,
        fail: Callable[[OSError], None],
        quorum: QuorumConfig,
    ) -> None:
        self._env = env
        self._fail = fail
        self._directory = directory
        self._identity = identity
        self._quorum = quorum
        self.incarnation_id = env.uuid()
        """Incarnation id of this process in its controller registration."""
        self.machine = ControllerStateMachine(defaults, env.uuid, identity.node_id, identity.cluster_id, env.random)
        self.machine.static_voters = tuple(node_id for node_id, _ in quorum.static_voters)
        self._subscriptions = MetadataSubscriptions(lambda: self.machine.image)
        settings = MetadataLogConfig.from_config(defaults.static_config)
        self._store = MetadataStore(env.disk, directory.path, identity, env.now_ms(), settings)
        self._loader = MetadataLoader(self.machine, self._store)
        self._raft: RaftDriver
        self._request_processor: RequestProcessor
        self._snapshot_generator: SnapshotGenerator | None = None
        """Writer of snapshots; created when the first snapshot is due."""
        self._active_epoch = -1
        """Epoch in which this node is the active controller; -1 while it is not."""
        self._resume_offset = 0
        """Offset below which all records must be replayed before this node becomes active again."""
        self._waiting: list[PendingRequest] = []
        self._wakeup = trio.Event()
        self._ready = trio.Event()
        self._published = trio.Event()
        self._stop_reason: Exception | None = None
        """Reason for which no request is accepted any more; None while the controller runs."""
        self._nursery: trio.Nursery

    # ------------------------------------------------------------------ state for other components

    @property
    def image(self) -> MetadataImage:
        """Newest published metadata image, of committed records only."""
        return self.machine.image

    @property
    def node_id(self) -> int:
        """``node.id`` of this controller."""
        return self._identity.node_id

    @property
    def directory_id(self) -> bytes:
        """Directory id of the metadata log directory."""
        return self._identity.directory_id

    @property
    def is_active(self) -> bool:
        """True if this node is the active controller and accepts requests."""
        return self._active_epoch >= 0 and self._stop_reason is None and self._raft.led_epoch == self._active_epoch

    @property
    def leader_id(self) -> int:
        """Node id of the quorum's leader; -1 if unknown."""
        return self._raft.machine.leader_id

    @property
    def epoch(self) -> int:
        """Newest epoch of the quorum that this node knows."""
        return self._raft.machine.epoch

    @property
    def raft(self) -> RaftStateMachine:
        """State of the Raft state machine, read-only."""
        return self._raft.machine

    @property
    def raft_driver(self) -> RaftDriver:
        """Driver of the Raft state machine, for observers of its steps and traffic; available after `load`."""
        return self._raft

    @property
    def kraft_version(self) -> int:
        """kraft.version: 0 if the voters are fixed by configuration, 1 if they are in a VotersRecord."""
        return self._store.kraft_version

    @property
    def log_end_offset(self) -> int:
        """End offset of this node's metadata log, uncommitted records included."""
        return self._store.log.log_end_offset

    def leader_address(self) -> tuple[str, int] | None:
        """Return host and port of the leader's controller listener; None if the leader or its address is unknown."""
        found = self._raft.addresses.endpoint(self.leader_id, self._quorum.listener)
        return None if found is None else (found.host, found.port)

    def subscribe(self, listener: MetadataListener) -> Callable[[], None]:
        """Call ``listener`` now, if there is a committed image, and after each commit before the responses to requests.

        The contract is that of `MetadataSubscriptions.subscribe`; calling the result ends the subscription.
        """
        return self._subscriptions.subscribe(listener)

    # ------------------------------------------------------------------ main loop

    def load(self) -> None:
        """Replay the snapshot that the constructor has read, and create the Raft driver; called once, before `run`.

        Raises:
            IncompatibleQuorum: not a member of the quorum, or the metadata.version is not supported.
        """
        self._loader.load_initial_snapshot()
        env, store = self._env, self._store
        self._raft = RaftDriver(env, store, self._identity, self._quorum, self._on_disk_failure, self._wake)
        self._request_processor = RequestProcessor(env, self.machine, self._raft, self._loader, self._publish)

    async def run(self) -> None:
        """Run the Raft driver and process events until cancelled; unexpected errors are raised.

        A failure of the disk is passed to ``fail``; no event is processed any more then, but this call does not return.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._raft.run)
            for task in PERIODIC_TASKS:
                nursery.start_soon(self._run_periodic_task, task)
            while self._stop_reason is None:
                await self._wakeup.wait()
                self._wakeup = trio.Event()
                await self._process_events()

    async def wait_ready(self) -> None:
        """Wait until this node has become active controller, or has reached the high watermark of a leader once.

        It is that of the leader's first response. Later calls return at once; a stop does not end the wait.
        """
        await self._ready.wait()

    def _wake(self) -> None:
        self._wakeup.set()

    async def _process_events(self) -> None:
        """Process a change of leader or high watermark, and the pending requests."""
        raft = self._raft
        try:
            if self._active_epoch not in (-1, raft.led_epoch):
                self._deactivate()
            if self._active_epoch < 0:
                await run_in_background(self._env, self._loader.catch_up(raft.high_watermark))
                led = raft.led_epoch
                if led >= 0 and self._loader.position >= max(raft.epoch_start_offset + 1, self._resume_offset):
                    await run_in_background(self._env, self._activate(led))
                elif led < 0:
                    await self._follow_leader()
            waiting, self._waiting = self._waiting, []
            if waiting:
                self.machine.kraft_version = self.kraft_version
                await run_in_background(self._env, self._request_processor.process(waiting))
        except ProtocolError as error:
            if error.code != ErrorCode.NOT_CONTROLLER:
                raise
            self._deactivate()
        except OSError as error:
            if is_transient(error) and error is not raft.failure:
                await self._wait_for_resources(error)
                return
            self._stop(error)
            if error is not raft.failure:  # otherwise the error was reported already
                self._fail(error)

    async def _wait_for_resources(self, error: OSError) -> None:
        """Deactivate, as on a loss of leadership, and sleep before a retry: descriptors or memory were short."""
        logger.warning(
            "Controller %d is short of resources, renouncing the leadership and retrying: %s", self.node_id, error
        )
        self._resume_offset = self._store.log.log_end_offset  # records of the same epoch, which may still be committed
        self._deactivate()
        await self._env.sleep(SHORTAGE_RETRY_S)

    async def _follow_leader(self) -> None:
        """Publish committed records of another leader, once this node has caught up with it; set it ready then."""
        raft, machine = self._raft, self.machine
        if not self._ready.is_set():
            if raft.catch_up_offset < 0 or self._loader.position < raft.catch_up_offset:
                return
            if METADATA_VERSION not in machine.latest_image.features:
                return
        if machine.latest_image is not machine.image:
            await run_in_background(self._env, self._publish())
        self._ready.set()

    def _activate(self, epoch: int) -> Job[None]:
        """Become active controller in ``epoch``: commit the first records, then accept requests; a job."""
        turns, machine = self._request_processor, self.machine
        turns.epoch = epoch
        machine.kraft_version = self.kraft_version
        if machine.latest_image is not machine.image:
            yield from self._publish()
        path, here = self._directory.path, self._quorum.endpoints
        for records in activation.activation_records(
            machine, self._env, path, self._identity, here, self.incarnation_id
        ):
            yield from turns.append(records)
            yield from turns.commit()
        machine.activate(self._env.monotonic_ms(), self.node_id)
        self._active_epoch = epoch
        logger.info("Becoming the active controller at epoch %d: node %d", epoch, self.node_id)
        self._notify_published()
        self._ready.set()

    def _deactivate(self) -> None:
        """Stop being active controller: discard uncommitted changes and fail pending requests with NOT_CONTROLLER."""
        if self._active_epoch >= 0:
            logger.info("Renouncing the leadership: controller %d", self.node_id)
        self._active_epoch = -1
        self.machine.revert()
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            pending.fail(ProtocolError(ErrorCode.NOT_CONTROLLER))
        self._wake()

    def _publish(self) -> Job[None]:
        image, delta = yield from self.machine.publish()
        self._subscriptions.publish(image, delta)
        self._notify_published()
        if not self.machine.in_transaction and self._store.is_snapshot_due(self._env.now_ms()):
            if self._snapshot_generator is None:
                self._snapshot_generator = SnapshotGenerator(self._env, self._store, self._raft, self._on_disk_failure)
            self._snapshot_generator.maybe_generate(image, self._nursery)

    def _notify_published(self) -> None:
        self._published.set()
        self._published = trio.Event()

    def _is_needed(self, task: PeriodicTask) -> bool:
        """Return False for a periodic task that has no work in a cluster of this node alone, so that it stays idle."""
        image = self.image
        if task is WRITE_NO_OP_RECORD:
            others = {*image.brokers, *image.controllers} - {self.node_id}
            return bool(others) or not self._raft.is_sole_voter
        return task not in TASKS_FOR_OTHER_BROKERS or any(broker_id != self.node_id for broker_id in image.brokers)

    async def _run_periodic_task(self, task: PeriodicTask) -> None:
        """Run a periodic task while this node is active, until cancelled; its period restarts at activation."""
        every_ms = task.period_ms(self.machine.defaults.static_config)
        wait_ms = every_ms
        while every_ms > 0:
            while not (self.is_active and self._is_needed(task)):
                await self._published.wait()
                wait_ms = every_ms
            epoch = self._active_epoch
            await self._env.sleep(wait_ms / 1000)
            wait_ms = every_ms
            if self._active_epoch != epoch:
                continue
            try:
                outcome = await self.submit(task)
                if isinstance(outcome, str):
                    logger.info("%s", outcome)
                wait_ms = REPEAT_DELAY_MS if outcome else every_ms
            except OSError:
                continue  # the disk has failed, and the node stops
            except AssertionError:
                raise  # a broken invariant stops the node, as everywhere
            except Exception as error:
                if isinstance(error, ProtocolError) and error.code == ErrorCode.NOT_CONTROLLER:
                    continue  # leadership is lost
                logger.exception("Failed to %s, retrying", task.name)
                wait_ms = ERROR_RETRY_MS

    # ------------------------------------------------------------------ requests

    def record_heartbeat(self, broker_id: int, broker_epoch: int) -> None:
        """Record a broker's heartbeat for its session on arrival, independent of its processing (R-276)."""
        self.machine.heartbeat_tracker.touch(broker_id, broker_epoch, self._env.monotonic_ms())

    def enqueue(self, request: Any, version: int = 0, charge_quota: ChargeQuota = no_quota) -> PendingRequest:
        """Enqueue a request or event, return its future: failed with NOT_CONTROLLER or a stop's error if not active."""
        pending = PendingRequest(request, version, charge_quota)
        if self._stop_reason is not None:
            pending.fail(self._stop_reason)
        elif not self.is_active:
            pending.fail(ProtocolError(ErrorCode.NOT_CONTROLLER))
        else:
            self._waiting.append(pending)
            self._wake()
        return pending

    async def submit(self, request: Any, version: int = 0, charge_quota: ChargeQuota = no_quota) -> Any:
        """Submit a request or event and wait for its response, once all its changes are committed.

        Raises:
            ProtocolError: it is rejected, or NOT_CONTROLLER: its changes may still be committed. OSError: disk failure.
        """
        return await self.enqueue(request, version, charge_quota).wait()

    async def handle_raft_request(self, message: Message, version: int, listener: str) -> Message:
        """Process a Raft or DescribeQuorum request of a node or client on a listener (name); return the response."""
        # lazy: 5.8 ms, 293 kB: only in a quorum of several controllers
        from ottla.controller.raft.driver.inbound_requests import handle_raft_request

        cluster_id, now_ms = self._identity.cluster_id, self._env.now_ms()
        return await handle_raft_request(self._raft, cluster_id, message, version, listener, now_ms)

    # ------------------------------------------------------------------ shutdown

    def _on_disk_failure(self, error: OSError) -> None:
        """Stop after a disk failure: the state on the disk is unknown, and no decision may be based on it."""
        self._stop(error)
        self._fail(error)

    def _stop(self, why: Exception) -> None:
        """Process no further events or requests: discard uncommitted changes, fail pending requests with ``why``."""
        self._stop_reason = why
        self.machine.revert()
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            pending.fail(why)
        self._wake()

    async def resign(self) -> None:
        """In a clean shutdown resign the leadership, if any, unless sole voter; wait shortly for a leader (R-210)."""
        if self._raft.led_epoch < 0 or self._raft.is_sole_voter:
            return
        self._raft.enqueue(events.Resign())
        with self._env.timeout(RESIGN_TIMEOUT_S):
            while self.leader_id in (-1, self.node_id):
                await self._raft.wait_for_change()

    def close(self) -> None:
        """Flush (waiting for the disk) and close the metadata log in a clean shutdown, after all tasks have ended.

        Uncommitted changes are discarded, and pending requests fail with NOT_CONTROLLER.
        """
        self._stop(ProtocolError(ErrorCode.NOT_CONTROLLER))
        self._store.close()
