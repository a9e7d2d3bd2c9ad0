"""Answers to unusual Fetch requests, equal to those of Kafka."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient
from compat_tests.vs_kafka.test_protocol_edge_cases import (
    MISSING_ID,
    at,
    batch,
    create,
    produce,
    wanted,
)
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import fetch


@pytest.fixture
def peer(node: OttlaProcess) -> Iterator[RawClient]:
    client = RawClient(node.port)
    yield client
    client.close()


@pytest.mark.behaviour("P-29")
def test_fetch_with_data_or_error_responds_without_wait(peer: RawClient, topic: str) -> None:
    create(peer, topic)
    produce(peer, topic, batch())
    patient = {"max_wait_ms": 600_000, "min_bytes": 1}  # longer than the client waits
    peer.call(ApiKey.FETCH, 12, wanted(topic, at(0), **patient))
    peer.call(ApiKey.FETCH, 12, wanted(topic, at(0, number=9), **patient))
    peer.call(ApiKey.FETCH, 12, wanted(topic, at(99), **patient))
    peer.call(ApiKey.FETCH, 12, fetch.FetchRequest(max_wait_ms=600_000, min_bytes=1, max_bytes=1 << 20))


@pytest.mark.behaviour("P-30")
def test_fetch_in_long_poll_responds_on_produce(node: OttlaProcess, topic: str) -> None:
    waiting, other = RawClient(node.port), RawClient(node.port)
    create(other, topic)
    got: list[Any] = []

    def wait() -> None:
        got.append(waiting.call(ApiKey.FETCH, 12, wanted(topic, at(0), max_wait_ms=600_000)))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    produce(other, topic, batch())
    thread.join(120)
    assert len(got[0].responses[0].partitions[0].records) > 0


@pytest.mark.behaviour("P-31", "P-32")
def test_fetch_size_limits_apply_after_the_first_batch(peer: RawClient, topic: str) -> None:
    create(peer, topic, 2)
    size = len(batch(size=1000))
    for number in (0, 1) * 4:
        assert peer.produce(topic, number, batch(size=1000)).error_code == 0

    def sizes(max_bytes: int, *parts: fetch.FetchPartition) -> list[int]:
        rows = peer.call(ApiKey.FETCH, 12, wanted(topic, *parts, max_bytes=max_bytes)).responses[0].partitions
        return [len(row.records) for row in rows]

    assert [sizes(1, at(first, 0, 1), at(0, 1)) for first in (0, 4)] == [[size, 0], [0, size]], "one batch whole"
    assert sizes(1 << 20, at(0, 0, size + 10), at(0, 1, size + 5)) == [size + 10, size + 5], "a later batch may be cut"
    assert sizes(1 << 20, at(0, 0, size + 10), at(0, 1, size - 1)) == [size + 10, 0], "a first batch may not"
    assert sizes(size + 10, at(0, 0), at(0, 1)) == [size + 10, 0]
    capped = wanted(topic, at(0), max_bytes=size + 1, min_bytes=1 << 30, max_wait_ms=600_000)
    assert peer.call(ApiKey.FETCH, 12, capped).error_code == 0, "min_bytes is capped by max_bytes"


@pytest.mark.behaviour("P-36")
def test_fetch_session_checks_epoch_and_omits_unchanged_partitions(peer: RawClient, topic: str) -> None:
    create(peer, topic)
    produce(peer, topic, batch())
    opened = peer.call(ApiKey.FETCH, 12, wanted(topic, at(1), session_id=0, session_epoch=0))
    assert opened.session_id > 0
    empty = fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=opened.session_id)
    for epoch, code in ((1, 0), (2, 0), (2, 71), (9, 71), (3, 0)):
        empty.session_epoch = epoch
        answer = peer.call(ApiKey.FETCH, 12, empty)
        assert (answer.error_code, answer.responses) == (code, [])
    empty.session_id = 77
    assert peer.call(ApiKey.FETCH, 12, empty).error_code == 70


@pytest.mark.behaviour("P-37")
def test_fetch_with_full_session_cache_returns_session_id_0(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path / "data", max_incremental_fetch_session_cache_slots="2") as node:
        peer = RawClient(node.port)
        create(peer, "t")
        ids = [peer.call(ApiKey.FETCH, 12, wanted("t", at(0), session_epoch=0)).session_id for _ in range(4)]
        assert [bool(x) for x in ids] == [True, True, False, False]


@pytest.mark.behaviour("P-39")
def test_fetch_with_newer_leader_epoch_returns_unknown_leader_epoch(peer: RawClient, topic: str) -> None:
    create(peer, topic)
    epochs = {-1: 0, 0: 0, 5: 75}
    for epoch, code in epochs.items():
        part = at(0, current_leader_epoch=epoch)
        assert peer.call(ApiKey.FETCH, 12, wanted(topic, part)).responses[0].partitions[0].error_code == code


@pytest.mark.behaviour("P-40")
def test_fetch_with_unknown_topic_id_fails_its_partitions_only(peer: RawClient, topic: str) -> None:
    ident = create(peer, topic)
    produce(peer, topic, batch())
    request = wanted("", at(0), ident=ident)
    request.topics.append(fetch.FetchTopic("", MISSING_ID, [at(0)]))
    rows = {t.topic_id: t.partitions[0].error_code for t in peer.call(ApiKey.FETCH, 13, request).responses}
    assert rows == {ident: 0, MISSING_ID: 100}


@pytest.mark.behaviour("P-45")
def test_fetch_with_diverging_epoch_returns_its_end_offset(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path / "data") as node:
        peer = RawClient(node.port)
        create(peer, "t")
        produce(peer, "t", batch(3))
    with OttlaProcess(tmp_path / "data") as node:  # a restart starts a new leader epoch
        peer = RawClient(node.port)
        produce(peer, "t", batch(3))

        def ask(offset: int, epoch: int) -> Any:
            return (
                peer.call(ApiKey.FETCH, 12, wanted("t", at(offset, last_fetched_epoch=epoch)))
                .responses[0]
                .partitions[0]
            )

        diverged = ask(5, 0)
        assert (diverged.error_code, diverged.diverging_epoch.end_offset, len(diverged.records)) == (0, 3, 0)
        assert ask(2, 0).diverging_epoch.epoch == -1
        assert ask(2, 99).error_code == 1


def test_fetch_long_poll_with_closed_connection_affects_no_other(node: OttlaProcess, topic: str) -> None:
    peer = RawClient(node.port)
    create(peer, topic)
    for _ in range(20):
        other = RawClient(node.port)
        other.send(ApiKey.FETCH, 12, wanted(topic, at(0), max_wait_ms=30_000))
        other.sock.shutdown(socket.SHUT_RDWR)
        other.close()
    assert produce(peer, topic, batch()).error_code == 0
