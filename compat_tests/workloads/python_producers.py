"""Produce jobs of the three Python clients."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

POOL_BYTES = 1 << 20
TIMEOUT_S = 90.0
Failed = dict[str, list[int]]
_held: dict[str, tuple[str, Any]] = {}
"""Producers with an open transaction, by handle."""


class ValuePool:
    """Values of a job: slices of one pool of bytes, random or text."""

    def __init__(self, job: dict[str, Any]) -> None:
        seed = job["seed"]
        if job["text"]:
            self._pool = b"".join(b"line %d of seed %d;" % (i, seed) for i in range(POOL_BYTES // 16))[:POOL_BYTES]
        else:
            self._pool = random.Random(seed).randbytes(POOL_BYTES)

    def value(self, index: int, size: int) -> bytes | None:
        """Return the value of a record; None for size -1."""
        if size < 0:
            return None
        at = index * 7919 % len(self._pool)
        out = self._pool[at : at + size]
        while len(out) < size:
            out += self._pool[: size - len(out)]
        return out


def _records_to_send(
    job: dict[str, Any],
) -> Iterator[tuple[int, int, bytes | None, bytes | None, int, list[tuple[str, bytes]]]]:
    values = ValuePool(job)
    for i, (partition, key, size, timestamp, count) in enumerate(job["records"]):
        headers = [(f"h{h}", str(i).encode()) for h in range(count)]
        yield i, partition, None if key is None else key.encode(), values.value(i, size), timestamp, headers


def _ends_transaction(job: dict[str, Any], index: int) -> bool | None:
    """Return True or False if the transaction is committed or aborted after this record; None if it continues."""
    transaction = job["transaction"]
    if transaction is None or (index + 1) % transaction["size"] or index == len(job["records"]) - 1:
        return None
    aborts = transaction["aborts"]
    return not aborts or index // transaction["size"] % aborts != 0


def _starts_transaction(job: dict[str, Any], index: int) -> bool:
    return job["transaction"] is not None and index % job["transaction"]["size"] == 0


def _is_kept_open(job: dict[str, Any]) -> bool:
    return job["transaction"] is not None and bool(job["transaction"]["leave_open"])


def _confluent(job: dict[str, Any]) -> Failed:
    from confluent_kafka import KafkaException, Producer

    config: dict[str, Any] = {"bootstrap.servers": job["bootstrap"], "client.id": job["client_id"]}
    names = {"max.request.size": "message.max.bytes"}
    config.update({names.get(name, name): value for name, value in job["settings"].items()})
    if job["transaction"]:
        config["transactional.id"] = job["transaction"]["id"]
    producer = Producer(config)
    if job["transaction"]:
        producer.init_transactions(TIMEOUT_S)
    failed: Failed = {}

    def report(index: int) -> Callable[[Any, Any], None]:
        return lambda error, _: failed.setdefault(error.name(), []).append(index) if error else None

    def end(*, commit: bool) -> None:
        producer.flush(TIMEOUT_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)

    for i, partition, key, value, timestamp, headers in _records_to_send(job):
        if _starts_transaction(job, i):
            producer.begin_transaction()
        while True:
            try:
                producer.produce(
                    job["topic"], value, key, partition, report(i), timestamp=timestamp, headers=headers or None
                )
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                failed.setdefault(f"send: {error.args[0].name()}", []).append(i)
                break
        if job["sync"]:
            producer.flush(TIMEOUT_S)
        else:
            producer.poll(0)
        if (commit := _ends_transaction(job, i)) is not None:
            end(commit=commit)
    producer.flush(TIMEOUT_S)
    if _is_kept_open(job):
        _held[job["handle"]] = ("confluent", producer)
    elif job["transaction"]:
        end(commit=True)
    return failed


def _kafka_python(job: dict[str, Any]) -> Failed:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    config = {"acks": "all", **{name.replace(".", "_"): _typed(value) for name, value in job["settings"].items()}}
    config["compression_type"] = None if config.get("compression_type") == "none" else config.get("compression_type")
    if job["transaction"]:
        config["transactional_id"] = job["transaction"]["id"]
    producer = KafkaProducer(bootstrap_servers=job["bootstrap"], client_id=job["client_id"], **config)
    if job["transaction"]:
        producer.init_transactions()
    failed: Failed = {}

    def end(*, commit: bool) -> None:
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)()

    for i, partition, key, value, timestamp, headers in _records_to_send(job):
        if _starts_transaction(job, i):
            producer.begin_transaction()
        try:
            sent = producer.send(job["topic"], value, key, headers, partition, timestamp)
            sent.add_errback(lambda error, i=i: failed.setdefault(type(error).__name__, []).append(i))
        except KafkaError as error:
            failed.setdefault(f"send: {type(error).__name__}", []).append(i)
        if job["sync"]:
            producer.flush()
        if (commit := _ends_transaction(job, i)) is not None:
            end(commit=commit)
    producer.flush()
    if _is_kept_open(job):
        _held[job["handle"]] = ("kafka-python", producer)
        return failed
    if job["transaction"]:
        end(commit=True)
    producer.close()
    return failed


def _typed(value: str) -> Any:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.lstrip("-").isdigit() else value


_loop = asyncio.new_event_loop()
threading.Thread(target=_loop.run_forever, daemon=True).start()
"""One loop for aiokafka: a producer that a job leaves open lives on after it."""


async def _aiokafka(job: dict[str, Any]) -> Failed:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    names = {"batch.size": "max_batch_size"}
    config = {names.get(name, name.replace(".", "_")): _typed(value) for name, value in job["settings"].items()}
    config["compression_type"] = None if config.get("compression_type") == "none" else config.get("compression_type")
    if job["transaction"]:
        config["transactional_id"] = job["transaction"]["id"]
    producer = AIOKafkaProducer(bootstrap_servers=job["bootstrap"], client_id=job["client_id"], **config)
    await producer.start()
    failed: Failed = {}
    waiting: list[tuple[int, asyncio.Future[Any]]] = []

    async def wait_until_stable() -> None:
        for index, future in waiting:
            try:
                await asyncio.wait_for(future, TIMEOUT_S)
            except (KafkaError, TimeoutError) as error:
                failed.setdefault(type(error).__name__, []).append(index)
        waiting.clear()

    for i, partition, key, value, timestamp, headers in _records_to_send(job):
        if _starts_transaction(job, i):
            await producer.begin_transaction()
        try:
            sent = await producer.send(job["topic"], value, key, partition, timestamp, headers or None)
            waiting.append((i, sent))
        except KafkaError as error:
            failed.setdefault(f"send: {type(error).__name__}", []).append(i)
        commit = _ends_transaction(job, i)
        if job["sync"] or commit is not None:
            await wait_until_stable()
        if commit is not None:
            await (producer.commit_transaction if commit else producer.abort_transaction)()
    await wait_until_stable()
    if _is_kept_open(job):
        _held[job["handle"]] = ("aiokafka", producer)
        return failed
    if job["transaction"]:
        await producer.commit_transaction()
    await producer.stop()
    return failed


def _finish(job: dict[str, Any]) -> Failed:
    client, producer = _held.pop(job["handle"])
    try:
        if client == "aiokafka":
            end = producer.commit_transaction if job["commit"] else producer.abort_transaction
            asyncio.run_coroutine_threadsafe(end(), _loop).result(TIMEOUT_S)
            asyncio.run_coroutine_threadsafe(producer.stop(), _loop).result(TIMEOUT_S)
        elif client == "confluent":
            (producer.commit_transaction if job["commit"] else producer.abort_transaction)(TIMEOUT_S)
        else:
            (producer.commit_transaction if job["commit"] else producer.abort_transaction)()
            producer.close()
    except Exception as error:
        return {type(error).__name__: [0]}
    return {}


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run a produce or finish job; return the indices of records that failed, by error name."""
    if job["op"] == "finish":
        return {"failed": _finish(job)}
    if job["client"] == "aiokafka":
        return {"failed": asyncio.run_coroutine_threadsafe(_aiokafka(job), _loop).result()}
    return {"failed": (_confluent if job["client"] == "confluent" else _kafka_python)(job)}
