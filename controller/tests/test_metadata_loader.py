"""Committed records are taken in from the log, until a snapshot takes the log's place."""

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
    """A log of one record a batch; at ``replaced_at`` a snapshot comes in while the batch before is being read."""

    def __init__(self, replaced_at: int) -> None:
        self.snapshot_generation = 0
        self.snapshot_id = SnapshotId(0, 0)
        self.snapshot = SnapshotContents()
        self.read: list[int] = []
        self._replacement_offset = replaced_at

    def committed_batches(self, offset: int, upper_offset: int) -> Iterator[Any]:
        for at in range(offset, upper_offset):
            assert self.snapshot_generation == 0, "the log is gone"
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
async def test_records_are_taken_in_once_and_in_order() -> None:
    store: Any = ScriptedMetadataStore(-1)
    loader = MetadataLoader(machine(), store)
    run_to_end(loader.catch_up(3))
    run_to_end(loader.catch_up(3))
    run_to_end(loader.catch_up(5))
    assert store.read == [0, 1, 2, 3, 4]
    assert (loader.position, settings(loader)) == (5, {f"k{n}" for n in range(5)})
    assert (loader._machine.latest_image.offset, loader._machine.latest_image.epoch) == (4, 1)


@virtual
async def test_a_snapshot_in_the_middle_takes_the_place_of_all_that_was_read() -> None:
    store: Any = ScriptedMetadataStore(2)
    loader = MetadataLoader(machine(), store)
    run_to_end(loader.catch_up(5))
    assert store.read == [0, 1, 2]
    assert loader.position == 0, "nothing of it counts"
    run_to_end(loader.catch_up(50))
    assert (loader.position, settings(loader)) == (50, {"whole"})
    assert (loader._machine.latest_image.offset, loader._machine.latest_image.epoch) == (49, 3)


def test_the_stand_in_has_what_it_stands_in_for() -> None:
    assert {"committed_batches"} <= set(dir(MetadataStore))


def held() -> Any:
    """A machine that has published the beginning of a transaction."""
    controller = machine()
    for record in (BeginTransactionRecord("x"), ConfigRecord(2, "t", "first", "v")):
        controller.replay(1, record)
    run_to_end(controller.complete_append(2, 1))
    run_to_end(controller.publish())
    return controller


@pytest.mark.behaviour("R-266")
def test_what_was_open_when_the_image_was_taken_is_open_again_once_the_rest_is_forgotten() -> None:
    for forgotten in (AbortTransactionRecord("y"), EndTransactionRecord(), ConfigRecord(2, "t", "second", "v")):
        controller = held()
        controller.replay(3, forgotten)
        controller.revert()
        assert controller.in_transaction
        controller.replay(3, EndTransactionRecord())
        run_to_end(controller.complete_append(3, 1))
        assert dict(controller.latest_image.config(2, "t")) == {"first": "v"}


def test_what_was_closed_then_is_closed_again() -> None:
    controller = machine()
    controller.replay(1, BeginTransactionRecord("x"))
    controller.revert()
    assert not controller.in_transaction
