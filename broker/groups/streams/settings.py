"""The node's settings streams groups live by.

Source: ``GroupCoordinatorConfig.java``, ``GroupConfig.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.groups.settings import Bounded, bounded

if TYPE_CHECKING:
    from ottla.broker.config import NodeConfig


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


def streams_settings(config: NodeConfig) -> StreamsSettings:
    """As a node has them."""
    delay, standbys = "streams.initial.rebalance.delay.ms", "streams.num.standby.replicas"
    most = config.number("group.streams.max.standby.replicas")
    own = {
        delay: Bounded(config.number(f"group.{delay}"), 0, 2**31 - 1),
        standbys: Bounded(config.number(f"group.{standbys}"), 0, most),
    }
    return StreamsSettings({**bounded(config, "streams"), **own}, config.number("group.streams.max.size"))
