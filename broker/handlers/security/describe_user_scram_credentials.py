"""DescribeUserScramCredentials (50), v0: users with their SCRAM mechanisms and iterations.

Behaviour (S-324): no users means all of them. A duplicate user is DUPLICATE_RESOURCE, one without a credential
RESOURCE_NOT_FOUND. Salt and keys are never returned.

Source: ``KafkaApis.handleDescribeUserScramCredentialsRequest``, ``ScramImage.java`` (apache/kafka 4.3.1).

From KIP-554.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.controller.metadata.image import MetadataImage
from ottla.jobs.sequences import sort_job
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

_DUPLICATE_USER = "Cannot describe SCRAM credentials for the same user twice in a single request: "
_UNKNOWN_USER = "Attempt to describe a user credential that does not exist: "


def handle(context: RequestContext, request: DescribeUserScramCredentialsRequest) -> HandlerResult:
    """Return the SCRAM mechanisms and iterations of each requested user; an error concerns only its user."""
    return _describe_all(context.image, request)


def _describe_all(image: MetadataImage, request: DescribeUserScramCredentialsRequest) -> ResponseJob:
    named: dict[str, int] = {}
    for user in request.users or ():
        named[user.name] = named.get(user.name, 0) + 1
        yield None
    known: dict[str, list[CredentialInfo]] = {}
    about: Any
    record: Any
    for about, record in image.others.items():
        if about[0] == "scram" and (not named or about[1] in named):
            known.setdefault(about[1], []).append(CredentialInfo(about[2], record.iterations))
        yield None
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for name in named or (yield from sort_job(known)):
        row = DescribeUserScramCredentialsResult(name, 0, None)
        if named.get(name, 0) > 1:
            row.error_code, row.error_message = ErrorCode.DUPLICATE_RESOURCE, _DUPLICATE_USER + name
        elif name not in known:
            row.error_code, row.error_message = ErrorCode.RESOURCE_NOT_FOUND, _UNKNOWN_USER + name
        else:
            row.credential_infos = sorted(known[name], key=lambda x: x.mechanism)
        response.results.append(row)
        yield None
    return response
