"""Metadata loader: committed records from the log, and replacement of the log by a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.controller.metadata.record_serde import MetadataBatchWriter
from ottla.controller.metadata.snapshot_files import SnapshotContents, SnapshotId
from ottla.controller.metadata_loader import MetadataLoader
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.controller.tests.test_controller_state_machine import machine
from ottla.controller.tests.test_quorum_controller import virtual
from ottla.jobs.job import run_to_end
from ottla.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
)
from ottla.wire.record_batch.batch_header import parse_header


class ScriptedMetadataStore:
    """Store of one record per batch; at ``replaced_at`` a snapshot replaces the log while the previous batch is
    read.
    """

    def __init__(self, replaced_at: int) -> None:
        self.snapshot_generation = 0
        self.snapshot_id = SnapshotId(0, 0)
        self.snapshot = SnapshotContents()
        self.read: list[int] = []
        self._replacement_offset = replaced_at

    def committed_batches(self, offset: int, upper_offset: int) -> Iterator[Any]:
        for at in range(offset, upper_offset):
            assert self.snapshot_generation == 0, "the log was replaced by a snapshot"
            self.read.append(at)
            writer = MetadataBatchWriter(0)
            writer.add_message(ConfigRecord(2, "t", f"k{at}", "v"))
            raw = memoryview(writer.build(at, 1))
            if at == self._replacement_offset:
                self.replace()
            yield parse_header(raw), raw

    def replace(self) -> None:
        self.snapshot_generation, self.snapshot_id = 1, SnapshotId(50, 3)
        self.snapshot = SnapshotContents([ConfigRecord(2, "t", "whole", "new")])


def settings(loader: MetadataLoader) -> set[str]:
    return set(loader._machine.latest_image.config(2, "t"))


@virtual
async def test_catch_up_replays_each_record_once_in_order() -> None:
    store: Any = ScriptedMetadataStore(-1)
    loader = MetadataLoader(machine(), store)
    run_to_end(loader.catch_up(3))
    run_to_end(loader.catch_up(3))
    run_to_end(loader.catch_up(5))
    assert store.read == [0, 1, 2, 3, 4]
    assert (loader.position, settings(loader)) == (5, {f"k{n}" for n in range(5)})
    assert (loader._machine.latest_image.offset, loader._machine.latest_image.epoch) == (4, 1)


@virtual
async def test_catch_up_snapshot_during_read_replaces_replayed_records() -> None:
    store: Any = ScriptedMetadataStore(2)
    loader = MetadataLoader(machine(), store)
    run_to_end(loader.catch_up(5))
    assert store.read == [0, 1, 2]
    assert loader.position == 0, "replayed records are discarded"
    run_to_end(loader.catch_up(50))
    assert (loader.position, settings(loader)) == (50, {"whole"})
    assert (loader._machine.latest_image.offset, loader._machine.latest_image.epoch) == (49, 3)


def test_scripted_metadata_store_has_methods_of_the_real_one() -> None:
    assert {"committed_batches"} <= set(dir(MetadataStore))


def controller_in_transaction() -> Any:
    """Return a state machine that has published the beginning of a transaction."""
    controller = machine()
    for record in (BeginTransactionRecord("x"), ConfigRecord(2, "t", "first", "v")):
        controller.replay(1, record)
    run_to_end(controller.complete_append(2, 1))
    run_to_end(controller.publish())
    return controller


@pytest.mark.behaviour("R-266")
def test_revert_restores_open_metadata_transaction() -> None:
    for forgotten in (AbortTransactionRecord("y"), EndTransactionRecord(), ConfigRecord(2, "t", "second", "v")):
        controller = controller_in_transaction()
        controller.replay(3, forgotten)
        controller.revert()
        assert controller.in_transaction
        controller.replay(3, EndTransactionRecord())
        run_to_end(controller.complete_append(3, 1))
        assert dict(controller.latest_image.config(2, "t")) == {"first": "v"}


def test_revert_closes_metadata_transaction_begun_since() -> None:
    controller = machine()
    controller.replay(1, BeginTransactionRecord("x"))
    controller.revert()
    assert not controller.in_transaction
