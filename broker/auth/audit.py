"""The audit log: who was let in or not, and who was allowed or refused what. Loaded only where it is switched on.

Behaviour: lines about decisions are written as Kafka writes them to ``kafka.authorizer.logger``, so that what reads
those reads these: what is refused at INFO, what is allowed at DEBUG; looks that only leave something out of an answer
are told where they allow. Beyond Kafka's, logins are told too, those that fail at INFO. Whoever may connect may be
refused as fast as it likes: a line that was told is not told again within a minute, but counted, and no more than
`A_MINUTE` different ones are told, of what is allowed half as many, so that there is room for what is refused; then how
many were not. What others chose stands in them escaped and cut.

Source: ``StandardAuthorizerData.java``, ``AuthHelper.scala``, ``KafkaApis.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ottla.controller.acl import AclOperation, ResourceType
from ottla.wire.apis import ApiKey
from ottla.world.env import Env
from ottla.world.logs import escaped

logger = logging.getLogger("ottla.audit")

A_MINUTE = 1_000
"""So many different lines."""
AT_ONCE = 50
"""So many lines of the last minute at most are written before one of this minute: nobody else runs meanwhile."""
LONGEST_CHARS = 255
"""Of a name."""
_MINUTE_MS = 60_000.0
_LEVELS = {"INFO": logging.INFO, "DEBUG": logging.DEBUG}
_QUIET = frozenset(
    {
        (ApiKey.METADATA, AclOperation.CREATE, ResourceType.CLUSTER),
        (ApiKey.LIST_GROUPS, AclOperation.DESCRIBE, ResourceType.CLUSTER),
        (ApiKey.LIST_GROUPS, AclOperation.DESCRIBE, ResourceType.GROUP),
        (ApiKey.INIT_PRODUCER_ID, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
        (ApiKey.WRITE_TXN_MARKERS, AclOperation.ALTER, ResourceType.CLUSTER),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
        (ApiKey.STREAMS_GROUP_HEARTBEAT, AclOperation.CREATE, ResourceType.CLUSTER),
        (ApiKey.CREATE_TOPICS, AclOperation.CREATE, ResourceType.CLUSTER),
        (ApiKey.CREATE_TOPICS, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
        (ApiKey.DELETE_TOPICS, AclOperation.DELETE, ResourceType.CLUSTER),
    }
)
"""What a request tries first, or only leaves something out for: nobody was refused anything (``logIfDenied``)."""


class Asks(Protocol):
    """Who wants to do something: `ottla.broker.server.peer.Peer`."""

    principal: str
    host: str


def shown(text: str) -> str:
    """Return a name that a client chose, on one line and not too long."""
    return escaped(text, LONGEST_CHARS)


def _words(name: str) -> str:
    """``TRANSACTIONAL_ID`` as Kafka writes it here: ``TransactionalId``."""
    return "".join(x.capitalize() for x in name.split("_"))


class Audit:
    """A node's."""

    def __init__(self, env: Env, level: int) -> None:
        """``level``: the least that is written, of `logging`."""
        logger.setLevel(level)
        self._env = env
        self._since_ms = float("-inf")
        self._told: dict[tuple[int, str], int] = {}
        """Levels and lines of this minute, and how often each would have been written again."""
        self._allowed = 0
        """How many of them are of what is allowed."""
        self._untold = 0
        self._owed: deque[tuple[int, str, int, str]] = deque()
        """What is still to be written of the minutes before: level, words, how often, which line."""

    @staticmethod
    def of(env: Env, level: str) -> Audit | None:
        """As ``ottla.audit.log`` has it; None where it is off."""
        found = _LEVELS.get(level.strip().upper())
        return None if found is None else Audit(env, found)

    @property
    def tells_allowed(self) -> bool:
        """Return whether decisions that allow are logged; the level of the logger may change at run time."""
        return logger.isEnabledFor(logging.DEBUG)

    def decided(
        self,
        peer: Asks,
        key: ApiKey,
        operation: AclOperation,
        resource: ResourceType,
        name: str,
        rule: Callable[[], str],
        *,
        allowed: bool,
        is_look: bool = False,
    ) -> None:
        """Somebody was allowed or refused something; ``rule``: by what. ``is_look``: a refusal leaves something out."""
        if not self.tells_allowed if allowed else is_look or (key, operation, resource) in _QUIET:
            return
        self._tell(
            logging.DEBUG if allowed else logging.INFO,
            f"Principal = {shown(peer.principal)} is {'Allowed' if allowed else 'Denied'} "
            f"operation = {operation.name} from host = {peer.host} "
            f"on resource = {_words(resource.name)}:LITERAL:{shown(name)} for request = {_words(key.name)} "
            f"with resourceRefCount = 1 based on rule {rule()}",
        )

    def let_in(self, peer: Asks, listener: str, way: str) -> None:
        """Somebody has proved who it is; ``way``: how."""
        if self.tells_allowed:
            who = f"Principal = {shown(peer.principal)} is Authenticated from host = {peer.host}"
            self._tell(logging.DEBUG, f"{who} at listener = {listener} by {way}")

    def not_let_in(self, host: str, listener: str, why: str) -> None:
        """Somebody has not; ``why`` without a secret."""
        self._tell(logging.INFO, f"Nobody is Authenticated from host = {host} at listener = {listener}: {shown(why)}")

    def _tell(self, level: int, line: str) -> None:
        now_ms = self._env.monotonic_ms()
        if now_ms - self._since_ms >= _MINUTE_MS:
            self._begin(now_ms)
        for _ in range(min(AT_ONCE, len(self._owed))):
            logger.log(*self._owed.popleft())
        if (level, line) in self._told:
            self._told[level, line] += 1
        elif len(self._told) < A_MINUTE and (level > logging.DEBUG or self._allowed < A_MINUTE // 2):
            self._allowed += level == logging.DEBUG
            self._told[level, line] = 0
            logger.log(level, "%s", line)
        else:
            self._untold += 1

    def _begin(self, now_ms: float) -> None:
        """A new minute: what came again in the last one is told by how often, and that more came than was told."""
        again = "%d times more within a minute: %s"
        self._owed += [(level, again, times, line) for (level, line), times in self._told.items() if times]
        if self._untold:
            self._owed.append((logging.WARNING, "%d decisions more within a minute were not told%s", self._untold, ""))
        self._told.clear()
        self._since_ms, self._allowed, self._untold = now_ms, 0, 0
