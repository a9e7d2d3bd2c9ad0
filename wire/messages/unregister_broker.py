"""UnregisterBroker (API 64): remove the registration of a broker (KIP-631)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, request, response, wire_field


class UnregisterBrokerRequest(Message):
    """Request to remove the registration of a broker that was shut down for good."""

    SPEC: ClassVar[MessageSpec] = request(64, "0", "0+", "broker controller")
    """Flow: An admin client sends it to any broker, which forwards it to the active controller. It is meant for a
    broker that will not return; one that runs registers again.
    """
    broker_id: Int32 = 0
    """Node id of the broker. Its partitions elect other leaders; its replicas stay assigned to it until they are
    reassigned.
    """


class UnregisterBrokerResponse(Message):
    """Error code of UnregisterBroker; 0 if the registration was removed."""

    SPEC: ClassVar[MessageSpec] = response(64, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or BROKER_ID_NOT_REGISTERED, CLUSTER_AUTHORIZATION_FAILED."""
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""
