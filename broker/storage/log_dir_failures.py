"""Failure of a log directory: it goes offline, or the node shuts down if it needs the directory.

No write in a failed directory is acknowledged. Source: ``LogDirFailureChannel.java``,
``ReplicaManager.handleLogDirFailure`` (apache/kafka 4.3.1; KIP-112).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.broker.storage.log_dirs import LogDirs
from ottla.env.disk import is_transient
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog

logger = logging.getLogger("ottla.storage")


class LogDirFailureHandler:
    """Handler of disk errors: marks the log directory offline, or stops the node by calling ``end`` if it needs it."""

    def __init__(self, storage: LogDirs, end: Callable[[], None]) -> None:
        self._log_dirs = storage
        self._stop_node = end
        self.failure: OSError | None = None
        """Disk error that shut down the node, None before."""
        self.on_logs_offline: list[Callable[[list[PartitionLog]], None]] = []
        """Callbacks with the logs of a directory that went offline."""

    def handle_failure(self, error: OSError, where: LogDirectory | PartitionLog | None = None) -> None:
        """Handle a disk error of a directory or log: mark the directory offline and call `on_logs_offline`.

        If the node cannot run without the directory, it is stopped instead, once. A transient error (no descriptors or
        memory) is logged only: the client gets an error and may retry. No effect for an offline directory.

        Args:
            error: Disk error.
            where: Log directory or log; None: the metadata directory, for which an error is never transient.
        """
        storage = self._log_dirs
        if where is not None and is_transient(error):
            logger.error("Error in log directory, retrying: %s", error)
            return
        directory = storage.metadata if where is None else where
        if isinstance(directory, PartitionLog):
            directory = storage.directory_of(directory)
        if directory.path in storage.offline:
            return
        if storage.can_go_offline(directory):
            lost = storage.mark_offline(directory, error)
            for callback in self.on_logs_offline:
                callback(lost)
        elif self.failure is None:
            self.failure = error
            logger.critical("Shutdown broker because log directory %s has failed: %s", directory.path, error)
            self._stop_node()
