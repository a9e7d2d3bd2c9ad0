"""``ottla cluster recover``: unsafe offline recovery of a KRaft quorum from one remaining controller."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ottla.cli.errors import failure_text

TEXT = """Make one controller's directory a quorum of its own, where most of the others are gone for good.

The node must not run. Without --yes it only says what would be lost. Where several controllers are left, take the one
whose metadata reaches furthest, and empty the directories of all others before they are started again.
"""
MAX_PARTITIONS_SHOWN = 10


def add_verb(verbs: Any) -> None:
    """Add the parser of ``recover`` to the subparsers of ``ottla cluster``."""
    # lazy: 32.9 ms, 1866 kB
    from ottla.cli.node_setup.settings import add_settings

    text = "go on with one controller where most of them are gone for good: it may lose what only they knew"
    verb = verbs.add_parser(
        "recover", help=text, description=TEXT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_settings(verb)
    verb.add_argument("--yes", action="store_true", help="do it")


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
        f"node {state.node_id} knows the metadata up to offset {state.end_offset}, epoch {state.epoch}, "
        f"the last of it written {age_s} s ago",
        f"lost: what controllers {others} decided after that without it: topics, settings, leaders, in-sync replicas",
        f"{state.in_sync_count} partitions have an in-sync replica on node {state.node_id} and go on with it",
    ]
    if state.out_of_sync_partitions:
        out.append(
            f"{len(state.out_of_sync_partitions)} have a replica on it that was behind: they wait for another broker "
            "to come back, or go on without their newest records (ottla cluster elect --unclean): "
            + _sample_text(state.out_of_sync_partitions)
        )
    if state.partitions_without_copy:
        out.append(
            f"{len(state.partitions_without_copy)} lie on other brokers only, and wait for them: "
            + _sample_text(state.partitions_without_copy)
        )
    out.append(f"the directories of controllers {others} must never be started again: empty them first")
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
            raise unsafe_quorum_recovery.QuorumRecoveryError(f"{directory.path}: there is no such directory")
        directory.lock()
        try:
            identity = directory.read_meta_properties()
            if identity is None:
                raise unsafe_quorum_recovery.QuorumRecoveryError(f"{directory.path} belongs to no cluster")
            now_ms = machine.now_ms()
            store = MetadataStore(
                machine.disk, directory.path, identity, now_ms, MetadataLogConfig.from_config(config.values)
            )
            print("\n".join(_report(unsafe_quorum_recovery.preview_recovery(store), now_ms)))
            if not options.yes:
                print("nothing was changed: --yes does it", file=sys.stderr)
                return 1
            epoch = unsafe_quorum_recovery.recover_quorum(store, config.values, now_ms)
            print(f"node {identity.node_id} decides alone from epoch {epoch} on: start it")
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
