"""Startup of a node's metadata directory: this node's entry among the stored voters, and formatting of a new one.

A node formats a new metadata directory itself only if no other controller is configured (KIP-853). `LogDirs` checks
the identity of all directories, and adds new ones beside a formatted metadata directory.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.config.listener_config import QUORUM_VOTERS
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.storage.log_dirs import LogDirs
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.storage_formatter import format_directory, read_snapshot_voters
from ottla.log.directory.meta_properties import MetaProperties


class LogDirsNotFormatted(Exception):
    """Raised at startup if the metadata directory is new and this node must not format it; the message has the remedy.

    Nothing was changed.
    """


def read_previous_voters(storage: LogDirs, config: NodeConfig) -> tuple[ListenerEndpoint, ...]:
    """Return this node's controller endpoints in the stored voter set, empty if it is not a voter.

    Call it for formatted directories only. ``config`` is marked as part of a joined cluster if the stored voters
    include other nodes, or if no voters are stored and none are configured.
    """
    voters = read_snapshot_voters(storage.metadata)
    if voters is None:
        if QUORUM_VOTERS not in config.values:
            config.mark_joined_cluster()  # formatted to fetch the voters from other controllers
        return ()
    if any(v.id != config.node_id for v in voters):
        config.mark_joined_cluster()
    return next((v.endpoints for v in voters if v.id == config.node_id), ())


def format_log_dirs(
    storage: LogDirs, config: NodeConfig, quorum: QuorumConfig, now_ms: int, new_id: Callable[[], bytes]
) -> MetaProperties:
    """Format the metadata directory as that of a new single-node cluster; return its identity.

    Raises:
        LogDirsNotFormatted: other controllers are configured, or this node is no controller.
        OSError: the disk failed.
    """
    path = storage.metadata.path
    if not config.is_standalone or not quorum.endpoints:
        raise LogDirsNotFormatted(
            f"{path} is not formatted, and the settings name other controllers: run ottla format --cluster-id ID "
            f"--node-id {config.node_id} --data-dir {config.data_dir} first (see ottla format --help)"
        )
    at = quorum.endpoints[0]
    return format_directory(storage.metadata, config.node_id, config.cluster_id, at, now_ms, new_id, config.credentials)
