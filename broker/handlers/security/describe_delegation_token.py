"""DescribeDelegationToken (41), v1-3: delegation tokens that the client may describe, with their HMACs.

Behaviour (S-333, S-334): a null list of owners means all tokens, an empty one none; otherwise a token matches if one of
the listed principals is its owner, requester or renewer. A client may describe a token of which it is owner, requester
or renewer, and others with DESCRIBE on the token or DESCRIBE_TOKENS on its owner. Expired tokens are returned until
they are removed.
Version notes: from v3 the response has the requester of a token.

Source: ``KafkaApis.handleDescribeTokensRequest``, ``DelegationTokenManager.filterToken`` (apache/kafka 4.3.1).
From KIP-48, KIP-373.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.broker.handlers.security.delegation_tokens import may_use_tokens
from ottla.controller.control.delegation_tokens import REQUESTER_SINCE, SECRET, list_tokens, token_hmac
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.sequences import YIELD_EVERY
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.wire.messages.metadata_records import DelegationTokenRecord


def handle(context: RequestContext, request: DescribeDelegationTokenRequest) -> HandlerResult:
    """Return the tokens of the requested owners that the client may describe, with their HMACs.

    The response is an error if the connection may not ask about tokens, or tokens are disabled.
    """
    if not may_use_tokens(context):
        return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret = context.services.config.values.get(SECRET, "")
    if not secret:
        return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return _describe_all(context, request, secret)


def _describe_all(context: RequestContext, request: DescribeDelegationTokenRequest, secret: str) -> ResponseJob:
    response = DescribeDelegationTokenResponse()
    owners: set[str] | None = None
    if request.owners is not None:
        owners = set()
        for number, owner in enumerate(request.owners, 1):
            owners.add(f"{owner.principal_type}:{owner.principal_name}")
            if number % YIELD_EVERY == 0:
                yield None
        if not owners:
            return response
    tokens = yield from list_tokens(context.image)
    for token in tokens:
        if _matches_owners(token, owners) and _may_see(context, token):
            response.tokens.append(_row(token, secret, context.version))
        yield None
    return response


def _owners_and_renewers(token: DelegationTokenRecord) -> Collection[str]:
    return {token.owner, token.requester, *token.renewers}


def _matches_owners(token: DelegationTokenRecord, owners: set[str] | None) -> bool:
    return owners is None or not owners.isdisjoint(_owners_and_renewers(token))


def _may_see(context: RequestContext, token: DelegationTokenRecord) -> bool:
    return (
        context.peer.principal in _owners_and_renewers(token)
        or context.may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or context.may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _row(token: DelegationTokenRecord, secret: str, version: int) -> DescribedDelegationToken:
    kind, _, name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":") if version >= REQUESTER_SINCE else ("", "", "")
    renewers = [DescribedDelegationTokenRenewer(*x.split(":", 1)) for x in token.renewers]
    times = token.issue_timestamp, token.expiration_timestamp, token.max_timestamp
    hmac = token_hmac(secret, token.token_id)
    return DescribedDelegationToken(kind, name, requester_type, requester_name, *times, token.token_id, hmac, renewers)
