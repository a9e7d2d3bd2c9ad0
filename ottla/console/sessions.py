"""Sessions of the console: cookie, principal, and the CSRF token that each change requires.

A session that is not logged in uses no memory: its token is derived from its id.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from ottla.broker.config.limits import CONSOLE_SESSION_MS, MAX_CONSOLE_SESSIONS
from ottla.broker.requests.peer import ANONYMOUS
from ottla.env.env import Env

_ID_CHARS = 64
"""Length of a session id: two UUIDs in hexadecimal."""


class Session(NamedTuple):
    """Session of a browser: id in its cookie, CSRF token, principal."""

    id: str
    csrf_token: str
    principal: str
    is_logged_in: bool


class _Login(NamedTuple):
    principal: str
    started_ms: float
    is_valid: Callable[[], bool]
    """Returns False once the credential of the user was changed or removed."""


class SessionStore:
    """Sessions of a node's console, of which only the logins are stored, in memory: a restart of the node ends them."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._key = env.uuid() + env.uuid()
        self._logins: dict[str, _Login] = {}
        """Logged-in sessions by id, the oldest first."""

    def _new_id(self) -> str:
        return (self._env.uuid() + self._env.uuid()).hex()

    def _session(self, session_id: str, login: _Login | None) -> Session:
        token = hmac.new(self._key, session_id.encode(), sha256).hexdigest()
        return Session(session_id, token, ANONYMOUS if login is None else login.principal, login is not None)

    def find(self, session_id: str) -> Session:
        """Return the session with the id of a cookie, not logged in if the id is unknown.

        A malformed id, or one whose login has expired or whose credential has changed, is replaced by a new id; such
        a login is removed.
        """
        if len(session_id) != _ID_CHARS or not session_id.isalnum() or not session_id.isascii():
            return self._session(self._new_id(), None)
        login = self._logins.get(session_id)
        if login is None:
            return self._session(session_id, None)
        if self._env.monotonic_ms() - login.started_ms > CONSOLE_SESSION_MS or not login.is_valid():
            del self._logins[session_id]
            return self._session(self._new_id(), None)
        return self._session(session_id, login)

    def log_in(self, principal: str, is_valid: Callable[[], bool]) -> Session:
        """Create and return a session, with a new id, for a user whose password was verified.

        The oldest login is removed if there are `MAX_CONSOLE_SESSIONS`.
        """
        while len(self._logins) >= MAX_CONSOLE_SESSIONS:
            del self._logins[next(iter(self._logins))]
        session_id = self._new_id()
        login = self._logins[session_id] = _Login(principal, self._env.monotonic_ms(), is_valid)
        return self._session(session_id, login)

    def log_out(self, session: Session) -> None:
        """Remove the login of a session; do nothing if it is not logged in."""
        self._logins.pop(session.id, None)


def is_valid_token(session: Session, token: str) -> bool:
    """Return True if a form's CSRF token is that of the session; compared in constant time."""
    return hmac.compare_digest(session.csrf_token.encode(), token.encode("utf-8", "surrogatepass"))


def read_cookie(header: str, name: str) -> str:
    """Return the value of a cookie in the Cookie header; empty if it is absent."""
    for part in header.split(";"):
        key, separator, value = part.strip().partition("=")
        if separator and key == name:
            return value
    return ""
