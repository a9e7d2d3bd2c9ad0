"""Snapshots of the metadata: begun where an image was published, written beside everything else.

Being short of descriptors or memory leaves a snapshot out: the log has it all, and the next one comes in its turn.

Source: ``SnapshotGenerator.java``, ``SnapshotEmitter.java`` (apache/kafka 4.3.1; KIP-630).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from ottla.controller.image import Image, told_slowly
from ottla.controller.pacing import paced
from ottla.controller.raft.events import Covered
from ottla.controller.raft.shell import Raft
from ottla.controller.raft.store import MetadataStore
from ottla.controller.records import METADATA_VERSION, NEWEST_METADATA_VERSION
from ottla.controller.snapshots import Snapshot, SnapshotId, snapshot_steps
from ottla.world.disk import is_passing
from ottla.world.env import Env, Lane

logger = logging.getLogger("ottla.controller")


class Snapshotting:
    """Writes this node's snapshots, one at a time."""

    def __init__(self, env: Env, store: MetadataStore, raft: Raft, fail: Callable[[OSError], None]) -> None:
        self._env = env
        self._store = store
        self._raft = raft
        self._fail = fail
        self._busy = False

    def consider(self, image: Image, nursery: trio.Nursery) -> None:
        """Begin a snapshot of an image that was just published, if one is due.

        Raises:
            OSError: the disk failed.
        """
        if self._busy or not self._store.wants_snapshot(self._env.now_ms()):
            return
        try:
            name, around = self._store.begin_snapshot(image.offset + 1, self._env.now_ms())
        except OSError as error:
            self._leave_out(error)
            return
        self._busy = True
        nursery.start_soon(self._write, image, name, around)

    async def _write(self, image: Image, name: SnapshotId, around: Snapshot) -> None:
        level = image.features.get(METADATA_VERSION, NEWEST_METADATA_VERSION)
        try:
            raw = await paced(snapshot_steps(around, told_slowly(image), name.epoch, self._env.now_ms(), level))
            await self._env.in_thread(partial(self._store.write_snapshot, name, raw), Lane.FILES)
        except OSError as error:
            try:
                self._leave_out(error)
            except OSError:
                self._fail(error)
            return
        finally:
            self._busy = False
        logger.info("metadata snapshot at offset %d", name.end_offset)
        self._raft.between(partial(self._written, name))

    def _written(self, name: SnapshotId) -> Covered:
        """What it makes superfluous goes."""
        self._store.wrote_snapshot(name, self._env.now_ms())
        return self._store.covered()

    @staticmethod
    def _leave_out(error: OSError) -> None:
        if not is_passing(error):
            raise error
        logger.warning("no metadata snapshot was written: %s", error)
