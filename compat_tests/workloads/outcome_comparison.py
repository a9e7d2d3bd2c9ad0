"""Comparison of the outcomes of a workload on Ottla and on Kafka, with the first difference of each step.

What may differ without a fault is removed first:

- Compaction runs when a broker finds time for it. Of a compacted topic only the last record of each key that a
  consumer got is compared, and the last offset.
- Members of a group read a record twice when a partition moves between them before its position is committed.
  Records of a group are compared as a set, by offset.
- Timestamps of a topic with LogAppendTime, and of transaction markers, are the broker's clock. Their type is compared,
  not their value, nor which record ListOffsets finds by them (`probes.list_offsets`).
- Where the log start lies inside a batch of an open transaction, Kafka's last stable offset is the base offset of that
  batch, below the log start: a reader of committed records would start out of range. The log start counts in both.
- Kafka deletes segments below the log start when its retention check runs, and looks records up by their time in all
  segments it has: after DeleteRecords only the error of such a lookup is compared.
- A client counts errors as often as it polls. Names of errors are compared, not how often they came.
- Compaction also removes the record that ListOffsets finds by its time: of a compacted topic its error is compared.
- A client sends more requests on a slow machine. A count is a difference when it is several times Kafka's
  (`REQUESTS_FACTOR`) and far above it (`REQUESTS_MARGIN`): that is what a busy loop looks like.
- Clients have races of their own, and a slow machine lets a time-out pass. A seed with differences is run again; what
  differs in the same step of both runs counts, the rest is reported as ``once`` in the results (`split_confirmed`).
"""

from __future__ import annotations

from typing import Any

from compat_tests.workloads.direct_requests import MAX_TIMESTAMP
from compat_tests.workloads.workload_generator import Workload, WorkloadStep

REQUESTS_FACTOR = 4
REQUESTS_MARGIN = 150
StepOutcome = dict[str, Any]
Row = list[int]
ROW = "offset, timestamp, timestamp type, size, digest, digest of the key"
_SHOWN = 300


def find_differences(workload: Workload, ottla: list[StepOutcome], kafka: list[StepOutcome]) -> list[str]:
    """Return one line for each step with different outcomes."""
    out = []
    shortened = set()
    """Topics of which records were deleted before a step."""
    for number, step in enumerate(workload["steps"]):
        if number >= min(len(ottla), len(kafka)):
            break
        if step["do"] == "delete records":
            shortened.add(step["topic"])
        is_shortened = step["do"] == "list offsets" and step.get("topic") in shortened
        found = _difference(workload, step, ottla[number], kafka[number], is_shortened=is_shortened)
        if found:
            out.append(f"step {number} ({_title(step)}): {found}")
    return out


def split_confirmed(first: list[str], second: list[str]) -> tuple[list[str], list[str]]:
    """Split the differences of two runs of a seed: those of steps that differed twice, and those that differed once.

    A difference that names no step, as an exception in Ottla's log, counts each time, but not what ended Kafka once.
    """
    steps = [{line.partition(" (")[0] for line in lines if line.startswith("step ")} for lines in (first, second)]
    both = steps[0] & steps[1]

    def counts(line: str) -> bool:
        return line.startswith("ottla") or line.partition(" (")[0] in both

    # Kafka ended, which is no fault of Ottla
    first = first if not any(line.startswith("kafka") for line in first) else []
    twice = [line for line in second if counts(line) or line.startswith("kafka")]
    twice = twice or [line for line in first if line.startswith("ottla")]
    return twice, [line for line in (*first, *second) if not counts(line)]


def _title(step: WorkloadStep) -> str:
    names = ("do", "client", "topic", "topics", "kind", "transaction", "settings", "group", "members", "start")
    shown = [f"{name}={step[name]}" for name in names if step.get(name) not in (None, {})]
    return ", ".join(shown).removeprefix("do=")[:_SHOWN]


def _difference(
    workload: Workload, step: WorkloadStep, ottla: StepOutcome, kafka: StepOutcome, *, is_shortened: bool = False
) -> str:
    if "failure" in ottla or "failure" in kafka:
        both = ottla.get("failure"), kafka.get("failure")
        return "" if both[0] == both[1] else f"failure: {both[0]}, on Kafka {both[1]}"
    if step["do"] == "list offsets":
        ottla, kafka = ({"answer": _from_log_start(x["answer"], is_shortened=is_shortened)} for x in (ottla, kafka))
    if step["do"] != "consume":
        return _first(ottla.get("answer", ottla.get("failed")), kafka.get("answer", kafka.get("failed")), "")
    found = []
    for name in ("stop", "errors"):
        mine, theirs = (sorted(x[name]) if name == "errors" else x[name] for x in (ottla, kafka))
        if mine != theirs:
            counts = f" (requests {ottla['requests']}, on Kafka {kafka['requests']})" if name == "stop" else ""
            found.append(f"{name}: {mine}, on Kafka {theirs}{counts}")
    rows = _record_difference(workload, step, ottla["rows"], kafka["rows"])
    if rows:
        found.append(rows)
    for key, count in ottla["requests"].items():
        expected = kafka["requests"].get(key, 0)
        if count > REQUESTS_FACTOR * expected + REQUESTS_MARGIN:
            found.append(f"requests of API {key}: {count}, on Kafka {expected}")
    return "; ".join(found)


def _from_log_start(answer: Any, *, is_shortened: bool) -> Any:
    """Return the rows of a ListOffsets probe with no last stable offset below the log start.

    Rows found by time keep only their error where ``is_shortened``: records of the topic were deleted.
    """
    out = dict(answer)
    for key, row in answer.items():
        at = int(key.split()[1].removesuffix(","))
        if is_shortened and (at >= 0 or at == MAX_TIMESTAMP):
            out[key] = row[:1]
        start = answer.get(f"{key.partition(':')[0]}: -2, isolation 0")
        if key.endswith(": -1, isolation 1") and start is not None:
            out[key] = [*row[:2], max(row[2], start[2]), *row[3:]]
    return out


def _first(ottla: Any, kafka: Any, where: str) -> str:
    """Return where two values first differ; an empty text if they are equal."""
    if isinstance(ottla, dict) and isinstance(kafka, dict):
        for key in {**kafka, **ottla}:
            found = _first(ottla.get(key), kafka.get(key), f"{where} {key}")
            if found:
                return found
        return ""
    if isinstance(ottla, list | tuple) and isinstance(kafka, list | tuple) and len(ottla) == len(kafka):
        pairs = enumerate(zip(ottla, kafka, strict=True))
        return next((found for i, pair in pairs if (found := _first(*pair, f"{where}[{i}]"))), "")
    return "" if ottla == kafka else f"{where}: {ottla}, on Kafka {kafka}"[:_SHOWN].strip()


def _record_difference(
    workload: Workload, step: WorkloadStep, ottla: dict[str, list[Row]], kafka: dict[str, list[Row]]
) -> str:
    for name in sorted({*ottla, *kafka}):
        topic = workload["topics"][int(name.partition("/")[0])]
        mine, theirs = (_normalised(topic, step, x.get(name, [])) for x in (ottla, kafka))
        if mine == theirs:
            continue
        at = next((i for i, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1]), None)
        if at is None:
            at = min(len(mine), len(theirs))
        rows = [x[at] if at < len(x) else None for x in (mine, theirs)]
        counts = f"{len(mine)} records, on Kafka {len(theirs)}"
        row = f"record {at} ({ROW}): {rows[0]}, on Kafka {rows[1]}"
        return f"partition {name}: {counts}; {row}"
    return ""


def _normalised(topic: dict[str, Any], step: WorkloadStep, rows: list[Row]) -> list[Any]:
    if topic["kind"] == "stamped":
        rows = [[row[0], 0, *row[2:]] for row in rows]
    if step["group"] is not None:
        rows = [list(row) for row in sorted({tuple(row) for row in rows})]
    if topic["kind"] == "compact":
        last = {row[5]: row for row in rows}
        return sorted(last.values())
    return rows
