"""``make run``: a node, measurements of this machine, a Spark job over them, and its result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from spark_it.measurements import Sampler, as_record

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
DATA = ROOT / "ottla-data"
WORK = ROOT / ".cache" / "demo"
SOURCE, SINK = "measurements", "measurement-windows"
EVERY_S, FOR_S = 0.1, 20.0
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
BARS = " ▁▂▃▄▅▆▇█"


def start_node() -> tuple[subprocess.Popen[str], str]:
    """Start ``ottla serve`` on a free port; return the process and its address once it is ready."""
    node = subprocess.Popen(
        [BIN / "ottla", "serve", "--data-dir", DATA, "--listen", "127.0.0.1:0", "--console"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert node.stdout is not None
    line = node.stdout.readline()
    if "Kafka Server started" not in line:
        raise SystemExit(f"the node did not start: {line}")
    return node, line.split("started: ")[1].split(",")[0]


def fresh_topics(bootstrap: str) -> None:
    """Delete and create both topics, so that they are empty."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    there = admin.list_topics(timeout=30).topics
    old = [name for name in (SOURCE, SINK) if name in there]
    for done in (admin.delete_topics(old) if old else {}).values():
        done.result(30)
    for done in admin.create_topics([NewTopic(SOURCE, 2, 1), NewTopic(SINK, 1, 1)]).values():
        done.result(30)


def feed(bootstrap: str) -> int:
    """Send measurements every 100 ms for 20 s; return the number of acknowledged ones."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "zstd"})
    acknowledged = 0

    def delivered(error: Any, _: Any) -> None:
        nonlocal acknowledged
        if error is not None:
            raise SystemExit(f"a measurement was refused: {error}")
        acknowledged += 1

    sampler = Sampler()
    began, last_print_s = time.monotonic(), 0.0
    while (passed := time.monotonic() - began) < FOR_S:
        event_ms = int(time.time() * 1000)
        for measurement in sampler.sample():
            key, value, headers = as_record(measurement, event_ms)
            producer.produce(SOURCE, value, key, timestamp=event_ms, headers=headers, on_delivery=delivered)
        producer.poll(0)
        if passed - last_print_s >= 4:
            last_print_s = passed
            print(f"  {passed:4.0f} s: {acknowledged} measurements acknowledged", flush=True)
        time.sleep(EVERY_S)
    producer.flush(30)
    return acknowledged


def run_spark(bootstrap: str) -> None:
    """Submit the job with spark-submit."""
    command = [BIN / "spark-submit", "--master", "local[2]", "--packages", CONNECTOR]
    command += ["--conf", f"spark.jars.ivy={ROOT / '.cache' / 'ivy2'}", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.sql.session.timeZone=UTC"]
    command += [ROOT / "spark_it" / "pipeline.py", "--bootstrap", bootstrap, "--source", SOURCE, "--sink", SINK]
    command += ["--parquet", WORK / "windows.parquet", "--checkpoint", WORK / "checkpoint"]
    log = WORK / "spark.log"
    with log.open("w") as errors:
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(list(map(str, command)), stderr=errors, cwd=WORK, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"the Spark job failed; the end of {log}:\n{log.read_text()[-3000:]}")


def read_back(bootstrap: str) -> list[dict[str, Any]]:
    """Read the result topic with kafka-python."""
    consumer = KafkaConsumer(
        SINK, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=3000, group_id=None
    )
    rows = [json.loads(message.value) for message in consumer]
    consumer.close()
    return rows


def chart(values: list[float]) -> str:
    """Return one character for each window."""
    top = max([*values, 1e-9])
    return "".join(BARS[min(int(v / top * (len(BARS) - 1)), len(BARS) - 1)] for v in values)


def show(rows: list[dict[str, Any]]) -> None:
    """Print a table of the metrics with a chart of their windows."""
    by_metric: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: r["begins_ms"]):
        by_metric[row["metric"]].append(row)
    print(f"\n  {'metric':<18}{'unit':<10}{'average':>18}{'most':>18}  windows of 2 s")
    for metric, windows in sorted(by_metric.items()):
        samples = sum(w["samples"] for w in windows)
        average = sum(w["average"] * w["samples"] for w in windows) / samples
        most = max(w["most"] for w in windows)
        bars = chart([w["average"] for w in windows])
        print(f"  {metric:<18}{windows[0]['unit']:<10}{average:>18,.1f}{most:>18,.1f}  {bars}")


def main() -> None:
    """Run the demo."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    print("1. a node: ottla serve --data-dir ottla-data")
    node, bootstrap = start_node()
    try:
        print(f"   ready at {bootstrap}")
        fresh_topics(bootstrap)
        print(f"2. measurements from /proc, every {EVERY_S * 1000:.0f} ms for {FOR_S:.0f} s, by confluent-kafka")
        count = feed(bootstrap)
        print(f"   {count} acknowledged")
        print("3. a Spark Structured Streaming job: event-time windows, to Parquet and to a second topic")
        print("   (the first time Spark fetches its Kafka connector)")
        run_spark(bootstrap)
        rows = read_back(bootstrap)
        print(f"4. the second topic, read with kafka-python: {len(rows)} windows")
        if not rows:
            raise SystemExit("nothing came out of the Spark job")
        show(rows)
    finally:
        node.send_signal(signal.SIGTERM)
        status = node.wait(60)
    if status:
        raise SystemExit(f"the node ended with status {status}")
    print("\nThe node has stopped cleanly. Its data is kept in ottla-data/.")
    print("To start one for keeps:  .venv/bin/ottla serve")


if __name__ == "__main__":
    main()
