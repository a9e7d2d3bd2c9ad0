"""Driver of confluent-kafka, kafka-python and aiokafka: jobs as JSON lines on stdin, results on stdout.

Each job runs in a thread of its own. The job format is that of `compat_tests.workloads.workload_generator`.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from typing import Any

from compat_tests.workloads import python_consumers, python_producers

_output = threading.Lock()


def emit(message: dict[str, Any]) -> None:
    """Write one line to the runner."""
    with _output:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def run(job: dict[str, Any]) -> None:
    """Run one job and write its result, or the name of the exception that ended it."""
    try:
        consumes = job["op"] == "consume"
        result = python_consumers.consume(job, emit) if consumes else python_producers.run(job)
        emit({"id": job["id"], "result": result})
    except Exception as error:
        logging.exception("job %s", job["client_id"])
        emit({"id": job["id"], "failure": type(error).__name__})


def main() -> None:
    """Read jobs until stdin ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.CRITICAL)
    for line in sys.stdin:
        threading.Thread(target=run, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    main()
