"""Builder of the storage subsystem: flushes, retention, removal, compaction and scrubbing of logs.

The log directories themselves are created before the components, as their identity is read first.

Source: ``LogManager.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.metadata.controller_forwarder import StartInBackground
from ottla.broker.replication.log_maintenance import LogMaintenance
from ottla.broker.storage.deleted_logs import DeletedLogRemover
from ottla.broker.storage.log_cleaner import LogCleaner
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.broker.storage.scrubber import Scrubber
from ottla.controller.config.config_keys import SCRUB_RATE
from ottla.env.env import Env


class StorageComponents(NamedTuple):
    """Components of the background work on logs: flush, retention, removal of deleted logs, compaction, scrubbing."""

    log_maintenance: LogMaintenance
    deleted_log_remover: DeletedLogRemover
    cleaner: LogCleaner
    scrubber: Scrubber


def create_storage(
    env: Env,
    config: NodeConfig,
    storage: LogDirs,
    setting: Callable[[str], str],
    fail: DiskErrorHandler,
    start: StartInBackground,
) -> StorageComponents:
    """Return the storage components, not started.

    ``setting`` returns the current value of a dynamic broker setting, "" if unset; ``fail`` handles disk errors;
    ``start`` starts a background task.
    """
    retain_ms = config.number("log.retention.check.interval.ms")
    expire_ms = config.number("producer.id.expiration.ms")
    return StorageComponents(
        LogMaintenance(env, storage, retain_ms, expire_ms, fail, start),
        DeletedLogRemover(env, config.number("log.segment.delete.delay.ms")),
        LogCleaner(env, storage, setting, fail),
        Scrubber(env, storage, lambda: int(setting(SCRUB_RATE) or 0)),
    )
