"""``ottla cluster recover``: unsafe offline recovery of a KRaft quorum from one remaining controller."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ottla.cli.errors import failure_text

TEXT = """Make one controller the only voter of the quorum, after the majority of the voters is lost for good.

Stop the node first. Without --yes, the command only reports what would be lost. If several controllers are left, use
the one with the highest metadata log end offset, and empty the directories of all others before they start again.
"""
MAX_PARTITIONS_SHOWN = 10


def add_verb(verbs: Any) -> None:
    """Add the parser of ``recover`` to the subparsers of ``ottla cluster``."""
    # lazy: 32.9 ms, 1866 kB
    from ottla.cli.node_setup.settings import add_settings

    text = "recover from one controller after a majority is lost for good; may lose committed metadata"
    verb = verbs.add_parser(
        "recover", help=text, description=TEXT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_settings(verb)
    verb.add_argument("--yes", action="store_true", help="change the directory; without it, report only")


def _sample_text(partitions: tuple[str, ...]) -> str:
    more = f" and {len(partitions) - MAX_PARTITIONS_SHOWN} more" if len(partitions) > MAX_PARTITIONS_SHOWN else ""
    return ", ".join(partitions[:MAX_PARTITIONS_SHOWN]) + more


def _report(state: Any, now_ms: int) -> list[str]:
    """Return the lines of the report: recoverable metadata, lost voters, and partitions that may lose records.

    ``state``: preview of the recovery; ``now_ms``: time since 1970, for the age of the last metadata record.
    """
    age_s = (now_ms - state.last_timestamp_ms) // 1000
    others = ", ".join(str(i) for i in state.lost_voters)
    out = [
        f"node {state.node_id} has the metadata up to offset {state.end_offset}, epoch {state.epoch}, "
        f"last record written {age_s} s ago",
        f"lost: later metadata that only controllers {others} have: topics, configs, leaders, in-sync replicas",
        f"{state.in_sync_count} partitions have an in-sync replica on node {state.node_id} and stay available",
    ]
    if state.out_of_sync_partitions:
        out.append(
            f"{len(state.out_of_sync_partitions)} have an out-of-sync replica on it: they stay offline until another "
            "replica returns, or lose their latest records (ottla cluster elect --unclean): "
            + _sample_text(state.out_of_sync_partitions)
        )
    if state.partitions_without_copy:
        out.append(
            f"{len(state.partitions_without_copy)} have replicas on other brokers only, and stay offline until then: "
            + _sample_text(state.partitions_without_copy)
        )
    out.append(f"the directories of controllers {others} must not be used again: empty them first")
    return out


def run(options: argparse.Namespace) -> int:
    """Report what the recovery of the quorum would lose; with ``--yes`` execute it. Return the exit status.

    Returns:
        0 after the recovery; 1 without ``--yes`` or after a failure; 2 for invalid settings.
    """
    # lazy: 155.1 ms, 8998 kB
    from ottla.broker.config.listener_config import ConfigException
    from ottla.cli.node_setup.settings import configure_with_saved_join, read_settings
    from ottla.controller import unsafe_quorum_recovery
    from ottla.controller.raft.store.metadata_log_config import MetadataLogConfig
    from ottla.controller.raft.store.metadata_store import MetadataStore
    from ottla.log.checkpoints.checkpoint_files import CorruptFile
    from ottla.log.directory.log_directory import LogDirectory, LogDirectoryInUse
    from ottla.runtime.system_env import SystemEnv
    from ottla.wire.errors import WireError

    machine = SystemEnv()
    try:
        values = read_settings(options)
        config = configure_with_saved_join(values, options.data_dir, None)
        directory = LogDirectory(machine.disk, config.metadata_dir or config.data_dirs[0])
        if not machine.disk.exists(directory.path):
            raise unsafe_quorum_recovery.QuorumRecoveryError(f"{directory.path}: no such directory")
        directory.lock()
        try:
            identity = directory.read_meta_properties()
            if identity is None:
                raise unsafe_quorum_recovery.QuorumRecoveryError(f"{directory.path} has no meta.properties")
            now_ms = machine.now_ms()
            store = MetadataStore(
                machine.disk, directory.path, identity, now_ms, MetadataLogConfig.from_config(config.values)
            )
            print("\n".join(_report(unsafe_quorum_recovery.preview_recovery(store), now_ms)))
            if not options.yes:
                print("nothing was changed: add --yes to apply", file=sys.stderr)
                return 1
            epoch = unsafe_quorum_recovery.recover_quorum(store, config.values, now_ms)
            print(f"node {identity.node_id} is the only voter from epoch {epoch}: start it")
            return 0
        finally:
            directory.unlock()
    except (
        ConfigException,
        unsafe_quorum_recovery.QuorumRecoveryError,
        LogDirectoryInUse,
        CorruptFile,
        WireError,
        OSError,
    ) as error:
        print(f"ottla cluster: {failure_text(error)}", file=sys.stderr)
        return 2 if isinstance(error, ConfigException) else 1
