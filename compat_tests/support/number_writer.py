"""A librdkafka producer that writes numbered records in a thread, with a bounded number of unacknowledged records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Producer

MAX_UNACKNOWLEDGED = 10_000
"""Limit of the client's queue: it stops the writer during a long absence of the broker."""
FLUSH_S = 120.0
PROGRESS_S = 90.0
_FULL_QUEUE_POLL_S = 0.1


Record = Callable[[int], dict[str, Any]]
"""Arguments of ``Producer.produce`` for a number, without topic and callback."""


def keyed(number: int) -> dict[str, Any]:
    """Return the record of a number: value n, key n modulo 10."""
    return {"value": b"%d" % number, "key": b"%d" % (number % 10)}


def partitioned(partitions: int, size: int = 1) -> Record:
    """Return the function for records with value n, repeated ``size`` times, in partition n modulo ``partitions``."""
    return lambda number: {"value": b"%d" % number * size, "partition": number % partitions}


class NumberWriter:
    """Idempotent producer with acks=all that writes the numbers 0, 1, 2, ... from `start` to `stop`.

    An exception of the thread is raised by `stop`. As a context manager it starts, waits for the first acknowledgement
    and stops.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        record: Record = keyed,
        *,
        config: dict[str, Any] | None = None,
        burst: int = 1,
        pause_s: float = 0.002,
        max_unacknowledged: int = MAX_UNACKNOWLEDGED,
    ) -> None:
        """Create a writer of a topic.

        Args:
            bootstrap: the bootstrap servers.
            topic: the topic to write to.
            record: the record of a number.
            config: further settings of the producer.
            burst: number of records between two pauses.
            pause_s: seconds of a pause.
            max_unacknowledged: number of unacknowledged records at which the writer waits.
        """
        self.acknowledged: list[int] = []
        self.refused: list[str] = []
        self.sent = 0
        """Number of records that the client accepted."""
        self._topic = topic
        self._record = record
        self._config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 1,
            "queue.buffering.max.messages": max_unacknowledged,
            **(config or {}),
        }
        self._burst = burst
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> NumberWriter:
        self.start()
        try:
            self.wait_for_progress()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread once every record it sent is acknowledged or refused.

        Raises:
            BaseException: the exception that ended the thread.
        """
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def wait_for_progress(self, records: int = 1) -> None:
        """Wait until ``records`` more records are acknowledged.

        Raises:
            AssertionError: the thread ended before, or they are not acknowledged after `PROGRESS_S`.
        """
        wanted, deadline = len(self.acknowledged) + records, time.monotonic() + PROGRESS_S
        while len(self.acknowledged) < wanted:
            state = f"{len(self.acknowledged)} of {self.sent} records acknowledged, expected: {wanted}"
            assert self._thread.is_alive(), f"writer ended: {state}: {self._failure!r}"
            assert time.monotonic() < deadline, f"no progress in {PROGRESS_S} s: {state}"
            time.sleep(0.05)

    def _run(self) -> None:
        try:
            self._write(Producer(self._config))
        except BaseException as failure:  # raised by `stop`
            self._failure = failure

    def _write(self, producer: Producer) -> None:
        while not self._stopping.wait(self._pause_s):
            for _ in range(self._burst):
                self._send(producer)
            producer.poll(0)
        unacknowledged = producer.flush(FLUSH_S)
        assert unacknowledged == 0, f"{unacknowledged} of {self.sent} records unacknowledged {FLUSH_S} s after the last"

    def _send(self, producer: Producer) -> None:
        report = partial(self._report, self.sent)
        while not self._stopping.is_set():
            try:
                producer.produce(self._topic, on_delivery=report, **self._record(self.sent))
            except BufferError:
                producer.poll(_FULL_QUEUE_POLL_S)
            else:
                self.sent += 1
                return

    def _report(self, number: int, error: Any, _message: object) -> None:
        if error is None:
            self.acknowledged.append(number)
        else:
            self.refused.append(str(error))
