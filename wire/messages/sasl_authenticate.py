"""SaslAuthenticate (API 36): exchange the messages of a SASL mechanism, after SaslHandshake (KIP-152)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.wire.codec.schema import Bytes, Int16, Message, MessageSpec, request, response, wire_field


class SaslAuthenticateRequest(Message):
    """SASL message of the client, one step of the exchange of its mechanism."""

    SPEC: ClassVar[MessageSpec] = request(36, "0-2", "2+", "broker controller")
    """The API is that of KIP-152: before it, tokens were sent without a request header, as after SaslHandshake version
    0. Version 1 adds the session lifetime (KIP-368), version 2 is flexible.

    Flow: A client sends it after SaslHandshake, as often as the mechanism needs, and again before the session lifetime
    ends (`connections.max.reauth.ms`, KIP-368). No other API is permitted on the connection until the exchange has
    succeeded. After a failure the broker closes the connection.
    """
    auth_bytes: Bytes = b""
    """Token of the mechanism, such as the client-first message of SCRAM. A frame larger than
    `sasl.server.max.receive.size` closes the connection.
    """


class SaslAuthenticateResponse(Message):
    """SASL message of the broker, or the failure of the authentication."""

    SPEC: ClassVar[MessageSpec] = response(36, "0-2", "2+")
    error_code: Int16 = 0
    """0 if the token is accepted. SASL_AUTHENTICATION_FAILED: sent after `connection.failed.authentication.delay.ms`,
    then the connection is closed. ILLEGAL_SASL_STATE: no authentication is open on this connection.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none. It states no more than that the credentials are invalid, unless the
    mechanism has a text of its own.
    """
    auth_bytes: Bytes = b""
    """Challenge or final message of the mechanism; empty if it has none, and with an error. With OAUTHBEARER an invalid
    token is reported here as JSON; the request fails after the next one.
    """
    session_lifetime_ms: Annotated[int, wire_field("int64", "1+", ignorable=True)] = 0
    """Time in ms until the session ends: `connections.max.reauth.ms` or, if shorter, the validity left of the token.
    The client authenticates again before, else the broker closes the connection at the next request. 0 without a limit,
    or if a further token is needed.
    """
