"""One record there and back through the stock Python client."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer


def round_trip(bootstrap: str, topic: str, value: bytes = b"hello") -> bytes:
    """Produce a record to a topic and read the first one as a group of the topic's name; gives its value."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    read: bytes = message.value()
    return read
