"""Murmur2 hash of record keys, by which Kafka's default partitioner selects the partition.

Source: ``Utils.murmur2``, ``BuiltInPartitioner.partitionForKey`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from functools import lru_cache

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 hash of ``data``, unsigned."""
    size = len(data)
    value = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if whole < size:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


@lru_cache(maxsize=4096)
def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition, from 0, of a key: its murmur2 hash without the sign bit, modulo ``partition_count``."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
