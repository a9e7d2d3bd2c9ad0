"""Logging in: the mechanism is agreed on, and tokens go back and forth before anything else is said.

Source: ``SaslClientAuthenticator.java`` (apache/kafka 4.3.1).

From KIP-43, KIP-152.
"""

from __future__ import annotations

from typing import Any, Protocol

from ottla.peers.access import Login
from ottla.peers.scram import TYPES, BadScram, ScramClient
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from ottla.wire.schema import Message
from ottla.world.env import Env


class NotLetIn(OSError):
    """The other side does not take us for whom we say we are."""


class Calls(Protocol):
    """A connection whose versions are known: `ottla.peers.client.Channel`."""

    async def call(self, request: Message, version: int | None = None) -> Any:
        """Send a request and wait for its answer."""

    def version_for(self, key: ApiKey, at_most: int = 32767) -> int:
        """The newest version both sides speak."""


async def log_in(channel: Calls, login: Login, env: Env, host: str) -> None:
    """Log in; ``env``: for what cannot be guessed, and to get a token or a ticket; ``host``: whom we have dialled.

    Raises:
        NotLetIn: wrong user or password, or the mechanism is not enabled there.
        OSError, WireError: the connection broke, or the answers do not parse, or there is nothing to show.
    """
    answer = await channel.call(SaslHandshakeRequest(login.mechanism), 1)
    if answer.error_code:
        enabled = ", ".join(sorted(answer.mechanisms))
        raise NotLetIn(f"{login.mechanism} is not enabled there; {enabled or 'nothing'} is")
    if login.mechanism in TYPES:
        nonce = (env.uuid() + env.uuid()).hex()
        client = ScramClient(login.mechanism, login.user, login.password, nonce, token=login.is_token)
        token: bytes | None = client.first()
        while token is not None:
            said = await _say(channel, login, token)
            try:
                token = client.answer(said)
            except BadScram as error:
                raise NotLetIn(f"{login.mechanism}: {error}") from None
        return
    if login.source is not None:
        from ottla.peers.bearer import first_message, refused, token_of  # few show tokens

        shown = await token_of(env, login.source)
        try:
            if await _say(channel, login, first_message(shown)):
                await _say(channel, login, b"\x01")
                raise NotLetIn(f"{login.mechanism}: the token is refused")
        except NotLetIn:
            refused(env, login.source, shown)
            raise
        return
    if login.tickets is not None:
        from ottla.peers.tickets import show  # few show tickets
        from ottla.world.kerberos import BadTicket

        try:
            await show(env, login.tickets, host, lambda token: _say(channel, login, token))
        except BadTicket as error:
            raise NotLetIn(f"{login.mechanism}: {error}") from None
        return
    await _say(channel, login, f"\0{login.user}\0{login.password}".encode())


async def _say(channel: Calls, login: Login, token: bytes) -> bytes:
    answer = await channel.call(SaslAuthenticateRequest(token), channel.version_for(ApiKey.SASL_AUTHENTICATE))
    if answer.error_code:
        code = ErrorCode(answer.error_code)
        who = login.user or ("who a token names" if login.tickets is None else "who a ticket names")
        raise NotLetIn(f"not let in as {who}: {answer.error_message or code.name}")
    return bytes(answer.auth_bytes)
