"""SaslHandshake (API 17): choose the SASL mechanism of a connection (KIP-43)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Message, MessageSpec, String, request, response, wire_field


class SaslHandshakeRequest(Message):
    """Request to authenticate the connection with a SASL mechanism."""

    SPEC: ClassVar[MessageSpec] = request(17, "0-1", "none", "broker controller")
    """After version 0, tokens follow as frames without a request header; after version 1, in SaslAuthenticate requests
    (KIP-152). No version is flexible, because clients up to 2.4 negotiate wrongly (KAFKA-9577).

    Flow: The first request after ApiVersions on a SASL listener. The broker confirms the mechanism; tokens follow in
    SaslAuthenticate (version 1) or as bare frames (version 0).
    """
    mechanism: String = ""
    """`sasl.mechanism` of the client, such as `SCRAM-SHA-512`. To authenticate again on a connection, the client names
    the same mechanism as before.
    """


class SaslHandshakeResponse(Message):
    """SASL mechanisms that the listener has enabled; error code 0 if the requested one is among them."""

    SPEC: ClassVar[MessageSpec] = response(17, "0-1", "none")
    error_code: Int16 = 0
    """0 if the first token may follow. UNSUPPORTED_SASL_MECHANISM: the mechanism is not enabled, and the connection is
    closed. ILLEGAL_SASL_STATE: the listener has no SASL, or the connection is authenticated and its session does not
    end, or was renewed less than 1 s ago.
    """
    mechanisms: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Mechanisms that the listener has enabled (`sasl.enabled.mechanisms`). Empty with ILLEGAL_SASL_STATE."""
