"""Heartbeats: a broker says how far it is and what it wants; it is fenced, unfenced, or let go step by step.

Source: ``BrokerHeartbeatManager.java``, ``ReplicationControlManager.processBrokerHeartbeat`` (apache/kafka 4.3.1).

From KIP-631.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from msgspec.structs import replace as changed_record

from ottla.controller.brokers import MOST_LISTED
from ottla.controller.decision import Decision, Steps, distinct
from ottla.controller.directories import directory_of
from ottla.controller.image import Image
from ottla.controller.leadership import is_leaderless, leads_something, partition_changes
from ottla.controller.leases import Leases
from ottla.controller.records import CORDONED_SINCE, METADATA_VERSION
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import broker_heartbeat as bh
from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import Message


class State(Enum):
    """What a broker is to the controller."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


@dataclass(slots=True)
class Contacts:
    """What brokers said last. It lives in the active controller's memory only."""

    offsets: dict[int, int] = field(default_factory=dict)
    """How far each has applied the metadata."""
    registered_at: dict[int, int] = field(default_factory=dict)
    """Offset of each broker's registration."""
    shutdown_at: dict[int, int] = field(default_factory=dict)
    """Where the records lie that began a broker's controlled shutdown."""

    def registered(self, broker_id: int, offset: int) -> None:
        """A registration, a new process's or the same one's again: what was said before it counts no more."""
        self.registered_at[broker_id] = offset
        self.offsets.pop(broker_id, None)
        self.shutdown_at.pop(broker_id, None)

    def changed(self, broker_id: int, *, is_fenced: bool) -> None:
        """A registration has changed: its next heartbeat tells how far it is. Who is fenced does not shut down."""
        self.offsets.pop(broker_id, None)
        if is_fenced:
            self.shutdown_at.pop(broker_id, None)

    def forget(self) -> None:
        """A new active controller has heard nothing yet. It knows where registrations lie: those are records."""
        self.offsets.clear()
        self.shutdown_at.clear()

    def lowest_active(self, image: Image) -> int | None:
        """How far the slowest broker is that serves, and does not shut down as far as is known; None: there is none."""
        active = (i for i, b in image.brokers.items() if not b.fenced and i not in self.shutdown_at)
        return min((self.offsets.get(i, -1) for i in active), default=None)


def state_of(broker: m.RegisterBrokerRecord, contacts: Contacts) -> State:
    """A broker's state. A shutdown that an earlier controller began is not known here: it begins anew (R275)."""
    if broker.fenced:
        return State.FENCED
    return State.CONTROLLED_SHUTDOWN if broker.broker_id in contacts.shutdown_at else State.UNFENCED


def next_state(image: Image, contacts: Contacts, request: bh.BrokerHeartbeatRequest) -> Generator[None, None, State]:
    """The state a heartbeat leads to (the table of R273)."""
    broker_id = request.broker_id
    broker = image.brokers[broker_id]
    now = state_of(broker, contacts)
    if now is State.FENCED:
        if request.want_shut_down:
            return State.SHUTDOWN_NOW
        caught_up = request.current_metadata_offset >= contacts.registered_at.get(broker_id, broker.broker_epoch)
        return State.UNFENCED if caught_up and not request.want_fence else State.FENCED
    if now is State.UNFENCED:
        if request.want_fence:
            return State.SHUTDOWN_NOW if request.want_shut_down else State.FENCED
        if not request.want_shut_down:
            return State.UNFENCED
        leads = yield from leads_something(image, broker_id)
        return State.CONTROLLED_SHUTDOWN if leads else State.SHUTDOWN_NOW
    if (yield from leads_something(image, broker_id)):
        return State.CONTROLLED_SHUTDOWN
    lowest = contacts.lowest_active(image)
    waits = lowest is not None and contacts.shutdown_at[broker_id] > lowest
    return State.CONTROLLED_SHUTDOWN if waits else State.SHUTDOWN_NOW


def _transition(
    image: Image, static: Mapping[str, str], broker: m.RegisterBrokerRecord, state: State
) -> Generator[None, None, list[Message]]:
    """The records of a change of state, in Kafka's order (R286)."""
    broker_id, epoch = broker.broker_id, broker.broker_epoch
    if state is State.UNFENCED:
        records = yield from partition_changes(image, static, is_leaderless, comes=broker_id)
        return [m.BrokerRegistrationChangeRecord(broker_id, epoch, fenced=-1), *records]
    records = yield from partition_changes(image, static, lambda p: broker_id in p.isr, leaves=broker_id)
    if state is State.CONTROLLED_SHUTDOWN:
        if broker.in_controlled_shutdown:
            return records
        return [m.BrokerRegistrationChangeRecord(broker_id, epoch, in_controlled_shutdown=1), *records]
    return [*records, m.BrokerRegistrationChangeRecord(broker_id, epoch, fenced=1)]


def _without(image: Image, broker: m.RegisterBrokerRecord, lost: Collection[bytes]) -> Image:
    """The image as directories that failed leave it: who comes back leads nothing that lies in one of them."""
    left = [d for d in broker.log_dirs if d not in lost]
    if len(left) == len(broker.log_dirs):
        return image
    return replace(image, brokers={**image.brokers, broker.broker_id: changed_record(broker, log_dirs=left)})


def _offline(
    image: Image, static: Mapping[str, str], broker: m.RegisterBrokerRecord, told: Collection[bytes]
) -> Generator[None, None, list[Message]]:
    """Directories that failed: what lies in them is led by others, or by nobody (R290)."""
    gone = {d for d in broker.log_dirs if d in told}
    if not gone:
        return []
    broker_id = broker.broker_id
    records = yield from partition_changes(
        image, static, lambda p: directory_of(p, broker_id) in gone, leaves=broker_id
    )
    left = [d for d in broker.log_dirs if d not in gone]
    return [*records, m.BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, log_dirs=left)]


def fence(image: Image, broker_id: int, static: Mapping[str, str]) -> Steps:
    """Fence a broker that nobody hears any more: what it led is led by others, or by nobody (R276)."""
    records = yield from _transition(image, static, image.brokers[broker_id], State.FENCED)
    return Decision(None, records)


def _differ(known: Collection[bytes] | None, told: Iterable[bytes]) -> Generator[None, None, bool]:
    """Return whether the directories of a heartbeat are others than those ``known``, of which None is none yet."""
    directories = yield from distinct(told)
    return known is None or set(known) != set(directories)


def heartbeat(
    image: Image,
    contacts: Contacts,
    leases: Leases,
    request: bh.BrokerHeartbeatRequest,
    next_offset: int,
    static: Mapping[str, str],
) -> Steps:
    """Take a heartbeat in; answer what the broker is from now on.

    Who may stop now has no lease any more: it need not wait for its end before it registers again.
    """
    broker_id, broker = request.broker_id, image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return Decision(bh.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    if len(request.cordoned_log_dirs or ()) > MOST_LISTED:
        return Decision(bh.BrokerHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST))
    now, state = state_of(broker, contacts), (yield from next_state(image, contacts, request))
    offline = yield from distinct(request.offline_log_dirs)
    records: list[Message] = []
    if state is not now:
        records = yield from _transition(_without(image, broker, offline), static, broker, state)
        if state is State.CONTROLLED_SHUTDOWN:
            contacts.shutdown_at[broker_id] = next_offset + len(records) - 1
    contacts.offsets[broker_id] = request.current_metadata_offset
    if state is State.SHUTDOWN_NOW:
        leases.end(broker_id, broker.broker_epoch)
    if offline:
        records += yield from _offline(image, static, broker, offline)
    cordoned = request.cordoned_log_dirs
    knows = image.features.get(METADATA_VERSION, 0) >= CORDONED_SINCE
    if knows and cordoned is not None and (yield from _differ(broker.cordoned_log_dirs, cordoned)):
        records.append(
            m.BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, cordoned_log_dirs=list(cordoned))
        )
    response = bh.BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= contacts.registered_at.get(broker_id, broker.broker_epoch),
        is_fenced=state in (State.FENCED, State.SHUTDOWN_NOW),
        should_shut_down=state is State.SHUTDOWN_NOW,
    )
    return Decision(response, records)
