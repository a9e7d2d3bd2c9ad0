"""Snapshots of the metadata log: creation and retention."""

from __future__ import annotations

import pytest

from ottla.controller.metadata.snapshot_files import (
    SnapshotId,
)
from ottla.controller.raft.store.metadata_log_config import MetadataLogConfig
from ottla.controller.raft.store.tests.test_metadata_store import LOG, LeaderMetadataStore, formatted


def test_metadata_store_start_removes_unfinished_snapshots() -> None:
    disk, identity = formatted()
    session = disk.session()
    stem = SnapshotId(7, 1).file_name
    for name in (f"{stem}.part", f"{stem}.deleted", "x.checkpoint.part", "x.checkpoint.deleted"):
        session.open(f"{LOG}/{name}", create=True).close()
    led = LeaderMetadataStore(session, identity)
    assert led.files(".part") == ["x.checkpoint.part"], "other files remain"
    assert led.files(".deleted") == ["x.checkpoint.deleted"]


@pytest.mark.behaviour("R-230", "P-64")
@pytest.mark.parametrize(
    ("added", "later_ms", "settings", "expected"),
    [
        (0, 10**9, {}, False),  # no record was committed since
        (1, 3_599_999, {}, False),
        (1, 3_600_000, {}, True),
        (1, 10**9, {"snapshot_ms": 0}, False),  # 0 disables it
        (5, 0, {"snapshot_bytes": 800}, True),
        (1, 0, {"snapshot_bytes": 800}, False),
    ],
)
def test_is_snapshot_due_by_size_or_time(
    added: int, later_ms: int, settings: dict[str, int], *, expected: bool
) -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity, **settings)
    led.snapshot()
    led.add(added)
    assert led.store.is_snapshot_due(later_ms) is expected


@pytest.mark.behaviour("R-232", "P-64")
@pytest.mark.parametrize(
    ("settings", "later_ms", "left"),
    [
        ({}, 0, 4),
        ({}, 604_800_000, 4),
        ({}, 604_800_001, 1),
        ({"retention_ms": -1}, 10**12, 4),
        ({"retention_ms": 0}, 0, 4),
        ({"retention_ms": 0}, 1, 1),
        ({"retention_ms": 1}, 1, 4),
        ({"retention_ms": -1, "retention_bytes": -1}, 10**12, 4),
        ({"retention_bytes": 0}, 0, 1),
        ({"retention_bytes": 2_500}, 0, 2),
    ],
)
def test_clean_old_snapshots_removes_snapshots_and_log_below(
    settings: dict[str, int], later_ms: int, left: int
) -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    for _ in range(3):
        led.add(5)
        led.snapshot()
    led.store.settings = MetadataLogConfig(**settings)
    led.store.clean_old_snapshots(later_ms)
    assert len(led.store.snapshots) == len(led.files(".checkpoint")) == left
    assert led.store.log.log_start_offset == led.store.snapshots[0].end_offset
    assert led.store.log.segments[0].base_offset == (led.store.snapshots[0].end_offset if left < 4 else 0)
    again = LeaderMetadataStore(disk.session(), identity)
    assert again.store.snapshot_id == led.store.snapshots[-1]


def test_snapshot_created_event_updates_log_summary() -> None:
    """A follower below the log start must receive the newest snapshot instead of deleted records (R-218)."""
    disk, identity = formatted()
    LeaderMetadataStore(disk.session(), identity).add(5)
    led = LeaderMetadataStore(disk.session(), identity, retention_bytes=0)
    led.add(5)
    name = led.snapshot()
    led.step(led.store.snapshot_created_event())
    led.add(2)
    chain, known = led.raft.log_summary, led.store.log_summary()
    assert (chain.start_offset, chain.snapshots) == (name.end_offset, [tuple(name)])
    assert (chain.end_offset, chain.last_epoch) == (name.end_offset + 2, 2)
    for offset in range(chain.end_offset + 2):
        for epoch in range(4):
            assert chain.validate_offset_and_epoch(offset, epoch) == known.validate_offset_and_epoch(offset, epoch)
    assert chain.validate_offset_and_epoch(3, 1) == ("snapshot", tuple(name))
