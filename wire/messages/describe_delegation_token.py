"""DescribeDelegationToken (api 41): list delegation tokens.

Made by KIP-48; version 3 brings who asked for a token (KIP-373).
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


class DescribeDelegationTokenOwner(Message):
    principal_type: String = ""
    principal_name: String = ""


class DescribeDelegationTokenRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(41, "1-3", "2+", "broker controller")
    owners: A[list[DescribeDelegationTokenOwner] | None, wire_field("[]struct", nullable="0+")] = field(
        default_factory=list
    )


class DescribedDelegationTokenRenewer(Message):
    principal_type: String = ""
    principal_name: String = ""


class DescribedDelegationToken(Message):
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: A[str, wire_field("string", "3+")] = ""
    token_requester_principal_name: A[str, wire_field("string", "3+")] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    renewers: A[list[DescribedDelegationTokenRenewer], wire_field("[]struct")] = field(default_factory=list)


class DescribeDelegationTokenResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(41, "1-3", "2+")
    error_code: Int16 = 0
    tokens: A[list[DescribedDelegationToken], wire_field("[]struct")] = field(default_factory=list)
    throttle_time_ms: Int32 = 0
