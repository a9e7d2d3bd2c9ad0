"""Stock producers that write numbers continuously and record each acknowledgement: two of Python, and Java's."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from kafka import KafkaProducer

from compat_tests.support.jars import classpath, jars

PARTITIONS = 3
RATE = 100
"""Records per second of each producer."""
_FLUSH_S = 60.0


class Acknowledgement(NamedTuple):
    """Acknowledged record: its position, and the time of the acknowledgement at its producer (``time.monotonic``).

    librdkafka has no offset (None) for a record that it counts as acknowledged because a later batch was.
    """

    number: int
    partition: int
    offset: int | None
    at_s: float


class StockProducer:
    """Running producer, idempotent and with acks=all; number n goes to partition n modulo `PARTITIONS`."""

    name = ""

    def __init__(self, bootstrap: str, topic: str, request_timeout_ms: int = 30_000) -> None:
        """Create a producer; ``request_timeout_ms`` is its timeout for a broker that does not respond."""
        self.bootstrap = bootstrap
        self.topic = topic
        self._timeout_ms = request_timeout_ms
        self.acks: list[Acknowledgement] = []
        self.refused: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    def stop(self) -> None:
        """Stop writing and wait until each record was acknowledged or refused."""
        self._stop.set()
        self._thread.join()

    def max_gap_s(self, partition: int, since_s: float, until_s: float) -> float:
        """Return the longest time without an acknowledgement from a partition."""
        times = [ack.at_s for ack in self.acks if ack.partition == partition and since_s <= ack.at_s <= until_s]
        return max(b - a for a, b in itertools.pairwise([since_s, *times, until_s]))

    def _on_acknowledged(self, number: int, partition: int, offset: int | None) -> None:
        self.acks.append(Acknowledgement(number, partition, offset, time.monotonic()))

    def _run(self) -> None:
        """Write until stopped."""
        producer = self._producer()
        for number in itertools.count():
            if self._stop.is_set():
                break
            self._send(producer, number, number % PARTITIONS)
            self._pause(producer)
        self._flush(producer)

    def _producer(self) -> Any:
        raise AssertionError("each kind has its own")

    def _send(self, producer: Any, number: int, partition: int) -> None:
        raise AssertionError("each kind has its own")

    def _pause(self, producer: Any) -> None:
        time.sleep(1 / RATE)

    def _flush(self, producer: Any) -> None:
        producer.flush(_FLUSH_S)


class ConfluentProducer(StockProducer):
    """Producer of confluent-kafka (librdkafka)."""

    name = "confluent-kafka"

    def _producer(self) -> Producer:
        # a paused process still accepts connections: librdkafka waits 10 s more for the first response
        reported_first = {"api.version.request.timeout.ms": self._timeout_ms}
        timeouts = {"request.timeout.ms": self._timeout_ms, "socket.timeout.ms": self._timeout_ms, **reported_first}
        return Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True, **timeouts})

    def _send(self, producer: Producer, number: int, partition: int) -> None:
        def on_result(error: Any, message: Any) -> None:
            if error is None:
                self._on_acknowledged(number, message.partition(), message.offset())
            else:
                self.refused.append(str(error))

        producer.produce(self.topic, str(number), partition=partition, on_delivery=on_result)

    def _pause(self, producer: Producer) -> None:
        deadline = time.monotonic() + 1 / RATE
        while (left := deadline - time.monotonic()) > 0:
            producer.poll(left)


class KafkaPythonProducer(StockProducer):
    """Producer of kafka-python."""

    name = "kafka-python"

    def _producer(self) -> KafkaProducer:
        servers = self.bootstrap.split(",")
        return KafkaProducer(
            bootstrap_servers=servers, acks="all", enable_idempotence=True, request_timeout_ms=self._timeout_ms
        )

    def _send(self, producer: KafkaProducer, number: int, partition: int) -> None:
        sent = producer.send(self.topic, str(number).encode(), partition=partition)
        sent.add_callback(lambda metadata: self._on_acknowledged(number, metadata.partition, metadata.offset))
        sent.add_errback(lambda error: self.refused.append(repr(error)))

    def _flush(self, producer: KafkaProducer) -> None:
        producer.flush(_FLUSH_S)
        producer.close()


class JavaProducer(StockProducer):
    """Producer of Apache Kafka's Java client, in a process of its own."""

    name = "Java"

    def _run(self) -> None:
        jars("kafka")
        program = str(Path(__file__).parent.parent / "java" / "NumberProducer.java")
        options = [self.bootstrap, self.topic, str(PARTITIONS), str(RATE), str(self._timeout_ms)]
        command = ["java", "-Xmx128m", "-cp", classpath(), program, *options]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            reader = threading.Thread(target=self._read, args=(process.stdout,))
            reader.start()
            self._stop.wait()
            process.stdin.write("\n")
            process.stdin.close()
            reader.join()

    def _read(self, lines: Any) -> None:
        for line in lines:
            match line.split():
                case ["refused", *why]:
                    self.refused.append(" ".join(why))
                case [number, partition, offset, at_ns]:
                    self.acks.append(Acknowledgement(int(number), int(partition), int(offset), int(at_ns) / 1e9))


PRODUCER_CLASSES = (ConfluentProducer, KafkaPythonProducer, JavaProducer)
