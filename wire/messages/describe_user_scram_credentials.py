"""DescribeUserScramCredentials (api 50): which SCRAM credentials exist.

Made by KIP-554.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Int8, Int16, Int32, Message, Spec, String, request, response, w


class UserName(Message):
    name: String = ""


class DescribeUserScramCredentialsRequest(Message):
    SPEC: ClassVar[Spec] = request(50, "0", "0+", "broker controller")
    users: A[list[UserName] | None, w("[]struct", nullable="0+")] = field(default_factory=list)


class CredentialInfo(Message):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Message):
    user: String = ""
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = ""
    credential_infos: A[list[CredentialInfo], w("[]struct")] = field(default_factory=list)


class DescribeUserScramCredentialsResponse(Message):
    SPEC: ClassVar[Spec] = response(50, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = ""
    results: A[list[DescribeUserScramCredentialsResult], w("[]struct")] = field(default_factory=list)
