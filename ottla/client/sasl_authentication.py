"""Client side of SASL authentication: SaslHandshake, then SaslAuthenticate requests of the mechanism.

Source: ``SaslClientAuthenticator.java`` (apache/kafka 4.3.1).

From KIP-43, KIP-152.
"""

from __future__ import annotations

from typing import Any, Protocol

from ottla.client.connection_security import AuthenticationFailed, SaslLogin
from ottla.client.scram import MECHANISM_TYPES, ScramClient, ScramError
from ottla.env.env import Env
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest


class AuthenticationChannel(Protocol):
    """Interface to a connection with known API versions: `ottla.client.channel.Channel`."""

    async def call(self, request: Message, version: int | None = None) -> Any:
        """Send a request and return the response message; ``version`` None: the newest common version.

        Error codes in the response are not raised.
        """

    def version_for(self, key: ApiKey, at_most: int = 32767) -> int:
        """Return the newest version of an API, up to ``at_most``, that client and broker support."""


async def authenticate(channel: AuthenticationChannel, login: SaslLogin, env: Env, host: str) -> None:
    """Authenticate a connection with a client's credentials, by the mechanism in ``login``; it is not closed on errors.

    ``env`` provides nonces, OAUTHBEARER tokens and Kerberos tickets; ``host`` is the host name of the connection.

    Raises:
        AuthenticationFailed: the broker rejected the credentials, the mechanism is not enabled, or a SCRAM message of
            the broker or a Kerberos token is invalid.
        OSError, WireError: the connection failed, a response is malformed, or no credentials are available.
    """
    answer = await channel.call(SaslHandshakeRequest(login.mechanism), 1)
    if answer.error_code:
        enabled = ", ".join(sorted(answer.mechanisms))
        raise AuthenticationFailed(
            f"SASL mechanism {login.mechanism} is not enabled in the server: {enabled or 'none'} enabled"
        )
    if login.mechanism in MECHANISM_TYPES:
        nonce = (env.uuid() + env.uuid()).hex()
        client = ScramClient(login.mechanism, login.user, login.password, nonce, token=login.is_delegation_token)
        token: bytes | None = client.first_message()
        while token is not None:
            challenge = await _send_token(channel, login, token)
            try:
                token = client.evaluate_challenge(challenge)
            except ScramError as error:
                raise AuthenticationFailed(f"{login.mechanism}: {error}") from None
        return
    if login.token_source is not None:
        # lazy: 9.4 ms, 946 kB: only with OAUTHBEARER
        from ottla.client.oauthbearer import get_token, initial_response, reject_token

        shown = await get_token(env, login.token_source)
        try:
            if await _send_token(channel, login, initial_response(shown)):
                await _send_token(channel, login, b"\x01")
                raise AuthenticationFailed(f"{login.mechanism}: the server rejected the token")
        except AuthenticationFailed:
            reject_token(env, login.token_source, shown)
            raise
        return
    if login.kerberos is not None:
        # lazy: 1.8 ms, 69 kB: only with GSSAPI
        from ottla.client.gssapi_client import authenticate_gssapi
        from ottla.env.kerberos import InvalidTicket

        try:
            await authenticate_gssapi(env, login.kerberos, host, lambda token: _send_token(channel, login, token))
        except InvalidTicket as error:
            raise AuthenticationFailed(f"{login.mechanism}: {error}") from None
        return
    await _send_token(channel, login, f"\0{login.user}\0{login.password}".encode())


async def _send_token(channel: AuthenticationChannel, login: SaslLogin, token: bytes) -> bytes:
    answer = await channel.call(SaslAuthenticateRequest(token), channel.version_for(ApiKey.SASL_AUTHENTICATE))
    if answer.error_code:
        code = ErrorCode(answer.error_code)
        identity = login.user or (
            "the principal of the token" if login.kerberos is None else "the principal of the ticket"
        )
        raise AuthenticationFailed(f"Authentication failed as {identity}: {answer.error_message or code.name}")
    return bytes(answer.auth_bytes)
