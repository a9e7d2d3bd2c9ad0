"""GSSAPI, the server's side: the client shows a Kerberos ticket for this service.

Behaviour (S-320): once the ticket is good the client, if it was told something, says nothing; then both agree on no
protection of what follows: the server offers that alone, with 65536 as the size it would take, and the client must
choose it. The authorization id it may name counts for nothing: it is who the ticket is of, by the listener's rules.
Where they make no name of that it is told of success, and hung up on. A choice that is too short ends the connection
without a word. Kafka would end it so too after a replay, or a ticket that is not valid yet, but Java 17 keeps the
reason from it: it answers as to any bad ticket, and so does this.

Source: ``SaslServerAuthenticator.java``, ``SaslServerCallbackHandler.java``, ``KerberosError.java`` (apache/kafka
4.3.1), and ``GssKrb5Server`` of Java's ``jdk.security.jgss``, compared over the wire.

From RFC 4752; in Kafka from KIP-12.
"""

from __future__ import annotations

from enum import Enum

from ottla.broker.security.authn.kerberos_name_rules import KerberosNameMapper, NoMatchingRule
from ottla.broker.security.authn.sasl_server import (
    SaslAuthenticationException,
    UnansweredSaslFailure,
    UnmappedPrincipal,
)
from ottla.env.kerberos import GssAcceptor, GssAcceptorCredentials, InvalidTicket

_NO_PROTECTION = 1
_OFFER = bytes([_NO_PROTECTION]) + (65536).to_bytes(3, "big")
_MIN_CHOICE_BYTES = 4


class GssapiState(Enum):
    """Where one login stands."""

    AWAITING_TICKET = "ticket"
    AWAITING_EMPTY = "silence"
    """The client was told something with its ticket, and has nothing to say to it."""
    AWAITING_PROTECTION = "choice"


class GssapiSaslServer:
    """One login; every token may wait for files."""

    expires_ms: int | None = None
    is_delegation_token = False
    may_block = True

    def __init__(self, tickets: GssAcceptorCredentials, short_name: KerberosNameMapper) -> None:
        self._tickets, self._name_mapper = tickets, short_name
        self._security_context: GssAcceptor | None = None
        self._state = GssapiState.AWAITING_TICKET
        self.is_complete = False
        self.authorization_id = ""

    def evaluate(self, token: bytes) -> bytes | None:
        """Take what the client says; None where it is told nothing at all.

        Raises:
            SaslAuthenticationException: no ticket, or not a good one for us, or another protection than none.
        """
        if self._security_context is None:
            self._security_context = self._tickets.new_context()
        try:
            return self._evaluate_stage(self._security_context, token)
        except InvalidTicket as error:
            raise SaslAuthenticationException(f"Kerberos: {error}") from None

    def _evaluate_stage(self, talk: GssAcceptor, token: bytes) -> bytes | None:
        if self._state is GssapiState.AWAITING_TICKET:
            told = talk.accept(token)
            if not talk.is_established:
                return told
            self._state = GssapiState.AWAITING_EMPTY
            return told or self._offer(talk)
        if self._state is GssapiState.AWAITING_EMPTY:
            if token:
                raise SaslAuthenticationException("Kerberos: words where none are expected")
            return self._offer(talk)
        self._choose(talk.unwrap(token))
        try:
            self.authorization_id = self._name_mapper(talk.client)
        except NoMatchingRule as error:
            raise UnmappedPrincipal(f"Kerberos: {error}") from None
        # the connection stands for long, and needs its keys no more
        self.is_complete, self._security_context = (
            True,
            None,
        )
        return None

    def _offer(self, talk: GssAcceptor) -> bytes:
        self._state = GssapiState.AWAITING_PROTECTION
        return talk.wrap(_OFFER)

    def _choose(self, chosen: bytes) -> None:
        """What the client wants of the connection, the size it takes, and whom it wants to be."""
        if len(chosen) < _MIN_CHOICE_BYTES:
            raise UnansweredSaslFailure("Kerberos: no choice of protection")
        if not chosen[0] & _NO_PROTECTION:
            raise SaslAuthenticationException("Kerberos: a protection that was not offered")
