"""Validators of OAUTHBEARER tokens (JWT): signed by a key of the listener's JWKS, or unsigned.

Behaviour (S-328, S-329): a signed token needs ``exp`` and ``iat``; ``nbf``, issuer and audience are checked if present
or configured, and a token with an audience is rejected if none is configured. The principal is the claim
``sasl.oauthbearer.sub.claim.name``. Unsigned tokens are accepted only if the listener's callback handler is
OAuthBearerUnsecuredValidatorCallbackHandler; then its JAAS options apply.

Source: ``BrokerJwtValidator.java``, ``ClaimValidationUtils.java``, ``OAuthBearerUnsecuredValidatorCallbackHandler``,
``OAuthBearerUnsecuredJws.java`` (apache/kafka 4.3.1); claims that these leave to it, jose4j.

From KIP-255, KIP-768, KIP-1139.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from json import loads
from math import floor
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.security.authn.oauthbearer_server import InvalidToken, OAuthBearerToken

if TYPE_CHECKING:
    from ottla.broker.security.authn.jwks import JsonWebKeySet

Claims = Mapping[str, Any]
_DECODE_ERRORS = (ValueError, RecursionError)
"""Exceptions raised for invalid base64, UTF-8 or JSON."""


class JwtRequirements(NamedTuple):
    """Requirements for the claims of a signed token, and the names of the claims for scope and principal.

    Without audiences a token must have none; an issuer of None accepts any. Clock skew in seconds.
    """

    audiences: frozenset[str]
    issuer: str | None
    clock_skew_s: int
    scope_claim: str
    subject_claim: str


class BrokerJwtValidator:
    """Validator of tokens that a key of the JWKS has signed."""

    def __init__(self, requirements: JwtRequirements, keys: JsonWebKeySet, now_ms: Callable[[], int]) -> None:
        self._requirements, self._keys, self._now_ms = requirements, keys, now_ms

    def validate(self, token: str) -> OAuthBearerToken:
        """Return principal and expiry of a valid token.

        Raises:
            InvalidToken: malformed, not signed by a key of the set (`JsonWebKeySet.verify`), expired, or other claims
                are invalid.
        """
        parts = _parts(token)
        claims = _json(self._keys.verify(_decode_part(parts[0]), token))
        expires_s = _check_times(claims, self._now_ms() // 1000, self._requirements.clock_skew_s)
        _check_issuer(claims, self._requirements.issuer)
        _check_audience(claims, self._requirements.audiences)
        _check_scopes(claims.get(self._requirements.scope_claim))
        name = claims.get(self._requirements.subject_claim)
        if not isinstance(name, str) or not name.strip():
            raise InvalidToken(f"{self._requirements.subject_claim} is missing or empty")
        if expires_s < 0:
            raise InvalidToken("exp is negative")
        return OAuthBearerToken(name.strip(), expires_s * 1000)


def _check_times(claims: Claims, now_s: int, skew_s: int) -> int:
    """Check ``exp``, ``iat`` and ``nbf`` with a clock skew of ``skew_s``; return the expiry in seconds since 1970.

    Raises:
        InvalidToken: ``exp`` or ``iat`` is missing, one of the three is invalid, or the token has expired or is not
            valid yet.
    """
    ends, made, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if ends is None or made is None:
        raise InvalidToken(f"{'exp' if ends is None else 'iat'} is missing")
    if made < 0:
        raise InvalidToken("iat is negative")
    if now_s - skew_s >= ends:
        raise InvalidToken("it has expired")
    if begins is not None and now_s + skew_s < begins:
        raise InvalidToken("it is not valid yet")
    return ends


def _seconds(claims: Claims, name: str) -> int | None:
    value = _number(claims, name)
    return None if value is None else floor(value)


def _check_issuer(claims: Claims, issuer: str | None) -> None:
    if issuer is not None and claims.get("iss") != issuer:
        raise InvalidToken("another issuer, or none")


def _check_audience(claims: Claims, audiences: frozenset[str]) -> None:
    """Check that ``aud`` has one of ``audiences``; if none is configured, that the token has no audience.

    Raises:
        InvalidToken: It is not so.
    """
    value = claims.get("aud")
    if value is None and not audiences:
        return
    named = [value] if isinstance(value, str) else value
    if not isinstance(named, list) or not any(isinstance(x, str) and x in audiences for x in named):
        raise InvalidToken("it is not for this audience")


def _check_scopes(value: Any) -> None:
    """Raise InvalidToken if a scope is no string, empty or duplicate.

    A string is one scope; a value of another type than string or list is not checked.
    """
    scopes = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if not all(isinstance(scope, str) and scope.strip() for scope in scopes):
        raise InvalidToken("a scope is empty")
    if len({scope.strip() for scope in scopes}) < len(scopes):
        raise InvalidToken("duplicate scope")


# ------------------------------------------------------------------ unsigned tokens


class UnsecuredJwtValidator:
    """Validator of unsigned tokens, for development: used only with the callback handler for unsigned tokens."""

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        """Create a validator with the JAAS options of the callback handler; ``now_ms`` returns the wall clock.

        Raises:
            ValueError: the option for the clock skew is invalid.
        """
        self._now_ms = now_ms
        self._subject = options.get("unsecuredValidatorPrincipalClaimName", "").strip() or "sub"
        self._scope = options.get("unsecuredValidatorScopeClaimName", "").strip() or "scope"
        self._required = options.get("unsecuredValidatorRequiredScope", "").split()
        self._skew_ms = int(options.get("unsecuredValidatorAllowableClockSkewMs", "").strip() or 0)
        if self._skew_ms < 0:
            raise ValueError("unsecuredValidatorAllowableClockSkewMs is negative")

    def validate(self, token: str) -> OAuthBearerToken:
        """Return principal and expiry that an unsigned token claims.

        Raises:
            InvalidToken: malformed, signed, without principal or expiry, issued in the future, expired, or without a
                required scope.
        """
        parts = _parts(token)
        header, claims = _decode_part(parts[0]), _decode_part(parts[1])
        if header.get("alg") != "none" or parts[2]:
            raise InvalidToken("signed token; unsigned tokens are expected")
        name, now_ms = claims.get(self._subject), self._now_ms()
        if not isinstance(name, str) or not name.strip():
            raise InvalidToken(f"{self._subject} is missing or empty")
        made, ends = (_number(claims, x) for x in ("iat", "exp"))
        if ends is None:
            raise InvalidToken("exp is missing")
        if made is not None and (1000 * made > now_ms + self._skew_ms or ends <= made):
            raise InvalidToken("iat is in the future, or after exp")
        if now_ms - self._skew_ms >= 1000 * ends:
            raise InvalidToken("it has expired")
        self._check_scopes(claims.get(self._scope))
        return OAuthBearerToken(name, round(ends * 1000))

    def _check_scopes(self, value: Any) -> None:
        listed = value if isinstance(value, list) else [value]
        has = {scope.strip() for scope in listed if isinstance(scope, str)}
        if not has.issuperset(self._required):
            raise InvalidToken("a scope is missing", "insufficient_scope", f"[{', '.join(self._required)}]")


def _number(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 2**53:
        raise InvalidToken(f"{name} is not a timestamp")
    return value


def _parts(token: str) -> list[str]:
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("it has not three parts")
    return parts


def _decode_part(part: str) -> dict[str, Any]:
    """Return the JSON object of a token part, which is unpadded base64url. Raises InvalidToken."""
    try:
        raw = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except _DECODE_ERRORS:
        raise InvalidToken("no base64") from None
    return _json(raw)


def _json(raw: bytes) -> dict[str, Any]:
    try:
        out = loads(raw)
    except _DECODE_ERRORS:
        raise InvalidToken("no JSON") from None
    if not isinstance(out, dict):
        raise InvalidToken("no JSON object")
    return out
