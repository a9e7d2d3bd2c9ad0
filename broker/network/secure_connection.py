"""Connection with TLS handshake, SASL authentication, or both.

With SASL, until it is authenticated and during re-authentication, a frame is limited to
``sasl.server.max.receive.size`` bytes. Authentication is limited to 30 s. The response to a failed authentication is
delayed, which slows down guessing. Loaded only for listeners with authentication.

Source: ``SaslChannelBuilder.java``, ``SslChannelBuilder.java``, ``KafkaChannel.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

import trio

from ottla.broker.config.limits import AUTHENTICATION_TIMEOUT_MS, UNCOUNTED_PRE_AUTH_BYTES
from ottla.broker.network.connection import Connection
from ottla.broker.requests.peer import CloseConnection, PeerDisconnectedError
from ottla.broker.security.authn.sasl_authenticator import AuthResult, SaslAuthenticator, SaslPolicy, SaslState
from ottla.env.env import AcceptedStream, SecureStream, ThreadPool
from ottla.jobs.supervision import is_broken_invariant
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import RequestFrame, encode_response

if TYPE_CHECKING:
    from ottla.broker.dispatch.dispatcher import Dispatcher, HandlerResult
    from ottla.broker.security.authn.listener_security import ListenerSecurity


class SecureConnection(Connection):
    """Connection of a listener with TLS, SASL, or both."""

    def __init__(self, dispatcher: Dispatcher, stream: AcceptedStream, security: ListenerSecurity) -> None:
        super().__init__(dispatcher, stream)
        self._security = security
        self._env = dispatcher.services.env
        self._accepted_ms: float | None = self._env.monotonic_ms()
        """Time at which the connection was accepted (monotonic, ms); None after authentication."""
        self.is_authenticated = False
        self._held_bytes = 0
        """Size of the receive buffer in bytes as counted in `PreAuthMemoryLimit`."""
        self._grows_to_bytes = UNCOUNTED_PRE_AUTH_BYTES
        self._authenticator: SaslAuthenticator | None = None
        self._usual_limit = self._authentication_limit = self._limit
        if security.requires_sasl:
            mechanisms = security.sasl_server_factories(self._env)
            self._authenticator = SaslAuthenticator(
                SaslPolicy(mechanisms, security.max_reauth_ms, self._answer_api_versions, self._env.now_ms)
            )
            self._limit = self._authentication_limit = min(self._limit, security.max_receive_bytes)

    def idle_ms(self, now_ms: float) -> float:
        """Return how long (ms) the client has neither sent a request nor read a response; 0 during a request.

        Before authentication it is infinity after the authentication timeout, so that the connection is closed, and the
        time since the acceptance while nothing was received (a TLS handshake apart). ``now_ms``: monotonic time.
        """
        if self._accepted_ms is not None and now_ms - self._accepted_ms > AUTHENTICATION_TIMEOUT_MS:
            return float("inf")
        if self._accepted_ms is not None and not self.has_received:
            return now_ms - self._accepted_ms  # a TLS handshake waits for the client too
        return super().idle_ms(now_ms)

    async def serve(self) -> None:
        """Perform the TLS handshake, then serve requests as any connection, beginning with SASL authentication."""
        try:
            if self._security.tls and not await self._accept_tls():
                return
            if self._authenticator is None:
                self._on_authenticated()
            try:
                await super().serve()
            finally:
                self._on_authenticated()
        finally:
            self._authenticator = None  # breaks a reference cycle: full collections are rare

    def _on_authenticated(self) -> None:
        """Release the limits of unauthenticated connections after authentication or disconnection."""
        self._accepted_ms = None
        self.is_authenticated = True
        self._security.pre_auth_memory.resize(self._held_bytes, 0)
        self._held_bytes = 0
        self._grows_to_bytes = Connection._grows_to_bytes

    def _reserve_buffer(self) -> None:
        super()._reserve_buffer()
        if self._accepted_ms is None:
            return
        if not self._security.pre_auth_memory.resize(self._held_bytes, len(self._buffer)):
            text = "Connection from %s closed: requests before authentication exceed the memory limit"
            self._log(logging.WARNING, text, self._peer.host)
            raise CloseConnection
        self._held_bytes = len(self._buffer)

    async def _accept_tls(self) -> bool:
        """Perform the TLS handshake; return False and close the connection if it fails."""
        agreed = False
        try:
            agreed = await self._handshake()
        except Exception as error:
            if is_broken_invariant(error):
                raise  # a broken invariant, as anywhere
            text = "Connection from %s to listener %s closed: unexpected error in the handshake"
            self._log(logging.ERROR, text, self._peer.host, self._peer.listener, traceback=True)
            self._audit_failure("unexpected error in the handshake")
        finally:
            if not agreed:
                self._stream.close()
                self._peer.mark_disconnected()
        return agreed

    async def _handshake(self) -> bool:
        """Perform the TLS handshake; return False if it fails.

        Without SASL the client certificate's mapped name becomes the principal.
        """
        try:
            subject = await cast("SecureStream", self._stream).handshake()
        except (ConnectionError, trio.ClosedResourceError):
            return False  # disconnected, possibly by a port probe
        except OSError as error:
            why = getattr(error, "reason", None) or error  # the reason of an SSLError
            text = "SSL handshake failed: connection from %s to listener %s: %s"
            self._log(logging.INFO, text, self._peer.host, self._peer.listener, why)
            self._audit_failure(f"SSL handshake failed: {why}")
            return False
        self._peer.local = self._stream.local
        if self._authenticator is None and subject is not None:
            name = self._security.principal_mapper(subject)
            if name is None:
                text = "Failed authentication with %s: no rule of ssl.principal.mapping.rules applies"
                self._log(logging.INFO, text, self._peer.host)
                self._audit_failure("no rule of ssl.principal.mapping.rules applies")
                return False
            self._peer.principal = f"User:{name}"
            self._audit_success("a certificate")
        return True

    def _audit_failure(self, why: str) -> None:
        if self._security.audit is not None:
            self._security.audit.log_authentication_failure(self._peer.host, self._peer.listener, why)

    def _audit_success(self, mechanism: str) -> None:
        if self._security.audit is not None:
            self._security.audit.log_authentication(self._peer, self._peer.listener, mechanism)

    async def _handle_request(self, frame: memoryview) -> None:
        gate = self._authenticator
        if gate is None or (gate.state is SaslState.COMPLETE and gate.deadline_ms is None):
            await super()._handle_request(frame)
            return
        now_ms = self._env.monotonic_ms()
        if gate.state is SaslState.COMPLETE:
            lets = gate.check_session(int.from_bytes(frame[:2], "big"), now_ms)
            if lets:
                await super()._handle_request(frame)
                return
            if lets is None:
                raise CloseConnection
        outcome = gate.handle(frame, now_ms)
        if outcome.token is not None:
            weighed = await self._env.in_thread(partial(gate.evaluate, outcome.token), ThreadPool.AUTHENTICATION)
            outcome = gate.complete(outcome.request, weighed, self._env.monotonic_ms())
        elif outcome.answering is not None:
            answer = None
            with suppress(PeerDisconnectedError):
                answer = await self._time_slice.run(outcome.answering)
            outcome = gate.complete_api_versions(outcome.request, answer)
        await self._apply_result(gate, outcome)
        if self._peer.throttle_ms:
            await self._mute()

    async def _apply_result(self, gate: SaslAuthenticator, result: AuthResult) -> None:
        """Send the authenticator's response; after complete authentication set principal and limits of the connection.

        Raises:
            CloseConnection: Authentication failed. The response, if any, was sent before, and after the delay of
                the listener if ``result.is_delayed``.
        """
        if result.failure is not None:
            where, host = self._peer.listener, self._peer.host
            text = "Failed authentication with %s on listener %s: %s"
            self._log(logging.INFO, text, host, where, result.failure)
            self._audit_failure(result.failure)
        if result.is_delayed:
            await self._flush()
            await self._env.sleep(self._security.failure_delay_ms / 1000)
        if isinstance(result.response, bytes):
            self._out += [len(result.response).to_bytes(4, "big"), result.response]
        elif result.response is not None:
            request = cast("RequestFrame", result.request)
            key, version = request.key, request.response_version
            self._out += encode_response(key, version, request.correlation_id, result.response)
        self._out_bytes += 1
        await self._flush()
        if result.failure is not None:
            raise CloseConnection
        self._limit = self._authentication_limit  # also for a reauthentication
        if gate.state is SaslState.COMPLETE:
            self._on_authenticated()
            self._limit = self._usual_limit
            if gate.deadline_ms is not None:
                self._peer.prepares_requests = False  # the session may expire (KIP-368)
            self._peer.principal = f"User:{gate.principal_name}"
            self._peer.token_authenticated = gate.is_delegation_token
            self._audit_success("a delegation token" if gate.is_delegation_token else gate.mechanism)

    def _answer_api_versions(self, request: RequestFrame) -> HandlerResult:
        """Return the dispatcher's response to ApiVersions, as on a connection without authentication."""
        assert request.key is ApiKey.API_VERSIONS
        return self._dispatcher.handle_request(self._peer, request)
