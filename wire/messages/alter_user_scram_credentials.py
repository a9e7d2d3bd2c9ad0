"""AlterUserScramCredentials (API 51): set and remove SCRAM credentials (KIP-554)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bytes,
    Int8,
    Int16,
    Int32,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class ScramCredentialDeletion(Message):
    """SCRAM credential to remove: user name and mechanism."""

    name: String = ""
    """User name."""
    mechanism: Int8 = 0
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512. A user may have a credential of each."""


class ScramCredentialUpsertion(Message):
    """SCRAM credential to add or replace. It has the salted password; the password itself is not sent."""

    name: String = ""
    """User name. An empty one is rejected with UNACCEPTABLE_CREDENTIAL."""
    mechanism: Int8 = 0
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512; others are rejected with UNSUPPORTED_SASL_MECHANISM."""
    iterations: Int32 = 0
    """Iterations of the key derivation, from 4,096 to 16,384. Others are rejected with UNACCEPTABLE_CREDENTIAL."""
    salt: Bytes = b""
    """Random salt of the client that creates the credential. Each client that logs in receives it."""
    salted_password: Bytes = b""
    """Password after the key derivation with salt and iterations (Hi of RFC 5802). The controller derives and stores
    the stored key and the server key, not this value.
    """


class AlterUserScramCredentialsRequest(Message):
    """Request to remove and to set SCRAM credentials, with at most one change for each user."""

    SPEC: ClassVar[MessageSpec] = request(51, "0", "0+", "broker controller")
    """Flow: An admin client computes the salted password and sends it to any broker, which forwards the request to the
    active controller. The password itself is never sent.
    """
    deletions: Annotated[list[ScramCredentialDeletion], wire_field("[]struct")] = field(default_factory=list)
    """Credentials to remove."""
    upsertions: Annotated[list[ScramCredentialUpsertion], wire_field("[]struct")] = field(default_factory=list)
    """Credentials to add or replace. A user that occurs twice in the request, in either list, is rejected with
    DUPLICATE_RESOURCE.
    """


class AlterUserScramCredentialsResult(Message):
    """Error code of a user in the request; 0 if its SCRAM credentials were changed."""

    user: String = ""
    """User name."""
    error_code: Int16 = 0
    """0, or RESOURCE_NOT_FOUND (no credential to remove), UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM,
    DUPLICATE_RESOURCE. With an error in one of its changes, a user keeps all its credentials.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""


class AlterUserScramCredentialsResponse(Message):
    """Response to AlterUserScramCredentials: an error code for each user."""

    SPEC: ClassVar[MessageSpec] = response(51, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    results: Annotated[list[AlterUserScramCredentialsResult], wire_field("[]struct")] = field(default_factory=list)
    """Results, one for each user of the request."""
