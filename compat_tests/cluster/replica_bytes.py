"""Replicas of a topic, read from the disk of each node and over the wire: they must hold the same bytes."""

from __future__ import annotations

from pathlib import Path

import ottla
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import fetch
from ottla.wire.record_batch import batch_header


def read_over_wire(node: ottla.ClusterNode, topic: str, partition: int) -> tuple[bytes, int]:
    """Return what any replica serves to a consumer (KIP-392): bytes from the log start, and the high watermark."""
    client, raw, offset = RawClient(node.port), b"", 0
    while True:
        part = fetch.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        wanted = [fetch.FetchTopic(topic, partitions=[part])]
        request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=wanted)
        row = client.call(ApiKey.FETCH, 12, request).responses[0].partitions[0]
        assert (row.error_code, row.log_start_offset) == (0, 0), f"node {node.id}, {topic}-{partition}: {row}"
        got = bytes(row.records or b"")
        for pos, header in batch_header.iterate_batches(got):
            raw += got[pos : pos + header.size_bytes]
            offset = header.next_offset
        if offset >= row.high_watermark or not got:
            client.sock.close()
            return raw, row.high_watermark


def read_from_disk(node: ottla.ClusterNode, topic: str, partition: int, end: int) -> bytes:
    """Return the bytes of a partition's segments in order, up to an offset.

    Each batch and its position are verified.
    """
    files = sorted(Path(node.data_dir, f"{topic}-{partition}").glob("*.log"))
    raw = b"".join(path.read_bytes() for path in files)
    offset = size = 0
    for pos, header in batch_header.iterate_batches(raw):
        if header.base_offset >= end:
            break
        size = pos + header.size_bytes
        assert batch_header.crc_matches(raw, header, pos), (
            f"node {node.id}, {topic}-{partition}: bad at {header.base_offset}"
        )
        assert header.base_offset == offset, f"node {node.id}, {topic}-{partition}: a gap before {header.base_offset}"
        offset = header.next_offset
    assert offset == end, f"node {node.id}, {topic}-{partition} ends at {offset}, the high watermark is {end}"
    return raw[:size]


def verify_replicas(cluster: ottla.Cluster, topic: str, partitions: int = 3) -> int:
    """Compare all replicas from log start offset to high watermark; return the number of leader epochs in them.

    A follower has the high watermark a moment after the leader, so only that is waited for.
    """
    epochs = set()
    for number in range(partitions):
        replicas = [(node, number) for node in cluster.nodes]
        wait_until(lambda replicas=replicas: len({read_over_wire(node, topic, n)[1] for node, n in replicas}) == 1)
        first, end = read_over_wire(cluster.node(1), topic, number)
        assert end > 0
        for node in cluster.nodes:
            where = f"node {node.id}, {topic}-{number}"
            assert read_over_wire(node, topic, number) == (first, end), f"{where}: other bytes by wire"
            assert read_from_disk(node, topic, number, end) == first, f"{where}: other bytes on disk"
        epochs |= {(number, header.partition_leader_epoch) for _, header in batch_header.iterate_batches(first)}
    return len(epochs)
