"""Failure of a data directory: it goes offline, or the node ends if it needs the directory.

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
    """Handler of disk errors."""

    def __init__(self, storage: LogDirs, end: Callable[[], None]) -> None:
        self._log_dirs = storage
        self._stop_node = end
        self.failure: OSError | None = None
        """What ended the node."""
        self.on_logs_offline: list[Callable[[list[PartitionLog]], None]] = []
        """Called with the logs of a directory that went out of service."""

    def handle_failure(self, error: OSError, where: LogDirectory | PartitionLog | None = None) -> None:
        """Handle an error of a directory or log; without ``where`` of the metadata directory.

        A shortage of resources (descriptors) is no failure: the client gets an error and may retry.
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
