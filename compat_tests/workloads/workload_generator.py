"""Generator of workloads by seed: topics, and the steps that are run against a broker. A workload is plain JSON."""

from __future__ import annotations

import math
import random
from typing import Any

from compat_tests.workloads.batch_frames import FRAMES, UNCHECKED_FAULTS
from compat_tests.workloads.client_settings import TOPIC_CODECS, consumer_settings, producer_settings

KIB, MIB = 1 << 10, 1 << 20
LARGE_TOPIC_BYTES = 25 * MIB
LARGEST_BYTES = 20 * MIB
"""Largest message."""
MOST_RECORDS = 3000
"""Limit of records in one produce step, since comparing takes time per row, not per byte."""
FRAME_PARTITIONS = 12
FRAMES_S = 15.0
"""Time in which a client reads unusual frames, in seconds."""
BIG_SEED_EVERY = 50
BIG_BACKLOG_BYTES = 1 << 30
PRODUCERS = ("java", "confluent", "kafka-python", "aiokafka", "franz-go")
SIZES = {
    "empty": (0, 0, 0.05),
    "tiny": (1, 200, 0.25),
    "small": (200, 10_000, 0.3),
    "medium": (10_000, 900_000, 0.2),
    "large": (1 * MIB, 4 * MIB, 0.15),
    "huge": (4 * MIB, LARGEST_BYTES, 0.05),
}
"""Minimum and maximum bytes of a message, drawn log-uniformly, with the share of each class."""
WorkloadStep = dict[str, Any]
Workload = dict[str, Any]


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _partitions(rng: random.Random) -> int:
    low, high = rng.choices(((1, 1), (2, 12), (13, 100), (101, 500)), (35, 45, 15, 5))[0]
    return rng.randint(low, high)


def _topic(rng: random.Random, *, large: bool) -> dict[str, Any]:
    configs: dict[str, str] = {}
    if large and rng.random() < 0.85:
        configs["max.message.bytes"] = str(LARGE_TOPIC_BYTES)
    kind = rng.choices(("plain", "compact", "stamped", "codec"), (70, 12, 8, 10))[0]
    if kind == "compact":
        configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "3000"}
    elif kind == "stamped":
        configs["message.timestamp.type"] = "LogAppendTime"
    elif kind == "codec":
        configs["compression.type"] = rng.choice(TOPIC_CODECS)
    if rng.random() < 0.2 and not large:
        configs["segment.bytes"] = str(MIB)
    return {"partitions": _partitions(rng), "configs": configs, "kind": kind, "large": large}


def _records(rng: random.Random, topic: dict[str, Any], backlog: float, sizes: str) -> list[list[Any]]:
    low, high, _ = SIZES[sizes]
    mean = max((high - low) / math.log(high / low) if low < high else low, 50)
    count = min(max(int(backlog / mean), min(topic["partitions"], 4 if low >= MIB else 20)), MOST_RECORDS)
    if count == MOST_RECORDS and backlog > 4 * count * mean:
        low = high = min(int(backlog / count), 900_000)  # otherwise a large backlog of small messages would stay small
    keys = rng.choice((0, 1, 10, 1000)) if topic["kind"] != "compact" else rng.choice((5, 50))
    headers = rng.choices((0, 1, 3), (70, 20, 10))[0]
    spread = rng.choice((1, 1000, 3_600_000))
    tombstones = 0.1 if keys and rng.random() < 0.3 else 0.0
    even = rng.random() < 0.7
    rows = []
    for i in range(count):
        partition = i % topic["partitions"] if even else min(rng.randrange(1 << 16), topic["partitions"] - 1)
        size = int(_log_uniform(rng, low, high)) if low < high else low
        key = f"key-{rng.randrange(keys)}" if keys else None
        rows.append([partition, key, -1 if rng.random() < tombstones else size, rng.randrange(spread), headers])
    return rows


def _produce(rng: random.Random, topics: list[dict[str, Any]], index: int, backlog: float, number: int) -> WorkloadStep:
    topic = topics[index]
    names = [name for name in SIZES if topic["large"] == (SIZES[name][0] >= MIB)]
    sizes = rng.choices(names, [SIZES[name][2] for name in names])[0]
    client = rng.choice(PRODUCERS)
    records = _records(rng, topic, backlog, sizes)
    transaction = None
    if rng.random() < 0.25:
        size = rng.choice((1, 5, 50, 400))
        aborts = (0, 2, 3) if topic["kind"] != "compact" else (0, 0, 0)  # the cleaner removes aborted records
        leave_open = rng.random() < 0.6
        if leave_open and rng.random() < 0.6:
            size = len(records)
        transaction = {
            "id": f"transaction-{number}",
            "size": max(size, len(records) // 30),
            "aborts": rng.choice(aborts),
            "leave_open": leave_open,
        }
    too_large = topic["large"] and "max.message.bytes" not in topic["configs"]
    settings = producer_settings(rng, client, large=topic["large"], transactional=transaction is not None)
    return {
        "do": "produce",
        "client": client,
        "topic": index,
        "seed": rng.randrange(1 << 31),
        "text": rng.random() < 0.5,
        "records": records,
        "sync": too_large or (len(records) < 100 and rng.random() < 0.2),
        "transaction": transaction,
        "settings": settings,
        "handle": f"handle-{number}",
    }


def _consume(
    rng: random.Random, topics: list[dict[str, Any]], client: str, backlog: float, number: int
) -> WorkloadStep:
    # Behind an unusual frame that they cannot read only some clients continue; `_frames` has those.
    known = [i for i, topic in enumerate(topics) if topic["kind"] != "frames"]
    indices = sorted(rng.sample(known, rng.randint(1, len(known))))
    in_group = rng.random() < 0.35
    is_small = backlog < 30 * MIB
    return {
        "do": "consume",
        "client": client,
        "topics": indices,
        "group": f"group-{number}" if in_group else None,
        "members": rng.choices((1, 2, 3), (60, 25, 15))[0] if in_group else 1,
        "settings": consumer_settings(rng, client, in_group=in_group, small=is_small),
        "start": rng.choices(("beginning", "zero", "middle"), (70, 15, 15))[0],
        "linger_s": 2.5 if rng.random() < 0.3 else 0.0,
        "delete": None,
    }


def _list_offsets(rng: random.Random, topics: list[dict[str, Any]], index: int) -> WorkloadStep:
    times = [-1, -2, -3, 0, rng.randrange(1000), rng.randrange(3_600_000)]
    version = rng.choice((7, 8, 9, 10))
    if version >= 8:
        times.append(-4)
    if version >= 9:
        times.append(-5)
    partitions = rng.sample(range(topics[index]["partitions"]), min(topics[index]["partitions"], 8))
    return {
        "do": "list offsets",
        "topic": index,
        "version": version,
        "times": times,
        "partitions": sorted(partitions),
        "kind": topics[index]["kind"],
    }


def _batches(rng: random.Random, topics: list[dict[str, Any]], index: int, backlog: float) -> WorkloadStep:
    out = []
    size = int(_log_uniform(rng, 10, 3 * MIB if topics[index]["large"] else 100_000))
    count = max(1, min(20, 200_000 // max(size, 1)))
    number = max(2 * min(topics[index]["partitions"], 20), min(100, int(backlog / 8 / (count * max(size, 1)))))
    for i in range(min(number, max(2, int(60 * MIB / (count * max(size, 1)))))):
        codec = rng.choices(range(5), (6, 1, 1, 1, 1))[0]
        out.append([i % min(topics[index]["partitions"], 20), count, size, codec])
    return {"do": "batches", "topic": index, "seed": rng.randrange(1 << 31), "batches": out}


def _fetch(rng: random.Random, topics: list[dict[str, Any]], index: int) -> WorkloadStep:
    count = min(topics[index]["partitions"], 20)
    limits = (1, 11, 1000, 65_536, MIB, 50 * MIB)
    limit = rng.choice(limits)
    rows = [[x, rng.choice((0, 0, 0, 1, 7)), limit] for x in rng.sample(range(count), rng.randint(1, count))]
    quiet = rng.random() < 0.3
    if quiet:
        rows = [[x, "end", limit] for x, _, limit in rows]
    return {
        "do": "fetch",
        "topic": index,
        "version": rng.randint(4, 17),
        "partitions": rows,
        "max_bytes": rng.choice(limits),
        "min_bytes": rng.choice((0, 1, 1, 5000, 1 << 30)),
        "max_wait_ms": 700,
        "isolation": rng.randint(0, 1),
        "unknown_topic": rng.random() < 0.3,
    }


def _raw(rng: random.Random, topics: list[dict[str, Any]], backlog: float) -> list[WorkloadStep]:
    """Return batches made by the runner, in a topic of their own.

    Both brokers hold the same ones, so Fetch must return the same.
    """
    large = rng.random() < 0.3
    configs = {"max.message.bytes": str(LARGE_TOPIC_BYTES)} if large else {}
    topics.append({"partitions": rng.randint(1, 20), "configs": configs, "kind": "raw", "large": large})
    index = len(topics) - 1
    return [_batches(rng, topics, index, backlog), *(_fetch(rng, topics, index) for _ in range(5))]


def _frames(rng: random.Random, topics: list[dict[str, Any]]) -> list[WorkloadStep]:
    """Return batches in unusual forms, each in a partition of its own, and consumers of the accepted ones."""
    plain, codec = len(topics), rng.choice(TOPIC_CODECS)
    topics.append({"partitions": FRAME_PARTITIONS, "configs": {}, "kind": "frames", "large": False})
    topics.append({**topics[-1], "configs": {"compression.type": codec}})
    steps: list[WorkloadStep] = []
    for partition, kind in enumerate(rng.sample(sorted(FRAMES), FRAME_PARTITIONS)):
        step = {"do": "frame", "topic": plain + rng.randint(0, 1), "kind": kind, "partition": partition}
        step |= {"seed": rng.randrange(1 << 31), "size": rng.choice((9000, 100_000, 400_000))}
        if kind in UNCHECKED_FAULTS:
            if kind.startswith(codec):
                continue
            step["topic"] = plain + 1
        steps.append(step)
    for number, client in enumerate(("java", "confluent")):
        reader = _consume(rng, topics, client, 0, 10 + number)
        reader |= {"topics": [plain, plain + 1], "members": 1, "start": "beginning"}
        steps.append({**reader, "timeout_s": FRAMES_S})  # librdkafka stays before a batch it cannot read
    return steps


def _deletion(rng: random.Random, topics: list[dict[str, Any]], number: int) -> WorkloadStep:
    """Return a consumer of several topics that reads them to their ends and continues, while one of them is deleted."""
    step = _consume(rng, topics, rng.choice(PRODUCERS), 0, number)
    known = [i for i, topic in enumerate(topics) if topic["kind"] != "frames"]
    step |= {"topics": known, "start": "beginning", "linger_s": 5.0, "members": 1}
    return {**step, "delete": rng.choice(known)}


def generate_workload(seed: int) -> Workload:
    """Return the workload of a seed."""
    rng = random.Random(seed)
    is_big = seed % BIG_SEED_EVERY == 0
    backlog = BIG_BACKLOG_BYTES if is_big else _log_uniform(rng, 256 * KIB, 256 * MIB)
    large = rng.random() < 0.25
    topics = [_topic(rng, large=large) for _ in range(rng.choices((1, 2, 3), (50, 35, 15))[0])]
    steps: list[WorkloadStep] = []
    count = rng.randint(1, 3)
    for number in range(count):
        index = rng.choice([i for i, topic in enumerate(topics) if topic["kind"] != "raw"])
        step = _produce(rng, topics, index, backlog / count, number)
        steps.append(step)
        if step["transaction"] and step["transaction"]["leave_open"]:
            steps.append(_list_offsets(rng, topics, index))
        if rng.random() < 0.3:
            steps += _raw(rng, topics, backlog)
        if rng.random() < 0.3:
            steps.append(_list_offsets(rng, topics, index))
        if rng.random() < 0.12:
            steps.append({"do": "delete records", "topic": index, "part": rng.choice((0.0, 0.3, 0.9, 1.0))})
            steps.append(_list_offsets(rng, topics, index))
        if rng.random() < 0.06:
            steps.append({"do": "restart", "kill": rng.random() < 0.5})
    return {"seed": seed, "backlog": int(backlog), "topics": topics, "steps": _ending(rng, steps, topics, backlog)}


def _ending(
    rng: random.Random, steps: list[WorkloadStep], topics: list[dict[str, Any]], backlog: float
) -> list[WorkloadStep]:
    clients = rng.sample(PRODUCERS, 2 if backlog > 100 * MIB else rng.randint(2, 4))
    is_open = [x for x in steps if x["do"] == "produce" and x["transaction"] and x["transaction"]["leave_open"]]
    steps += [_consume(rng, topics, client, backlog, i) for i, client in enumerate(clients[: len(clients) // 2])]
    for step in is_open:
        commit = rng.random() < 0.5 or topics[step["topic"]]["kind"] == "compact"
        steps.append({"do": "finish", "client": step["client"], "handle": step["handle"], "commit": commit})
        steps.append(_list_offsets(rng, topics, step["topic"]))
    if rng.random() < 0.15:
        steps += _frames(rng, topics)
    after = clients[len(clients) // 2 :]
    steps += [_consume(rng, topics, client, backlog, 20 + i) for i, client in enumerate(after)]
    if len(topics) > 1 and rng.random() < 0.5:
        steps.append(_deletion(rng, topics, 30))
    return steps
