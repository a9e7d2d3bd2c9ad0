"""Restart of a killed voter: records in the page cache are synced before they are acknowledged."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.controller.metadata.record_serde import MetadataBatchWriter
from ottla.controller.raft.driver.raft_driver import RaftDriver
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine import events
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.env.memory_disk import MemoryDisk
from ottla.log.directory.log_directory import MetaProperties
from ottla.wire.messages.metadata_records import ConfigRecord

ME = MetaProperties("c", 1, bytes([1] * 16))
QUORUM = QuorumConfig(
    endpoints=(ListenerEndpoint("CONTROLLER", "h1", 9093),),
    static_voters=tuple((number, ListenerEndpoint("CONTROLLER", f"h{number}", 9093)) for number in (1, 2, 3)),
)


def batch(offset: int) -> events.LogAppend:
    writer = MetadataBatchWriter(0)
    writer.add_message(ConfigRecord(2, "t", "k", "v"))
    return events.LogAppend(offset, 1, 5, bytes(writer.build(offset, 5)), verbatim=True)


def fetches(ready: Any) -> list[int]:
    return [send.request.offset for send in ready.sends if isinstance(send.request, events.Fetch)]


@pytest.mark.behaviour("R-225")
def test_raft_driver_after_kill_syncs_log_before_first_fetch() -> None:
    """A fetch offset acknowledges all records below it: the leader counts it, and the power may fail."""
    disk = MemoryDisk(random.Random(1), lambda: 0)
    before = disk.session()
    before.makedirs("/data/__cluster_metadata-0")
    store = MetadataStore(before, "/data", ME, 0)
    store.prepare_state_write(events.HardState(5, 2), store.voter_history(QUORUM))()
    store.append(batch(0), 0)
    job = store.prepare_flush()
    job()
    store.complete_flush(job)
    store.append(batch(1), 0)
    before.kill()
    session = disk.session()
    store = MetadataStore(session, "/data", ME, 1)
    assert store.log.log_end_offset == 2
    env: Any = SimpleNamespace(random=lambda: 0.5)
    raft = RaftDriver(env, store, ME, QUORUM, lambda _: None, lambda: None)
    assert fetches(raft.machine.step(0, events.RaftStarted())) == []
    job = store.prepare_flush()
    job()
    assert fetches(raft.machine.step(0, events.LogFlushed(store.complete_flush(job)))) == [2]
    session.kill()
    disk.lose_power()
    assert MetadataStore(disk.session(), "/data", ME, 2).log.log_end_offset == 2
