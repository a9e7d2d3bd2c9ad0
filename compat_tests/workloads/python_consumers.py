"""Consume jobs of the three Python clients."""

from __future__ import annotations

import asyncio
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

IDLE_S = 6.0
POLL_S = 0.2
STOP_S = 15.0
Emit = Callable[[dict[str, Any]], None]
NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1


class ConsumeJob:
    """Records that the members of one job have read together, and the stop condition."""

    def __init__(self, job: dict[str, Any], emit: Emit) -> None:
        self.job = job
        self.records: dict[str, list[tuple[int, ...]]] = {}
        self.positions: dict[str, int] = {}
        self.errors: dict[str, int] = {}
        self.lock = threading.Lock()
        self._deadline = time.monotonic() + job["timeout_s"]
        self._emit = emit
        self._finished = False

    def add(
        self, topic: str, offset: int, partition: int, time_of: tuple[int, int], parts: tuple[Any, Any, Any]
    ) -> None:
        """Add a record: its timestamp type and timestamp, and its key, value and headers."""
        key, value, headers = parts
        digest = zlib.crc32(value or b"", zlib.crc32(key or b""))
        for name, content in headers or ():
            digest = zlib.crc32(content or b"", zlib.crc32(name.encode(), digest))
        key_digest = -1 if key is None else zlib.crc32(key)
        row = (offset, time_of[1], time_of[0], -1 if value is None else len(value), digest, key_digest)
        self.records.setdefault(f"{topic}/{partition}", []).append(row)

    def error(self, name: str) -> None:
        """Count an error."""
        self.errors[name] = self.errors.get(name, 0) + 1

    def unfinished_partitions(self) -> list[str]:
        """Return the partitions with an end that is not reached."""
        return [name for name, end in self.job["ends"].items() if self.positions.get(name, -1) < end]

    def stop_condition(self, until: float | None) -> tuple[str | None, float | None]:
        """Return the stop reason of a member (None: not yet), and until when it lingers once the end is reached."""
        now = time.monotonic()
        if until is None and not self.unfinished_partitions():
            if not self._finished:
                self._finished = True
                self._emit({"id": self.job["id"], "event": "end"})
            until = now + self.job["linger_s"]
        if until is not None and now >= until:
            return "end", until
        if until is None and now > self._deadline:
            return "timeout", until
        return None, until


def _start_of(job: dict[str, Any]) -> list[tuple[str, int, int]]:
    out = []
    for name, offset in job["start"].items():
        topic, _, partition = name.rpartition("/")
        out.append((topic, int(partition), offset))
    return out


def _confluent(job: dict[str, Any], reading: ConsumeJob) -> str:
    from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, TopicPartition

    names = {"fetch.max.wait.ms": "fetch.wait.max.ms"}
    config = {names.get(name, name): value for name, value in job["settings"].items()}
    config.pop("max.poll.records", None)
    if int(config.get("fetch.max.bytes", 0)) < 1_000_000 and "fetch.max.bytes" in config:
        config["message.max.bytes"] = max(1000, int(config["fetch.max.bytes"]))
    config = {"auto.offset.reset": "earliest", **config, "enable.partition.eof": True}
    config["group.id"] = job["group"] or f"none-{job['client_id']}"
    config["enable.auto.commit"] = job["group"] is not None
    consumer = Consumer({"bootstrap.servers": job["bootstrap"], "client.id": job["client_id"], **config})
    if job["group"]:
        consumer.subscribe(job["topics"])
    else:
        rows = _start_of(job)
        consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING if at < 0 else at) for t, p, at in rows])
    until: float | None = None
    while True:
        message = consumer.poll(POLL_S)
        with reading.lock:
            if message is not None and message.error():
                if message.error().code() == KafkaError._PARTITION_EOF:
                    reading.positions[f"{message.topic()}/{message.partition()}"] = message.offset()
                else:
                    reading.error(message.error().name())
                    if message.error().fatal() or message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                        consumer.close()
                        return "error"
            elif message is not None:
                kind, at = message.timestamp()
                type_of = LOG_APPEND_TIME if kind == TIMESTAMP_LOG_APPEND_TIME else CREATE_TIME
                parts = (message.key(), message.value(), message.headers())
                reading.add(message.topic(), message.offset(), message.partition(), (type_of, at), parts)
                name = f"{message.topic()}/{message.partition()}"
                reading.positions[name] = max(reading.positions.get(name, -1), message.offset() + 1)
                if until is None and job["ends"].get(name, 0) > message.offset() + 1:
                    continue
            stop, until = reading.stop_condition(until)
        if stop is not None:
            consumer.close()
            return stop


def _settings(job: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"auto_offset_reset": "earliest", "group_id": job["group"]}
    for name, value in job["settings"].items():
        out[name.replace(".", "_")] = int(value) if value.isdigit() else value
    return {**out, "bootstrap_servers": job["bootstrap"], "client_id": job["client_id"]}


def _kafka_python(job: dict[str, Any], reading: ConsumeJob) -> str:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(**_settings(job))
    if job["group"]:
        consumer.subscribe(job["topics"])
    else:
        rows = _start_of(job)
        consumer.assign([TopicPartition(t, p) for t, p, _ in rows])
        for t, p, at in rows:
            if at < 0:
                consumer.seek_to_beginning(TopicPartition(t, p))
            else:
                consumer.seek(TopicPartition(t, p), at)
    until: float | None = None
    stop = None
    while stop is None:
        try:
            polled = consumer.poll(int(POLL_S * 1000))
            wanted = set(reading.unfinished_partitions()) if until is None else set()
            waiting = [tp for tp in consumer.assignment() if f"{tp.topic}/{tp.partition}" in wanted]
            positions = {tp: _position(consumer, tp) for tp in waiting}
        except (KafkaError, AssertionError) as error:
            with reading.lock:
                reading.error(type(error).__name__)
            consumer.close()
            return "error"
        with reading.lock:
            for tp, messages in polled.items():
                for m in messages:
                    reading.add(
                        tp.topic, m.offset, tp.partition, (m.timestamp_type, m.timestamp), (m.key, m.value, m.headers)
                    )
            _advance(reading, positions)
            stop, until = reading.stop_condition(until)
    consumer.close()
    return stop


def _position(consumer: Any, tp: Any) -> int | None:
    from kafka.errors import KafkaTimeoutError

    try:
        position: int | None = consumer.position(tp, timeout_ms=100)
    except KafkaTimeoutError:  # not known yet: the machine is slow
        return None
    return position


def _advance(reading: ConsumeJob, positions: dict[Any, int | None]) -> None:
    for tp, position in positions.items():
        name = f"{tp.topic}/{tp.partition}"
        if position is not None:
            reading.positions[name] = max(reading.positions.get(name, -1), position)


async def _aiokafka(job: dict[str, Any], reading: ConsumeJob) -> str:
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(**_settings(job))
    rows = _start_of(job)
    if job["group"]:
        consumer.subscribe(job["topics"])
    else:
        consumer.assign([TopicPartition(t, p) for t, p, _ in rows])
    await consumer.start()
    if not job["group"]:
        early = [TopicPartition(t, p) for t, p, at in rows if at < 0]
        if early:
            await consumer.seek_to_beginning(*early)
        for t, p, at in rows:
            if at >= 0:
                consumer.seek(TopicPartition(t, p), at)
    until: float | None = None
    stop = None
    while stop is None:
        try:
            polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
            wanted = set(reading.unfinished_partitions()) if until is None else set()
            own = [tp for tp in consumer.assignment() if f"{tp.topic}/{tp.partition}" in wanted]
            positions = {tp: await _aiokafka_position(consumer, tp) for tp in own}
        except (KafkaError, AssertionError) as error:
            reading.error(type(error).__name__)
            stop = "error"
            break
        with reading.lock:
            for tp, messages in polled.items():
                for m in messages:
                    parts = (m.key, m.value, m.headers)
                    reading.add(tp.topic, m.offset, tp.partition, (m.timestamp_type, m.timestamp), parts)
            _advance(reading, positions)
            stop, until = reading.stop_condition(until)
    try:
        await asyncio.wait_for(consumer.stop(), STOP_S)
    except TimeoutError:  # it commits offsets of a deleted topic again and again
        reading.error("stop timed out")
    return stop


async def _aiokafka_position(consumer: Any, tp: Any) -> int | None:
    try:
        return int(await asyncio.wait_for(consumer.position(tp), 0.2))
    except (TimeoutError, AssertionError):
        return None


def _member(job: dict[str, Any], reading: ConsumeJob, stops: list[str]) -> None:
    try:
        if job["client"] == "aiokafka":
            stops.append(asyncio.run(_aiokafka(job, reading)))
        else:
            stops.append((_confluent if job["client"] == "confluent" else _kafka_python)(job, reading))
    except Exception as error:
        with reading.lock:
            reading.error(type(error).__name__)
        stops.append("error")


def consume(job: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """Run a consume job with its members; return the rows read, the errors by name, and the stop reason."""
    reading = ConsumeJob(job, emit)
    stops: list[str] = []
    members = [threading.Thread(target=_member, args=(job, reading, stops)) for _ in range(max(1, job["members"]))]
    for member in members:
        member.start()
    for member in members:
        member.join()
    stop = next((each for each in stops if each != "end"), "end")
    return {"rows": reading.records, "errors": reading.errors, "stop": stop}
