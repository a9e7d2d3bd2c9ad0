"""BrokerHeartbeat (API 63): keep a broker registered, and ask to be unfenced or to shut down (KIP-631)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bool, Int16, Int32, Int64, Message, MessageSpec, request, response, wire_field


class BrokerHeartbeatRequest(Message):
    """Heartbeat of a broker to the active controller, every `broker.heartbeat.interval.ms`."""

    SPEC: ClassVar[MessageSpec] = request(63, "0-2", "0+", "controller")
    """Version 1 adds offline log directories (KIP-858), version 2 cordoned ones (KIP-1066).

    Flow: A registered broker sends it to the active controller every `broker.heartbeat.interval.ms`. A broker without a
    heartbeat for `broker.session.timeout.ms` is fenced and loses its leaderships. For a controlled shutdown the broker
    sets `want_shut_down` and waits until the controller has moved them.
    """
    broker_id: Int32 = 0
    """Node id of the broker."""
    broker_epoch: Int64 = -1
    """Broker epoch from the registration of the broker. Another one than the current epoch is rejected with
    STALE_BROKER_EPOCH, and the broker registers again.
    """
    current_metadata_offset: Int64 = 0
    """Offset up to which the broker has applied the metadata. It is unfenced once it has applied its own registration.
    """
    want_fence: Bool = False
    """True while the broker is not ready to serve clients, and when it has lost all log directories."""
    want_shut_down: Bool = False
    """True for a controlled shutdown: the controller moves the leadership of its partitions to other brokers first."""
    offline_log_dirs: Annotated[list[bytes], wire_field("[]uuid", "1+", tagged="1+", tag=0)] = field(
        default_factory=list
    )
    """Ids of log directories that have failed. Replicas in them leave the ISR and lose their leadership."""
    cordoned_log_dirs: Annotated[list[bytes] | None, wire_field("[]uuid", "2+", nullable="2+", tagged="2+", tag=1)] = (
        None
    )
    """Ids of log directories that receive no new partitions (`cordoned.log.dirs`). Null if the broker does not report
    them, which leaves the list at the controller unchanged.
    """


class BrokerHeartbeatResponse(Message):
    """State of the broker in the view of the controller: caught up, fenced, or permitted to shut down."""

    SPEC: ClassVar[MessageSpec] = response(63, "0-2", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the controller reads no further request from this connection, because a quota is exceeded; 0
    if none is.
    """
    error_code: Int16 = 0
    """0, or STALE_BROKER_EPOCH (register again), NOT_CONTROLLER (find the active controller), INVALID_REQUEST,
    CLUSTER_AUTHORIZATION_FAILED.
    """
    is_caught_up: Bool = False
    """True if the broker has applied its own registration. Until then it sends heartbeats at shorter intervals."""
    is_fenced: Bool = True
    """True if the broker is fenced or may stop now: it leads no partition and is not in Metadata responses. It is in an
    ISR only as the last member.
    """
    should_shut_down: Bool = False
    """True if the broker may stop now: it leads no partition any more, and the other brokers have applied the change.
    """
