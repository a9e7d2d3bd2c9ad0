r"""Pipeline "logs": from lines of log files to Parquet by day; lines that cannot be parsed become dead letters.

A dead letter is the record as it came, with headers that give the reason and the original position. Parsed lines are
written exactly once, dead letters at least once: their position shows a repetition::

    PYTHONPATH=. spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \
        spark_it/pipelines/logs.py --bootstrap HOST:PORT --folder DIR
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

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
    dead_letters,
    header,
    main,
    read_dead_letters,
    sort,
    text_table,
)

LINES, DEAD_LETTERS = "log-lines", "log-dead-letters"
LOG_FOLDER = Path("/var/log")
TIME = r"^(?:\[|[a-z-]+ )?([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})"
LEVEL = r"(?:^|[^A-Z])(DEBUG|INFO|WARN|ERROR|FATAL)"
EMPTY, NOT_UTF8, NO_TIME, NO_SUCH_DAY = "empty line", "not UTF-8", "no time", "no such day"
GENERATED_FILE = "generated.log"


def machine_entries() -> Iterator[tuple[str, bytes]]:
    """Yield file name and line, without line end, of each log file in `LOG_FOLDER`; unreadable files are skipped."""
    for path in sorted(LOG_FOLDER.rglob("*.log")):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        yield from ((path.name, line) for line in content.splitlines())


def generated_entry(number: int) -> bytes:
    """Return line ``number`` of a generated log, like those of a server; each fiftieth cannot be parsed."""
    defects = {0: b"", 50: b"\xff\xfe broken", 100: b"    at Server.java:7", 150: b"2026-02-31 10:00:00 INFO shifted"}
    if number % 50 == 0:
        return defects[number % 200]
    level = ("INFO", "INFO", "INFO", "DEBUG", "WARN", "INFO", "ERROR")[number % 7]
    day, second = 1 + number // 500 % 28, number % 60
    return f"[2026-10-{day:02d} 12:{second:02d}:00,{number % 1000:03d}] {level} request {number} done".encode()


def make_input(size: int, _wait: Wait) -> Iterator[InputRecord]:
    """Yield ``size`` lines: up to half from log files of this machine, and generated ones for the rest."""
    count = 0
    for name, line in machine_entries():
        if count >= size // 2:
            break
        yield InputRecord(LINES, line, name.encode(), headers=(("file", name.encode()),))
        count += 1
    for number in range(size - count):
        name = GENERATED_FILE.encode()
        yield InputRecord(LINES, generated_entry(number), name, headers=(("file", name),))


def classified(lines: DataFrame) -> DataFrame:
    """Return the records with file, day, time, level and line added, and the reason why a line cannot be parsed.

    The reason is null for a line that can be parsed; the line is null if it is not UTF-8.
    """
    text = functions.col("value").cast("string")
    columns = lines.select(
        "*",
        header("file").alias("file"),
        functions.regexp_extract(text, TIME, 1).alias("date"),
        functions.regexp_extract(text, TIME, 2).alias("time"),
        functions.regexp_extract(text, LEVEL, 1).alias("level"),
        functions.when(~functions.is_valid_utf8(text), functions.lit(None)).otherwise(text).alias("line"),
    ).withColumn("day", functions.try_to_timestamp("date", functions.lit("yyyy-MM-dd")).cast("date"))
    reason = (
        functions.when(functions.coalesce(functions.length("value"), functions.lit(0)) == 0, EMPTY)
        .when(functions.col("line").isNull(), NOT_UTF8)
        .when(functions.col("date") == "", NO_TIME)
        .when(functions.col("day").isNull(), NO_SUCH_DAY)
    )
    return columns.withColumn("reason", reason)


def run(job: PipelineJob) -> ResultTable:
    """Write parsed lines to Parquet by day, the others to the topic of dead letters; return counts of both.

    A row has day, level, lines and characters; or "dead letter", the reason, their number and 0.
    """
    lines = classified(job.read_stream(LINES))
    parsed = lines.where("reason is null").select("file", "day", "time", "level", "line")
    files = parsed.writeStream.format("parquet").partitionBy("day").option("path", job.path("lines"))
    letters = dead_letters(lines.where("reason is not null"), functions.col("reason"))
    queries = [job.start(files, "lines"), job.start_to_topic(letters, DEAD_LETTERS)]
    for query in queries:
        query.awaitTermination()
    written = job.spark.read.parquet(job.path("lines"))
    counts = written.groupBy(functions.col("day").cast("string"), "level").agg(
        functions.count("*"), functions.sum(functions.length("line"))
    )
    reasons = read_dead_letters(job, DEAD_LETTERS).groupBy("reason").agg(functions.count("*"))
    dead = [("dead letter", reason, count, 0) for reason, count in collect(reasons)]
    return sort([*collect(counts), *dead])


def day_of(line: bytes) -> str:
    """Return the day, such as ``2026-10-01``, with which a line begins.

    Raises:
        ValueError: the line cannot be parsed; the message is the reason.
    """
    if not line:
        raise ValueError(EMPTY)
    try:
        matched = re.match(TIME, line.decode())
    except UnicodeDecodeError:
        raise ValueError(NOT_UTF8) from None
    if matched is None:
        raise ValueError(NO_TIME)
    try:
        datetime.date.fromisoformat(matched[1])
    except ValueError:
        raise ValueError(NO_SUCH_DAY) from None
    return matched[1]


def expected(records: Iterable[InputRecord]) -> ResultTable:
    """Return day, level, lines and characters; for dead letters "dead letter", the reason, their number and 0."""
    counts: Counter[tuple[str, str]] = Counter()
    characters: Counter[tuple[str, str]] = Counter()
    for record in records:
        value = record.value or b""
        try:
            day = day_of(value)
        except ValueError as reason:
            counts["dead letter", str(reason)] += 1
            continue
        line = value.decode()
        level = re.search(LEVEL, line)
        key = (day, level[1] if level else "")
        counts[key] += 1
        characters[key] += len(line)
    return sort((*key, count, characters[key]) for key, count in counts.items())


def show(result: ResultTable) -> str:
    """Return a text with a row for each level (lines, and a chart of them by day), and the dead letters by reason.

    The charts show the last 60 days in the result.
    """
    dead = [(row[1], row[2]) for row in result if row[0] == "dead letter"]
    parsed = [row for row in result if row[0] != "dead letter"]
    days = sorted({row[0] for row in parsed})
    lines = []
    for level in sorted({row[1] for row in parsed}):
        by_day = {row[0]: row[2] for row in parsed if row[1] == level}
        bars = chart([by_day.get(day, 0) for day in days][-60:])
        lines.append((level or "(none)", sum(by_day.values()), bars))
    table = text_table(("level", "lines", "by day"), lines)
    return f"{table}\n{text_table(('dead letters', 'lines'), dead)}"


PIPELINE = Pipeline(
    "logs",
    "Log files to Parquet by day, with dead letters that give the reason",
    (PipelineTopic(LINES), PipelineTopic(DEAD_LETTERS, 1)),
    make_input,
    run,
    expected,
    show,
)

if __name__ == "__main__":
    main(PIPELINE)
