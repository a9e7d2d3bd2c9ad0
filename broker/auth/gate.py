"""The gate of a listener that wants a login: what is heard before somebody has proved who they are, and afterwards.

A pure machine: `handle` takes one frame and says what is answered and whether the connection ends. Nothing but
ApiVersions (once), SaslHandshake and SaslAuthenticate is even decoded before the login is complete.

| state | takes | else |
|---|---|---|
| first | ApiVersions, SaslHandshake | the end, without an answer |
| versions told | SaslHandshake | the end |
| tokens in SaslAuthenticate | SaslAuthenticate | ILLEGAL_SASL_STATE and the end |
| raw tokens | frames that are tokens | a failure is the end, without an answer |
| open | everything; SaslHandshake begins anew where sessions end | after the deadline the end |

Source: ``SaslServerAuthenticator.java``, ``KafkaChannel.java``, ``SocketServer.scala`` (apache/kafka 4.3.1; 312-318).

From KIP-43, KIP-152; sessions that end from KIP-368.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from ottla.broker.auth.exchange import Begin, Exchange, Nameless, NotAuthentic, Unanswered
from ottla.wire import compiler
from ottla.wire.apis import ApiKey, request_class, request_spec, response_class
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import RequestFrame, parse_request
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse
from ottla.wire.schema import Message

REAUTHENTICATION_EVERY_MS = 1000.0
_VERSIONS = {ApiKey.SASL_HANDSHAKE: range(2), ApiKey.SASL_AUTHENTICATE: range(3)}


class State(Enum):
    """Where a login stands."""

    FIRST = "first"
    VERSIONS_TOLD = "versions told"
    TOKENS = "tokens"
    RAW_TOKENS = "raw tokens"
    OTHER_MECHANISM = "other mechanism"
    """Again, by another mechanism than before: the next token ends it."""
    OPEN = "open"


class Policy(NamedTuple):
    """What a listener asks for."""

    mechanisms: Mapping[str, Begin]
    """Those enabled, in the order of the settings."""
    max_reauth_ms: Mapping[str, int]
    """``connections.max.reauth.ms`` by mechanism; 0 or missing: sessions do not end."""
    versions: Callable[[RequestFrame], Message]
    """Answers ApiVersions, whatever version it came in."""
    now_ms: Callable[[], int]
    """The wall clock: credentials end by it."""


class Said(NamedTuple):
    """What comes of a frame."""

    request: RequestFrame | None = None
    """What ``answer`` answers; None where tokens travel raw."""
    answer: Message | bytes | None = None
    failure: str | None = None
    """Why the connection ends, for the log."""
    held_back: bool = False
    """Whether the end, and the answer before it, come only after ``connection.failed.authentication.delay.ms``."""
    token: bytes | None = None
    """What the client said where that is not decided yet: `weigh` it in a thread, and `settle` what came of it."""


Weighed = bytes | None | NotAuthentic
"""What a mechanism made of a token: what the client is told, or why it is not let in."""


class Gate:
    """One connection's way in."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.state = State.FIRST
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._known: tuple[str, str] | None = None
        """Mechanism and name of the login before this one."""
        self._began_ms = float("-inf")
        self.deadline_ms: float | None = None
        """When the session ends, by the monotonic clock."""

    @property
    def name(self) -> str:
        """Who it is, once the gate is open."""
        return "" if self._known is None else self._known[1]

    @property
    def mechanism(self) -> str:
        """By which mechanism, once the gate is open."""
        return self._mechanism

    @property
    def is_token(self) -> bool:
        """Whether a delegation token was shown."""
        return self._exchange is not None and self._exchange.is_token

    def lets(self, key: int, now_ms: float) -> bool | None:
        """Of an open gate: whether a request goes on to its handler; False: begins a login anew; None: ends it all."""
        if self.deadline_ms is None:
            return True
        if key == ApiKey.SASL_HANDSHAKE and now_ms - self._began_ms >= REAUTHENTICATION_EVERY_MS:
            return False
        return True if now_ms <= self.deadline_ms else None

    def handle(self, frame: memoryview, now_ms: float) -> Said:
        """Take one frame before or instead of its handler; ``now_ms`` is of the monotonic clock.

        Raises:
            WireError: it cannot be read: the connection ends without an answer.
        """
        if self.state is State.OTHER_MECHANISM:
            return Said(failure=f"a login by another mechanism than {self._mechanism}", held_back=True)
        if self.state is State.RAW_TOKENS:
            return self._heard(None, bytes(frame), now_ms)
        request = parse_request(frame)
        if self.state is State.TOKENS:
            return self._token(request, now_ms)
        if request.key is ApiKey.API_VERSIONS:
            return self._versions(request)
        if request.key is not ApiKey.SASL_HANDSHAKE:
            raise WireError(f"{request.key.name} before a login")
        if self.state is State.OPEN:
            self._began_ms = now_ms
        return self._handshake(request)

    def _versions(self, request: RequestFrame) -> Said:
        """Told once; an answer that says what was wrong with the question does not count."""
        if self.state is not State.FIRST:
            raise WireError("ApiVersions in the middle of a login")
        answer: Any = self._policy.versions(request)
        if not answer.error_code:
            self.state = State.VERSIONS_TOLD
        return Said(request, answer)

    def _handshake(self, request: RequestFrame) -> Said:
        body = _decoded(request)
        enabled = list(self._policy.mechanisms)
        begin = self._policy.mechanisms.get(body.mechanism)
        if begin is None:
            answer = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled)
            return Said(request, answer, "a mechanism that is not enabled", held_back=True)
        if self._known is not None and self._known[0] != body.mechanism:
            self.state = State.OTHER_MECHANISM
        else:
            self._mechanism, self._exchange = body.mechanism, begin()
            self.state = State.TOKENS if request.version > 0 else State.RAW_TOKENS
        return Said(request, SaslHandshakeResponse(0, enabled))

    def weigh(self, token: bytes) -> Weighed:
        """Have the mechanism decide on a token. Touches nothing else of the gate, so it may be called in a thread."""
        assert self._exchange is not None
        try:
            return self._exchange.evaluate(token)
        except NotAuthentic as error:
            return error

    def settle(self, request: RequestFrame | None, weighed: Weighed, now_ms: float) -> Said:
        """What comes of a token; ``request``: what it came in, None where tokens travel raw."""
        try:
            raw, lifetime_ms = self._evaluated(weighed, now_ms)
        except NotAuthentic as error:
            return self._failed(request, error)
        if request is None:
            return Said(None, raw)
        return Said(request, SaslAuthenticateResponse(0, None, raw or b"", lifetime_ms))

    def _failed(self, request: RequestFrame | None, error: NotAuthentic) -> Said:
        if isinstance(error, Unanswered) or (isinstance(error, Nameless) and (request is None or self._known)):
            return Said(request, failure=str(error))
        if request is None:
            return Said(failure=str(error), held_back=error.told is not None)
        if isinstance(error, Nameless):
            return Said(request, SaslAuthenticateResponse(), str(error))
        answer = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, self._told(error))
        return Said(request, answer, str(error), held_back=True)

    def _token(self, request: RequestFrame, now_ms: float) -> Said:
        if request.key is not ApiKey.SASL_AUTHENTICATE:
            return Said(request, _illegal(request), f"{request.key.name} in the middle of a login", held_back=True)
        return self._heard(request, bytes(_decoded(request).auth_bytes), now_ms)

    def _heard(self, request: RequestFrame | None, token: bytes, now_ms: float) -> Said:
        assert self._exchange is not None
        if self._exchange.waits:
            return Said(request, token=token)
        return self.settle(request, self.weigh(token), now_ms)

    def _told(self, error: NotAuthentic) -> str:
        """What the client learns: no more than Kafka says (item 314)."""
        if error.told is not None:
            return error.told
        what = "authentication" if self._known is None else "re-authentication"
        return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism}"

    def _evaluated(self, answer: Weighed, now_ms: float) -> tuple[bytes | None, int]:
        """What the client is told, and for how long it is let in; 0 for ever, or not yet."""
        exchange = self._exchange
        assert exchange is not None
        if isinstance(answer, NotAuthentic):
            raise answer
        if not exchange.is_done:
            return answer, 0
        if self._known is not None and self._known[1] != exchange.authorization_id:
            told = "Cannot change principals during re-authentication from "
            raise NotAuthentic("somebody else", f"{told}User.{self._known[1]}: User.{exchange.authorization_id}")
        self._known = (self._mechanism, exchange.authorization_id)
        self.state = State.OPEN
        limits = [x for x in (self._policy.max_reauth_ms.get(self._mechanism, 0),) if x > 0]
        if exchange.expires_ms is not None:
            limits.append(exchange.expires_ms - self._policy.now_ms())
        lifetime_ms = max(min(limits), 0) if limits else 0
        self.deadline_ms = now_ms + lifetime_ms if limits else None
        return answer, lifetime_ms


def _decoded(request: RequestFrame) -> Any:
    if request.version not in _VERSIONS[request.key]:
        raise WireError(f"{request.key.name} has no version {request.version}")
    return compiler.decode(request_class(request.key), request.version, request.frame, request.body_position)[0]


def _illegal(request: RequestFrame) -> Message | None:
    """What is said to a request out of place, without reading it; None where it would have to be read for that."""
    if request.version not in request_spec(request.key).versions:
        return None
    answer: Any = response_class(request.key)()
    if not hasattr(answer, "error_code"):
        return None
    answer.error_code = ErrorCode.ILLEGAL_SASL_STATE
    return answer  # type: ignore[no-any-return]
