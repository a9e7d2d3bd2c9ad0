"""What an active controller does by itself now and then, measured from when it became active (R267).

`GROW` and `RECOVER` are Ottla's own.

Each chore is handed in like a request and decided in its turn. Its answer says whether there is more to do: then it
comes again soon.
Source: ``QuorumController.java``, ``PeriodicTask.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.controller import heartbeats
from ottla.controller.config_keys import REPLICA_RECOVERY
from ottla.controller.decision import Decision, Steps
from ottla.controller.image import Image
from ottla.controller.leases import CHECKS_A_SESSION, SESSION_KEY, SESSION_MS, Absences, Leases
from ottla.wire.messages import metadata_records as m

AGAIN_MS = 10
RETRY_MS = 300_000
"""After one that failed (R268)."""

Static = Mapping[str, str]
"""What was set in this node's configuration."""


class Sight(NamedTuple):
    """What a chore looks at."""

    image: Image
    leases: Leases
    absences: Absences
    static: Static
    now_ms: float
    """By the monotonic clock."""
    wall_ms: int = 0


class Chore(NamedTuple):
    """One of them: how often it comes (0: never), and what it does; its answer is whether there is more to do."""

    name: str
    every_ms: Callable[[Static], int]
    decide: Callable[[Sight], Decision | Steps]


def _number(key: str, default: int, unit_ms: int = 1) -> Callable[[Static], int]:
    return lambda static: int(static.get(key, default)) * unit_ms


def _balance_every_ms(static: Static) -> int:
    enabled = static.get("auto.leader.rebalance.enable", "true").lower() == "true"
    return _number("leader.imbalance.check.interval.seconds", 300, 1_000)(static) if enabled else 0


def _fence_stale(sight: Sight) -> Steps:
    broker_id = sight.leases.stale(sight.image, sight.now_ms)
    if broker_id is None:
        return Decision(False)
    fenced = yield from heartbeats.fence(sight.image, broker_id, sight.static)
    return Decision(True, fenced.records)


def _balance(sight: Sight) -> Decision | Steps:
    from ottla.controller.elections import balance  # not before the first look

    return balance(sight.image, sight.static)


def _rescue(sight: Sight) -> Decision | Steps:
    from ottla.controller.elections import rescue

    return rescue(sight.image, sight.static)


def _grow(sight: Sight) -> Decision | Steps:
    if len(sight.image.brokers) < 2:
        return Decision(False)  # nobody has joined
    from ottla.controller.healing import grow

    return grow(sight.image, sight.static)


def _recover(sight: Sight) -> Decision | Steps:
    from ottla.controller.healing import recover

    return recover(sight.image, sight.static, sight.absences, sight.now_ms)


def _recover_every_ms(static: Static) -> int:
    after_ms = int(static.get(REPLICA_RECOVERY, 0))
    return max(100, min(10_000, after_ms // 10)) if after_ms else 0


def _sweep_tokens(sight: Sight) -> Decision | Steps:
    from ottla.controller.delegation_tokens import sweep  # most clusters have none

    return sweep(sight.image, sight.wall_ms)


def _sweep_every_ms(static: Static) -> int:
    """As in Kafka, a controller that has no secret knows of no token."""
    enabled = bool(static.get("delegation.token.secret.key"))
    return _number("delegation.token.expiry.check.interval.ms", 3_600_000)(static) if enabled else 0


IDLE = Chore(
    "say that the controller lives",
    _number("metadata.max.idle.interval.ms", 500),
    lambda _: Decision(False, [m.NoOpRecord()]),
)
FENCE_STALE = Chore(
    "fence brokers nobody hears",
    lambda static: max(1, int(static.get(SESSION_KEY, SESSION_MS)) // CHECKS_A_SESSION),
    _fence_stale,
)
BALANCE = Chore("let first replicas lead", _balance_every_ms, _balance)
RESCUE = Chore(
    "elect uncleanly where topics allow it",
    _number("unclean.leader.election.interval.ms", 300_000),
    _rescue,
)
GROW = Chore("let internal topics grow with the cluster", lambda static: 1_000, _grow)
RECOVER = Chore(
    "make again what is lost",
    _recover_every_ms,
    _recover,
)
SWEEP_TOKENS = Chore("remove delegation tokens that are over", _sweep_every_ms, _sweep_tokens)
CHORES = (IDLE, FENCE_STALE, BALANCE, RESCUE, GROW, RECOVER, SWEEP_TOKENS)
