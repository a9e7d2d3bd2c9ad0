"""Formatting of log directories: ``meta.properties``, bootstrap records, and the voters of a dynamic quorum.

Also the parser of these voters, and their reader from the newest snapshot.

As ``StorageTool format`` (``Formatter.java``, ``DynamicVoter.java``, apache/kafka 4.3.1; R-238). meta.properties is
written last: a directory that was formatted in part has none, and is formatted again.

From KIP-631; a voter set in the log instead of the settings: KIP-853.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.controller.bootstrap_features import RELEASES, bootstrap_feature_levels
from ottla.controller.metadata.record_serde import KRAFT_VERSION, METADATA_VERSION
from ottla.controller.metadata.snapshot_files import (
    SnapshotContents,
    SnapshotId,
    encode_snapshot,
    list_snapshots,
    read_snapshot_header,
    write_snapshot,
)
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.env.disk import PRIVATE_DIR, PRIVATE_FILE
from ottla.jobs.job import run_to_end
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.directory.log_directory import METADATA_TOPIC, LogDirectory
from ottla.log.directory.meta_properties import MetaProperties
from ottla.wire.codec.primitives import uuid_from_string, uuid_to_string
from ottla.wire.codec.schema import Message
from ottla.wire.messages.control_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from ottla.wire.messages.metadata_records import FeatureLevelRecord

BOOTSTRAP_FILE = "bootstrap.checkpoint"


class StorageFormatError(Exception):
    """Directory cannot be formatted (it is unchanged), or voters cannot be parsed; message: one line for the user."""


class InitialVoter(NamedTuple):
    """Voter of the initial voter set of a dynamic quorum: node id, directory id (16 bytes) and controller endpoints."""

    id: int
    directory_id: bytes
    endpoints: tuple[ListenerEndpoint, ...]


class FormatPlan(NamedTuple):
    """Parameters of formatting: node and cluster id, feature levels, initial voters and SCRAM credentials."""

    node_id: int
    cluster_id: str
    levels: Mapping[str, int]
    voters: tuple[InitialVoter, ...] = ()
    """Initial voters, written into the metadata directory; empty if they are static or the node joins a quorum."""
    credentials: tuple[Message, ...] = ()
    """SCRAM credential records of the new cluster (KIP-900)."""

    @property
    def own_directory_id(self) -> bytes | None:
        """Directory id that the initial voters have for this node; None if this node is not one of them."""
        return next((v.directory_id for v in self.voters if v.id == self.node_id), None)


def parse_voter(text: str, listener: str) -> InitialVoter:
    """Return the initial voter written as ``ID@HOST:PORT:DIRECTORY_ID``; an IPv6 address is in brackets.

    ``listener``: name of its endpoint.

    Raises:
        StorageFormatError: the text has another form.
    """
    address, _, directory = text.strip().rpartition(":")
    number, at, place = address.partition("@")
    host, colon, port = place.rpartition(":")
    try:
        if not (at and colon and host and number.isdecimal() and port.isdecimal() and int(port) <= 65535):
            raise ValueError
        return InitialVoter(
            int(number), uuid_from_string(directory), (ListenerEndpoint(listener, host.strip("[]"), int(port)),)
        )
    except ValueError:
        raise StorageFormatError(f"{text.strip()!r} is not a controller: ID@HOST:PORT:DIRECTORY_ID expected") from None


def parse_voters(text: str, listener: str) -> tuple[InitialVoter, ...]:
    """Return the voters of ``--initial-controllers``, separated by commas, in ascending order of their ids.

    Raises:
        StorageFormatError: a voter cannot be parsed, an id occurs twice, or there is no voter.
    """
    voters = sorted(parse_voter(x, listener) for x in text.split(",") if x.strip())
    ids = [v.id for v in voters]
    if not ids or len(set(ids)) != len(ids):
        raise StorageFormatError(f"{text}: " + ("duplicate node id" if ids else "controller expected"))
    return tuple(voters)


def bootstrap_records(levels: Mapping[str, int] | None = None) -> list[Message]:
    """Return the FeatureLevelRecords of a new cluster for ``levels``, None for the newest ones.

    Features at level 0 and kraft.version, which is a control record, have no record.
    """
    levels = bootstrap_feature_levels(None, {}, dynamic_quorum=True) if levels is None else levels
    others = sorted(x for x in levels if x not in (METADATA_VERSION, KRAFT_VERSION))
    return [FeatureLevelRecord(x, levels[x]) for x in (METADATA_VERSION, *others) if levels[x]]


def format_directory(
    directory: LogDirectory,
    node_id: int,
    cluster_id: str | None,
    controller: ListenerEndpoint,
    now_ms: int,
    new_id: Callable[[], bytes],
    credentials: tuple[Message, ...] = (),
) -> MetaProperties:
    """Format the directory of a node that is a quorum of its own; return the contents of its ``meta.properties``.

    An existing ``meta.properties`` is replaced. ``cluster_id``: None for a new one. ``controller``: endpoint of this
    node as the only voter. ``new_id``: returns a random UUID. ``credentials``: initial SCRAM credential records.
    ``now_ms``: wall clock.
    """
    cluster = cluster_id or uuid_to_string(new_id())
    voter = InitialVoter(node_id, new_id(), (controller,))
    plan = FormatPlan(node_id, cluster, bootstrap_feature_levels(None, {}, dynamic_quorum=True), (voter,), credentials)
    return _format(directory, directory, plan, now_ms, new_id)


def format_directories(
    directories: Sequence[LogDirectory],
    metadata: LogDirectory,
    plan: FormatPlan,
    now_ms: int,
    new_id: Callable[[], bytes],
    *,
    ignore_formatted: bool = False,
) -> list[str]:
    """Format the unformatted directories among ``directories``; return the message of ``StorageTool`` for each of them.

    All are checked before the first one is changed. ``metadata`` is the metadata log directory among them.
    ``now_ms``: wall clock; ``new_id`` returns a random UUID.

    Raises:
        StorageFormatError: a directory belongs to another node or cluster, or is formatted without
            ``ignore_formatted``; none is changed.
        CorruptFile, OSError: a directory cannot be read or written; others may be formatted.
    """
    new = []
    for directory in sorted(directories, key=lambda d: d.path):
        identity = directory.read_meta_properties()
        if identity is None:
            new.append(directory)
            continue
        if (identity.cluster_id, identity.node_id) != (plan.cluster_id, plan.node_id):
            raise StorageFormatError(
                f"{directory.path} belongs to node {identity.node_id} of cluster {identity.cluster_id}, "
                f"not to node {plan.node_id} of {plan.cluster_id}"
            )
        if not ignore_formatted:
            raise StorageFormatError(
                f"Log directory {directory.path} is already formatted. "
                "Use --ignore-formatted to ignore this directory and format the others."
            )
    for directory in new:
        _format(directory, metadata, plan, now_ms, new_id)
    release = RELEASES[plan.levels[METADATA_VERSION]]
    return [f"Formatting {_kind(d, metadata, plan)} {d.path} with {METADATA_VERSION} {release}." for d in new]


def _kind(directory: LogDirectory, metadata: LogDirectory, plan: FormatPlan) -> str:
    """Return the directory type as ``StorageTool format`` prints it, such as "metadata directory"."""
    if directory is not metadata:
        return "data directory"
    if not plan.voters:
        return "metadata directory"
    return "dynamic metadata directory" if plan.own_directory_id is None else "dynamic metadata voter directory"


def _format(
    directory: LogDirectory, metadata: LogDirectory, plan: FormatPlan, now_ms: int, new_id: Callable[[], bytes]
) -> MetaProperties:
    disk, own = directory.disk, plan.own_directory_id if directory is metadata else None
    directory.create()
    raw = run_to_end(encode_snapshot(SnapshotContents([*bootstrap_records(plan.levels), *plan.credentials]), 0, now_ms))
    write_snapshot(disk, f"{directory.path}/{BOOTSTRAP_FILE}", raw, mode=PRIVATE_FILE)
    if directory is metadata and plan.voters:
        _write_voters(metadata, plan, now_ms)
    disk.fsync_dir(directory.path)
    identity = MetaProperties(plan.cluster_id, plan.node_id, new_id() if own is None else own)
    directory.write_meta_properties(identity, now_ms)
    return identity


def _write_voters(directory: LogDirectory, plan: FormatPlan, now_ms: int) -> None:
    disk, path = directory.disk, f"{directory.path}/{METADATA_TOPIC}-0"
    both = KRaftVersionFeature(0, 1)
    rows = [VotersRecordVoter(v.id, v.directory_id, [Endpoint(*x) for x in v.endpoints], both) for v in plan.voters]
    first = SnapshotContents([], plan.levels[KRAFT_VERSION], VotersRecord(0, rows), now_ms)
    disk.makedirs(path, PRIVATE_DIR)
    write_snapshot(disk, f"{path}/{SnapshotId(0, 0).file_name}", run_to_end(encode_snapshot(first, 0, now_ms)))


def read_snapshot_voters(directory: LogDirectory) -> tuple[InitialVoter, ...] | None:
    """Return the voters in the newest readable metadata snapshot of a formatted directory.

    None without such a snapshot, empty if it has no voters. The voter set may have changed since: use it for endpoints,
    not for decisions.
    """
    disk, path = directory.disk, f"{directory.path}/{METADATA_TOPIC}-0"
    if not disk.exists(path):
        return None
    for snapshot in reversed(list_snapshots(disk, path)):
        try:
            voters = read_snapshot_header(disk, f"{path}/{snapshot.file_name}").voters
        except CorruptFile:
            continue  # the metadata store reports the error when it loads the snapshot
        return tuple(_read_voter(v) for v in (() if voters is None else voters.voters))
    return None


def _read_voter(row: VotersRecordVoter) -> InitialVoter:
    endpoints = tuple(ListenerEndpoint(x.name, x.host, x.port) for x in row.endpoints)
    return InitialVoter(row.voter_id, row.voter_directory_id, endpoints)
