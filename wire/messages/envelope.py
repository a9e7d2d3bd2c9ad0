"""Envelope (API 58): request of a client that a broker forwards to the controller (KIP-590)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.wire.codec.schema import Bytes, Int16, Message, MessageSpec, request, response, wire_field


class EnvelopeRequest(Message):
    """Request of a client, with its principal and address, which a broker forwards to the controller."""

    SPEC: ClassVar[MessageSpec] = request(58, "0", "0+", "controller")
    """Flow: A broker wraps a request of a client together with the principal and address of the client, and sends it to
    the active controller. The controller authorizes the inner request for that principal, and wraps the response. After
    NOT_CONTROLLER the broker sends it to the new controller.
    """
    request_data: Bytes = b""
    """Header and body of the request, as the client sent them. APIs that cannot be forwarded are rejected with
    INVALID_REQUEST.
    """
    request_principal: Annotated[bytes | None, wire_field("bytes", nullable="0+")] = b""
    """Principal of the client: version in two bytes, then `DefaultPrincipalData`. The controller authorizes this
    principal. Malformed data is rejected with PRINCIPAL_DESERIALIZATION_FAILURE.
    """
    client_host_address: Bytes = b""
    """Address of the client, 4 bytes for IPv4 or 16 for IPv6, for ACLs with a host."""


class EnvelopeResponse(Message):
    """Response of the controller to the forwarded request, to be sent to the client."""

    SPEC: ClassVar[MessageSpec] = response(58, "0", "0+")
    response_data: Annotated[bytes | None, wire_field("bytes", nullable="0+")] = None
    """Header and body of the response, for the broker to pass on. Null with an error."""
    error_code: Int16 = 0
    """0, also if the response has errors. NOT_CONTROLLER: the broker finds the active controller and repeats the
    request. CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION, INVALID_REQUEST, PRINCIPAL_DESERIALIZATION_FAILURE.
    """
