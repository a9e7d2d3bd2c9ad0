"""Delegation tokens on the active controller: creation, renewal, expiry, and removal of expired tokens.

Brokers use the list of tokens and their hmacs, too.

A token's hmac is derived from its id and ``delegation.token.secret.key``, which every node is configured with. The hmac
is not stored, so that the log and its snapshots contain no credentials. A client with the hmac can log in as the
token's owner.

Behaviour (S-331, S-332, S-334): owner and renewers can renew or expire a token, but not the requester of a token for
another owner. No renewal exceeds the token's maximum lifetime. An expired token can only be removed.

Source: ``DelegationTokenControlManager.java``, ``DelegationTokenManager.java`` (apache/kafka 4.3.1).

From KIP-48, tokens for others from KIP-373; in the metadata log since KIP-900.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.metadata.image import MetadataImage
from ottla.jobs.job import Job
from ottla.jobs.sequences import YIELD_EVERY
from ottla.wire.api_keys import ApiKey, response_class
from ottla.wire.codec.primitives import Buffer, uuid_to_string
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from ottla.wire.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

SECRET = "delegation.token.secret.key"  # noqa: S105 - the name of the setting
MAX_LIFETIME = "delegation.token.max.lifetime.ms"
EXPIRY_TIME = "delegation.token.expiry.time.ms"
MAX_SWEPT = 1_000
"""Maximum number of expired tokens removed in one run of the periodic task."""
USER = "User"
REQUESTER_SINCE = 3
"""First version of CreateDelegationToken and DescribeDelegationToken with the requester of a token."""
_NEVER_MS = 2**63 - 1
_HMAC_BYTES = 64

StaticConfig = Mapping[str, str]
"""Settings of this node's configuration by name."""


class TokenRequestContext(NamedTuple):
    """Create, renew or expire request for a delegation token, with the requester's principal and the time."""

    request: Any
    principal: str
    """Principal of the requester as ``Type:name``."""
    now_ms: int
    """Wall clock."""


def token_hmac(secret: str, token_id: str) -> bytes:
    """Return the HMAC-SHA-512 (64 bytes) of a token id with the cluster's secret; clients authenticate with it."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def owner_principal(request: CreateDelegationTokenRequest, principal: str) -> str:
    """Return the owner of a new token as ``Type:name``: the request's; the requester ``principal`` if it has none."""
    if not request.owner_principal_name:
        return principal
    return f"{request.owner_principal_type}:{request.owner_principal_name}"


def list_tokens(image: MetadataImage) -> Job[list[DelegationTokenRecord]]:
    """Return all delegation tokens in the metadata image, expired ones included, as a job."""
    out: list[DelegationTokenRecord] = []
    for number, record in enumerate(image.others.values(), 1):
        if isinstance(record, DelegationTokenRecord):
            out.append(record)
        if number % YIELD_EVERY == 0:
            yield None
    return out


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Return True if the expiry or maximum timestamp of a token is before ``now_ms`` (wall clock)."""
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def _number(static: StaticConfig, name: str) -> int:
    return int(static.get(name) or BROKER_KEYS[name].default or 0)


def _find_by_hmac(image: MetadataImage, secret: str, shown: Buffer) -> Job[DelegationTokenRecord | None]:
    """Return the token whose hmac is ``shown``, as a job; None if there is none. An expired one is returned too.

    An hmac of another length is rejected first: a comparison takes time for each byte.
    """
    if len(shown) != _HMAC_BYTES:
        return None
    tokens = yield from list_tokens(image)
    for token in tokens:
        if hmac.compare_digest(token_hmac(secret, token.token_id), shown):
            return token
        yield None
    return None


def _new_token_id(new_id: Callable[[], bytes]) -> str:
    """Return a new token id without a leading ``-``, which a command line would take for an option, as Kafka's ids."""
    out = uuid_to_string(new_id())
    while out.startswith("-"):
        out = uuid_to_string(new_id())
    return out


def decide_token_request(
    image: MetadataImage, context: TokenRequestContext, version: int, static: StaticConfig, new_id: Callable[[], bytes]
) -> ControllerResult | ControllerResultSteps:
    """Return the records and response of a request to create, renew or expire a delegation token, or a job for them.

    Errors are in the response; DELEGATION_TOKEN_AUTH_DISABLED without a secret in ``static``. ``version``: API version.
    """
    secret, request = static.get(SECRET, ""), context.request
    if isinstance(request, CreateDelegationTokenRequest):
        answer = create_response(owner_principal(request, context.principal), context.principal, version)
        if not secret:
            answer.error_code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        elif any(x.principal_type != USER for x in request.renewers):
            answer.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
        return (
            ControllerResult(answer)
            if answer.error_code
            else _created(context, answer, secret, static, _new_token_id(new_id))
        )
    if not secret:
        return ControllerResult(_refused(request, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED))
    return _renew_or_expire(image, context, secret, static)


def _refused(request: Any, code: ErrorCode) -> Message:
    answer: Any = response_class(ApiKey(request.SPEC.key))()
    answer.error_code = code
    return answer  # type: ignore[no-any-return]


def create_response(owner: str, requester: str, version: int) -> CreateDelegationTokenResponse:
    """Return a CreateDelegationToken response with owner and requester (version 3 and later), and no token yet."""
    requester_fields = _split_principal(requester) if version >= REQUESTER_SINCE else ("", "")
    return CreateDelegationTokenResponse(0, *_split_principal(owner), *requester_fields)


def _created(
    context: TokenRequestContext,
    answer: CreateDelegationTokenResponse,
    secret: str,
    static: StaticConfig,
    token_id: str,
) -> ControllerResult:
    request, now_ms, lifetime_ms = context.request, context.now_ms, _number(static, MAX_LIFETIME)
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_ms = min(now_ms + lifetime_ms, _NEVER_MS)
    expiry_ms = min(now_ms + _number(static, EXPIRY_TIME), max_ms)
    answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms = now_ms, expiry_ms, max_ms
    answer.token_id, answer.hmac = token_id, token_hmac(secret, token_id)
    renewers = [f"{x.principal_type}:{x.principal_name}" for x in request.renewers]
    of = owner_principal(request, context.principal), context.principal, renewers
    return ControllerResult(answer, [DelegationTokenRecord(*of, now_ms, max_ms, expiry_ms, token_id)])


def _split_principal(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _renew_or_expire(
    image: MetadataImage, context: TokenRequestContext, secret: str, static: StaticConfig
) -> ControllerResultSteps:
    """Return the records and response of a request to renew or expire the token with the request's hmac, as a job."""
    request = context.request
    token = yield from _find_by_hmac(image, secret, request.hmac)
    if token is None:
        return ControllerResult(_refused(request, ErrorCode.DELEGATION_TOKEN_NOT_FOUND))
    rule = _renew if isinstance(request, RenewDelegationTokenRequest) else _expire
    return rule(token, context, static)


def _can_manage(token: DelegationTokenRecord, principal: str) -> bool:
    return principal == token.owner or principal in token.renewers


def _renew(token: DelegationTokenRecord, context: TokenRequestContext, static: StaticConfig) -> ControllerResult:
    request, now_ms = context.request, context.now_ms
    if is_expired(token, now_ms):
        return ControllerResult(_refused(request, ErrorCode.DELEGATION_TOKEN_EXPIRED))
    if not _can_manage(token, context.principal):
        return ControllerResult(_refused(request, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
    period_ms = _number(static, EXPIRY_TIME)
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    return _set_expiry(token, min(token.max_timestamp, now_ms + period_ms), RenewDelegationTokenResponse())


def _expire(token: DelegationTokenRecord, context: TokenRequestContext, static: StaticConfig) -> ControllerResult:
    request, now_ms = context.request, context.now_ms
    if not _can_manage(token, context.principal):
        return ControllerResult(_refused(request, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
    answer = ExpireDelegationTokenResponse()
    if request.expiry_time_period_ms < 0:
        answer.expiry_timestamp_ms = now_ms
        return ControllerResult(answer, [RemoveDelegationTokenRecord(token.token_id)])
    if is_expired(token, now_ms):
        return ControllerResult(_refused(request, ErrorCode.DELEGATION_TOKEN_EXPIRED))
    return _set_expiry(token, min(token.max_timestamp, now_ms + request.expiry_time_period_ms), answer)


def _set_expiry(token: DelegationTokenRecord, expiry_ms: int, answer: Any) -> ControllerResult:
    answer.expiry_timestamp_ms = expiry_ms
    of = token.owner, token.requester, list(token.renewers), token.issue_timestamp, token.max_timestamp
    return ControllerResult(answer, [DelegationTokenRecord(*of, expiry_ms, token.token_id)])


def sweep_expired_tokens(image: MetadataImage, now_ms: int) -> ControllerResultSteps:
    """Return the records that remove at most `MAX_SWEPT` expired tokens, as a job; response True: there are more.

    ``now_ms``: wall clock.
    """
    tokens = yield from list_tokens(image)
    gone: list[Message] = []
    for number, token in enumerate(tokens, 1):
        if is_expired(token, now_ms):
            if len(gone) == MAX_SWEPT:
                return ControllerResult(True, gone)
            gone.append(RemoveDelegationTokenRecord(token.token_id))
        if number % YIELD_EVERY == 0:
            yield None
    return ControllerResult(False, gone)
