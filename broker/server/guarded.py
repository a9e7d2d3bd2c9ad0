"""A connection whose other side must say who it is: TLS is agreed on first, then the gate lets it through or not.

Before that a frame may have no more than ``sasl.server.max.receive.size`` bytes, as in each login later on, and all of
it no more than half a minute. A failed login is answered late, so that guessing is slow. Loaded only where a listener
asks for it.

Source: ``SaslChannelBuilder.java``, ``SslChannelBuilder.java``, ``KafkaChannel.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import trio

from ottla.broker.auth.gate import Gate, Policy, Said, State
from ottla.broker.auth.strangers import FREE_BYTES
from ottla.broker.server.connection import CloseConnection, Connection
from ottla.broker.upkeep.supervise import is_ours
from ottla.wire.apis import ApiKey
from ottla.wire.framing import RequestFrame, encode_response
from ottla.wire.schema import Message
from ottla.world.env import Accepted, Lane, Secured

if TYPE_CHECKING:
    from ottla.broker.auth.doors import Door
    from ottla.broker.server.dispatch import Dispatcher

AUTHENTICATION_MS = 30_000.0


class GuardedConnection(Connection):
    """A connection of a listener with TLS, a login, or both."""

    def __init__(self, dispatcher: Dispatcher, stream: Accepted, door: Door) -> None:
        super().__init__(dispatcher, stream)
        self._door = door
        self._env = dispatcher.services.env
        self._came_ms: float | None = self._env.monotonic_ms()
        """None once it is known who this is."""
        self.is_authenticated = False
        self._held_bytes = 0
        """How large the buffer is, as `Strangers` counts it."""
        self._grows_to_bytes = FREE_BYTES
        self._gate: Gate | None = None
        self._usual_limit = self._login_limit = self._limit
        if door.asks_login:
            mechanisms = door.mechanisms(self._env)
            self._gate = Gate(Policy(mechanisms, door.max_reauth_ms, self._versions, self._env.now_ms))
            self._limit = self._login_limit = min(self._limit, door.max_receive_bytes)

    def idle_ms(self, now_ms: float) -> float:
        """As of any connection; who takes too long to say who it is has been silent all the time there is."""
        if self._came_ms is not None and now_ms - self._came_ms > AUTHENTICATION_MS:
            return float("inf")
        if self._came_ms is not None and not self.has_spoken:
            return now_ms - self._came_ms  # a TLS handshake waits for the client, too
        return super().idle_ms(now_ms)

    async def serve(self) -> None:
        """Agree on keys, then serve as any connection."""
        if self._door.tls and not await self._comes_in():
            return
        if self._gate is None:
            self._is_known()
        try:
            await super().serve()
        finally:
            self._is_known()

    def _is_known(self) -> None:
        """It has said who it is, or left: what it holds is no stranger's any more."""
        self._came_ms = None
        self.is_authenticated = True
        self._door.strangers.hold(self._held_bytes, 0)
        self._held_bytes = 0
        self._grows_to_bytes = Connection._grows_to_bytes

    def _make_room(self) -> None:
        super()._make_room()
        if self._came_ms is None:
            return
        if not self._door.strangers.hold(self._held_bytes, len(self._buffer)):
            text = "connection from %s closed: those who did not log in yet hold too much memory"
            self._complain(logging.WARNING, text, self._peer.host)
            raise CloseConnection
        self._held_bytes = len(self._buffer)

    async def _comes_in(self) -> bool:
        """Agree on keys. Whatever a stranger's bytes do to who reads them, it ends this connection only."""
        agreed = False
        try:
            agreed = await self._agreed()
        except Exception as error:
            if is_ours(error):
                raise  # a broken invariant, as anywhere
            text = "connection from %s to %s closed: its handshake could not be handled"
            self._complain(logging.ERROR, text, self._peer.host, self._peer.listener, traceback=True)
            self._tell_out("its handshake could not be handled")
        finally:
            if not agreed:
                self._stream.close()
                self._peer.leave()
        return agreed

    async def _agreed(self) -> bool:
        """Make the TLS handshake; the certificate's name is who it is where no login follows."""
        try:
            subject = await cast("Secured", self._stream).handshake()
        except (ConnectionError, trio.ClosedResourceError):
            return False  # it left: somebody may only have looked whether anybody is here
        except OSError as error:
            why = getattr(error, "reason", None) or error  # an SSLError's own word for it
            self._complain(
                logging.INFO, "connection from %s to %s: no TLS: %s", self._peer.host, self._peer.listener, why
            )
            self._tell_out(f"no TLS: {why}")
            return False
        self._peer.local = self._stream.local
        if self._gate is None and subject is not None:
            name = self._door.name_of(subject)
            if name is None:
                text = "connection from %s: ssl.principal.mapping.rules name nobody"
                self._complain(logging.INFO, text, self._peer.host)
                self._tell_out("ssl.principal.mapping.rules name nobody")
                return False
            self._peer.principal = f"User:{name}"
            self._tell_in("a certificate")
        return True

    def _tell_out(self, why: str) -> None:
        if self._door.audit is not None:
            self._door.audit.not_let_in(self._peer.host, self._peer.listener, why)

    def _tell_in(self, way: str) -> None:
        if self._door.audit is not None:
            self._door.audit.let_in(self._peer, self._peer.listener, way)

    async def _answer(self, frame: memoryview) -> bool:
        gate = self._gate
        if gate is None or (gate.state is State.OPEN and gate.deadline_ms is None):
            return await super()._answer(frame)
        now_ms = self._env.monotonic_ms()
        if gate.state is State.OPEN:
            lets = gate.lets(int.from_bytes(frame[:2], "big"), now_ms)
            if lets:
                return await super()._answer(frame)
            if lets is None:
                raise CloseConnection
        said = gate.handle(frame, now_ms)
        if said.token is not None:
            weighed = await self._env.in_thread(partial(gate.weigh, said.token), Lane.LOGINS)
            said = gate.settle(said.request, weighed, self._env.monotonic_ms())
        await self._through(gate, said)
        return False

    async def _through(self, gate: Gate, said: Said) -> None:
        """Say what the gate says, and end the connection where it does."""
        if said.failure is not None:
            where, host = self._peer.listener, self._peer.host
            text = "connection from %s to %s: failed authentication: %s"
            self._complain(logging.INFO, text, host, where, said.failure)
            self._tell_out(said.failure)
        if said.held_back:
            await self._flush()
            await self._env.sleep(self._door.failure_delay_ms / 1000)
        if isinstance(said.answer, bytes):
            self._out += [len(said.answer).to_bytes(4, "big"), said.answer]
        elif said.answer is not None:
            request = cast("RequestFrame", said.request)
            version = self._dispatcher.answered_version(request)
            self._out += encode_response(request.key, version, request.correlation_id, said.answer)
        self._out_bytes += 1
        await self._flush()
        if said.failure is not None:
            raise CloseConnection
        self._limit = self._login_limit  # of who logs in again, too, once that has begun
        if gate.state is State.OPEN:
            self._is_known()
            self._limit = self._usual_limit
            self._peer.principal = f"User:{gate.name}"
            self._peer.token_authenticated = gate.is_token
            self._tell_in("a delegation token" if gate.is_token else gate.mechanism)

    def _versions(self, request: RequestFrame) -> Message:
        """ApiVersions is answered as to anybody."""
        assert request.key is ApiKey.API_VERSIONS
        answer: Any = self._dispatcher.answer(self._peer, request, self._turn)
        assert isinstance(answer, Message)
        return answer
