"""GSSAPI, the server's side: the client shows a Kerberos ticket for this service.

Behaviour (item 320): once the ticket is good the client, if it was told something, says nothing; then both agree on no
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

from ottla.broker.auth.exchange import Nameless, NotAuthentic, Unanswered
from ottla.broker.auth.short_names import NoName, ShortName
from ottla.world.kerberos import BadTicket, Talk, Tickets

_NO_PROTECTION = 1
_OFFER = bytes([_NO_PROTECTION]) + (65536).to_bytes(3, "big")
_LEAST_BYTES = 4


class Stage(Enum):
    """Where one login stands."""

    TICKET = "ticket"
    SILENCE = "silence"
    """The client was told something with its ticket, and has nothing to say to it."""
    CHOICE = "choice"


class KerberosExchange:
    """One login; every token may wait for files."""

    expires_ms: int | None = None
    is_token = False
    waits = True

    def __init__(self, tickets: Tickets, short_name: ShortName) -> None:
        self._tickets, self._short_name = tickets, short_name
        self._talk: Talk | None = None
        self._stage = Stage.TICKET
        self.is_done = False
        self.authorization_id = ""

    def evaluate(self, token: bytes) -> bytes | None:
        """Take what the client says; None where it is told nothing at all.

        Raises:
            NotAuthentic: no ticket, or not a good one for us, or another protection than none.
        """
        if self._talk is None:
            self._talk = self._tickets.begin()
        try:
            return self._taken(self._talk, token)
        except BadTicket as error:
            raise NotAuthentic(f"Kerberos: {error}") from None

    def _taken(self, talk: Talk, token: bytes) -> bytes | None:
        if self._stage is Stage.TICKET:
            told = talk.accept(token)
            if not talk.is_established:
                return told
            self._stage = Stage.SILENCE
            return told or self._offer(talk)
        if self._stage is Stage.SILENCE:
            if token:
                raise NotAuthentic("Kerberos: words where none are expected")
            return self._offer(talk)
        self._choose(talk.unwrap(token))
        try:
            self.authorization_id = self._short_name(talk.client)
        except NoName as error:
            raise Nameless(f"Kerberos: {error}") from None
        self.is_done, self._talk = True, None  # the connection stands for long, and needs its keys no more
        return None

    def _offer(self, talk: Talk) -> bytes:
        self._stage = Stage.CHOICE
        return talk.wrap(_OFFER)

    def _choose(self, chosen: bytes) -> None:
        """What the client wants of the connection, the size it takes, and whom it wants to be."""
        if len(chosen) < _LEAST_BYTES:
            raise Unanswered("Kerberos: no choice of protection")
        if not chosen[0] & _NO_PROTECTION:
            raise NotAuthentic("Kerberos: a protection that was not offered")
