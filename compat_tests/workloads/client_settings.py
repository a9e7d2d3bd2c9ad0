"""Settings of clients, drawn: the client's defaults most often."""

from __future__ import annotations

import random

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC_CODECS = ("uncompressed", *CODECS[1:])
"""Values of the topic setting ``compression.type``, except ``producer``, its default."""
LARGE_REQUEST_BYTES = 26_000_000
"""Request size limit of a producer for a message of 20 MB."""
REQUEST_TIMEOUT_MS = 110_000
"""Timeout of requests of many megabytes, on a busy machine; below the delivery timeout."""
TRANSACTION_TIMEOUT_MS = 600_000
"""Longer than a seed takes: a transaction left open stays open."""
DEFAULTS = 0.6
"""Share of clients with default settings."""


def producer_settings(rng: random.Random, client: str, *, large: bool, transactional: bool) -> dict[str, str]:
    """Draw the settings of a producer, in the Java client's names."""
    out: dict[str, str] = {}
    if rng.random() < 0.75:
        out["compression.type"] = rng.choice(CODECS)
    if rng.random() > DEFAULTS:
        out["linger.ms"] = rng.choice(("0", "5", "50"))
        if client != "franz-go":
            out["batch.size"] = rng.choice(("1000", "16384", "500000"))
    if large:
        out["max.request.size"] = str(LARGE_REQUEST_BYTES)
        if client in ("java", "kafka-python", "aiokafka"):
            out["request.timeout.ms"] = str(REQUEST_TIMEOUT_MS)
    if transactional:
        out["transaction.timeout.ms"] = str(TRANSACTION_TIMEOUT_MS)
    elif rng.random() < 0.2:
        out |= {"acks": "1", "enable.idempotence": "false"}
    return out


def consumer_settings(rng: random.Random, client: str, *, in_group: bool, small: bool) -> dict[str, str]:
    """Draw the settings of a consumer, in the Java client's names.

    With a small backlog the limits may be small, too: a fetch for each record, or a wait for each fetch.
    """
    out: dict[str, str] = {}
    if rng.random() < 0.4:
        out["isolation.level"] = "read_committed"
    if in_group and rng.random() < 0.4 and client in ("java", "confluent"):
        out["group.protocol"] = "consumer"
    if rng.random() < DEFAULTS:
        return out
    if rng.random() < 0.5:
        out["fetch.max.bytes"] = rng.choice(("1", "5000", "1000000", "60000000") if small else ("5000000", "60000000"))
    if rng.random() < 0.5:
        limits = ("1", "3000", "65536", "10000000") if small else ("1000000", "10000000")
        out["max.partition.fetch.bytes"] = rng.choice(limits)
    if rng.random() < 0.4:
        out["fetch.max.wait.ms"] = rng.choice(("10", "100", "500"))
    if rng.random() < 0.3:
        out["fetch.min.bytes"] = rng.choice(("1000", "2000000"))
        out["fetch.max.wait.ms"] = "10"
    if rng.random() < 0.4 and client != "confluent":
        out["max.poll.records"] = rng.choice(("10", "500", "5000"))
    return out
