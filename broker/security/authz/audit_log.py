"""Audit log of authentication and authorization. Loaded only if it is enabled.

Behaviour: decisions are logged in the format of Kafka's ``kafka.authorizer.logger``, for the same tools: denials at
INFO, allowed operations at DEBUG; checks that only omit results are logged if allowed. Beyond Kafka, authentications
are logged too, failed ones at INFO. Clients can cause denials quickly: a line is not repeated within a minute, but
counted, and at most `MAX_AUDIT_LINES_PER_MINUTE` different ones are logged, half as many of allowed operations, so that
the limit is left for denials; then the number of suppressed ones follows. Values of clients are escaped and shortened.

Source: ``StandardAuthorizerData.java``, ``AuthHelper.scala``, ``KafkaApis.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ottla.broker.api_spec import ApiSpec, Permission
from ottla.broker.config.limits import MAX_AUDIT_LINES_PER_MINUTE, MAX_AUDIT_NAME_CHARS
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.env.env import Env
from ottla.env.log_escaping import escape

logger = logging.getLogger("ottla.audit")

PENDING_PER_RECORD = 50
"""Maximum number of pending lines of earlier minutes written with each new line, as writing blocks the event loop."""
_MINUTE_MS = 60_000.0
_LEVELS = {"INFO": logging.INFO, "DEBUG": logging.DEBUG}


class AuditSubject(Protocol):
    """Authenticated client in a log line, implemented by `ottla.broker.requests.peer.Peer`."""

    principal: str
    host: str


def escape_name(text: str) -> str:
    """Return a name chosen by a client, escaped to one line and shortened to `MAX_AUDIT_NAME_CHARS`."""
    return escape(text, MAX_AUDIT_NAME_CHARS)


def _camel_case(name: str) -> str:
    """Return a resource type in Kafka's spelling: ``TransactionalId`` for ``TRANSACTIONAL_ID``."""
    return "".join(x.capitalize() for x in name.split("_"))


class AuditLog:
    """Audit log of a node, with rate limit: lines of the logger ``ottla.audit``."""

    def __init__(self, env: Env, level: int) -> None:
        """Create the log; set the lowest level that the logger ``ottla.audit`` writes, a level of `logging`."""
        logger.setLevel(level)
        self._env = env
        self._since_ms = float("-inf")
        self._logged: dict[tuple[int, str], int] = {}
        """Number of suppressed repetitions of each (level, line) logged in this minute."""
        self._allowed = 0
        """Number of lines about allowed operations in this minute."""
        self._suppressed = 0
        self._pending: deque[tuple[int, str, int, str]] = deque()
        """Pending lines about repetitions in earlier minutes: level, format, count, repeated line."""

    @staticmethod
    def from_level(env: Env, level: str) -> AuditLog | None:
        """Return the audit log for ``ottla.audit.log`` of INFO or DEBUG (in any case); None, disabled, otherwise."""
        found = _LEVELS.get(level.strip().upper())
        return None if found is None else AuditLog(env, found)

    @property
    def logs_allowed(self) -> bool:
        """True if allowed operations are logged; the level of the logger may change at run time."""
        return logger.isEnabledFor(logging.DEBUG)

    def log_decision(
        self,
        peer: AuditSubject,
        spec: ApiSpec,
        operation: AclOperation,
        resource: ResourceType,
        name: str,
        rule: Callable[[], str],
        *,
        allowed: bool,
        is_look: bool = False,
    ) -> None:
        """Log an authorization decision about a resource ``name``: at INFO if denied, at DEBUG if allowed.

        ``spec`` is the API of the request. ``rule`` returns the text of the deciding rule; it is called only for a
        decision to be logged, also beyond the rate limit. ``is_look``: the check only omits results. A denial is not
        logged then, nor for a permission of the API with ``logs_denial=False``.
        """
        silent = Permission(operation, resource, logs_denial=False)
        if not self.logs_allowed if allowed else is_look or silent in spec.permissions:
            return
        self._log(
            logging.DEBUG if allowed else logging.INFO,
            f"Principal = {escape_name(peer.principal)} is {'Allowed' if allowed else 'Denied'} "
            f"operation = {operation.name} from host = {peer.host} "
            f"on resource = {_camel_case(resource.name)}:LITERAL:{escape_name(name)} "
            f"for request = {spec.key.api_name} "
            f"with resourceRefCount = 1 based on rule {rule()}",
        )

    def log_authentication(self, peer: AuditSubject, listener: str, mechanism: str) -> None:
        """Log a successful authentication, at DEBUG; ``mechanism`` is text such as ``PLAIN`` or ``a certificate``."""
        if self.logs_allowed:
            subject = f"Principal = {escape_name(peer.principal)} is Authenticated from host = {peer.host}"
            self._log(logging.DEBUG, f"{subject} at listener = {listener} by {mechanism}")

    def log_authentication_failure(self, host: str, listener: str, why: str) -> None:
        """Log a failed authentication, at INFO; ``why`` must not contain secrets. It is escaped and shortened here."""
        self._log(
            logging.INFO, f"Failed authentication from host = {host} at listener = {listener}: {escape_name(why)}"
        )

    def _log(self, level: int, line: str) -> None:
        now_ms = self._env.monotonic_ms()
        if now_ms - self._since_ms >= _MINUTE_MS:
            self._start_interval(now_ms)
        for _ in range(min(PENDING_PER_RECORD, len(self._pending))):
            logger.log(*self._pending.popleft())
        if (level, line) in self._logged:
            self._logged[level, line] += 1
        elif len(self._logged) < MAX_AUDIT_LINES_PER_MINUTE and (
            level > logging.DEBUG or self._allowed < MAX_AUDIT_LINES_PER_MINUTE // 2
        ):
            self._allowed += level == logging.DEBUG
            self._logged[level, line] = 0
            logger.log(level, "%s", line)
        else:
            self._suppressed += 1

    def _start_interval(self, now_ms: float) -> None:
        """Start a new minute at ``now_ms`` (monotonic): queue lines with counts of repeated and suppressed lines."""
        again = "%d times more within a minute: %s"
        self._pending += [(level, again, times, line) for (level, line), times in self._logged.items() if times]
        if self._suppressed:
            self._pending.append(
                (logging.WARNING, "%d decisions more within a minute were not logged%s", self._suppressed, "")
            )
        self._logged.clear()
        self._since_ms, self._allowed, self._suppressed = now_ms, 0, 0
