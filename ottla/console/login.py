"""Login to the console with user and password, by the SASL mechanisms of the node's listeners.

The node's own PLAIN or SCRAM server verifies the password.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import trio

from ottla.broker.config.limits import MAX_CONSOLE_LOGINS
from ottla.broker.security.authn.listener_security import ListenerSecurity
from ottla.broker.security.authn.sasl_server import SaslAuthenticationException, SaslServer
from ottla.client.scram import MECHANISM_TYPES, ScramClient, ScramError
from ottla.client.security_config import PLAIN
from ottla.env.env import Env, ThreadPool

MAX_NAME_CHARS = 1024
MAX_PASSWORD_CHARS = 4096


class AuthenticatedUser(NamedTuple):
    """Result of a successful login: principal, such as ``User:alice``, SASL mechanism, and check of the credential."""

    principal: str
    mechanism: str
    is_valid: Callable[[], bool]
    """Returns False once the credential was changed or removed; always True for PLAIN."""


class PasswordLogin:
    """Verifier of user names and passwords, at most `MAX_CONSOLE_LOGINS` at a time."""

    def __init__(
        self, env: Env, listeners: Sequence[ListenerSecurity | None], *, requires_certificate: bool = False
    ) -> None:
        """Create a verifier.

        Args:
            env: clock and threads.
            listeners: security settings of each client listener; None for one without TLS and SASL.
            requires_certificate: the console itself accepts only clients with a trusted certificate.
        """
        self._env = env
        self._listeners = [each for each in listeners if each is not None and each.requires_sasl]
        self._is_closed = not requires_certificate and all(
            each is not None and each.tls is not None and each.tls.client_auth == "required" for each in listeners
        )
        """True if no listener of the node serves clients without a certificate."""
        self._limiter = trio.CapacityLimiter(MAX_CONSOLE_LOGINS)

    @property
    def is_required(self) -> bool:
        """True if a client listener requires SASL, or if all of them require a certificate but the console does not."""
        return bool(self._listeners) or self._is_closed

    @property
    def mechanisms(self) -> list[str]:
        """Enabled SASL mechanisms that verify a password: PLAIN and SCRAM."""
        names = {name for each in self._listeners for name in each.enabled_mechanisms}
        return sorted(names & {PLAIN, *MECHANISM_TYPES})

    async def verify(self, user: str, password: str) -> AuthenticatedUser | None:
        """Verify a password by each listener and mechanism in turn; return the user that the first one accepts.

        None: none accepts it. It is returned after the delay of failed authentications.
        """
        if 0 < len(user) <= MAX_NAME_CHARS and 0 < len(password) <= MAX_PASSWORD_CHARS:
            async with self._limiter:
                for listener in self._listeners:
                    for mechanism in self.mechanisms:
                        found = await self._verify_by(listener, mechanism, user, password)
                        if found is not None:
                            return found
        await self._env.sleep(max([each.failure_delay_ms for each in self._listeners], default=0) / 1000)
        return None

    async def _verify_by(
        self, listener: ListenerSecurity, mechanism: str, user: str, password: str
    ) -> AuthenticatedUser | None:
        factory = listener.sasl_server_factories(self._env).get(mechanism)
        if factory is None:
            return None
        server, nonce = factory(), self._env.uuid().hex()
        credential = None if mechanism == PLAIN else listener.scram_keys(user, mechanism)
        try:
            if mechanism == PLAIN:
                server.evaluate(f"\0{user}\0{password}".encode())
            else:
                work = partial(_exchange_scram, server, ScramClient(mechanism, user, password, nonce))
                await self._env.in_thread(work, ThreadPool.AUTHENTICATION)
        except (SaslAuthenticationException, ScramError, UnicodeError):
            return None
        if not server.is_complete or server.is_delegation_token:
            return None
        is_valid: Callable[[], bool] = lambda: True  # noqa: E731 - users of PLAIN do not change while the node runs
        if mechanism != PLAIN:
            is_valid = lambda: listener.scram_keys(user, mechanism) == credential  # noqa: E731 - one line says it
        return AuthenticatedUser(f"User:{server.authorization_id}", mechanism, is_valid)


def _exchange_scram(server: SaslServer, client: ScramClient) -> None:
    """Run a SCRAM exchange between ``client`` and ``server`` to its end; called in a thread, as hashing takes long.

    Raises:
        SaslAuthenticationException: the server refused the user or the password.
        ScramError: the client refused a message of the server.
    """
    message: bytes | None = client.first_message()
    while message is not None:
        answer = server.evaluate(message)
        message = None if answer is None else client.evaluate_challenge(answer)
