r"""Pipeline "activity": from a click stream to sessions, with session windows and events that come late.

A session of a user ends after 30 minutes without a click. A click may come 10 minutes late; one whose session has been
written by then is dropped and counted::

    PYTHONPATH=. spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \
        spark_it/pipelines/activity.py --bootstrap HOST:PORT --folder DIR
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator

from pyspark.sql import functions

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

CLICKS, SESSIONS = "clicks", "sessions"
SCHEMA = "user STRING, page STRING, event_ms LONG"
START_MS = 1_760_000_000_000
STEP_MS = 2_000
GAP_MS, DELAY_MS = 30 * 60_000, 10 * 60_000
CLICKS_OF_GROUP, USERS_OF_GROUP, GROUPS = 400, 20, 50
"""For 400 clicks the same 20 users are active; each returns 50 groups later, in another session."""
RECORD_BYTES = 200


def make_input(size: int, _wait: Wait) -> Iterator[InputRecord]:
    """Yield ``size`` clicks of 200 bytes each: every twentieth up to 5 minutes late, the last hundredth a day late."""
    rng = random.Random(7)
    for number in range(size):
        user = number // CLICKS_OF_GROUP % GROUPS * USERS_OF_GROUP + rng.randrange(USERS_OF_GROUP)
        event_ms = START_MS + number * STEP_MS - rng.randrange(STEP_MS)
        if number >= size - size // 100:
            event_ms = START_MS - 86_400_000 + number
        elif number % 20 == 0:
            event_ms -= rng.randrange(5 * 60_000)
        click = {"user": f"user-{user}", "page": f"/page/{rng.randrange(40)}", "event_ms": event_ms}
        key, value = click["user"], json.dumps(click)
        padded = value[:-1] + ', "agent": "' + "x" * (RECORD_BYTES - len(value) - 13) + '"}'
        yield InputRecord(CLICKS, padded.encode(), str(key).encode())


def run(job: PipelineJob) -> ResultTable:
    """Write the sessions that the watermark has closed to topic `SESSIONS`, keyed by user; return all sessions in it.

    A row has user, start and end in ms, and number of clicks.
    """
    clicks = (
        job.read_stream(CLICKS)
        .select(functions.from_json(functions.col("value").cast("string"), SCHEMA).alias("click"))
        .select("click.user", "click.page", functions.timestamp_millis("click.event_ms").alias("event_time"))
        .withWatermark("event_time", f"{DELAY_MS} milliseconds")
    )
    sessions = clicks.groupBy(functions.session_window("event_time", f"{GAP_MS} milliseconds"), "user").agg(
        functions.count("*").alias("clicks")
    )
    columns = (
        "user",
        functions.unix_millis("session_window.start").alias("start_ms"),
        functions.unix_millis("session_window.end").alias("end_ms"),
        "clicks",
    )
    values = sessions.select(
        functions.col("user").alias("key"), functions.to_json(functions.struct(*columns)).alias("value")
    )
    job.start_to_topic(values, SESSIONS).awaitTermination()
    schema = "user STRING, start_ms LONG, end_ms LONG, clicks LONG"
    written = job.read(SESSIONS).select(
        functions.from_json(functions.col("value").cast("string"), schema).alias("session")
    )
    return collect(written.select("session.*").distinct())


def expected(records: Iterable[InputRecord]) -> ResultTable:
    """Return user, start and end in ms, and clicks of each session that ends at or before the last watermark."""
    out: ResultTable = []
    current: dict[str, list[int]] = {}
    latest = 0
    for record in records:
        click = json.loads(record.value or b"")
        event_ms = click["event_ms"]
        if event_ms + GAP_MS <= latest - DELAY_MS:
            continue
        latest = max(latest, event_ms)
        session = current.get(click["user"])
        if session is None or event_ms > session[1] + GAP_MS:
            if session is not None:
                out.append((click["user"], session[0], session[1] + GAP_MS, session[2]))
            session = current[click["user"]] = [event_ms, event_ms, 0]
        session[0], session[1] = min(session[0], event_ms), max(session[1], event_ms)
        session[2] += 1
    out += [(user, s[0], s[1] + GAP_MS, s[2]) for user, s in current.items() if s[1] + GAP_MS <= latest - DELAY_MS]
    return sort(out)


def show(result: ResultTable) -> str:
    """Return a text with the longest sessions and a chart of the sessions by hour, the last 100 hours."""
    by_hour: dict[int, int] = {}
    for _, start_ms, _, _ in result:
        by_hour[start_ms // 3_600_000] = by_hour.get(start_ms // 3_600_000, 0) + 1
    hours = range(min(by_hour, default=0), max(by_hour, default=-1) + 1)
    longest = sorted(((u, c, (e - s - GAP_MS) // 1000) for u, s, e, c in result), key=lambda row: -row[2])
    table = text_table(("user", "clicks", "seconds"), longest, 8)
    clicks = sum(row[3] for row in result)
    bars = chart([by_hour.get(hour, 0) for hour in hours][-100:])
    return f"  {len(result):,} sessions of {clicks:,} clicks; the longest:\n{table}\n  sessions by hour: {bars}"


PIPELINE = Pipeline(
    "activity",
    "A click stream to sessions, with session windows and late data",
    (PipelineTopic(CLICKS), PipelineTopic(SESSIONS)),
    make_input,
    run,
    expected,
    show,
    demo_size=100_000,
)

if __name__ == "__main__":
    main(PIPELINE)
