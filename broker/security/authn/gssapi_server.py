"""GSSAPI, server side: the client authenticates with a Kerberos ticket for this service.

Behaviour (S-320): after a valid ticket the client, if it got a token, sends an empty message; then both agree on no
security layer: the server offers that alone, with 65536 as maximum size, and the client must choose it. The
authorization id is ignored: the principal is that of the ticket, mapped by the listener's rules. If no rule matches,
the client gets a success, and the connection is closed. A security layer message that is too short closes the
connection without a response. Kafka would do so too after a replay, or a ticket that is not valid yet, but Java 17
hides the reason from it: it responds as to any invalid ticket, and so does this.

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
    """State of a GSSAPI authentication: the client message that is expected next."""

    AWAITING_TICKET = "ticket"
    AWAITING_EMPTY = "silence"
    """Empty message of a client that got a token in response to its ticket."""
    AWAITING_PROTECTION = "choice"


class GssapiSaslServer:
    """Server side of one GSSAPI authentication (`SaslServer`); evaluating a token may block on files."""

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
        """Process a token of the client; return the response token, None without one, as after the last.

        Raises:
            SaslAuthenticationException: no valid ticket for this service, or an invalid security layer; as
                `UnansweredSaslFailure` if the message about it is too short, as `UnmappedPrincipal` if no rule maps the
                client.
        """
        if self._security_context is None:
            self._security_context = self._tickets.new_context()
        try:
            return self._evaluate_stage(self._security_context, token)
        except InvalidTicket as error:
            raise SaslAuthenticationException(f"Kerberos: {error}") from None

    def _evaluate_stage(self, talk: GssAcceptor, token: bytes) -> bytes | None:
        if self._state is GssapiState.AWAITING_TICKET:
            reply = talk.accept(token)
            if not talk.is_established:
                return reply
            self._state = GssapiState.AWAITING_EMPTY
            return reply or self._offer(talk)
        if self._state is GssapiState.AWAITING_EMPTY:
            if token:
                raise SaslAuthenticationException("Kerberos: empty message expected after the ticket")
            return self._offer(talk)
        self._choose(talk.unwrap(token))
        try:
            self.authorization_id = self._name_mapper(talk.client)
        except NoMatchingRule as error:
            raise UnmappedPrincipal(f"Kerberos: {error}") from None
        # frees the keys, which the connection no longer needs
        self.is_complete, self._security_context = (
            True,
            None,
        )
        return None

    def _offer(self, talk: GssAcceptor) -> bytes:
        self._state = GssapiState.AWAITING_PROTECTION
        return talk.wrap(_OFFER)

    def _choose(self, chosen: bytes) -> None:
        """Check that the client chose no security layer.

        Raises:
            SaslAuthenticationException: another choice; `UnansweredSaslFailure` for a message of less than 4 bytes.
        """
        if len(chosen) < _MIN_CHOICE_BYTES:
            raise UnansweredSaslFailure("Kerberos: security layer message is too short")
        if not chosen[0] & _NO_PROTECTION:
            raise SaslAuthenticationException("Kerberos: security layer that was not offered")
