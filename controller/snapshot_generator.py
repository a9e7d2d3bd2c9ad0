"""Generation of snapshots of the metadata image on each controller and broker: after a publication, in the background.

A shortage of descriptors or memory skips a snapshot: the log has all records, and the next one follows.

Source: ``SnapshotGenerator.java``, ``SnapshotEmitter.java`` (apache/kafka 4.3.1; KIP-630).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from ottla.controller.metadata.image import MetadataImage, image_records_yielding
from ottla.controller.metadata.record_serde import METADATA_VERSION, NEWEST_METADATA_VERSION
from ottla.controller.metadata.snapshot_files import SnapshotContents, SnapshotId, encode_snapshot
from ottla.controller.raft.driver.raft_driver import RaftDriver
from ottla.controller.raft.state_machine.events import SnapshotCreated
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.env.disk import is_transient
from ottla.env.env import Env, ThreadPool
from ottla.jobs.time_slice import run_in_background

logger = logging.getLogger("ottla.controller")


class SnapshotGenerator:
    """Writer of this node's metadata snapshots, one at a time."""

    def __init__(self, env: Env, store: MetadataStore, raft: RaftDriver, fail: Callable[[OSError], None]) -> None:
        self._env = env
        self._store = store
        self._raft = raft
        self._fail = fail
        self._is_writing = False

    def maybe_generate(self, image: MetadataImage, nursery: trio.Nursery) -> None:
        """Start a task that writes a snapshot of a just published image, if one is due and none is being written.

        The task encodes the image in time slices and writes it in a thread; then old snapshots are deleted. A disk
        failure in the task is passed to ``fail``.

        Raises:
            OSError: the disk failed before the task was started.
        """
        if self._is_writing or not self._store.is_snapshot_due(self._env.now_ms()):
            return
        try:
            name, around = self._store.prepare_snapshot(image.offset + 1, self._env.now_ms())
        except OSError as error:
            self._skip_snapshot(error)
            return
        self._is_writing = True
        nursery.start_soon(self._write, image, name, around)

    async def _write(self, image: MetadataImage, name: SnapshotId, around: SnapshotContents) -> None:
        level = image.features.get(METADATA_VERSION, NEWEST_METADATA_VERSION)
        try:
            raw = await run_in_background(
                self._env, encode_snapshot(around, name.epoch, self._env.now_ms(), level, image_records_yielding(image))
            )
            await self._env.in_thread(partial(self._store.write_snapshot, name, raw), ThreadPool.FILES)
        except OSError as error:
            try:
                self._skip_snapshot(error)
            except OSError:
                self._fail(error)
            return
        finally:
            self._is_writing = False
        logger.info("Created new KRaft snapshot file at offset %d", name.end_offset)
        self._raft.run_between_steps(partial(self._snapshot_created, name))

    def _snapshot_created(self, name: SnapshotId) -> SnapshotCreated:
        """Register a written snapshot in the store, delete old ones; return the event for the Raft state machine."""
        self._store.complete_snapshot(name, self._env.now_ms())
        return self._store.snapshot_created_event()

    @staticmethod
    def _skip_snapshot(error: OSError) -> None:
        if not is_transient(error):
            raise error
        logger.warning("Failed to create KRaft snapshot file: %s", error)
