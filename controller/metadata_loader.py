"""Replay of committed records of the metadata log on nodes that are not the active controller.

The active controller replays its own records when it appends them.

Source: ``MetadataLoader.java``, ``QuorumController.QuorumMetaLogListener`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.controller import activation
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.record_serde import decode_batch
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.jobs.job import Job, run_to_end


class MetadataLoader:
    """Loader of snapshots and committed records into the controller's state machine."""

    def __init__(self, machine: ControllerStateMachine, store: MetadataStore) -> None:
        self._machine = machine
        self._store = store
        self.position = 0
        """Offset below which the state machine has replayed all records."""
        self._generation = 0

    def load_initial_snapshot(self) -> None:
        """Replay the store's newest snapshot at the start of the node, without yielding, and make it the image.

        No listener is called.

        Raises:
            IncompatibleQuorum: this node does not support its metadata.version.
        """
        machine, store = self._machine, self._store
        for record in store.snapshot.records:
            machine.replay(-1, record)
        store.snapshot.records = []
        self.position = store.snapshot_id.end_offset
        run_to_end(machine.complete_append(self.position - 1, store.snapshot_id.epoch))
        run_to_end(machine.publish())
        activation.check_metadata_version(machine.image)

    def reload_snapshot(self) -> Job[None]:
        """Replay the downloaded snapshot that has replaced the log into an empty image, as a job; nothing is published.

        Raises:
            IncompatibleQuorum: this node does not support its metadata.version.
        """
        machine, store = self._machine, self._store
        self._generation, snapshot, name = store.snapshot_generation, store.snapshot, store.snapshot_id
        machine.reset_for_snapshot()
        for record in snapshot.records:
            machine.replay(-1, record)
            yield None
        yield from machine.complete_append(name.end_offset - 1, name.epoch)
        snapshot.records = []
        self.position = name.end_offset
        activation.check_metadata_version(machine.latest_image)

    def catch_up(self, end_offset: int) -> Job[None]:
        """Replay all records below ``end_offset``, which are committed, into the latest image, as a job.

        `position` is raised to ``end_offset`` at the end. If a downloaded snapshot has replaced the log, it is replayed
        first. If one replaces it while records are replayed, the job ends early, with `position` as before these
        records: the next call begins with that snapshot. Nothing is published.

        Raises:
            WireError: a record cannot be read.
            IncompatibleQuorum: this node does not support the metadata.version.
        """
        while self._generation != self._store.snapshot_generation:
            yield from self.reload_snapshot()
        machine, position, epoch = self._machine, self.position, -1
        if end_offset <= position:
            return
        for header, raw in self._store.committed_batches(position, end_offset):
            epoch = header.partition_leader_epoch
            for offset, record in decode_batch(header, raw):
                if offset >= position:
                    machine.replay(offset, record)
                yield None
            if self._generation != self._store.snapshot_generation:
                return  # a snapshot has replaced the log meanwhile
        yield from machine.complete_append(end_offset - 1, max(epoch, machine.latest_image.epoch))
        self.position = end_offset
        activation.check_metadata_version(machine.latest_image)
