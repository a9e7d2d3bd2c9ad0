"""Make an empty directory a cluster's: identity, feature levels, and the voter set of a quorum of one.

What ``StorageTool format --standalone`` writes (``Formatter.java``, apache/kafka 4.3.1). The identity comes last:
a directory that was only half formatted has none, and is formatted again.

From KIP-631; a voter set in the log instead of the settings: KIP-853.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.controller.quorum_config import Endpoint
from ottla.controller.records import ELR_VERSION, METADATA_VERSION, NEWEST_METADATA_VERSION
from ottla.controller.snapshots import Snapshot, SnapshotId, snapshot_bytes, write_snapshot
from ottla.log.directory import METADATA_TOPIC, Identity, LogDirectory
from ottla.wire.messages import control_records as ctl
from ottla.wire.messages import metadata_records as m
from ottla.wire.primitives import uuid_text
from ottla.wire.schema import Message

BOOTSTRAP_FILE = "bootstrap.checkpoint"
BOOTSTRAP_LEVELS = {
    METADATA_VERSION: NEWEST_METADATA_VERSION,
    ELR_VERSION: 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}


def bootstrap_records() -> list[Message]:
    """The feature levels a new cluster starts with."""
    return [m.FeatureLevelRecord(name, level) for name, level in BOOTSTRAP_LEVELS.items()]


def format_directory(
    directory: LogDirectory,
    node_id: int,
    cluster_id: str | None,
    controller: Endpoint,
    now_ms: int,
    new_id: Callable[[], bytes],
) -> Identity:
    """Format a directory that has no identity yet; ``cluster_id`` None makes a new cluster."""
    disk = directory.disk
    identity = Identity(cluster_id or uuid_text(new_id()), node_id, new_id())
    raw = snapshot_bytes(Snapshot(bootstrap_records(), timestamp_ms=now_ms), 0, now_ms)
    write_snapshot(disk, f"{directory.path}/{BOOTSTRAP_FILE}", raw, mode=0o644)
    voter = ctl.VotersRecordVoter(
        node_id,
        identity.directory_id,
        [ctl.Endpoint(*controller)],
        ctl.KRaftVersionFeature(0, 1),
    )
    first = Snapshot([], 1, ctl.VotersRecord(0, [voter]), now_ms)
    metadata = f"{directory.path}/{METADATA_TOPIC}-0"
    disk.makedirs(metadata)
    write_snapshot(disk, f"{metadata}/{SnapshotId(0, 0).file_name}", snapshot_bytes(first, 0, now_ms))
    disk.fsync_dir(directory.path)
    directory.write_identity(identity, now_ms)
    return identity
