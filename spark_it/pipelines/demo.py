"""Command ``make demo PIPELINE=name``: starts a node, sends a pipeline's input, runs its Spark job, shows the result.

The result is compared with what plain Python computes from the same input; status 1 if they differ.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from spark_it.pipelines.pipeline import NAMES, InputRecord, Pipeline, create_topics, load
from spark_it.pipelines.submit import BIN, ROOT, environment, packages, script, submit_command

DATA = ROOT / "ottla-data"
WORK = ROOT / ".cache" / "demo"
BATCHES = 5
PROGRESS_S = 4.0


def start_node(data_dir: Path) -> tuple[subprocess.Popen[str], str]:
    """Start ``ottla serve`` with console on a free port; return the process and its ``HOST:PORT`` once it is ready.

    The wait for its first line has no time limit.

    Raises:
        SystemExit: the node did not start.
    """
    command = [BIN / "ottla", "serve", "--data-dir", data_dir, "--listen", "127.0.0.1:0", "--console"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    line = node.stdout.readline()
    if "Kafka Server started" not in line:
        raise SystemExit(f"the node did not start: {line}")
    return node, line.split("started: ")[1].split(",")[0]


def with_progress(records: Iterator[InputRecord], kept: list[InputRecord]) -> Iterator[InputRecord]:
    """Yield the records, append each to ``kept``, and print their number every 4 s."""
    due = time.monotonic() + PROGRESS_S
    for record in records:
        kept.append(record)
        yield record
        if time.monotonic() >= due:
            due += PROGRESS_S
            print(f"   {len(kept):,} records sent", flush=True)


def run_spark(pipeline: Pipeline, bootstrap: str, work: Path, records: int) -> list[tuple[object, ...]]:
    """Run the job of a pipeline with spark-submit on two local threads, and return its result when it has ended.

    Args:
        pipeline: the pipeline.
        bootstrap: ``HOST:PORT`` of the node.
        work: folder for checkpoints, files and the log of Spark.
        records: number of input records, which are read in `BATCHES` batches.

    Raises:
        SystemExit: the job failed; the message has the end of its log.
    """
    settings = {"spark.jars.ivy": str(ROOT / ".cache" / "ivy2")}
    command = submit_command(pipeline, "local[2]", bootstrap, work, -(-records // BATCHES), settings)
    log = work / "spark.log"
    with log.open("w") as errors:
        done = subprocess.run(command, stderr=errors, cwd=work, env=environment(), check=False)
    if done.returncode:
        raise SystemExit(f"the Spark job failed; the end of {log}:\n{log.read_text()[-3000:]}")
    return [tuple(row) for row in json.loads((work / "result.json").read_text())]


def demonstrate(pipeline: Pipeline, bootstrap: str, work: Path, size: int) -> None:
    """Create the topics of a pipeline, send its input, run its job in folder ``work``, and print and check the result.

    Raises:
        SystemExit: the job failed, or its result differs from the expected one.
    """
    create_topics(bootstrap, pipeline)
    records: list[InputRecord] = []
    since = time.monotonic()
    print(f"2. input: about {size:,} records to {', '.join(topic.name for topic in pipeline.topics)}")
    pipeline.send(bootstrap, with_progress(pipeline.make_input(size, time.sleep), records))
    print(f"   {len(records):,} records acknowledged after {time.monotonic() - since:.1f} s")
    print(f"3. spark-submit {script(pipeline).relative_to(ROOT)} (the first time Spark fetches its packages)")
    result = run_spark(pipeline, bootstrap, work, len(records))
    print(f"4. {pipeline.summary}: {len(result):,} rows\n\n{pipeline.show(result)}\n")
    if result != pipeline.expected(records):
        raise SystemExit("The result differs from what plain Python computes from the same input.")
    print("The result equals what plain Python computes from the same input.")


def main() -> None:
    """Run the demonstration of the pipeline on the command line, with a node that is started and stopped.

    Raises:
        SystemExit: the node, the job or the comparison failed.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline", choices=(*NAMES, "template"))
    parser.add_argument("--size", type=int, help="approximate number of input records")
    parser.add_argument("--data-dir", type=Path, default=DATA, help="directory of the node's data, which is kept")
    parser.add_argument("--folder", type=Path, default=WORK, help="folder of the job, which is emptied first")
    parser.add_argument("--packages", action="store_true", help="print the Maven packages of the pipeline, and stop")
    options = parser.parse_args()
    pipeline = load(options.pipeline)
    if options.packages:
        print(packages(pipeline))
        return
    data, work = options.data_dir.absolute(), options.folder.absolute()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    print(f"{pipeline.summary}\n1. a node: ottla serve --data-dir {data.name}")
    node, bootstrap = start_node(data)
    try:
        print(f"   ready at {bootstrap}")
        demonstrate(pipeline, bootstrap, work, options.size or pipeline.demo_size)
    finally:
        node.send_signal(signal.SIGTERM)
        status = node.wait(300)
    if status:
        raise SystemExit(f"the node ended with status {status}")
    print(f"The node has stopped cleanly. Its data is kept in {data.name}/.")
    print("To start one for keeps:  .venv/bin/ottla serve")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
