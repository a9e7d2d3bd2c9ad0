"""``ottla serve --join``: discover the cluster, format the directories of a new node, and configure the node."""

from __future__ import annotations

import argparse

from ottla.broker.config.listener_config import ANY_HOST
from ottla.broker.config.node_config import NodeConfig
from ottla.cli.node_setup.settings import configure
from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity
from ottla.controller.bootstrap_features import bootstrap_feature_levels
from ottla.controller.storage_formatter import FormatPlan, format_directories
from ottla.log.directory.log_directory import LogDirectory
from ottla.runtime import blocking_env
from ottla.tools.cluster_join import DiscoveredCluster, check_node_id_unused, discover_cluster, join_settings
from ottla.tools.join_settings import CannotJoin, load_join_settings, save_join_settings


def configure_joining(
    options: argparse.Namespace, values: dict[str, str], access: ConnectionSecurity = NO_SECURITY
) -> NodeConfig:
    """Return the configuration of a node that joins a cluster, with the addresses of its controllers.

    If the metadata directory is new, all log directories are formatted for the cluster. Listener name and addresses
    of the controllers are stored for the next start. If the cluster cannot be reached, the stored ones are used.

    ``access``: TLS and SASL configuration of the connection to the cluster.

    Raises:
        CannotJoin: the cluster cannot be found at the first start, the node id of a new directory belongs to a live
            node, or the controllers have no such listener or are not reachable from this machine; nothing is formatted.
        ConfigException: invalid settings.
        StorageFormatError: a data directory is formatted, while the metadata directory is new.
        LogDirectoryInUse: another process has locked a directory.
        CorruptFile: ``meta.properties`` or the stored settings are malformed.
        OSError: a directory cannot be read or written; those before it may be formatted.
    """
    env = blocking_env.BlockingEnv()
    config = configure(values, options.data_dir, options.listen)
    metadata = config.metadata_dir or config.data_dirs[0]
    recalled = load_join_settings(env.disk, metadata, values)
    try:
        quorum = blocking_env.run_blocking(discover_cluster(env, options.join, access))
    except CannotJoin:
        if recalled is values:
            raise
        return configure(recalled, options.data_dir, options.listen)  # joined before: other controllers are known
    identity = LogDirectory(env.disk, metadata).read_meta_properties()
    here = None if identity is None else identity.directory_id
    joined = join_settings(values, config.node_id, quorum, options.quorum_size, here)
    config = configure(joined, options.data_dir, options.listen)
    config.cluster_id = options.cluster_id or quorum.cluster_id
    if config.host in ANY_HOST:
        config.host_name = quorum.local_address
    _format(env, config, quorum, metadata)
    save_join_settings(env.disk, metadata, joined, env.now_ms())
    return config


def _format(env: blocking_env.BlockingEnv, config: NodeConfig, quorum: DiscoveredCluster, metadata: str) -> None:
    """Format the log directories with the cluster's id; do nothing if the ``metadata`` directory is formatted.

    No voters are written, since the node learns them from the leader of the quorum.

    Raises:
        CannotJoin: the node id belongs to a live node.
        StorageFormatError: another directory is formatted already.
        LogDirectoryInUse: another process has locked a directory.
        CorruptFile: ``meta.properties`` of a directory is malformed.
        OSError: a directory cannot be read or written; those before it may be formatted.
    """
    paths = dict.fromkeys([metadata, *config.data_dirs])
    directories = {path: LogDirectory(env.disk, path) for path in paths}
    if directories[metadata].read_meta_properties() is not None:
        return
    check_node_id_unused(config.node_id, quorum)
    levels = bootstrap_feature_levels(None, {}, dynamic_quorum=True)
    plan = FormatPlan(config.node_id, quorum.cluster_id, levels)
    held: list[LogDirectory] = []
    try:
        for directory in directories.values():
            directory.lock()
            held.append(directory)
        format_directories(held, directories[metadata], plan, env.now_ms(), env.uuid)
    finally:
        for directory in held:
            directory.unlock()
