"""Registration of brokers and controllers, UnregisterBroker and AllocateProducerIds; features that Ottla supports.

Source: ``ClusterControlManager.java``, ``ProducerIdControlManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.controller.control.broker_heartbeat_tracker import BrokerHeartbeatTracker
from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.limits import MAX_REGISTRATION_ITEMS
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.record_serde import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, NEWEST_METADATA_VERSION
from ottla.controller.partitions.leader_and_isr_updates import leader_and_isr_updates
from ottla.jobs.job import Job
from ottla.jobs.sequences import collect_distinct_job, collect_job
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.wire.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from ottla.wire.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

PRODUCER_ID_BLOCK_SIZE = 1000
RESERVED_DIRECTORY_IDS = 100
"""Directory ids below this number are reserved (``DirectoryId.reserved``)."""
SUPPORTED_FEATURES = {
    METADATA_VERSION: (7, NEWEST_METADATA_VERSION),
    KRAFT_VERSION: (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    ELR_VERSION: (0, 1),
}


class RegistrationContext(NamedTuple):
    """State that a broker registration is checked against, besides the image.

    ``id``: cluster id. ``now_ms``: monotonic.
    """

    id: str
    kraft_version: int
    heartbeat_tracker: BrokerHeartbeatTracker
    now_ms: float


def _is_duplicate_broker(
    known: RegisterBrokerRecord | None, request: BrokerRegistrationRequest, cluster: RegistrationContext
) -> bool:
    """Return True if another process (incarnation id) with this broker id has a valid session."""
    if known is None or known.incarnation_id == request.incarnation_id:
        return False
    return cluster.heartbeat_tracker.has_valid_session(known.broker_id, known.broker_epoch, cluster.now_ms)


def _registration_error(
    image: MetadataImage, request: BrokerRegistrationRequest, cluster: RegistrationContext
) -> Job[ErrorCode]:
    """Return the error of a broker registration, checked in Kafka's order (R-269), as a job; NONE for a valid one."""
    if request.cluster_id != cluster.id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if _is_duplicate_broker(image.brokers.get(request.broker_id), request, cluster):
        return ErrorCode.DUPLICATE_BROKER_REGISTRATION
    if request.is_migrating_zk_broker:
        return ErrorCode.BROKER_ID_NOT_REGISTERED
    if max(len(request.listeners), len(request.features), len(request.log_dirs)) > MAX_REGISTRATION_ITEMS:
        return ErrorCode.INVALID_REGISTRATION
    dirs = yield from collect_distinct_job(request.log_dirs)
    others = {d for i, b in image.brokers.items() if i != request.broker_id for d in b.log_dirs}
    reserved = {n.to_bytes(16, "big") for n in range(RESERVED_DIRECTORY_IDS)}
    if not dirs or len(dirs) != len(request.log_dirs) or not reserved.isdisjoint(dirs) or not others.isdisjoint(dirs):
        return ErrorCode.INVALID_REGISTRATION
    finalized = {**image.features, KRAFT_VERSION: cluster.kraft_version}
    supported: dict[str, tuple[int, int]] = {}
    for f in request.features:
        if f.name in finalized or f.name == METADATA_VERSION:
            supported[f.name] = f.min_supported_version, f.max_supported_version
        yield None
    if any(not low <= finalized.get(name, 0) <= high for name, (low, high) in supported.items() if name in finalized):
        return ErrorCode.UNSUPPORTED_VERSION
    if METADATA_VERSION not in supported:
        return ErrorCode.INVALID_REGISTRATION
    if any(level and name not in supported for name, level in finalized.items()):
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def register_broker(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    next_offset: int,
    static: Mapping[str, str],
    cluster: RegistrationContext,
) -> ControllerResultSteps:
    """Return the records and response of BrokerRegistration, as a job (R-270, R-271).

    A new process (incarnation id) is registered as fenced, and its records first remove the broker from all ISRs
    (except as the last member if ELRs are disabled and no unclean election replaces it), after an unclean shutdown with
    ELRs from the eligible leaders as well. Its broker epoch is ``next_offset``: the offset of the first of these
    records, or of the registration record if there are none. A known process only updates its registration: broker
    epoch and fencing stay. An invalid registration gets an error response and no records.
    """
    wrong = yield from _registration_error(image, request, cluster)
    if wrong != ErrorCode.NONE:
        return ControllerResult(BrokerRegistrationResponse(error_code=wrong))
    broker_id, known = request.broker_id, image.brokers.get(request.broker_id)
    amends = known is not None and known.incarnation_id == request.incarnation_id
    record = RegisterBrokerRecord(
        broker_id,
        False,
        request.incarnation_id,
        next_offset if known is None or not amends else known.broker_epoch,
        (
            yield from collect_job(
                BrokerEndpoint(x.name, x.host, x.port, x.security_protocol) for x in request.listeners
            )
        ),
        (
            yield from collect_job(
                BrokerFeature(f.name, f.min_supported_version, f.max_supported_version) for f in request.features
            )
        ),
        request.rack,
        known.fenced if known is not None and amends else True,
        known.in_controlled_shutdown if known is not None and amends else False,
        (yield from collect_job(request.log_dirs)),
    )
    records: list[Message] = []
    if not amends:
        stored_epoch = -2 if known is None else known.broker_epoch
        clean = request.previous_broker_epoch == stored_epoch or not image.features.get(ELR_VERSION, 0)
        if clean:
            records = yield from leader_and_isr_updates(image, static, lambda p: broker_id in p.isr, leaves=broker_id)
        else:
            records = yield from leader_and_isr_updates(
                image, static, lambda p: broker_id in p.isr or broker_id in p.elr, lost=broker_id
            )
    return ControllerResult(BrokerRegistrationResponse(broker_epoch=record.broker_epoch), [*records, record])


def register_controller(request: ControllerRegistrationRequest) -> ControllerResultSteps:
    """Return the record and response of ControllerRegistration, as a job (R-282).

    INVALID_REGISTRATION if it has too many listeners or features; nothing else is checked.
    """
    if max(len(request.listeners), len(request.features)) > MAX_REGISTRATION_ITEMS:
        return ControllerResult(ControllerRegistrationResponse(error_code=ErrorCode.INVALID_REGISTRATION))
    record = RegisterControllerRecord(
        request.controller_id,
        request.incarnation_id,
        request.zk_migration_ready,
        (
            yield from collect_job(
                ControllerEndpoint(x.name, x.host, x.port, x.security_protocol) for x in request.listeners
            )
        ),
        (
            yield from collect_job(
                ControllerFeature(f.name, f.min_supported_version, f.max_supported_version) for f in request.features
            )
        ),
    )
    return ControllerResult(ControllerRegistrationResponse(error_message=None), [record])


def unregister_broker(
    image: MetadataImage, request: UnregisterBrokerRequest, static: Mapping[str, str]
) -> ControllerResultSteps:
    """Return the records and response of UnregisterBroker, for a running or stopped broker, as a job (R-281).

    The broker is removed from all ISRs, except as the last member if ELRs are disabled and no unclean election replaces
    it, and remains in the ELRs. BROKER_ID_NOT_REGISTERED if it is unknown.
    """
    broker_id, broker = request.broker_id, image.brokers.get(request.broker_id)
    if broker is None:
        message = f"Broker ID {broker_id} is not currently registered"
        return ControllerResult(UnregisterBrokerResponse(0, ErrorCode.BROKER_ID_NOT_REGISTERED, message))
    records = yield from leader_and_isr_updates(
        image, static, lambda p: broker_id in p.isr or broker_id in p.elr, leaves=broker_id
    )
    return ControllerResult(
        UnregisterBrokerResponse(), [*records, UnregisterBrokerRecord(broker_id, broker.broker_epoch)]
    )


def allocate_producer_ids(image: MetadataImage, request: AllocateProducerIdsRequest) -> ControllerResult:
    """Return the record and response of AllocateProducerIds: the next block of 1,000 producer ids (R-303).

    STALE_BROKER_EPOCH if the sender is not registered with its broker epoch.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return ControllerResult(AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    start = 0 if image.next_producer_id is None else image.next_producer_id.next_producer_id
    record = ProducerIdsRecord(request.broker_id, request.broker_epoch, start + PRODUCER_ID_BLOCK_SIZE)
    response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK_SIZE)
    return ControllerResult(response, [record])
