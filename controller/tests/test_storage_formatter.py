"""Storage formatter: identity, feature levels and first voters of an empty directory, as with Kafka's storage tool."""

from __future__ import annotations

import contextlib
import itertools
import random

import pytest

from ottla.controller.bootstrap_features import (
    InvalidFeatureLevel,
    bootstrap_feature_levels,
    metadata_version_of_release,
)
from ottla.controller.metadata.snapshot_files import (
    SnapshotId,
    encode_snapshot,
    list_snapshots,
    read_snapshot,
    write_snapshot,
)
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.storage_formatter import (
    FormatPlan,
    InitialVoter,
    StorageFormatError,
    bootstrap_records,
    format_directories,
    format_directory,
    parse_voters,
    read_snapshot_voters,
)
from ottla.env.memory_disk import MemoryDisk, ProcessKilled
from ottla.jobs.job import run_to_end
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.meta_properties import MetaProperties
from ottla.wire.codec.primitives import uuid_to_string

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
ONE, TWO, THREE = (bytes([n]) * 16 for n in (1, 2, 3))
LEVELS = bootstrap_feature_levels(None, {}, dynamic_quorum=True)


def voter(number: int, host: str = "h") -> InitialVoter:
    return InitialVoter(number, bytes([number]) * 16, (ListenerEndpoint("CONTROLLER", host, 9090 + number),))


VOTERS = (voter(1), voter(2), voter(3))


class FormattedDirectories:
    """Two directories formatted by a plan, the first with the metadata log."""

    def __init__(self, plan: FormatPlan, *, ignore: bool = False, before: MetaProperties | None = None) -> None:
        self.disk = MemoryDisk(random.Random(1), lambda: 0)
        session = self.disk.session()
        self.directories = [LogDirectory(session, path) for path in ("/b", "/a")]
        if before is not None:
            session.makedirs("/a")
            self.directories[1].write_meta_properties(before, 0)
        ids = (bytes([200, *n.to_bytes(15, "big")]) for n in itertools.count())
        self.metadata = self.directories[0]
        self.report = format_directories(
            self.directories, self.metadata, plan, 77, lambda: next(ids), ignore_formatted=ignore
        )


@pytest.mark.behaviour("R-238")
def test_format_initial_controller_uses_listed_directory_id_and_voters() -> None:
    made = FormattedDirectories(FormatPlan(2, CLUSTER, LEVELS, VOTERS))
    assert made.metadata.read_meta_properties() == MetaProperties(CLUSTER, 2, TWO)
    assert read_snapshot_voters(made.metadata) == VOTERS
    first = run_to_end(read_snapshot(made.disk.session(), f"/b/__cluster_metadata-0/{SnapshotId(0, 0).file_name}"))
    assert (first.kraft_version, first.records, first.timestamp_ms) == (1, [], 77)
    assert made.report == [
        "Formatting data directory /a with metadata.version 4.3-IV0.",
        "Formatting dynamic metadata voter directory /b with metadata.version 4.3-IV0.",
    ]
    other = made.directories[1].read_meta_properties()
    assert other is not None
    assert (other.cluster_id, other.node_id) == (CLUSTER, 2)
    assert other.directory_id not in (ONE, TWO, THREE)
    assert read_snapshot_voters(made.directories[1]) is None


def test_format_unlisted_node_knows_voters_without_being_one() -> None:
    made = FormattedDirectories(FormatPlan(9, CLUSTER, LEVELS, VOTERS))
    assert read_snapshot_voters(made.metadata) == VOTERS
    assert "dynamic metadata directory /b" in made.report[1]
    identity = made.metadata.read_meta_properties()
    assert identity is not None
    assert identity.directory_id[0] == 200


def test_format_without_voters_writes_feature_levels_only() -> None:
    made = FormattedDirectories(FormatPlan(2, CLUSTER, bootstrap_feature_levels(None, {}, dynamic_quorum=False)))
    assert read_snapshot_voters(made.metadata) is None
    assert "Formatting metadata directory /b" in made.report[1]
    for path in ("/a", "/b"):
        first = run_to_end(read_snapshot(made.disk.session(), f"{path}/bootstrap.checkpoint"))
        assert first.records == bootstrap_records()


def test_format_formatted_directory_requires_ignore_formatted() -> None:
    before = MetaProperties(CLUSTER, 2, THREE)
    with pytest.raises(StorageFormatError, match="Log directory /a is already formatted"):
        FormattedDirectories(FormatPlan(2, CLUSTER, LEVELS, VOTERS), before=before)
    made = FormattedDirectories(FormatPlan(2, CLUSTER, LEVELS, VOTERS), before=before, ignore=True)
    assert len(made.report) == 1
    assert made.directories[1].read_meta_properties() == before


@pytest.mark.parametrize(
    "before", [MetaProperties(CLUSTER, 3, ONE), MetaProperties("other-cluster-of-another", 2, ONE)]
)
def test_format_directory_of_other_node_raises_storage_format_error(before: MetaProperties) -> None:
    with pytest.raises(StorageFormatError, match="belongs to node"):
        FormattedDirectories(FormatPlan(2, CLUSTER, LEVELS, VOTERS), before=before, ignore=True)


def test_format_power_loss_at_any_call_leaves_complete_or_unformatted_directory() -> None:
    whole = 0
    for call in range(1, 60):
        disk = MemoryDisk(random.Random(call), lambda: 0)
        session = disk.session()
        session.kill_at = call
        with contextlib.suppress(ProcessKilled):
            format_directory(LogDirectory(session, "/d"), 1, CLUSTER, VOTERS[0].endpoints[0], 0, lambda: ONE)
        disk.lose_power()
        directory = LogDirectory(disk.session(), "/d")
        if directory.read_meta_properties() is not None:
            assert read_snapshot_voters(directory) == VOTERS[:1]
            assert run_to_end(read_snapshot(disk.session(), "/d/bootstrap.checkpoint")).records == bootstrap_records()
            whole += 1
    assert 0 < whole < 58


def test_read_snapshot_voters_uses_newest_snapshot() -> None:
    made = FormattedDirectories(FormatPlan(2, CLUSTER, LEVELS, VOTERS))
    disk, path = made.disk.session(), "/b/__cluster_metadata-0"
    first = run_to_end(read_snapshot(disk, f"{path}/{SnapshotId(0, 0).file_name}"))
    assert first.voters is not None
    first.voters.voters[1].endpoints[0].port = 4444
    write_snapshot(disk, f"{path}/{SnapshotId(9, 2).file_name}", run_to_end(encode_snapshot(first, 2, 0)))
    assert list_snapshots(disk, path)[-1] == SnapshotId(9, 2)
    known = read_snapshot_voters(made.metadata)
    assert known is not None
    assert [v.endpoints[0].port for v in known] == [9091, 4444, 9093]


def test_parse_voters_accepts_kafkas_format() -> None:
    text = f"2@b.example:9092:{uuid_to_string(TWO)}, 1@[::1]:9091:{uuid_to_string(ONE)},"
    assert parse_voters(text, "C") == (
        InitialVoter(1, ONE, (ListenerEndpoint("C", "::1", 9091),)),
        InitialVoter(2, TWO, (ListenerEndpoint("C", "b.example", 9092),)),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "1@h:1",
        "1@h:1:short",
        f"h:1:{uuid_to_string(ONE)}",
        f"-1@h:1:{uuid_to_string(ONE)}",
        f"1@h:70000:{uuid_to_string(ONE)}",
        f"1@:1:{uuid_to_string(ONE)}",
        f"1@h:1:{uuid_to_string(ONE)},1@g:1:{uuid_to_string(TWO)}",
    ],
)
def test_parse_voters_malformed_raises_storage_format_error(text: str) -> None:
    with pytest.raises(StorageFormatError):
        parse_voters(text, "C")


# (release, metadata.version, eligible leaders, groups, share, streams, transactions): Kafka's `version-mapping`
RELEASES = [
    ("4.0", 25, 0, 1, 0, 0, 2),
    ("4.0-IV1", 23, 0, 1, 0, 0, 0),
    ("4.0-IV2", 24, 0, 1, 0, 0, 2),
    ("4.1", 27, 1, 1, 0, 0, 2),
    ("4.1-IV0", 26, 1, 1, 0, 0, 2),
    ("4.2-IV0", 28, 1, 1, 1, 0, 2),
    ("4.2.1", 29, 1, 1, 1, 1, 2),
    ("4.3", 30, 1, 1, 1, 1, 2),
]


@pytest.mark.parametrize("row", RELEASES, ids=lambda row: row[0])
def test_bootstrap_feature_levels_of_release_equal_kafka(row: tuple[str, int, int, int, int, int, int]) -> None:
    release, metadata, *levels = row
    assert metadata_version_of_release(release) == metadata
    found = bootstrap_feature_levels(release, {}, dynamic_quorum=False)
    names = ("eligible.leader.replicas.version", "group.version", "share.version", "streams.version")
    assert [found[x] for x in (*names, "transaction.version")] == levels
    assert found["kraft.version"] == 0
    found_levels = {r.name: r.feature_level for r in bootstrap_records(found)}  # type: ignore[attr-defined]
    assert "kraft.version" not in found_levels
    assert 0 not in found_levels.values()


def test_bootstrap_feature_levels_accepts_single_levels() -> None:
    found = bootstrap_feature_levels(None, {"group.version": 0, "metadata.version": 27}, dynamic_quorum=True)
    assert (found["group.version"], found["metadata.version"], found["kraft.version"]) == (0, 27, 1)


@pytest.mark.parametrize(
    ("release", "chosen", "dynamic", "message"),
    [
        ("3.9", {}, True, "no release '3.9'"),
        ("4.1", {"metadata.version": 27}, True, "Use --release-version instead of --feature"),
        (None, {"metadata.version": 7}, True, "23 to 30"),
        (None, {"metadata.version": 31}, True, "23 to 30"),
        (None, {"no.such": 1}, True, "Unsupported feature: no.such"),
        (None, {"group.version": 2}, True, "feature level 2"),
        (None, {"kraft.version": 0}, True, "cannot be 0"),
        (None, {"kraft.version": 1}, False, "cannot be 1"),
    ],
)
def test_bootstrap_feature_levels_invalid_raises(
    release: str | None,
    chosen: dict[str, int],
    dynamic: bool,
    message: str,
) -> None:
    with pytest.raises(InvalidFeatureLevel, match=message):
        bootstrap_feature_levels(release, chosen, dynamic_quorum=dynamic)
