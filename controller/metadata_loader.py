"""Committed records of the metadata log, taken in where this node does not append them itself.

Source: ``MetadataLoader.java``, ``QuorumController.QuorumMetaLogListener`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.controller import activation
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.record_serde import decode_batch
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.jobs.job import Job, run_to_end


class MetadataLoader:
    """Loader of committed records into the state machine's image."""

    def __init__(self, machine: ControllerStateMachine, store: MetadataStore) -> None:
        self._machine = machine
        self._store = store
        self.position = 0
        """Every record below is in the machine."""
        self._generation = 0

    def load_initial_snapshot(self) -> None:
        """Take in the snapshot that this start begins from.

        Raises:
            IncompatibleQuorum: its metadata.version is not known here.
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
        """Take in the snapshot that took the log's place.

        Raises:
            IncompatibleQuorum: its metadata.version is not known here.
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
        """Replay all records below ``end_offset``, which are committed.

        Raises:
            WireError: a record cannot be read. IncompatibleQuorum: the metadata.version is not known here.
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
                return  # the log was emptied meanwhile: a snapshot takes its place
        yield from machine.complete_append(end_offset - 1, max(epoch, machine.latest_image.epoch))
        self.position = end_offset
        activation.check_metadata_version(machine.latest_image)
