"""Round trip of one record through the stock Python client."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer

WITHIN_S = 60.0


def round_trip(bootstrap: str, topic: str, value: bytes = b"hello") -> bytes:
    """Produce a record to a topic and read the first one as a group of the topic's name; gives its value."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value)
    assert producer.flush(WITHIN_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message, deadline = None, time.monotonic() + WITHIN_S
    # What another node has not heard of yet is told as an error, and comes a moment later.
    while (message is None or message.error() is not None) and time.monotonic() < deadline:
        message = consumer.poll(1.0)
    consumer.close()
    assert message is not None
    assert message.error() is None, message.error()
    read: bytes = message.value()
    return read
