"""Transactions of confluent-kafka, kafka-python and aiokafka: ``transactions.py CLIENT BOOTSTRAP TOPIC ID``.

The steps are described in ``compat_tests/transactions/test_client_transactions.py``; the output is one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

BOTH = (0, 1)
LEVELS = ("read_committed", "read_uncommitted")
WAIT_S = 180


def confluent(bootstrap: str, topic: str, name: str) -> dict[str, Any]:
    """Run the transactions with confluent-kafka; return the outcome of each step."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    def producer() -> Producer:
        made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        made.init_transactions(WAIT_S)
        return made

    def send(to: Producer, value: str) -> None:
        to.begin_transaction()
        for number in BOTH:
            to.produce(topic, f"{value}{number}".encode(), partition=number)
        assert to.flush(WAIT_S) == 0

    def read(level: str) -> list[str]:
        own = {"bootstrap.servers": bootstrap, "group.id": "nobody", "isolation.level": level}
        reader = Consumer({**own, "enable.auto.commit": False})
        reader.assign([TopicPartition(topic, number, 0) for number in BOTH])
        seen: list[str] = []
        while not {"e0", "e1"} <= set(seen):
            message = reader.poll(WAIT_S)
            assert message is not None
            seen.append(message.value().decode())
        reader.close()
        return sorted(seen)

    group = Consumer({"bootstrap.servers": bootstrap, "group.id": name}).consumer_group_metadata()
    first = producer()
    send(first, "a")
    first.commit_transaction(WAIT_S)
    send(first, "b")
    first.abort_transaction(WAIT_S)
    for value, at, end in (("c", 1, first.commit_transaction), ("x", 9, first.abort_transaction)):
        send(first, value)
        first.send_offsets_to_transaction([TopicPartition(topic, 0, at)], group, WAIT_S)
        end(WAIT_S)
    send(first, "d")
    second, fenced = producer(), False
    try:
        first.commit_transaction(WAIT_S)
    except KafkaException:
        fenced = True
    send(second, "e")
    second.commit_transaction(WAIT_S)
    return {"fenced": fenced, **{level: read(level) for level in LEVELS}}


def kafka_python(bootstrap: str, topic: str, name: str) -> dict[str, Any]:
    """Run the transactions with kafka-python; return the outcome of each step."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    def producer() -> KafkaProducer:
        made = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        made.init_transactions()
        return made

    def send(to: KafkaProducer, value: str) -> None:
        to.begin_transaction()
        for number in BOTH:
            to.send(topic, f"{value}{number}".encode(), partition=number).get(WAIT_S)

    def read(level: str) -> list[str]:
        reader = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=level, auto_offset_reset="earliest")
        reader.assign([TopicPartition(topic, number) for number in BOTH])
        seen: list[str] = []
        while not {"e0", "e1"} <= set(seen):
            for messages in reader.poll(1000).values():
                seen += [message.value.decode() for message in messages]
        reader.close()
        return sorted(seen)

    first = producer()
    send(first, "a")
    first.commit_transaction()
    send(first, "b")
    first.abort_transaction()
    for value, at, end in (("c", 1, first.commit_transaction), ("x", 9, first.abort_transaction)):
        send(first, value)
        first.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(at, "", -1)}, name)
        end()
    send(first, "d")
    second, fenced = producer(), False
    try:
        first.commit_transaction()
    except KafkaError:
        fenced = True
    send(second, "e")
    second.commit_transaction()
    return {"fenced": fenced, **{level: read(level) for level in LEVELS}}


async def aiokafka(bootstrap: str, topic: str, name: str) -> dict[str, Any]:
    """Run the transactions with aiokafka; return the outcome of each step."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.errors import KafkaError

    async def producer() -> AIOKafkaProducer:
        made = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await made.start()
        return made

    async def send(to: AIOKafkaProducer, value: str) -> None:
        await to.begin_transaction()
        for number in BOTH:
            await to.send_and_wait(topic, f"{value}{number}".encode(), partition=number)

    async def read(level: str) -> list[str]:
        reader = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=level, auto_offset_reset="earliest")
        await reader.start()
        reader.assign([TopicPartition(topic, number) for number in BOTH])
        seen: list[str] = []
        while not {"e0", "e1"} <= set(seen):
            seen.append((await reader.getone()).value.decode())
        await reader.stop()
        return sorted(seen)

    first = await producer()
    await send(first, "a")
    await first.commit_transaction()
    await send(first, "b")
    await first.abort_transaction()
    for value, at, end in (("c", 1, first.commit_transaction), ("x", 9, first.abort_transaction)):
        await send(first, value)
        await first.send_offsets_to_transaction({TopicPartition(topic, 0): at}, name)
        await end()
    await send(first, "d")
    second, fenced = await producer(), False
    try:
        await first.commit_transaction()
    except KafkaError:
        fenced = True
    await send(second, "e")
    await second.commit_transaction()
    await second.stop()
    return {"fenced": fenced, **{level: await read(level) for level in LEVELS}}


def main() -> None:
    """Run the transactions of a client by the command line, and print the outcome."""
    client, *rest = sys.argv[1:]
    if client == "aiokafka":
        outcome = asyncio.run(asyncio.wait_for(aiokafka(*rest), 120))
    else:
        outcome = {"confluent": confluent, "kafka-python": kafka_python}[client](*rest)
    print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
