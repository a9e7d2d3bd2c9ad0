"""Request and response headers, in front of every body."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, data, wire_field


class RequestHeader(Message):
    """Header of every request: API key, API version, correlation id and client id."""

    SPEC: ClassVar[MessageSpec] = data("header", "1-2", "2+")
    """Version 1 for requests that are not flexible, version 2, with tagged fields, for flexible ones (KIP-482). Version
    0 was removed in Apache Kafka 4.0.
    """
    request_api_key: Int16 = 0
    """Number of the API, which selects the body. An unknown one closes the connection."""
    request_api_version: Int16 = 0
    """Version of the API, which selects the fields of the body and the version of this header. An unsupported one
    closes the connection, except for ApiVersions.
    """
    correlation_id: Int32 = 0
    """Number that the client chooses and the response repeats. Responses come in the order of their requests."""
    client_id: Annotated[str | None, wire_field("string", "1+", nullable="1+", never_compact=True)] = ""
    """`client.id` of the client, null if not set; for logs, metrics and quotas. Its length is two bytes even in
    flexible versions, so that any broker can read it.
    """


class ResponseHeader(Message):
    """Header of every response: the correlation id of its request."""

    SPEC: ClassVar[MessageSpec] = data("header", "0-1", "1+")
    """Version 1, with tagged fields, for flexible requests (KIP-482), else version 0. Responses to ApiVersions always
    have version 0, so that a client can read them before it knows the broker (KIP-511).
    """
    correlation_id: Int32 = 0
    """Number from the request header. A client closes the connection if it is not the expected one."""
