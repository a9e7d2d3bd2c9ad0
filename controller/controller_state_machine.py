"""State machine of the controller: decides on requests and events, and replays records into the image.

It joins the control areas (`broker_registration`, `broker_heartbeat`, and through `request_routing` all others) and
knows nothing of disks, sockets or quorums: a quorum of one and a quorum of many drive it alike. Source:
``QuorumController.java`` (apache/kafka 4.3.1).
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
    """Hard state: two images. What is decided is decided on the ``latest_image``; only what is committed is seen."""

    def __init__(
        self,
        defaults: ControllerDefaults,
        new_id: Callable[[], bytes],
        node_id: int = 1,
        cluster_id: str = "",
        chance: RandomFunction = lambda: 0.0,
    ) -> None:
        self.defaults = defaults
        self.node_id = node_id
        self.kraft_version = 1
        """The quorum's own level: its records lie outside the image."""
        self.static_voters: tuple[int, ...] = ()
        """Controllers that are fixed by configuration."""
        self.image = MetadataImage()
        """The newest committed one."""
        self.latest_image = MetadataImage()
        """With everything that was appended."""
        self.cluster_id = cluster_id
        self.heartbeat_state = broker_heartbeat.BrokerHeartbeatState()
        """Soft state: what brokers said last."""
        self.heartbeat_tracker = BrokerHeartbeatTracker(
            int(defaults.static_config.get(SESSION_TIMEOUT_KEY, DEFAULT_SESSION_TIMEOUT_MS))
        )
        """Soft state: which brokers count as alive."""
        self.fenced_since = FencedSince()
        """Soft state: since when brokers are away."""
        self.new_uuid = new_id
        self.random = chance
        self.charge_quota: ChargeQuota = no_quota
        """Who counts what the next request changes."""
        self._builder: ImageBuilder | None = None
        self._transaction: list[Message] | None = None
        self._records_after_abort: list[Message] | None = None
        """What stood in the open transaction when the image was taken."""

    @cached_property
    def probes(self) -> BrokerProbes:
        """Soft state, of a controller that stands by too: which brokers a probe has reached."""
        # lazy: 1.0 ms, 21 kB: only in a cluster
        from ottla.controller.control.fast_fencing import BrokerProbes

        return BrokerProbes()

    def activate(self, now_ms: float, own: int | None = None) -> None:
        """Become the active controller with empty soft state. ``own``: the broker of this process."""
        self.heartbeat_state.reset()
        self.fenced_since.reset()
        self.heartbeat_tracker.activate(self.latest_image, now_ms, own)

    def decide(
        self, event: Any, version: int = 0, next_offset: int = 0, now_ms: float = 0, wall_ms: int = 0
    ) -> ControllerResult | ControllerResultSteps:
        """Decide on an event against the latest image; its records would begin at ``next_offset``.

        ``now_ms`` is monotonic, as in `heartbeat_tracker`; ``wall_ms`` is wall clock time.
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
        """Take one appended record in. Records inside a metadata transaction wait for its end."""
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
        """Reset to an empty image, before the records of a snapshot are replayed."""
        self._builder = ImageBuilder(MetadataImage())
        self._transaction = self._records_after_abort = None

    @property
    def in_transaction(self) -> bool:
        """True if a metadata transaction was begun and not ended."""
        return self._transaction is not None

    def _replay_record(self, record: Message) -> None:
        if self._builder is None:
            self._builder = ImageBuilder(self.image)
        self._builder.replay(record)

    def complete_append(self, offset: int, epoch: int) -> Job[None]:
        """Complete the replay up to ``offset``: later decisions are based on it."""
        if self._builder is None:
            self._builder = ImageBuilder(self.image)
        self.latest_image = yield from self._builder.image(offset, epoch)

    def publish(self) -> Job[tuple[MetadataImage, MetadataDelta]]:
        """Publish the committed image, and return it with the changes since the last one.

        The new image is seen once the job has ended.
        """
        draft, image = self._builder or ImageBuilder(self.image), self.latest_image
        delta = yield from draft.delta(image) if draft.base is self.image else compare_images(self.image, image)
        self.image, self._builder = image, None
        self._records_after_abort = None if self._transaction is None else list(self._transaction)
        return image, delta

    def revert(self) -> None:
        """Discard all uncommitted changes after a loss of leadership."""
        self._builder = None
        self._transaction = None if self._records_after_abort is None else list(self._records_after_abort)
        self.latest_image = self.image
