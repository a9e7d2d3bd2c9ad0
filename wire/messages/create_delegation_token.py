"""CreateDelegationToken (api 38): issue a delegation token.

Made by KIP-48; version 3 brings tokens for others (KIP-373).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class CreatableRenewers(Message):
    principal_type: String = ""
    principal_name: String = ""


class CreateDelegationTokenRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(38, "1-3", "2+", "broker controller")
    owner_principal_type: A[str | None, wire_field("string", "3+", nullable="3+")] = ""
    owner_principal_name: A[str | None, wire_field("string", "3+", nullable="3+")] = ""
    renewers: A[list[CreatableRenewers], wire_field("[]struct")] = field(default_factory=list)
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(38, "1-3", "2+")
    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: A[str, wire_field("string", "3+")] = ""
    token_requester_principal_name: A[str, wire_field("string", "3+")] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0
