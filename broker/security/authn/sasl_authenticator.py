"""SASL authenticator of a connection: its states before and after authentication.

A pure state machine: `handle` processes one frame and returns the response and whether to close the connection. Only
ApiVersions (once), SaslHandshake and SaslAuthenticate are decoded before authentication.

- ``INITIAL``: ApiVersions or SaslHandshake; another request closes the connection without a response.
- ``VERSIONS_ANSWERED``: SaslHandshake; another request closes the connection without a response.
- ``TOKENS``: SaslAuthenticate; another request gets ILLEGAL_SASL_STATE, and the connection is closed.
- ``RAW_TOKENS``: frames that are tokens; a failure closes the connection without a response.
- ``COMPLETE``: all requests; SaslHandshake starts a re-authentication if sessions expire; a request after the deadline
closes the connection.

Source: ``SaslServerAuthenticator.java``, ``KafkaChannel.java``, ``SocketServer.scala`` (apache/kafka 4.3.1; 312-318).

From KIP-43, KIP-152; session expiry from KIP-368.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import GeneratorType
from typing import Any, NamedTuple, cast

from ottla.broker.config.limits import MIN_REAUTHENTICATION_INTERVAL_MS
from ottla.broker.security.authn.sasl_server import (
    SaslAuthenticationException,
    SaslServer,
    SaslServerFactory,
    UnansweredSaslFailure,
    UnmappedPrincipal,
)
from ottla.jobs.job import Job
from ottla.wire.api_keys import ApiKey, request_class, request_spec, response_class
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import RequestFrame, parse_request
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse


class SaslState(Enum):
    """State of a connection's SASL authentication."""

    INITIAL = "first"
    VERSIONS_ANSWERED = "versions answered"
    TOKENS = "tokens"
    RAW_TOKENS = "raw tokens"
    OTHER_MECHANISM = "other mechanism"
    """Re-authentication with another mechanism: the next token closes the connection."""
    COMPLETE = "open"


class SaslPolicy(NamedTuple):
    """SASL settings of the listener of a connection, and functions that the authenticator of the connection calls.

    They are the ApiVersions handler of the connection and the wall clock.
    """

    sasl_server_factories: Mapping[str, SaslServerFactory]
    """Factories of the enabled mechanisms' servers, in the order of the setting."""
    max_reauth_ms: Mapping[str, int]
    """``connections.max.reauth.ms`` by mechanism; 0 or missing: sessions do not expire."""
    answer_api_versions: Callable[[RequestFrame], Message | Job[Message | None] | None]
    """Function that returns the response to an ApiVersions request of any version, or the job that makes it."""
    now_ms: Callable[[], int]
    """Wall clock in ms, by which credentials expire."""


class AuthResult(NamedTuple):
    """Result of processing a frame: a response to send, a reason to close the connection after it, or work to do first.

    The work is a token to evaluate in a thread, or a job that makes the response to ApiVersions.
    """

    request: RequestFrame | None = None
    """Request to which ``response`` belongs; None for raw tokens."""
    response: Message | bytes | None = None
    failure: str | None = None
    """Reason to close the connection, for the log; None to keep it open."""
    is_delayed: bool = False
    """True if response and close are delayed by ``connection.failed.authentication.delay.ms``."""
    token: bytes | None = None
    """Token that needs blocking evaluation: call `SaslAuthenticator.evaluate` in a thread, then ``complete``."""
    answering: Job[Message | None] | None = None
    """Job that answers ApiVersions: run it, then call `complete_api_versions`."""


TokenResult = bytes | None | SaslAuthenticationException
"""Result of evaluating a token: the response to the client (None for none), or the error."""


class SaslAuthenticator:
    """SASL authenticator of one connection, from its first request to re-authentications."""

    def __init__(self, policy: SaslPolicy) -> None:
        self._policy = policy
        self.state = SaslState.INITIAL
        self._sasl_server: SaslServer | None = None
        self._mechanism = ""
        self._previous: tuple[str, str] | None = None
        """Mechanism and authenticated name of the last successful authentication, None before."""
        self._began_ms = float("-inf")
        self.deadline_ms: float | None = None
        """Monotonic time in ms at which the session expires, None if it does not."""

    @property
    def principal_name(self) -> str:
        """Name of the last successful authentication, without ``User:``; empty before the first."""
        return "" if self._previous is None else self._previous[1]

    @property
    def mechanism(self) -> str:
        """SASL mechanism of the connection, empty before SaslHandshake."""
        return self._mechanism

    @property
    def is_delegation_token(self) -> bool:
        """True if the last authentication is by a delegation token; valid once it is complete."""
        return self._sasl_server is not None and self._sasl_server.is_delegation_token

    def check_session(self, key: int, now_ms: float) -> bool | None:
        """Return True if a request of an authenticated connection may be handled by the broker.

        False: it is a SaslHandshake, also after the expiry, that starts a re-authentication and is for `handle`. None:
        the session has expired, and the connection must be closed. Without session expiry always True. A SaslHandshake
        sooner than `MIN_REAUTHENTICATION_INTERVAL_MS` after the previous one is a request like any other.

        Args:
            key: API key of the request.
            now_ms: Monotonic time.
        """
        if self.deadline_ms is None:
            return True
        if key == ApiKey.SASL_HANDSHAKE and now_ms - self._began_ms >= MIN_REAUTHENTICATION_INTERVAL_MS:
            return False
        return True if now_ms <= self.deadline_ms else None

    def handle(self, frame: memoryview, now_ms: float) -> AuthResult:
        """Process a frame received before authentication or for a re-authentication; ``now_ms`` is the monotonic time.

        A token is evaluated here unless the mechanism may block: then the result has it for `evaluate`.

        Raises:
            WireError: the frame is malformed or not allowed: the connection must be closed without a response.
        """
        if self.state is SaslState.OTHER_MECHANISM:
            text = f"re-authentication with another mechanism than {self._mechanism}"
            return AuthResult(failure=text, is_delayed=True)
        if self.state is SaslState.RAW_TOKENS:
            return self._evaluate_token(None, bytes(frame), now_ms)
        request = parse_request(frame)
        if self.state is SaslState.TOKENS:
            return self._token(request, now_ms)
        if request.key is ApiKey.API_VERSIONS:
            return self._answer_api_versions(request)
        if request.key is not ApiKey.SASL_HANDSHAKE:
            raise WireError(f"unexpected request before authentication: {request.key.name}")
        if self.state is SaslState.COMPLETE:
            self._began_ms = now_ms
        return self._handshake(request)

    def _answer_api_versions(self, request: RequestFrame) -> AuthResult:
        """Respond to ApiVersions, once; an error response does not count. Raises WireError the second time."""
        if self.state is not SaslState.INITIAL:
            raise WireError("unexpected request during authentication: ApiVersions")
        answer = self._policy.answer_api_versions(request)
        if isinstance(answer, GeneratorType):
            return AuthResult(request, answering=answer)
        return self.complete_api_versions(request, cast("Message | None", answer))

    def complete_api_versions(self, request: RequestFrame | None, answer: Any) -> AuthResult:
        """Return the result with a response to ApiVersions; if it has no error, change to VERSIONS_ANSWERED.

        ``answer`` is the ApiVersions response to send, or None if the client has disconnected.
        """
        if answer is not None and not answer.error_code:
            self.state = SaslState.VERSIONS_ANSWERED
        return AuthResult(request, answer)

    def _handshake(self, request: RequestFrame) -> AuthResult:
        body = _decoded(request)
        enabled = list(self._policy.sasl_server_factories)
        begin = self._policy.sasl_server_factories.get(body.mechanism)
        if begin is None:
            answer = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled)
            return AuthResult(request, answer, "SASL mechanism is not enabled", is_delayed=True)
        if self._previous is not None and self._previous[0] != body.mechanism:
            self.state = SaslState.OTHER_MECHANISM
        else:
            self._mechanism, self._sasl_server = body.mechanism, begin()
            self.state = SaslState.TOKENS if request.version > 0 else SaslState.RAW_TOKENS
        return AuthResult(request, SaslHandshakeResponse(0, enabled))

    def evaluate(self, token: bytes) -> TokenResult:
        """Evaluate a token by the mechanism; return the response or the error.

        Uses no other state of the connection, so that it may run in a thread.
        """
        assert self._sasl_server is not None
        try:
            return self._sasl_server.evaluate(token)
        except SaslAuthenticationException as error:
            return error

    def complete(self, request: RequestFrame | None, weighed: TokenResult, now_ms: float) -> AuthResult:
        """Change the state by an evaluated token; return the response to send, or the failure that closes.

        Args:
            request: SaslAuthenticate request with the token; None for raw tokens, which are frames of their own.
            weighed: Result of `evaluate`.
            now_ms: Monotonic time, from which the session's lifetime counts.
        """
        try:
            raw, lifetime_ms = self._finish_evaluation(weighed, now_ms)
        except SaslAuthenticationException as error:
            return self._failed(request, error)
        if request is None:
            return AuthResult(None, raw)
        return AuthResult(request, SaslAuthenticateResponse(0, None, raw or b"", lifetime_ms))

    def _failed(self, request: RequestFrame | None, error: SaslAuthenticationException) -> AuthResult:
        if isinstance(error, UnansweredSaslFailure) or (
            isinstance(error, UnmappedPrincipal) and (request is None or self._previous)
        ):
            return AuthResult(request, failure=str(error))
        if request is None:
            return AuthResult(failure=str(error), is_delayed=error.client_message is not None)
        if isinstance(error, UnmappedPrincipal):
            return AuthResult(request, SaslAuthenticateResponse(), str(error))
        answer = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, self._client_message(error))
        return AuthResult(request, answer, str(error), is_delayed=True)

    def _token(self, request: RequestFrame, now_ms: float) -> AuthResult:
        if request.key is not ApiKey.SASL_AUTHENTICATE:
            return AuthResult(
                request,
                _illegal_state_response(request),
                f"unexpected request during authentication: {request.key.name}",
                is_delayed=True,
            )
        return self._evaluate_token(request, bytes(_decoded(request).auth_bytes), now_ms)

    def _evaluate_token(self, request: RequestFrame | None, token: bytes, now_ms: float) -> AuthResult:
        assert self._sasl_server is not None
        if self._sasl_server.may_block:
            return AuthResult(request, token=token)
        return self.complete(request, self.evaluate(token), now_ms)

    def _client_message(self, error: SaslAuthenticationException) -> str:
        """Return the error message of a failed authentication for the client, as in Kafka (S-314)."""
        if error.client_message is not None:
            return error.client_message
        phase = "authentication" if self._previous is None else "re-authentication"
        return f"Authentication failed during {phase} due to invalid credentials with SASL mechanism {self._mechanism}"

    def _finish_evaluation(self, answer: TokenResult, now_ms: float) -> tuple[bytes | None, int]:
        """Return the response token and the session lifetime in ms.

        The lifetime is 0 if the session does not expire, or if a further token is needed. After the last token the
        state becomes COMPLETE, and the session's deadline is set.

        Raises:
            SaslAuthenticationException: The evaluation failed, or a re-authentication is that of another principal.
        """
        exchange = self._sasl_server
        assert exchange is not None
        if isinstance(answer, SaslAuthenticationException):
            raise answer
        if not exchange.is_complete:
            return answer, 0
        if self._previous is not None and self._previous[1] != exchange.authorization_id:
            message = "Cannot change principals during re-authentication from "
            names = f"User.{self._previous[1]}: User.{exchange.authorization_id}"
            raise SaslAuthenticationException("re-authentication as another principal", f"{message}{names}")
        self._previous = (self._mechanism, exchange.authorization_id)
        self.state = SaslState.COMPLETE
        limits = [x for x in (self._policy.max_reauth_ms.get(self._mechanism, 0),) if x > 0]
        if exchange.expires_ms is not None:
            limits.append(exchange.expires_ms - self._policy.now_ms())
        lifetime_ms = max(min(limits), 0) if limits else 0
        self.deadline_ms = now_ms + lifetime_ms if limits else None
        return answer, lifetime_ms


def _decoded(request: RequestFrame) -> Any:
    if request.version not in request_spec(request.key).versions:
        raise WireError(f"{request.key.name} has no version {request.version}")
    return compiler.decode(request_class(request.key), request.version, request.frame, request.body_position)[0]


def _illegal_state_response(request: RequestFrame) -> Message | None:
    """Return the ILLEGAL_SASL_STATE response to a request, without decoding it.

    None if the broker does not support the version, or the response has no top-level error code.
    """
    if request.version not in request_spec(request.key).versions:
        return None
    answer: Any = response_class(request.key)()
    if not hasattr(answer, "error_code"):
        return None
    answer.error_code = ErrorCode.ILLEGAL_SASL_STATE
    return answer  # type: ignore[no-any-return]
