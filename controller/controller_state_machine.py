"""State machine of the controller: decides on requests and events, and replays records into the metadata image.

It joins the request modules in `control`, without disk, network or Raft: quorums of one and of many controllers use it
alike. Source: ``QuorumController.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ottla.controller.control import broker_heartbeat, broker_registration
from ottla.controller.control.broker_heartbeat_tracker import (
    DEFAULT_SESSION_TIMEOUT_MS,
    SESSION_TIMEOUT_KEY,
    BrokerHeartbeatTracker,
    FencedSince,
)
from ottla.controller.control.controller_result import ControllerDefaults, ControllerResult, ControllerResultSteps
from ottla.controller.metadata.delta import MetadataDelta, compare_images
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.controller.partitions.replica_placer import RandomFunction
from ottla.controller.periodic_tasks import PeriodicTask, PeriodicTaskContext
from ottla.jobs.job import Job
from ottla.jobs.pending_request import ChargeQuota, no_quota
from ottla.wire.codec.schema import Message
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest
from ottla.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    RegisterBrokerRecord,
)

if TYPE_CHECKING:
    from ottla.controller.control.fast_fencing import BrokerProbes


class ControllerStateMachine:
    """Metadata images of a controller, and its soft state: what is in memory only and not in the log.

    Requests are decided on ``latest_image``, which has uncommitted records too (only ListPartitionReassignments on
    ``image``); other components see ``image`` only, with the committed records.
    """

    def __init__(
        self,
        defaults: ControllerDefaults,
        new_id: Callable[[], bytes],
        node_id: int = 1,
        cluster_id: str = "",
        random: RandomFunction = lambda: 0.0,
    ) -> None:
        self.defaults = defaults
        self.node_id = node_id
        self.kraft_version = 1
        """kraft.version, set by the active controller: its records are control records and not part of the image."""
        self.static_voters: tuple[int, ...] = ()
        """Ids of the controllers in ``controller.quorum.voters``; empty for a dynamic quorum."""
        self.image = MetadataImage()
        """Image of the committed records as of the last `publish`."""
        self.latest_image = MetadataImage()
        """Image of all appended records, committed or not."""
        self.cluster_id = cluster_id
        self.heartbeat_state = broker_heartbeat.BrokerHeartbeatState()
        """Offsets of brokers: registration offsets from the log, and soft state of the active controller."""
        self.heartbeat_tracker = BrokerHeartbeatTracker(
            int(defaults.static_config.get(SESSION_TIMEOUT_KEY, DEFAULT_SESSION_TIMEOUT_MS))
        )
        """Soft state of the active controller: times of the last heartbeats, for the brokers' sessions."""
        self.fenced_since = FencedSince()
        """Soft state of the active controller: since when brokers have been fenced."""
        self.new_uuid = new_id
        self.random = random
        self.charge_quota: ChargeQuota = no_quota
        """Function that charges the next request's partition mutations to its client's quota (KIP-599)."""
        self._builder: ImageBuilder | None = None
        self._transaction: list[Message] | None = None
        self._records_after_abort: list[Message] | None = None
        """Records of the open metadata transaction as of the committed image; `revert` restores them."""

    @cached_property
    def probes(self) -> BrokerProbes:
        """Soft state, also of a standby controller: broker processes that a probe has reached (fast fencing)."""
        # lazy: 1.0 ms, 21 kB: only in a cluster
        from ottla.controller.control.fast_fencing import BrokerProbes

        return BrokerProbes()

    def activate(self, now_ms: float, own: int | None = None) -> None:
        """Reset the soft state when this node becomes active controller, except `probes` and registration offsets.

        Every unfenced broker gets a new session, except ``own``: id of the broker in this process, None without one.
        ``now_ms``: monotonic.
        """
        self.heartbeat_state.reset()
        self.fenced_since.reset()
        self.heartbeat_tracker.activate(self.latest_image, now_ms, own)

    def decide(
        self, event: Any, version: int = 0, next_offset: int = 0, now_ms: float = 0, wall_ms: int = 0
    ) -> ControllerResult | ControllerResultSteps:
        """Return records and response for a request or event, or a job for them, decided on the latest image.

        Image and log are not changed: the caller appends and replays the records. Soft state may change, as a broker's
        session. ``version``: API version of the request. ``next_offset``: offset that the first record would have.
        ``now_ms``: monotonic time, as in `heartbeat_tracker`. ``wall_ms``: wall clock.

        Raises:
            ProtocolError: the request is rejected; a job raises it when it runs.
        """
        image, static = self.latest_image, self.defaults.static_config
        match event:
            case BrokerRegistrationRequest():
                cluster = broker_registration.RegistrationContext(
                    self.cluster_id, self.kraft_version, self.heartbeat_tracker, now_ms
                )
                return broker_registration.register_broker(image, event, next_offset, static, cluster)
            case BrokerHeartbeatRequest():
                return broker_heartbeat.process_heartbeat(
                    image, self.heartbeat_state, self.heartbeat_tracker, event, next_offset, static
                )
            case PeriodicTask():
                return event.decide(
                    PeriodicTaskContext(image, self.heartbeat_tracker, self.fenced_since, static, now_ms, wall_ms)
                )
            case _:
                # lazy: 8.0 ms, 374 kB: an idle node decides no request
                from ottla.controller import request_routing

                return request_routing.route_request(self, event, version)

    def replay(self, offset: int, record: Message) -> None:
        """Replay an appended or committed record at ``offset`` into the next image; called in the order of the log.

        ``offset``: -1 for a record of a snapshot. Records of a metadata transaction are replayed at its end, not at all
        if it is aborted.
        `complete_append` makes the image visible.
        """
        match record:
            case BeginTransactionRecord():
                self._transaction = []
            case EndTransactionRecord():
                for held in self._transaction or ():
                    self._replay_record(held)
                self._transaction = None
            case AbortTransactionRecord():
                self._transaction = None
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case RegisterBrokerRecord():
                self.heartbeat_state.on_registration(record.broker_id, max(offset, record.broker_epoch))
                self._replay_record(record)
            case BrokerRegistrationChangeRecord():
                self.heartbeat_state.on_registration_change(record.broker_id, is_fenced=record.fenced > 0)
                self._replay_record(record)
            case _:
                self._replay_record(record)

    def reset_for_snapshot(self) -> None:
        """Start the next image from empty, for the records of a snapshot; drop an open metadata transaction.

        `image` and `latest_image` stay until `publish` and `complete_append`.
        """
        self._builder = ImageBuilder(MetadataImage())
        self._transaction = self._records_after_abort = None

    @property
    def in_transaction(self) -> bool:
        """True if a metadata transaction was begun and is neither ended nor aborted."""
        return self._transaction is not None

    def _replay_record(self, record: Message) -> None:
        if self._builder is None:
            self._builder = ImageBuilder(self.image)
        self._builder.replay(record)

    def complete_append(self, offset: int, epoch: int) -> Job[None]:
        """Set ``latest_image`` to one with the records replayed up to ``offset`` (inclusive) in ``epoch``, as a job."""
        if self._builder is None:
            self._builder = ImageBuilder(self.image)
        self.latest_image = yield from self._builder.image(offset, epoch)

    def publish(self) -> Job[tuple[MetadataImage, MetadataDelta]]:
        """Make the latest image, whose records are committed, the published one, as a job; return it and its delta.

        The delta has the changes since the image before. ``image`` is replaced when the job is complete.
        """
        draft, image = self._builder or ImageBuilder(self.image), self.latest_image
        delta = yield from draft.delta(image) if draft.base is self.image else compare_images(self.image, image)
        self.image, self._builder = image, None
        self._records_after_abort = None if self._transaction is None else list(self._transaction)
        return image, delta

    def revert(self) -> None:
        """Discard all uncommitted records after a loss of leadership: ``latest_image`` is ``image`` again."""
        self._builder = None
        self._transaction = None if self._records_after_abort is None else list(self._records_after_abort)
        self.latest_image = self.image
