"""BrokerHeartbeat on the active controller: fences and unfences brokers, and controls their shutdown.

A heartbeat also reports offline and cordoned log directories of its broker.

Source: ``BrokerHeartbeatManager.java``, ``ReplicationControlManager.processBrokerHeartbeat`` (apache/kafka 4.3.1).

From KIP-631.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from msgspec.structs import replace as changed_record

from ottla.controller.control.broker_heartbeat_tracker import BrokerHeartbeatTracker
from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.limits import MAX_REGISTRATION_ITEMS
from ottla.controller.metadata.directory_id import directory_id_of
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.record_serde import CORDONED_DIRS_MIN_VERSION, METADATA_VERSION
from ottla.controller.partitions.leader_and_isr_updates import (
    is_leaderless,
    leader_and_isr_updates,
    leads_any_partition,
)
from ottla.jobs.job import Job
from ottla.jobs.sequences import collect_distinct_job
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.metadata_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord


class BrokerControlState(Enum):
    """State of a registered broker on the active controller, as Kafka's ``BrokerControlState``.

    Fenced, unfenced, in controlled shutdown, or allowed to shut down now.
    """

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


@dataclass(slots=True)
class BrokerHeartbeatState:
    """Offsets by which a controller decides the state of brokers after a heartbeat; keys are broker ids.

    Sessions are in `BrokerHeartbeatTracker`, fenced brokers in the metadata image. Registration offsets are from the
    log; the others are kept in memory only, and lost when another controller becomes active.
    """

    metadata_offsets: dict[int, int] = field(default_factory=dict)
    """Metadata offset that each broker has applied, from its last heartbeat."""
    registration_offsets: dict[int, int] = field(default_factory=dict)
    """Offset of each broker's registration record; its broker epoch if the record is from a snapshot."""
    controlled_shutdown_offsets: dict[int, int] = field(default_factory=dict)
    """Offset of the last record of the step that started a broker's controlled shutdown."""

    def on_registration(self, broker_id: int, offset: int) -> None:
        """Record the offset of a broker's registration record; forget its metadata offset and controlled shutdown."""
        self.registration_offsets[broker_id] = offset
        self.metadata_offsets.pop(broker_id, None)
        self.controlled_shutdown_offsets.pop(broker_id, None)

    def on_registration_change(self, broker_id: int, *, is_fenced: bool) -> None:
        """Remove a broker's metadata offset when a BrokerRegistrationChangeRecord is replayed.

        With ``is_fenced`` (the record fences the broker) its controlled shutdown ends as well.
        """
        self.metadata_offsets.pop(broker_id, None)
        if is_fenced:
            self.controlled_shutdown_offsets.pop(broker_id, None)

    def reset(self) -> None:
        """Remove metadata and controlled shutdown offsets when this controller becomes active.

        The registration offsets stay: they come from the log.
        """
        self.metadata_offsets.clear()
        self.controlled_shutdown_offsets.clear()

    def lowest_active_offset(self, image: MetadataImage) -> int | None:
        """Return the lowest metadata offset of unfenced brokers not in controlled shutdown; None without such a broker.

        A broker without a heartbeat since its registration changed, or since this controller became active, counts as
        -1.
        """
        active = (i for i, b in image.brokers.items() if not b.fenced and i not in self.controlled_shutdown_offsets)
        return min((self.metadata_offsets.get(i, -1) for i in active), default=None)


def current_broker_state(broker: RegisterBrokerRecord, contacts: BrokerHeartbeatState) -> BrokerControlState:
    """Return a broker's current control state: FENCED, UNFENCED or CONTROLLED_SHUTDOWN.

    A controlled shutdown that an earlier active controller started is unknown here: it starts again (R-275).
    """
    if broker.fenced:
        return BrokerControlState.FENCED
    return (
        BrokerControlState.CONTROLLED_SHUTDOWN
        if broker.broker_id in contacts.controlled_shutdown_offsets
        else BrokerControlState.UNFENCED
    )


def next_broker_state(
    image: MetadataImage, contacts: BrokerHeartbeatState, request: BrokerHeartbeatRequest
) -> Job[BrokerControlState]:
    """Return a broker's control state after a heartbeat (the table of R-273), as a job; nothing is changed.

    The broker must be registered. SHUTDOWN_NOW: it may end.
    """
    broker_id = request.broker_id
    broker = image.brokers[broker_id]
    now = current_broker_state(broker, contacts)
    if now is BrokerControlState.FENCED:
        if request.want_shut_down:
            return BrokerControlState.SHUTDOWN_NOW
        caught_up = request.current_metadata_offset >= contacts.registration_offsets.get(broker_id, broker.broker_epoch)
        return BrokerControlState.UNFENCED if caught_up and not request.want_fence else BrokerControlState.FENCED
    if now is BrokerControlState.UNFENCED:
        if request.want_fence:
            return BrokerControlState.SHUTDOWN_NOW if request.want_shut_down else BrokerControlState.FENCED
        if not request.want_shut_down:
            return BrokerControlState.UNFENCED
        leads = yield from leads_any_partition(image, broker_id)
        return BrokerControlState.CONTROLLED_SHUTDOWN if leads else BrokerControlState.SHUTDOWN_NOW
    if (yield from leads_any_partition(image, broker_id)):
        return BrokerControlState.CONTROLLED_SHUTDOWN
    lowest = contacts.lowest_active_offset(image)
    waits = lowest is not None and contacts.controlled_shutdown_offsets[broker_id] > lowest
    return BrokerControlState.CONTROLLED_SHUTDOWN if waits else BrokerControlState.SHUTDOWN_NOW


def _transition(
    image: MetadataImage, static: Mapping[str, str], broker: RegisterBrokerRecord, state: BrokerControlState
) -> Job[list[Message]]:
    """Return the records of a change of a broker's control state to ``state``, in Kafka's order (R-286), as a job.

    UNFENCED lets the broker lead leaderless partitions. Any other state removes it from all ISRs, except as the last
    member if ELRs are disabled and no unclean election replaces it; partitions that it leads get another leader, or
    none. ``static``: settings of this node's configuration.
    """
    broker_id, epoch = broker.broker_id, broker.broker_epoch
    if state is BrokerControlState.UNFENCED:
        records = yield from leader_and_isr_updates(image, static, is_leaderless, comes=broker_id)
        return [BrokerRegistrationChangeRecord(broker_id, epoch, fenced=-1), *records]
    records = yield from leader_and_isr_updates(image, static, lambda p: broker_id in p.isr, leaves=broker_id)
    if state is BrokerControlState.CONTROLLED_SHUTDOWN:
        if broker.in_controlled_shutdown:
            return records
        return [BrokerRegistrationChangeRecord(broker_id, epoch, in_controlled_shutdown=1), *records]
    return [*records, BrokerRegistrationChangeRecord(broker_id, epoch, fenced=1)]


def _image_without_directories(
    image: MetadataImage, broker: RegisterBrokerRecord, lost: Collection[bytes]
) -> MetadataImage:
    """Return the image without the directories ``lost`` of a broker, so that it is elected for no partition there."""
    left = [d for d in broker.log_dirs if d not in lost]
    if len(left) == len(broker.log_dirs):
        return image
    return replace(image, brokers={**image.brokers, broker.broker_id: changed_record(broker, log_dirs=left)})


def _offline_directory_records(
    image: MetadataImage, static: Mapping[str, str], broker: RegisterBrokerRecord, offline_dirs: Collection[bytes]
) -> Job[list[Message]]:
    """Return the records for a broker's newly offline directories, as a job; empty if there is none (R-290).

    The broker leaves the ISR of the partitions there, except as the last member if ELRs are disabled and no unclean
    election replaces it; those that it leads get another leader, or none. ``static``: settings of this node's
    configuration.
    """
    gone = {d for d in broker.log_dirs if d in offline_dirs}
    if not gone:
        return []
    broker_id = broker.broker_id
    records = yield from leader_and_isr_updates(
        image, static, lambda p: directory_id_of(p, broker_id) in gone, leaves=broker_id
    )
    left = [d for d in broker.log_dirs if d not in gone]
    return [*records, BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, log_dirs=left)]


def fence_broker(image: MetadataImage, broker_id: int, static: Mapping[str, str]) -> ControllerResultSteps:
    """Return the records that fence a registered broker, as a job; the response is None (R-276).

    The broker leaves all ISRs, except as the last member if ELRs are disabled and no unclean election replaces it;
    partitions that it leads get another leader, or none.
    """
    records = yield from _transition(image, static, image.brokers[broker_id], BrokerControlState.FENCED)
    return ControllerResult(None, records)


def _differ(known: Collection[bytes] | None, reported: Iterable[bytes]) -> Job[bool]:
    """Return True if the directories of a heartbeat differ from the ``known`` ones, as a job; None: none known yet."""
    directories = yield from collect_distinct_job(reported)
    return known is None or set(known) != set(directories)


def process_heartbeat(
    image: MetadataImage,
    contacts: BrokerHeartbeatState,
    leases: BrokerHeartbeatTracker,
    request: BrokerHeartbeatRequest,
    next_offset: int,
    static: Mapping[str, str],
) -> ControllerResultSteps:
    """Return the records and response of a BrokerHeartbeat, as a job; the response has the broker's new state.

    A broker that may shut down loses its session at once, so that it can register again without a timeout. A broker
    epoch that is not the current one gets STALE_BROKER_EPOCH, too many cordoned directories INVALID_REQUEST; nothing
    changes then. Sessions are not extended here but on arrival, by `BrokerHeartbeatTracker.touch`. ``contacts`` and
    ``leases`` change when the job runs, before the records are written.

    Args:
        image: Current metadata, which is not changed.
        contacts: Offsets of the brokers, which are updated.
        leases: Sessions of the brokers; one is removed if its broker may shut down.
        request: Heartbeat.
        next_offset: Offset that the first of the records will have.
        static: Settings of this node's configuration.
    """
    broker_id, broker = request.broker_id, image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return ControllerResult(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    if len(request.cordoned_log_dirs or ()) > MAX_REGISTRATION_ITEMS:
        return ControllerResult(BrokerHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST))
    now, state = current_broker_state(broker, contacts), (yield from next_broker_state(image, contacts, request))
    offline = yield from collect_distinct_job(request.offline_log_dirs)
    records: list[Message] = []
    if state is not now:
        records = yield from _transition(_image_without_directories(image, broker, offline), static, broker, state)
        if state is BrokerControlState.CONTROLLED_SHUTDOWN:
            contacts.controlled_shutdown_offsets[broker_id] = next_offset + len(records) - 1
    contacts.metadata_offsets[broker_id] = request.current_metadata_offset
    if state is BrokerControlState.SHUTDOWN_NOW:
        leases.remove(broker_id, broker.broker_epoch)
    if offline:
        records += yield from _offline_directory_records(image, static, broker, offline)
    cordoned = request.cordoned_log_dirs
    knows = image.features.get(METADATA_VERSION, 0) >= CORDONED_DIRS_MIN_VERSION
    if knows and cordoned is not None and (yield from _differ(broker.cordoned_log_dirs, cordoned)):
        records.append(BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, cordoned_log_dirs=list(cordoned)))
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset
        >= contacts.registration_offsets.get(broker_id, broker.broker_epoch),
        is_fenced=state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
        should_shut_down=state is BrokerControlState.SHUTDOWN_NOW,
    )
    return ControllerResult(response, records)
