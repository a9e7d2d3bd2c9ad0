"""AlterUserScramCredentials (api 51): set or remove SCRAM credentials.

Made by KIP-554.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

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
    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Message):
    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(51, "0", "0+", "broker controller")
    deletions: A[list[ScramCredentialDeletion], wire_field("[]struct")] = field(default_factory=list)
    upsertions: A[list[ScramCredentialUpsertion], wire_field("[]struct")] = field(default_factory=list)


class AlterUserScramCredentialsResult(Message):
    user: String = ""
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""


class AlterUserScramCredentialsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(51, "0", "0+")
    throttle_time_ms: Int32 = 0
    results: A[list[AlterUserScramCredentialsResult], wire_field("[]struct")] = field(default_factory=list)
