"""Partitions of the metadata topic that are read, by the partitions that are assigned."""

from __future__ import annotations

from ottla.broker.storage.tiered.remote_partition_metadata_store import RemotePartitionMetadataStore

ONE, TWO = (b"1" * 16, 0), (b"2" * 16, 0)


def test_metadata_partition_is_read_until_its_last_partition_is_unassigned() -> None:
    store = RemotePartitionMetadataStore(1)
    assert [store.assign(key) for key in (ONE, TWO, ONE)] == [True, True, False]
    read = store.metadata_partitions[0]
    assert (list(read.assigned), read.restarts) == ([ONE, TWO], 2)
    store.unassign(ONE)
    assert (store.get(ONE), list(read.assigned)) == (None, [TWO])
    assert store.metadata_partitions == {0: read}
    store.unassign(ONE)
    store.unassign(TWO)
    assert store.metadata_partitions == {}


def test_unassign_wakes_tasks_that_wait_for_progress() -> None:
    store = RemotePartitionMetadataStore(1)
    store.assign(ONE)
    assigned = store.get(ONE)
    assert assigned is not None
    progress = assigned.progress
    store.unassign(ONE)
    assert progress.is_set()
    assert not assigned.ready.is_set()
