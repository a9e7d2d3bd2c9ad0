"""DescribeUserScramCredentials (api 50): which SCRAM credentials exist.

Made by KIP-554.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int8, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class UserName(Message):
    name: String = ""


class DescribeUserScramCredentialsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(50, "0", "0+", "broker controller")
    users: A[list[UserName] | None, wire_field("[]struct", nullable="0+")] = field(default_factory=list)


class CredentialInfo(Message):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Message):
    user: String = ""
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    credential_infos: A[list[CredentialInfo], wire_field("[]struct")] = field(default_factory=list)


class DescribeUserScramCredentialsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(50, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    results: A[list[DescribeUserScramCredentialsResult], wire_field("[]struct")] = field(default_factory=list)
