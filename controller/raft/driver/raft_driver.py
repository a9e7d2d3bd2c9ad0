"""Driver of the Raft state machine: executes its actions on the metadata log and sends its messages.

A single task steps it and executes each `Ready` in order. The log is flushed concurrently, one flush at a time, while
events are processed: a leader responds to fetches meanwhile. Possible voters flush their appends; a node with the
broker role only does not (R-225).

Source: ``KafkaRaftClient.poll``, ``KafkaRaftClientDriver.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ottla.controller.metadata.snapshot_files import SnapshotContents, SnapshotId
from ottla.controller.raft.driver.controller_addresses import ControllerAddresses
from ottla.controller.raft.driver.resource_retry import first_os_error, retry_call_on_shortage, retry_on_shortage
from ottla.controller.raft.driver.response_payload import ResponseWithRecords, read_response_records
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine import events
from ottla.controller.raft.state_machine.epoch_states import RaftLeaderState
from ottla.controller.raft.state_machine.events import (
    FetchSnapshot,
    OutboundRequest,
    RaftEvent,
    RaftFetchResponse,
    RaftRequest,
    Ready,
    ReplicaKey,
)
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.env.env import Env, ThreadPool
from ottla.jobs.pending_request import PendingRequest
from ottla.log.directory.meta_properties import MetaProperties
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.control_records import Endpoint, KRaftVersionFeature, VotersRecordVoter

if TYPE_CHECKING:
    from ottla.client.channel import ChannelTraffic
    from ottla.controller.raft.driver.outbound_requests import RaftRequestSender

logger = logging.getLogger("ottla.controller")

MIN_TICK_INTERVAL_MS = 2
"""Minimum time between two ticks, for a state machine whose deadline has passed without an action."""

SUPPORTED_KRAFT_VERSIONS = (0, 1)
"""Minimum and maximum supported kraft.version."""

StepObserver = Callable[[float, Ready], None]
"""Function called with the monotonic time in ms at which a step began and its `Ready`, once its records are written."""

StepCallback = Callable[[], RaftEvent | None]
"""Function called between two steps; returns an event for the state machine, or None."""


def _voter_entry(me: ReplicaKey, quorum: QuorumConfig) -> VotersRecordVoter | None:
    """Return this node's VotersRecord entry, also if it is no voter; None without the controller role."""
    if not quorum.endpoints:
        return None
    places = [Endpoint(*e) for e in quorum.endpoints]
    return VotersRecordVoter(me.id, me.directory_id, places, KRaftVersionFeature(*SUPPORTED_KRAFT_VERSIONS))


class RaftDriver:
    """Replica of the metadata log on a controller or broker: state machine, log and connections to the controllers."""

    def __init__(
        self,
        env: Env,
        store: MetadataStore,
        identity: MetaProperties,
        quorum: QuorumConfig,
        fail: Callable[[OSError], None],
        on_change: Callable[[], None],
    ) -> None:
        self.env = env
        self._store = store
        self._identity = identity
        self._quorum = quorum
        self._fail = fail
        self._on_change = on_change
        self.addresses = ControllerAddresses(identity.node_id, quorum, lambda: store.quorum_records.voters)
        self.machine = RaftStateMachine(
            store.local_replica,
            store.voter_history(quorum),
            store.initial_hard_state(quorum),
            store.log_summary(),
            env.random,
            quorum.timeouts,
            store.first_records(quorum),
            self.addresses.bootstrap,
            _voter_entry(store.local_replica, quorum),
            listener=quorum.listener,
            auto_join=quorum.auto_join,
            flushed_offset=store.log.recovery_point,  # records above it may not survive: the process was killed
        )
        self.catch_up_offset = -1
        """First high watermark received from the current leader, -1 before: a log up to it is caught up (R-308)."""
        self._led_until = (-1, -1)
        """Epoch that this node leads or led last, and the high watermark reached in it; -1 before."""
        self._request_sender: RaftRequestSender | None = None
        self._load_count = 0
        """Number of snapshot downloads started; only the last one is still of use."""
        self._load_lock = trio.Lock()
        self._loaded: SnapshotContents | None = None
        """Contents of a downloaded snapshot until the state machine decides whether it replaces the log."""
        self._callbacks: list[StepCallback] = []
        self.step_observers: list[StepObserver] = []
        self._wakeup = trio.Event()
        self._change_event = trio.Event()
        self._last_tick_ms = float("-inf")
        self._committed = -1
        """The machine's high watermark as of the last step whose records were written: it is ahead until they are."""
        self._is_flushing = False
        self._nursery: trio.Nursery
        self.failure: OSError | None = None
        """Disk failure after which no step is executed; None while the driver works."""

    # ------------------------------------------------------------------ state for other components

    @property
    def led_epoch(self) -> int:
        """Epoch that this node leads; -1 if it is not the leader."""
        return self.machine.epoch if self.machine.is_leader else -1

    @property
    def epoch_start_offset(self) -> int:
        """Offset of the first record of the epoch that this node leads."""
        assert isinstance(self.machine.state, RaftLeaderState)
        return self.machine.state.epoch_start_offset

    @property
    def high_watermark(self) -> int:
        """High watermark of the metadata log on this node (exclusive); all records below are written. -1 if unknown."""
        return self._committed

    @property
    def traffic(self) -> ChannelTraffic | None:
        """Requests to the other controllers and their bytes; None before the first one."""
        return None if self._request_sender is None else self._request_sender.traffic

    @property
    def is_sole_voter(self) -> bool:
        """True if this node is the only voter."""
        return len(self.machine.voters.current) == 1 and self.machine.voters.is_voter(self.machine.local_replica)

    @property
    def _can_vote(self) -> bool:
        return bool(self._quorum.endpoints) or self.machine.voters.is_voter(self.machine.local_replica)

    # ------------------------------------------------------------------ requests of other components

    def enqueue(self, event: RaftEvent) -> None:
        """Enqueue an event for the Raft state machine, and return; `run` executes the step."""
        self.run_between_steps(lambda: event)

    def run_between_steps(self, job: StepCallback) -> None:
        """Queue ``job`` for `run`, which calls it between two steps, when state machine and log are consistent.

        The event that it returns is the next step.
        """
        self._callbacks.append(job)
        self._wakeup.set()

    async def propose(self, epoch: int, batch: bytearray, count: int) -> int:
        """Append a batch of ``count`` records as the leader of ``epoch``; return the offset of its first record.

        It is returned before the batch is written; `wait_committed` waits for the commit.

        Raises:
            ProtocolError: NOT_CONTROLLER: this node does not lead that epoch any more.
            OSError: the disk failed, and the node stops.
        """
        pending = PendingRequest(None)

        def append() -> RaftEvent | None:
            if self.failure is not None or self.led_epoch != epoch:
                pending.fail(self.failure or ProtocolError(ErrorCode.NOT_CONTROLLER))
                return None
            pending.complete(self.machine.log_summary.end_offset)
            return events.Propose(batch, count)

        self.run_between_steps(append)
        if self.failure is not None:
            append()
        offset: int = await pending.wait()
        return offset

    async def wait_committed(self, epoch: int, end_offset: int) -> None:
        """Start a flush if necessary; wait until all below ``end_offset``, appended in ``epoch``, is committed.

        Raises:
            ProtocolError: NOT_CONTROLLER: leadership was lost before; the records may still be committed later.
            OSError: the disk failed, and the node stops.
        """
        if self.machine.flushed_offset < end_offset:
            self.run_between_steps(self._maybe_flush)
        while self._led_until[0] != epoch or self._led_until[1] < end_offset:
            if self.failure is not None or self.led_epoch != epoch:
                raise self.failure or ProtocolError(ErrorCode.NOT_CONTROLLER)
            await self._change_event.wait()

    async def handle_request(self, request: RaftRequest) -> ResponseWithRecords:
        """Process a Raft request of another node or an `UpgradeKRaftVersion`; return the response with its records.

        A Fetch or voter change may wait long. It does not return after a disk failure, as the node stops then.
        """
        if isinstance(request, FetchSnapshot):
            request = request._replace(size_bytes=self._store.snapshot_size_bytes(SnapshotId(*request.snapshot)))
        pending = PendingRequest(request)
        self.enqueue(events.RequestReceived(pending, request))
        answered: ResponseWithRecords = await pending.wait()
        return answered

    async def wait_for_change(self) -> None:
        """Wait for the next change of leader, epoch or high watermark, or for a disk failure (`failure`)."""
        await self._change_event.wait()

    # ------------------------------------------------------------------ main loop

    async def run(self) -> None:
        """Step the state machine until cancelled, or until the disk fails.

        After a disk failure ``fail`` is called, pending proposals fail, and no step follows.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._callbacks.insert(0, events.RaftStarted)
                while True:
                    while self._callbacks:
                        event = await retry_call_on_shortage(self.env, self._callbacks.pop(0))
                        if event is not None:
                            await self._step(event)
                    await self._wait_for_event()
        except* OSError as errors:
            self._fail_pending(first_os_error(errors))

    def _fail_pending(self, failure: OSError) -> None:
        self.failure = failure
        for job in self._callbacks:
            job()
        self._notify_change()
        self._fail(failure)

    async def _wait_for_event(self) -> None:
        """Wait for an event, or until the next `Tick` is due, which is then enqueued."""
        due_ms = max(self.machine.deadline_ms, self._last_tick_ms + MIN_TICK_INTERVAL_MS)
        with self.env.timeout(max(0.0, due_ms - self.env.monotonic_ms()) / 1000) as deadline:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
        if deadline.cancelled_caught:
            self._last_tick_ms = self.env.monotonic_ms()
            self._callbacks.append(events.Tick)

    async def _step(self, event: RaftEvent) -> None:
        """Step the state machine with ``event`` and execute the actions of its `Ready` in order."""
        machine, store = self.machine, self._store
        before = machine.leader_id, machine.epoch, machine.high_watermark
        now_ms = self.env.monotonic_ms()
        ready = machine.step(now_ms, event)
        if ready.protocol_violation is not None:
            logger.warning("Invalid message of another controller: %s", ready.protocol_violation)
        if ready.log_message is not None:
            logger.log(*ready.log_message)
        if ready.hard_state is not None:
            write_state = store.prepare_state_write(ready.hard_state, machine.voters)
            await retry_on_shortage(self.env, lambda: self.env.in_thread(write_state, ThreadPool.RAFT))
        await self._write(ready)
        self._committed = machine.high_watermark
        for observe in self.step_observers:
            observe(now_ms, ready)
        if ready.committed is not None:
            store.on_high_watermark(ready.committed)
        if machine.is_leader:
            self._led_until = machine.epoch, machine.high_watermark
        for reply in ready.replies:
            reply.pending_request.complete(read_response_records(store, reply))
        for send in ready.sends:
            self._send(send)
        if ready.load_snapshot is not None:
            self._nursery.start_soon(self._load_snapshot, SnapshotId(*ready.load_snapshot))
        # further proposals may follow: `wait_committed` triggers the flush after the last
        if not isinstance(event, events.Propose):
            self._maybe_flush()
        if (machine.leader_id, machine.epoch) != before[:2]:
            self.catch_up_offset = -1
        if (machine.leader_id, machine.epoch, machine.high_watermark) != before:
            self._notify_change()

    def _notify_change(self) -> None:
        self._change_event.set()
        self._change_event = trio.Event()
        self._on_change()

    async def _write(self, ready: Ready) -> None:
        """Write truncation, snapshot and appended batches of a step to the metadata log, in this order, unsynced."""
        store, now_ms = self._store, self.env.now_ms()
        if ready.truncate is not None:
            await retry_call_on_shortage(self.env, partial(store.truncate, ready.truncate, now_ms))
        if ready.truncate_to_snapshot is not None:
            assert self._loaded is not None
            name, loaded = SnapshotId(*ready.truncate_to_snapshot), self._loaded
            await retry_call_on_shortage(self.env, partial(store.truncate_to_snapshot, name, loaded, now_ms))
            self._loaded = None
        for append in ready.appends:
            await retry_call_on_shortage(self.env, partial(store.append, append, now_ms))
        rewrites_log = ready.truncate is not None or ready.truncate_to_snapshot is not None
        if rewrites_log or any(a.controls or a.verbatim for a in ready.appends):
            self.machine.set_first_records(store.first_records(self._quorum))

    def _maybe_flush(self) -> None:
        """Start a task that flushes the appended records, unless one runs; a node that cannot vote needs none."""
        end = self._store.log.log_end_offset
        if self._is_flushing or end <= self.machine.flushed_offset or self.failure is not None:
            return
        if not self._can_vote:
            self.enqueue(events.LogFlushed(end))
            return
        self._is_flushing = True
        self._nursery.start_soon(self._flush)

    async def _flush(self) -> None:
        job = await retry_call_on_shortage(self.env, self._store.prepare_flush)
        await retry_on_shortage(self.env, lambda: self.env.in_thread(job, ThreadPool.RAFT))

        def done() -> RaftEvent:
            self._is_flushing = False
            return events.LogFlushed(self._store.complete_flush(job))

        self.run_between_steps(done)

    # ------------------------------------------------------------------ requests to other nodes

    def _send(self, send: OutboundRequest) -> None:
        if isinstance(send.request, events.QueryKRaftVersions):
            self.addresses.learn(send.peer, [ListenerEndpoint(e.name, e.host, e.port) for e in send.request.endpoints])
        self._sender().send(send, self._replica_key_of(send.peer))

    def _sender(self) -> RaftRequestSender:
        """Return the sender of requests to other nodes; create and start it at the first call."""
        if self._request_sender is None:
            # lazy: 13.0 ms, 435 kB
            from ottla.controller.raft.driver.outbound_requests import RaftRequestSender

            self._request_sender = RaftRequestSender(
                self.env, self._identity, self._quorum, self.addresses.dial_address, self._on_response, self.enqueue
            )
            self._nursery.start_soon(self._request_sender.run)
        return self._request_sender

    def _replica_key_of(self, peer: int) -> ReplicaKey:
        return self.machine.voters.find_voter(peer) or ReplicaKey(peer)

    async def _load_snapshot(self, name: SnapshotId) -> None:
        """Download a snapshot from the leader; then enqueue `SnapshotLoaded`, which may replace the log by it."""
        machine, store, leader_id = self.machine, self._store, self.machine.leader_id

        async def send_fetch_snapshot(request: FetchSnapshot) -> Any:
            return await self._sender().fetch_snapshot(leader_id, self._replica_key_of(leader_id), request)

        number = self._load_count = self._load_count + 1

        def is_wanted() -> bool:
            current = self._load_count, machine.requests.loading_snapshot, machine.leader_id
            return current == (number, name, leader_id)

        # lazy: 1.9 ms, 55 kB
        from ottla.controller.raft.driver.snapshot_fetch import fetch_snapshot
        from ottla.controller.raft.state_machine.lost_disk import fetch_replica_key

        async with self._load_lock:  # a superseded download is cancelled before the next one starts
            about = (fetch_replica_key(machine), machine.epoch, name, send_fetch_snapshot, is_wanted)
            fetch = partial(fetch_snapshot, self.env, store.directory, *about)
            found: SnapshotContents | None = await retry_on_shortage(self.env, fetch)
        if found is None:
            return

        def done() -> RaftEvent:
            self._loaded = found
            return events.SnapshotLoaded(name.end_offset, name.epoch, found.voters)

        self.run_between_steps(done)

    def _on_response(self, answer: events.AnyRaftResponse, leader: ListenerEndpoint | None) -> None:
        self.update_leader_endpoints(answer.epoch, answer.leader_id, leader)
        if isinstance(answer, RaftFetchResponse) and answer.epoch == self.machine.epoch and self.catch_up_offset < 0:
            self.catch_up_offset = answer.high_watermark

    def update_leader_endpoints(self, epoch: int, leader_id: int, *endpoints: ListenerEndpoint | None) -> None:
        """Record the endpoints of the leader of ``epoch``, unless the epoch is older than this node's."""
        if epoch >= self.machine.epoch:
            self.addresses.learn(leader_id, [e for e in endpoints if e is not None])
            self.machine.add_reachable_replicas(self.addresses.learned_node_ids)
