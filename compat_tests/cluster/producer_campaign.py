"""Producers during repeated failures: duration of write gaps, and verification of the records."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, TopicPartition

from compat_tests.cluster.stock_producers import PARTITIONS, PRODUCER_CLASSES, StockProducer
from compat_tests.cluster.test_mixed_cluster import partitions
from compat_tests.cluster.test_three_nodes import WITHIN_S, make_topic, wait_for


class WriteGaps:
    """Durations for which each producer could not write to the partitions of the failed leader."""

    def __init__(self) -> None:
        self.gaps_by_producer: dict[tuple[str, str], list[float]] = {}

    def add(self, label: str, writers: list[StockProducer], led: dict[str, list[int]], since_s: float) -> None:
        """Add the gaps of the partitions that the failed node led since a time."""
        until_s = time.monotonic()
        for writer in writers:
            for partition in led[writer.topic]:
                gap = writer.max_gap_s(partition, since_s, until_s)
                self.gaps_by_producer.setdefault((label, writer.name), []).append(gap)

    def print_summary(self) -> None:
        """Print a line for each kind of failure."""
        for (label, name), gaps in self.gaps_by_producer.items():
            gaps.sort()
            middle = statistics.median(gaps)
            print(f"{label:12} {name:16} {len(gaps):4} gaps, median {middle:.2f} s, worst {gaps[-1]:.2f} s")


def read_all(bootstrap: str, topic: str) -> dict[int, list[tuple[int, int]]]:
    """Return (offset, number) of all records of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    out: dict[int, list[tuple[int, int]]] = {number: [] for number in range(PARTITIONS)}
    left, deadline = set(out), time.monotonic() + WITHIN_S
    while left:
        assert time.monotonic() < deadline, "it cannot be read to its end"
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                out[message.partition()].append((message.offset(), int(message.value())))
            else:
                left.discard(message.partition())
    consumer.close()
    return out


def verify_acknowledged(writer: StockProducer) -> None:
    """Verify that acknowledged records exist once, at their offsets, in the order sent."""
    assert writer.refused == []
    found = read_all(writer.bootstrap, writer.topic)
    lies_at = {number: (partition, offset) for partition, rows in found.items() for offset, number in rows}
    for rows in found.values():
        assert [n for _, n in rows] == sorted({n for _, n in rows}), f"{writer.name}: twice, or out of order"
    assert writer.acks
    missing = [ack for ack in writer.acks if ack.number not in lies_at]
    assert missing == [], f"{writer.name}: lost"
    for ack in writer.acks:
        partition, offset = lies_at[ack.number]
        assert (ack.partition, ack.offset) in ((partition, offset), (partition, None)), f"{writer.name}: {ack}"


def have_all_progressed(writers: list[StockProducer], since_s: float) -> bool:
    """Return True if every partition of all producers has accepted a record sent since."""
    return all(
        sum(ack.partition == number and ack.at_s > since_s for ack in writer.acks[-1000:]) > 5
        for writer in writers
        for number in range(PARTITIONS)
    )


@contextlib.contextmanager
def running_producers(bootstrap: str, request_timeout_ms: int = 30_000) -> Iterator[list[StockProducer]]:
    """Run a producer of each kind with a topic of its own; at the end compare the log with what each wrote."""
    writers: list[StockProducer] = []
    for kind in PRODUCER_CLASSES:
        topic = f"by-{kind.name.lower()}"
        make_topic(bootstrap, topic, PARTITIONS)
        writers.append(kind(bootstrap, topic, request_timeout_ms))
    for writer in writers:
        writer.start()
    try:
        wait_for(lambda: have_all_progressed(writers, 0))
        yield writers
        ended = time.monotonic()
        wait_for(lambda: have_all_progressed(writers, ended))
    finally:
        for writer in writers:
            writer.stop()
    for writer in writers:  # an isolated leader keeps its role for a while and has fewer records
        wait_for(lambda writer=writer: _agree(bootstrap, writer.topic))
        verify_acknowledged(writer)


def _agree(bootstrap: str, topic: str) -> bool:
    """Return True if all nodes return the same leaders of a topic, with full ISRs."""
    reported = [partitions(server, topic) for server in bootstrap.split(",")]
    in_sync = bool(reported[0]) and all(len(isr) == len(reported) for _, isr in reported[0].values())
    return in_sync and all(rows == reported[0] for rows in reported)
