"""Settings of a broker for consumer, share and streams groups, with the bounds of those that a group may override.

Source: ``GroupCoordinatorConfig.java``, ``GroupConfig.java``, ``GroupConfigManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.config.dynamic_config import log_invalid_stored_value
from ottla.controller.config.java_values import parse_integer, trim
from ottla.controller.config.pluggable_classes import CONSUMER_ASSIGNORS

if TYPE_CHECKING:
    from ottla.broker.config.node_config import NodeConfig

_INTERVALS = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


class BoundedSetting(NamedTuple):
    """Setting that a group may override (dynamic group config), with the broker's default, minimum and maximum."""

    default: int
    minimum: int
    maximum: int

    def effective_value(self, own: str | None) -> int:
        """Return the group's value ``own``, clamped to the broker's bounds; the default if None.

        A value that is not a 32-bit integer is logged, and the default returned.
        """
        if own is None:
            return self.default
        try:
            value = parse_integer(trim(own), 32)
        except ValueError:
            log_invalid_stored_value("a group", "an interval", own)
            return self.default
        return min(max(value, self.minimum), self.maximum)


class ConsumerGroupSettings(NamedTuple):
    """Broker settings of consumer groups; ``bounded_settings`` by dynamic group config name."""

    bounded_settings: dict[str, BoundedSetting] = {  # noqa: RUF012  # never changed
        "consumer.session.timeout.ms": BoundedSetting(45_000, 45_000, 60_000),
        "consumer.heartbeat.interval.ms": BoundedSetting(5_000, 5_000, 15_000),
        "consumer.assignment.interval.ms": BoundedSetting(1_000, 0, 15_000),
    }
    assignors: tuple[str, ...] = ("uniform", "range")
    """Names of the server-side assignors; the first is the default."""
    max_size: int = 2**31 - 1
    allows_upgrade: bool = True
    """`group.consumer.migration.policy` allows conversion: a classic group to a consumer group, and (downgrade) back.
    """
    allows_downgrade: bool = True


class ShareGroupSettings(NamedTuple):
    """Broker settings of share groups; ``bounded_settings`` by dynamic group config name."""

    bounded_settings: dict[str, BoundedSetting] = {  # noqa: RUF012  # never changed
        "share.session.timeout.ms": BoundedSetting(45_000, 45_000, 60_000),
        "share.heartbeat.interval.ms": BoundedSetting(5_000, 5_000, 15_000),
        "share.assignment.interval.ms": BoundedSetting(1_000, 0, 15_000),
    }
    max_size: int = 200


class StreamsGroupSettings(NamedTuple):
    """Broker settings of streams groups; ``bounded_settings`` by dynamic group config name."""

    bounded_settings: dict[str, BoundedSetting] = {  # noqa: RUF012  # never changed
        "streams.session.timeout.ms": BoundedSetting(45_000, 45_000, 60_000),
        "streams.heartbeat.interval.ms": BoundedSetting(5_000, 5_000, 15_000),
        "streams.assignment.interval.ms": BoundedSetting(1_000, 0, 15_000),
        "streams.num.standby.replicas": BoundedSetting(0, 0, 2),
        "streams.initial.rebalance.delay.ms": BoundedSetting(3_000, 0, 2**31 - 1),
    }
    max_size: int = 2**31 - 1


def read_interval_settings(config: NodeConfig, kind: str) -> dict[str, BoundedSetting]:
    """Return the session, heartbeat and assignment intervals (ms) of a group type, by dynamic config name.

    ``kind``: ``consumer``, ``share`` or ``streams``; a name is for example ``share.session.timeout.ms``.
    """
    keys = {name: (f"{kind}.{name}", f"{kind}.min.{name}", f"{kind}.max.{name}") for name in _INTERVALS}
    return {
        f"{kind}.{name}": BoundedSetting(*(config.number(f"group.{key}") for key in three))
        for name, three in keys.items()
    }


def read_share_group_settings(config: NodeConfig) -> ShareGroupSettings:
    """Return the share group settings of a node's configuration."""
    return ShareGroupSettings(read_interval_settings(config, "share"), config.number("group.share.max.size"))


def read_consumer_group_settings(config: NodeConfig) -> ConsumerGroupSettings:
    """Return the consumer group settings of a node's configuration."""
    policy = config.text("group.consumer.migration.policy").lower()
    return ConsumerGroupSettings(
        read_interval_settings(config, "consumer"),
        tuple(CONSUMER_ASSIGNORS[name] for name in config.text("group.consumer.assignors").split(",")),
        config.number("group.consumer.max.size"),
        policy in ("upgrade", "bidirectional"),
        policy in ("downgrade", "bidirectional"),
    )


def read_streams_group_settings(config: NodeConfig) -> StreamsGroupSettings:
    """Return the streams group settings of a node's configuration."""
    delay, standbys = "streams.initial.rebalance.delay.ms", "streams.num.standby.replicas"
    most = config.number("group.streams.max.standby.replicas")
    own = {
        delay: BoundedSetting(config.number(f"group.{delay}"), 0, 2**31 - 1),
        standbys: BoundedSetting(config.number(f"group.{standbys}"), 0, most),
    }
    return StreamsGroupSettings(
        {**read_interval_settings(config, "streams"), **own}, config.number("group.streams.max.size")
    )
