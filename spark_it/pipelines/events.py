r"""Pipeline "events": from events of accounts to their latest state in a compacted topic (event sourcing).

The state that is written holds sums, not changes: a state that is written twice does no harm. A closed account gets a
tombstone, which compaction removes. All states are rebuilt from the topic and compared::

    PYTHONPATH=. spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \
        spark_it/pipelines/events.py --bootstrap HOST:PORT --folder DIR
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame, functions

from spark_it.pipelines.pipeline import (
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

EVENTS, STATES = "account-events", "account-states"
SCHEMA = "account STRING, kind STRING, amount LONG"
STATE_SCHEMA = "account STRING, balance LONG, events LONG"
EVENTS_OF_ACCOUNT = 20
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}


def make_input(size: int, _wait: Wait) -> Iterator[InputRecord]:
    """Yield ``size`` events of accounts; the last hundredth of them closes accounts."""
    rng = random.Random(11)
    accounts = max(size // EVENTS_OF_ACCOUNT, 10)
    opened: set[str] = set()
    for number in range(size):
        account = f"account-{rng.randrange(accounts)}"
        kind = "closed" if number >= size - size // 100 else "changed" if account in opened else "opened"
        opened.add(account)
        event = {"account": account, "kind": kind, "amount": 0 if kind == "closed" else rng.randrange(-50, 100)}
        yield InputRecord(EVENTS, json.dumps(event).encode(), account.encode())


def states(events: DataFrame) -> DataFrame:
    """Return balance, number of events and ``closed`` of each account, from a stream or a batch of Kafka records."""
    parsed = events.select(functions.from_json(functions.col("value").cast("string"), SCHEMA).alias("e")).select("e.*")
    return parsed.groupBy("account").agg(
        functions.sum("amount").alias("balance"),
        functions.count("*").alias("events"),
        functions.max(functions.col("kind") == "closed").alias("closed"),
    )


def rebuild(job: PipelineJob) -> DataFrame:
    """Return the states of the compacted topic: the value with the largest offset of each key, without tombstones."""
    latest = (
        job.read(STATES)
        .groupBy("key")
        .agg(functions.max_by("value", "offset").alias("value"))
        .where("value is not null")
    )
    return latest.select(functions.from_json(functions.col("value").cast("string"), STATE_SCHEMA).alias("s")).select(
        "s.*"
    )


def run(job: PipelineJob) -> ResultTable:
    """Write changed states to the compacted topic, and return all states rebuilt from it.

    A row has account, balance and number of events; closed accounts are left out.

    Raises:
        AssertionError: the states differ from those that a batch computes from all events.
    """
    changed = states(job.read_stream(EVENTS))
    state = functions.when(
        ~functions.col("closed"), functions.to_json(functions.struct("account", "balance", "events"))
    )
    job.start_to_topic(
        changed.select(functions.col("account").alias("key"), state.alias("value")), STATES, "update"
    ).awaitTermination()
    rebuilt = collect(rebuild(job))
    from_events = states(job.read(EVENTS)).where("not closed").select("account", "balance", "events")
    assert rebuilt == collect(from_events), "the compacted topic and the events differ"
    return rebuilt


def expected(records: Iterable[InputRecord]) -> ResultTable:
    """Return account, balance and number of events of each account that is not closed."""
    balances: dict[str, int] = {}
    counts: dict[str, int] = {}
    closed = set()
    for record in records:
        event = json.loads(record.value or b"")
        account = event["account"]
        balances[account] = balances.get(account, 0) + event["amount"]
        counts[account] = counts.get(account, 0) + 1
        if event["kind"] == "closed":
            closed.add(account)
    return sort((account, balances[account], counts[account]) for account in balances if account not in closed)


def show(result: ResultTable) -> str:
    """Return a text with the largest balances and a chart of all, of which a sample if there are many."""
    largest = sorted(result, key=lambda row: -row[1])
    table = text_table(("account", "balance", "events"), largest, 8)
    total = sum(row[1] for row in result)
    bars = chart(row[1] for row in largest[:: max(len(largest) // 60, 1)])
    return f"  {len(result):,} open accounts with {total:,} in all; the largest:\n{table}\n  all balances: {bars}"


PIPELINE = Pipeline(
    "events",
    "Events to the latest state in a compacted topic, rebuilt and compared",
    (
        PipelineTopic(EVENTS),
        PipelineTopic(
            STATES, 3, {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
        ),
    ),
    make_input,
    run,
    expected,
    show,
    demo_size=40_000,
)

if __name__ == "__main__":
    main(PIPELINE)
