"""Current settings of share groups: the group's dynamic config, else the broker's, within the broker's bounds.

Source: ``ShareGroupConfigProvider.java``, ``GroupConfig.java``, ``ShareGroupAutoOffsetResetStrategy.java``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.config.dynamic_config import log_invalid_stored_value
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.partition_state import LeaderState
from ottla.broker.share_partitions.share_partition import SharePartitionLimits
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import GROUP_KEYS, group_bounds, valid_canonical_value
from ottla.controller.config.java_duration import by_duration_ms
from ottla.controller.metadata.image import RESOURCE_GROUP, MetadataImage
from ottla.env.env import Env
from ottla.log.timestamp_lookup import find_offset_by_timestamp
from ottla.wire.errors import ErrorCode, ProtocolError, WireError


class ShareGroupConfigProvider:
    """Settings of share groups, looked up in the current metadata image at each call."""

    MAX_CACHED_GROUPS = 1000

    def __init__(self, env: Env, config: NodeConfig, image: Callable[[], MetadataImage]) -> None:
        self._env = env
        self._config = config
        self._image = image
        self._limits: dict[str, SharePartitionLimits] = {}
        self._limits_of: MetadataImage | None = None

    def _text(self, group_id: str, name: str) -> str:
        own = self._image().config(RESOURCE_GROUP, group_id).get(name)
        text = None if own is None else valid_canonical_value(GROUP_KEYS[name], own)
        if text is not None:
            return text
        if own is not None:
            log_invalid_stored_value(f"group {group_id!r}", name, own)
        broker = f"group.{name}"
        return self._config.text(broker) if broker in BROKER_KEYS else GROUP_KEYS[name].default or ""

    def number(self, group_id: str, name: str) -> int:
        """Return a numeric setting of a group, clamped to the broker's current bounds; its name ends with its unit.

        ``name``: name of the group config, such as ``share.record.lock.duration.ms``.
        """
        value = int(self._text(group_id, name))
        for bound, limit in group_bounds(name):
            end = self._config.number(limit)
            value = max(value, end) if bound == "min" else min(value, end)
        return value

    def limits(self, group_id: str) -> SharePartitionLimits:
        """Return the delivery limits of a group.

        Cached for each image, since each partition of each fetch uses them.
        """
        image = self._image()
        if image is not self._limits_of or len(self._limits) > self.MAX_CACHED_GROUPS:
            self._limits, self._limits_of = {}, image
        known = self._limits.get(group_id)
        if known is None:
            known = self._limits[group_id] = self._read_limits(group_id)
        return known

    def _read_limits(self, group_id: str) -> SharePartitionLimits:
        return SharePartitionLimits(
            self.number(group_id, "share.delivery.count.limit"),
            self.number(group_id, "share.partition.max.record.locks"),
            self.number(group_id, "share.record.lock.duration.ms"),
            self._text(group_id, "share.renew.acknowledge.enable") == "true",
        )

    def is_read_committed(self, group_id: str) -> bool:
        """Return True if the group's ``share.isolation.level`` is read_committed; members do not choose it."""
        return self._text(group_id, "share.isolation.level") == "read_committed"

    def start_offset(self, group_id: str, replica: HostedPartition) -> int:
        """Return the start offset of a share partition without one, by the group's ``share.auto.offset.reset``.

        It is the log start offset (earliest), the high watermark (latest), or the offset of the first record since a
        time.

        Raises:
            ProtocolError: OFFSET_NOT_AVAILABLE: no record at or after the time, or the high watermark of a new leader
                is not known yet; CORRUPT_MESSAGE: a batch of the log is malformed.
            OSError: the log cannot be read.
        """
        reset, log = self._text(group_id, "share.auto.offset.reset"), replica.log
        if reset == "earliest":
            return log.log_start_offset
        back_ms = by_duration_ms(reset)
        if back_ms is None:  # "latest"
            if type(replica.state) is LeaderState and replica.state.is_high_watermark_unknown(log.high_watermark):
                raise ProtocolError(ErrorCode.OFFSET_NOT_AVAILABLE, f"high watermark {log.high_watermark} is lagging")
            return log.high_watermark
        since = self._env.now_ms() - back_ms
        try:
            found = find_offset_by_timestamp(log, since, log.high_watermark)
        except WireError as error:
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        if found is None:
            raise ProtocolError(ErrorCode.OFFSET_NOT_AVAILABLE, f"no record since {since}")
        return found.offset
