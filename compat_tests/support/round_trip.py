"""Round trip of one record through the stock Python client."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer

WITHIN_S = 180.0


def round_trip(bootstrap: str, topic: str, value: bytes = b"hello") -> bytes:
    """Produce a record to a topic and return the first value as read by a group of the topic's name."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value)
    assert producer.flush(WITHIN_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message, deadline = None, time.monotonic() + WITHIN_S
    # Metadata that another node does not have yet is an error at first, and succeeds a moment later.
    while (message is None or message.error() is not None) and time.monotonic() < deadline:
        message = consumer.poll(1.0)
    consumer.close()
    assert message is not None
    assert message.error() is None, message.error()
    read: bytes = message.value()
    return read
