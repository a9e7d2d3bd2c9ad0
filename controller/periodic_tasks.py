"""Periodic tasks of the active controller, scheduled from its activation (R-267).

`EXPAND_INTERNAL_TOPICS` and `REPLACE_LOST_REPLICAS` are Ottla's own.

Each task is submitted like a request and decided in order. Its response is True if there is more to do: then it runs
again after `REPEAT_DELAY_MS`. Source: ``QuorumController.java``, ``PeriodicTask.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.controller.config.config_keys import REPLICA_RECOVERY
from ottla.controller.control import broker_heartbeat
from ottla.controller.control.broker_heartbeat_tracker import (
    CHECKS_PER_SESSION,
    DEFAULT_SESSION_TIMEOUT_MS,
    SESSION_TIMEOUT_KEY,
    BrokerHeartbeatTracker,
    FencedSince,
)
from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.messages.metadata_records import NoOpRecord

REPEAT_DELAY_MS = 10
ERROR_RETRY_MS = 300_000
"""Delay of a task after a run that failed (R-268)."""

StaticConfig = Mapping[str, str]
"""Settings of this node's configuration by name."""


class PeriodicTaskContext(NamedTuple):
    """Input of a periodic task: latest image, soft state of the controller, settings of the node, and times.

    ``wall_ms``: wall clock.
    """

    image: MetadataImage
    heartbeat_tracker: BrokerHeartbeatTracker
    fenced_since: FencedSince
    static_config: StaticConfig
    now_ms: float
    """Monotonic time."""
    wall_ms: int = 0


class PeriodicTask(NamedTuple):
    """Periodic task of the active controller: name, period in ms by the node's settings (0: never), and its decision.

    ``decide`` returns records and response, or a job for them. The response is True if there is more to do; a text
    counts as True and is logged.
    """

    name: str
    period_ms: Callable[[StaticConfig], int]
    decide: Callable[[PeriodicTaskContext], ControllerResult | ControllerResultSteps]


def _number(key: str, default: int, unit_ms: int = 1) -> Callable[[StaticConfig], int]:
    return lambda static: int(static.get(key, default)) * unit_ms


def _balance_period_ms(static: StaticConfig) -> int:
    enabled = static.get("auto.leader.rebalance.enable", "true").lower() == "true"
    return _number("leader.imbalance.check.interval.seconds", 300, 1_000)(static) if enabled else 0


def _fence_stale(sight: PeriodicTaskContext) -> ControllerResultSteps:
    broker_id = sight.heartbeat_tracker.next_expired_broker(sight.image, sight.now_ms)
    if broker_id is None:
        return ControllerResult(False)
    fenced = yield from broker_heartbeat.fence_broker(sight.image, broker_id, sight.static_config)
    epoch = sight.image.brokers[broker_id].broker_epoch
    message = f"Fencing broker {broker_id} at epoch {epoch} because its session has timed out"
    return ControllerResult(message, fenced.records)


def _balance(sight: PeriodicTaskContext) -> ControllerResult | ControllerResultSteps:
    # lazy: 1.3 ms, 52 kB: not before the first check
    from ottla.controller.control.elect_leaders import balance_partition_leaders

    return balance_partition_leaders(sight.image, sight.static_config)


def _elect_unclean(sight: PeriodicTaskContext) -> ControllerResult | ControllerResultSteps:
    # lazy: 1.3 ms, 52 kB
    from ottla.controller.control.elect_leaders import elect_unclean_leaders

    return elect_unclean_leaders(sight.image, sight.static_config)


def _expand_internal_topics(sight: PeriodicTaskContext) -> ControllerResult | ControllerResultSteps:
    if len(sight.image.brokers) < 2:
        return ControllerResult(False)  # single node
    # lazy: 2.5 ms, 128 kB
    from ottla.controller.control.replica_recovery import expand_internal_topics

    return expand_internal_topics(sight.image, sight.static_config)


def _replace_lost_replicas(sight: PeriodicTaskContext) -> ControllerResult | ControllerResultSteps:
    # lazy: 2.5 ms, 128 kB
    from ottla.controller.control.replica_recovery import replace_lost_replicas

    return replace_lost_replicas(sight.image, sight.static_config, sight.fenced_since, sight.now_ms)


def _replica_recovery_period_ms(static: StaticConfig) -> int:
    after_ms = int(static.get(REPLICA_RECOVERY, 0))
    return max(100, min(10_000, after_ms // 10)) if after_ms else 0


def _sweep_tokens(sight: PeriodicTaskContext) -> ControllerResult | ControllerResultSteps:
    # lazy: 1.9 ms, 60 kB: most clusters have no delegation tokens
    from ottla.controller.control.delegation_tokens import sweep_expired_tokens

    return sweep_expired_tokens(sight.image, sight.wall_ms)


def _sweep_period_ms(static: StaticConfig) -> int:
    """Return the period in ms of the removal of expired tokens; 0 (never) without delegation.token.secret.key."""
    enabled = bool(static.get("delegation.token.secret.key"))
    return _number("delegation.token.expiry.check.interval.ms", 3_600_000)(static) if enabled else 0


WRITE_NO_OP_RECORD = PeriodicTask(
    "write a NoOpRecord",
    _number("metadata.max.idle.interval.ms", 500),
    lambda _: ControllerResult(False, [NoOpRecord()]),
)
FENCE_STALE_BROKERS = PeriodicTask(
    "fence brokers with an expired session",
    lambda static: max(1, int(static.get(SESSION_TIMEOUT_KEY, DEFAULT_SESSION_TIMEOUT_MS)) // CHECKS_PER_SESSION),
    _fence_stale,
)
BALANCE_LEADERS = PeriodicTask("elect preferred leaders", _balance_period_ms, _balance)
ELECT_UNCLEAN_LEADERS = PeriodicTask(
    "elect unclean leaders",
    _number("unclean.leader.election.interval.ms", 300_000),
    _elect_unclean,
)
EXPAND_INTERNAL_TOPICS = PeriodicTask(
    "reassign internal topics to new brokers", lambda static: 1_000, _expand_internal_topics
)
REPLACE_LOST_REPLICAS = PeriodicTask(
    "replace the replicas of offline brokers",
    _replica_recovery_period_ms,
    _replace_lost_replicas,
)
SWEEP_EXPIRED_TOKENS = PeriodicTask("remove expired delegation tokens", _sweep_period_ms, _sweep_tokens)
TASKS_FOR_OTHER_BROKERS = (FENCE_STALE_BROKERS, EXPAND_INTERNAL_TOPICS, REPLACE_LOST_REPLICAS)
"""Periodic tasks that are needed only if brokers other than the controller's own node are registered."""
PERIODIC_TASKS = (
    WRITE_NO_OP_RECORD,
    FENCE_STALE_BROKERS,
    BALANCE_LEADERS,
    ELECT_UNCLEAN_LEADERS,
    EXPAND_INTERNAL_TOPICS,
    REPLACE_LOST_REPLICAS,
    SWEEP_EXPIRED_TOKENS,
)
