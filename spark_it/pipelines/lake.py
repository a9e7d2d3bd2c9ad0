r"""Pipeline "lake": from Avro records to a Delta table and an Iceberg table, exactly once.

The schemas are files, and a header of each record names its version. A record of version 1 gets the default of the
field that version 2 added. Both tables store the batch number with the data; so a batch that Spark repeats after the
death of the driver is not written twice. Records that are no trades become dead letters::

    PYTHONPATH=. spark-submit --packages "$(python -m spark_it.pipelines.demo --packages lake)" \
        spark_it/pipelines/lake.py --bootstrap HOST:PORT --folder DIR
"""

from __future__ import annotations

import io
import json
import random
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import Column, functions
from pyspark.sql.avro.functions import from_avro

from spark_it.pipelines.pipeline import (
    InputRecord,
    Pipeline,
    PipelineJob,
    PipelineTopic,
    ResultTable,
    Wait,
    chart,
    collect,
    dead_letters,
    header,
    main,
    read_dead_letters,
    sort,
    text_table,
)

TRADES, DEAD_LETTERS = "trades", "trade-dead-letters"
SCHEMAS = {version: (Path(__file__).parent / "schemas" / f"trade-{version}.avsc").read_text() for version in ("1", "2")}
SYMBOLS = ("AAA", "BBB", "CCC", "DDD")
NO_VERSION, NO_TRADE = "unknown schema version", "not a trade"


def make_input(size: int, _wait: Wait) -> Iterator[InputRecord]:
    """Yield ``size`` trades, the first half in schema version 1, the rest in version 2.

    Two of each hundred are defective: bytes that are no trade, and an unknown schema version.
    """
    import fastavro  # only for the input

    rng = random.Random(23)
    schemas = {version: fastavro.parse_schema(json.loads(text)) for version, text in SCHEMAS.items()}
    for number in range(size):
        version = "1" if number < size // 2 else "2"
        trade = {"number": number, "symbol": rng.choice(SYMBOLS), "cents": rng.randrange(100, 100_000)}
        if version == "2":
            trade["venue"] = f"venue {number % 3}"
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schemas[version], trade)
        value = b"\x02\xff" if number % 100 == 50 else buffer.getvalue()
        named = "9" if number % 100 == 75 else version
        yield InputRecord(TRADES, value, trade["symbol"].encode(), headers=(("schema", named.encode()),))


def decoded(version: str) -> Column:
    """Return a column: the value, written in schema ``version``, as a struct of version 2.

    Its fields are null if the value is no trade.
    """
    options = {"mode": "PERMISSIVE", "avroSchema": SCHEMAS["2"]}
    return from_avro(functions.col("value"), SCHEMAS[version], options)


def create_iceberg_table(job: PipelineJob) -> str:
    """Create the Iceberg table in a catalog below the job's folder, unless it exists; return its name."""
    catalog = f"lake_{zlib.crc32(job.folder.encode()):x}"  # a session keeps the folder of a catalog
    job.spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
    job.spark.conf.set(f"spark.sql.catalog.{catalog}.type", "hadoop")
    job.spark.conf.set(f"spark.sql.catalog.{catalog}.warehouse", job.path("iceberg"))
    columns = "number bigint, symbol string, cents bigint, venue string"
    job.spark.sql(f"create table if not exists {catalog}.market.trades ({columns}) using iceberg")
    return f"{catalog}.market.trades"


def run(job: PipelineJob) -> ResultTable:
    """Write trades to both tables and the other records to the topic of dead letters; return trades and dead letters.

    Raises:
        AssertionError: the tables differ.
    """
    table = create_iceberg_table(job)
    records = job.read_stream(TRADES).withColumn("version", header("schema"))
    trade = functions.when(functions.col("version") == "1", decoded("1")).when(
        functions.col("version") == "2", decoded("2")
    )
    parsed = records.withColumn("trade", trade)
    is_trade = functions.col("trade.number").isNotNull()
    trades = parsed.where(is_trade).select("trade.*")
    reason = functions.when(functions.col("version").isin(*SCHEMAS), NO_TRADE).otherwise(NO_VERSION)
    queries = [
        job.start(trades.writeStream.format("delta").option("path", job.path("delta")), "delta"),
        job.start(trades.writeStream.format("iceberg").option("path", table), "iceberg"),
        job.start_to_topic(dead_letters(parsed.where(~is_trade), reason), DEAD_LETTERS),
    ]
    for query in queries:
        query.awaitTermination()
    columns = ("number", "symbol", "cents", "venue")
    result = collect(job.spark.read.format("delta").load(job.path("delta")).select(*columns))
    assert result == collect(job.spark.table(table).select(*columns)), "the tables differ"
    reasons = read_dead_letters(job, DEAD_LETTERS).groupBy("reason").agg(functions.count("*"))
    return sort([*result, *((count, reason, 0, "dead letter") for reason, count in collect(reasons))])


def expected(records: Iterable[InputRecord]) -> ResultTable:
    """Return number, symbol, cents and venue of each trade, and a row for each reason of dead letters.

    Such a row has their number, the reason, 0 and "dead letter".
    """
    import fastavro  # only for the input

    schemas = {version: fastavro.parse_schema(json.loads(text)) for version, text in SCHEMAS.items()}
    out: ResultTable = []
    reasons: dict[str, int] = {}
    for record in records:
        version = dict(record.headers)["schema"].decode()
        try:
            reason = NO_VERSION
            schema = schemas[version]
            reason = NO_TRADE
            trade = fastavro.schemaless_reader(io.BytesIO(record.value or b""), schema, schemas["2"])
            assert isinstance(trade, dict)
        except Exception:
            reasons[reason] = reasons.get(reason, 0) + 1
        else:
            out.append((trade["number"], trade["symbol"], trade["cents"], trade["venue"]))
    return sort([*out, *((count, reason, 0, "dead letter") for reason, count in reasons.items())])


def show(result: ResultTable) -> str:
    """Return a text with trades, volume and a chart by symbol, and the number of dead letters by reason."""
    trades = [row for row in result if row[3] != "dead letter"]
    dead = [(row[1], row[0]) for row in result if row[3] == "dead letter"]
    lines = []
    for symbol in sorted({row[1] for row in trades}):
        cents = [row[2] for row in trades if row[1] == symbol]
        slices = [sum(cents[i : i + max(len(cents) // 40, 1)]) for i in range(0, len(cents), max(len(cents) // 40, 1))]
        lines.append((symbol, len(cents), sum(cents), chart(slices)))
    table = text_table(("symbol", "trades", "cents", "in both tables, in order of time"), lines)
    return f"{table}\n{text_table(('dead letters', 'records'), dead)}"


PIPELINE = Pipeline(
    "lake",
    "Avro records to a Delta table and an Iceberg table, exactly once",
    (PipelineTopic(TRADES), PipelineTopic(DEAD_LETTERS, 1)),
    make_input,
    run,
    expected,
    show,
    test_size=1000,
    packages=(
        "io.delta:delta-spark_2.13:4.0.0",
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
        "org.apache.spark:spark-avro_2.13:4.0.0",
    ),
    settings={
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",  # 50 by default, for the log of a large table
    },
)

if __name__ == "__main__":
    main(PIPELINE)
