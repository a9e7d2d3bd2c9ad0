r"""Pipeline "exactly-once": committed orders in, a transaction for each batch out, no invoice twice after any failure.

The transaction that writes a batch also commits the offsets of its orders to a consumer group, as Kafka's own
consume-transform-produce loop does. A batch that Spark repeats is cut down to the offsets behind the committed ones,
also when the checkpoint was lost. A driver that was replaced is fenced by its transactional id. The transaction is
written by the driver; so filter and aggregate in Spark first::

    PYTHONPATH=. spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \
        spark_it/pipelines/exactly_once.py --bootstrap HOST:PORT --folder DIR
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Iterator
from itertools import groupby

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from pyspark.sql import DataFrame, functions

from spark_it.pipelines.pipeline import (
    TIMEOUT_S,
    InputRecord,
    Pipeline,
    PipelineJob,
    PipelineTopic,
    ResultTable,
    Wait,
    chart,
    collect,
    main,
    sort,
    text_table,
)

ORDERS, INVOICES = "orders", "invoices"
GROUP = "exactly-once"
PARTITIONS = 3
COMMITTED = {"kafka.isolation.level": "read_committed"}
SCHEMA = "number LONG, customer STRING, cents LONG"
ORDERS_OF_TRANSACTION = 50
COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors of a group whose coordinator starts or moves; librdkafka reports them instead of trying again."""
RETRY_S = 0.2
TRANSACTION_TIMEOUT_MS = 600_000
"""Time in which a batch must be written: longer than the loss of a broker and of a worker takes.

The transaction of a lost driver does not stay open for so long: the next driver aborts it.
"""


def make_input(size: int, _wait: Wait) -> Iterator[InputRecord]:
    """Yield ``size`` orders in transactions of 50; each third transaction is to be aborted (negative number)."""
    rng = random.Random(13)
    for number in range(size):
        transaction = 1 + number // ORDERS_OF_TRANSACTION
        order = {"number": number, "customer": f"c{rng.randrange(50)}", "cents": rng.randrange(100, 10_000)}
        key, value = f"c{number % 97}".encode(), json.dumps(order).encode()
        yield InputRecord(ORDERS, value, key, transaction=transaction if transaction % 3 else -transaction)


def send_in_transactions(bootstrap: str, records: Iterable[InputRecord]) -> int:
    """Send records in the transactions that they name, which are committed, or aborted if the number is negative.

    Returns:
        The number of records.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "orders"})
    producer.init_transactions(TIMEOUT_S)
    count = 0
    for transaction, group in groupby(records, lambda record: record.transaction):
        producer.begin_transaction()
        for record in group:
            producer.produce(record.topic, record.value, record.key)
            count += 1
        producer.flush(TIMEOUT_S)
        if transaction > 0:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    return count


class TransactionalSink:
    """Sink for ``foreachBatch``: writes the invoices of a batch and the offsets of its orders in one transaction.

    The constructor fences the driver that used the transactional id before.
    """

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": GROUP}
        self._producer = Producer({**settings, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS})
        self._producer.init_transactions(TIMEOUT_S)  # fences the driver before this one
        self._group = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})

    def committed(self) -> dict[int, int]:
        """Return the committed offset of each partition of `ORDERS`, 0 without one.

        Errors of a coordinator that moves or loads are retried for `TIMEOUT_S`.

        Raises:
            KafkaException: another error, or after that time.
        """
        partitions = [TopicPartition(ORDERS, number) for number in range(PARTITIONS)]
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return {each.partition: max(each.offset, 0) for each in self._group.committed(partitions, TIMEOUT_S)}
            except KafkaException as error:
                if error.args[0].code() not in COORDINATOR_MOVES or time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)

    def write(self, batch: DataFrame, _number: int) -> None:
        """Write the rows of a batch that no transaction has written, in one transaction, and commit it.

        ``batch`` has the columns partition and offset (of the order), key and value (of the invoice).

        Raises:
            KafkaException: the transaction failed, or another driver has fenced this one.
        """
        offsets = self.committed()
        next_offsets = dict(offsets)
        self._producer.begin_transaction()
        for row in batch.toLocalIterator(prefetchPartitions=True):
            if row.offset >= offsets[row.partition]:
                self._produce(bytes(row.key), row.value.encode())
                next_offsets[row.partition] = max(next_offsets[row.partition], row.offset + 1)
        positions = [TopicPartition(ORDERS, partition, offset) for partition, offset in next_offsets.items()]
        self._producer.send_offsets_to_transaction(positions, self._group.consumer_group_metadata(), TIMEOUT_S)
        self._producer.commit_transaction(TIMEOUT_S)

    def _produce(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(INVOICES, value, key)
                return
            except BufferError:
                self._producer.poll(0.1)

    def close(self) -> None:
        """Close the consumer that reads the committed offsets."""
        self._group.close()


def run(job: PipelineJob) -> ResultTable:
    """Write an invoice for each committed order, then read and return the committed invoices.

    A row has number, customer and cents with tax (19 %).
    """
    orders = job.read_stream(ORDERS, **COMMITTED).select(
        "partition", "offset", "key", functions.from_json(functions.col("value").cast("string"), SCHEMA).alias("o")
    )
    invoice = functions.struct(
        "o.number", "o.customer", (functions.col("o.cents") * 119 / 100).cast("long").alias("cents")
    )
    invoices = orders.select("partition", "offset", "key", functions.to_json(invoice).alias("value"))
    sink = TransactionalSink(job.bootstrap)
    job.start(invoices.writeStream.foreachBatch(sink.write), INVOICES).awaitTermination()
    sink.close()
    written = job.read(INVOICES, **COMMITTED).select(
        functions.from_json(functions.col("value").cast("string"), SCHEMA).alias("i")
    )
    return collect(written.select("i.*"))


def expected(records: Iterable[InputRecord]) -> ResultTable:
    """Return number, customer and cents with tax of each order of a committed transaction."""
    orders = [json.loads(record.value or b"") for record in records if record.transaction > 0]
    return sort((order["number"], order["customer"], order["cents"] * 119 // 100) for order in orders)


def show(result: ResultTable) -> str:
    """Return a text with the largest customers and a chart of all, and with a mark if an order has several invoices."""
    cents: dict[str, int] = {}
    for _, customer, amount in result:
        cents[customer] = cents.get(customer, 0) + amount
    largest = sorted(cents.items(), key=lambda item: -item[1])
    table = text_table(("customer", "cents"), largest, 8)
    once = len({row[0] for row in result}) == len(result)
    head = f"{len(result):,} invoices, each {'once' if once else 'NOT ONCE'}; the largest customers"
    return f"  {head}:\n{table}\n  all customers: {chart(amount for _, amount in largest)}"


PIPELINE = Pipeline(
    "exactly-once",
    "Committed orders to invoices in transactions, each once after any failure",
    (PipelineTopic(ORDERS, PARTITIONS), PipelineTopic(INVOICES, PARTITIONS)),
    make_input,
    run,
    expected,
    show,
    send_in_transactions,
    demo_size=30_000,
)

if __name__ == "__main__":
    main(PIPELINE)
