"""The node's settings groups live by.

Source: ``GroupCoordinatorConfig.java``, ``GroupConfig.java``, ``GroupConfigManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.dynamic_config import log_invalid_stored_value
from ottla.controller.java_values import parse_integer, trim
from ottla.controller.known_classes import CONSUMER_ASSIGNORS

if TYPE_CHECKING:
    from ottla.broker.config import NodeConfig

_INTERVALS = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


class Bounded(NamedTuple):
    """A setting a group may have of its own, within bounds."""

    default: int
    least: int
    most: int

    def of(self, own: str | None) -> int:
        """What holds for a group: its own value, moved into the bounds where the node's have changed since."""
        if own is None:
            return self.default
        try:
            value = parse_integer(trim(own), 32)
        except ValueError:
            log_invalid_stored_value("a group", "an interval", own)
            return self.default
        return min(max(value, self.least), self.most)


class ConsumerSettings(NamedTuple):
    """For groups of the new consumer protocol; the bounded ones by a group's name for them."""

    intervals: dict[str, Bounded] = {  # noqa: RUF012  # never changed
        "consumer.session.timeout.ms": Bounded(45_000, 45_000, 60_000),
        "consumer.heartbeat.interval.ms": Bounded(5_000, 5_000, 15_000),
        "consumer.assignment.interval.ms": Bounded(1_000, 0, 15_000),
    }
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is taken where no member names one."""
    max_size: int = 2**31 - 1
    upgrades: bool = True
    """Whether a classic group becomes a consumer group when a member of the new protocol joins, and the other way."""
    downgrades: bool = True
    regex_refresh_ms: int = 600_000


class ShareSettings(NamedTuple):
    """For share groups; the bounded ones by a group's name for them."""

    intervals: dict[str, Bounded] = {  # noqa: RUF012  # never changed
        "share.session.timeout.ms": Bounded(45_000, 45_000, 60_000),
        "share.heartbeat.interval.ms": Bounded(5_000, 5_000, 15_000),
        "share.assignment.interval.ms": Bounded(1_000, 0, 15_000),
    }
    max_size: int = 200


class StreamsSettings(NamedTuple):
    """For streams groups; the bounded ones by a group's name for them."""

    bounded: dict[str, Bounded] = {  # noqa: RUF012  # never changed
        "streams.session.timeout.ms": Bounded(45_000, 45_000, 60_000),
        "streams.heartbeat.interval.ms": Bounded(5_000, 5_000, 15_000),
        "streams.assignment.interval.ms": Bounded(1_000, 0, 15_000),
        "streams.num.standby.replicas": Bounded(0, 0, 2),
        "streams.initial.rebalance.delay.ms": Bounded(3_000, 0, 2**31 - 1),
    }
    max_size: int = 2**31 - 1


def bounded(config: NodeConfig, kind: str) -> dict[str, Bounded]:
    """What each kind of group has, as a node has it."""
    keys = {name: (f"{kind}.{name}", f"{kind}.min.{name}", f"{kind}.max.{name}") for name in _INTERVALS}
    return {
        f"{kind}.{name}": Bounded(*(config.number(f"group.{key}") for key in three)) for name, three in keys.items()
    }


def share_settings(config: NodeConfig) -> ShareSettings:
    """As a node has them."""
    return ShareSettings(bounded(config, "share"), config.number("group.share.max.size"))


def consumer_settings(config: NodeConfig) -> ConsumerSettings:
    """As a node has them."""
    policy = config.text("group.consumer.migration.policy").lower()
    return ConsumerSettings(
        bounded(config, "consumer"),
        tuple(CONSUMER_ASSIGNORS[name] for name in config.text("group.consumer.assignors").split(",")),
        config.number("group.consumer.max.size"),
        policy in ("upgrade", "bidirectional"),
        policy in ("downgrade", "bidirectional"),
    )


def streams_settings(config: NodeConfig) -> StreamsSettings:
    """As a node has them."""
    delay, standbys = "streams.initial.rebalance.delay.ms", "streams.num.standby.replicas"
    most = config.number("group.streams.max.standby.replicas")
    own = {
        delay: Bounded(config.number(f"group.{delay}"), 0, 2**31 - 1),
        standbys: Bounded(config.number(f"group.{standbys}"), 0, most),
    }
    return StreamsSettings({**bounded(config, "streams"), **own}, config.number("group.streams.max.size"))
