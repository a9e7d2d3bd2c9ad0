r"""Pipeline "joins": views of advertisements joined with their clicks (two streams) and with campaigns (a table).

Clicks that were sent twice are removed. A view without a click is written once the watermark shows that none can
follow::

    PYTHONPATH=. spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \
        spark_it/pipelines/joins.py --bootstrap HOST:PORT --folder DIR
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, functions

from spark_it.pipelines.pipeline import (
    InputRecord,
    Pipeline,
    PipelineJob,
    PipelineTopic,
    ResultTable,
    Wait,
    collect,
    main,
    sort,
    text_table,
)

VIEWS, CLICKS, CAMPAIGNS = "ad-views", "ad-clicks", "campaigns"
VIEW_SCHEMA = "view STRING, campaign LONG, event_ms LONG"
CLICK_SCHEMA = "click STRING, view STRING, event_ms LONG"
CAMPAIGN_SCHEMA = "campaign LONG, title STRING"
START_MS = 1_760_000_000_000
WITHIN_MS, DELAY_MS = 10 * 60_000, 10 * 60_000
VIEWS_SHARE = 10 / 14
"""Share of views in the input: with the same share in each batch, both streams reach a time together."""
END_MS = 7_200_000
"""Distance of the last view and click, which let the watermark pass all others."""


def _record(topic: str, key: str, fields: dict[str, Any]) -> InputRecord:
    return InputRecord(topic, json.dumps(fields).encode(), key.encode())


def make_input(size: int, _wait: Wait) -> Iterator[InputRecord]:
    """Yield about ``size`` records: campaigns, views, and a click for each third view.

    Each fifth click is sent twice, and each tenth is too late to be joined. A last view and click move the watermark.
    """
    rng = random.Random(17)
    for campaign in range(10):
        yield _record(CAMPAIGNS, f"{campaign}", {"campaign": campaign, "title": f"campaign {campaign}"})
    events: list[tuple[int, InputRecord]] = []
    views = int(size * VIEWS_SHARE)
    for number in range(views):
        view, event_ms = f"v{number}", START_MS + number * 1000
        fields = {"view": view, "campaign": rng.randrange(10), "event_ms": event_ms}
        events.append((event_ms, _record(VIEWS, view, fields)))
        if number % 3 == 0:
            click_ms = event_ms + (2 * WITHIN_MS if number % 10 == 0 else rng.randrange(1, WITHIN_MS // 2))
            click = _record(CLICKS, view, {"click": f"c{number}", "view": view, "event_ms": click_ms})
            events += [(click_ms, click)] * (2 if number % 5 == 0 else 1)
    events.sort(key=lambda event: event[0])
    yield from (record for _, record in events)
    end_ms = START_MS + views * 1000 + END_MS
    yield _record(VIEWS, "end", {"view": "end", "campaign": 0, "event_ms": end_ms})
    yield _record(CLICKS, "end", {"click": "end", "view": "none", "event_ms": end_ms})


def _parsed(job: PipelineJob, topic: str, share: float, schema: str, prefix: str) -> DataFrame:
    """Return a stream of a topic's JSON values with a watermark; its columns have the prefix ``prefix_``.

    ``share``: share of the topic in the records of a batch. A stream that ends before the other one would stop the
    watermark after a restart: Spark stores the watermark of the query, and not those of its streams.
    """
    count = max(1, round(job.records_per_trigger * share))
    stream = job.read_stream(topic, maxOffsetsPerTrigger=str(count))
    fields = stream.select(functions.from_json(functions.col("value").cast("string"), schema).alias("v")).select("v.*")
    named = fields.select([functions.col(name).alias(f"{prefix}_{name}") for name in fields.columns])
    time = functions.timestamp_millis(f"{prefix}_event_ms").alias(f"{prefix}_time")
    return named.select("*", time).withWatermark(f"{prefix}_time", f"{DELAY_MS} milliseconds")


def run(job: PipelineJob) -> ResultTable:
    """Write each view with its campaign, and with its click if there is one, to Parquet; return the written views.

    A row has view, title of the campaign, and ms until the click, None without one.
    """
    views = _parsed(job, VIEWS, VIEWS_SHARE, VIEW_SCHEMA, "v")
    clicks = _parsed(job, CLICKS, 1 - VIEWS_SHARE, CLICK_SCHEMA, "c").dropDuplicatesWithinWatermark(["c_click"])
    campaigns = (
        job.read(CAMPAIGNS)
        .select(functions.from_json(functions.col("value").cast("string"), CAMPAIGN_SCHEMA).alias("c"))
        .select(functions.col("c.campaign").alias("v_campaign"), "c.title")
    )
    same_view = functions.col("v_view") == functions.col("c_view")
    in_time = functions.expr(f"c_time between v_time and v_time + interval {WITHIN_MS // 1000} seconds")
    joined = views.join(clicks, same_view & in_time, "leftOuter").join(functions.broadcast(campaigns), "v_campaign")
    columns = joined.select(functions.col("v_view").alias("view"), "title", "v_event_ms", "c_event_ms")
    writer = columns.writeStream.format("parquet").option("path", job.path("views"))
    job.start(writer, "views").awaitTermination()
    written = job.spark.read.parquet(job.path("views"))
    return collect(
        written.select("view", "title", (functions.col("c_event_ms") - functions.col("v_event_ms")).alias("after_ms"))
    )


def expected(records: Iterable[InputRecord]) -> ResultTable:
    """Return view, title of its campaign, and ms until its click, None without one, of each view that is decided.

    A view is decided by a click in time, or by a watermark after which no click can join.
    """
    parsed = [(record.topic, json.loads(record.value or b"")) for record in records]
    titles = {fields["campaign"]: fields["title"] for topic, fields in parsed if topic == CAMPAIGNS}
    views = {fields["view"]: fields for topic, fields in parsed if topic == VIEWS}
    clicks = {fields["view"]: fields["event_ms"] for topic, fields in parsed if topic == CLICKS}
    last = [max(fields["event_ms"] for topic, fields in parsed if topic == name) for name in (VIEWS, CLICKS)]
    watermark = min(last) - DELAY_MS
    out: ResultTable = []
    for view, fields in views.items():
        after = clicks[view] - fields["event_ms"] if view in clicks else None
        if after is not None and after <= WITHIN_MS:
            out.append((view, titles[fields["campaign"]], after))
        elif fields["event_ms"] + WITHIN_MS < watermark:
            out.append((view, titles[fields["campaign"]], None))
    return sort(out)


def show(result: ResultTable) -> str:
    """Return a text table by campaign: views, clicks, mean seconds until a click, and share of views with a click."""
    lines = []
    for title in sorted({row[1] for row in result}):
        times = [row[2] for row in result if row[1] == title]
        clicked = [time for time in times if time is not None]
        share = len(clicked) / len(times)
        mean_s = sum(clicked) // max(len(clicked), 1) // 1000
        lines.append((title, len(times), len(clicked), mean_s, "█" * round(share * 50)))
    return text_table(("campaign", "views", "clicks", "seconds", "share"), lines)


PIPELINE = Pipeline(
    "joins",
    "Views with clicks (two streams), campaigns (a table), and without duplicates",
    (PipelineTopic(VIEWS), PipelineTopic(CLICKS), PipelineTopic(CAMPAIGNS, 1, {"cleanup.policy": "compact"})),
    make_input,
    run,
    expected,
    show,
)

if __name__ == "__main__":
    main(PIPELINE)
