"""Faults to plant in a node: each was in Ottla once, and drawn workloads must find it again.

``python -m compat_tests.workloads.seeded_faults NAME serve ...`` is ``ottla serve ...`` with a fault.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.offsets import list_offsets
from ottla.cli.main import main
from ottla.env.disk import FileSlice
from ottla.log import log_validator
from ottla.log.partition_log import PartitionLog
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.record_batch import compression
from ottla.wire.record_batch.compression import CompressionType


def cut_off_first_batch() -> None:
    """Cut off a batch larger than the remaining size in a Fetch, after the first partition with records."""
    real = PartitionLog.read

    def read(self: Any, offset: int, max_bytes: int, upper: int, *, at_least_one: bool) -> FileSlice | None:
        found = real(self, offset, max_bytes, upper, at_least_one=at_least_one)
        if found is not None or at_least_one or max_bytes <= 0:
            return found
        whole = real(self, offset, max_bytes, upper, at_least_one=True)
        return None if whole is None else FileSlice(whole.file, whole.offset, min(max_bytes, len(whole)))

    PartitionLog.read = read  # type: ignore[method-assign]


def unbounded_max_timestamp() -> None:
    """Let ListOffsets find the largest timestamp also above the last stable offset."""
    real = list_offsets._find

    def find(replica: Any, part: Any, upper: int, *rest: Any, **named: Any) -> Any:
        is_max = part.timestamp == list_offsets.MAX_TIMESTAMP
        return (yield from real(replica, part, replica.log.log_end_offset if is_max else upper, *rest, **named))

    list_offsets._find = find


def linked_lz4_blocks() -> None:
    """Accept lz4 frames with linked blocks, which a Java reader refuses."""
    import lz4.frame

    def pieces(data: Any, size_bytes: int) -> Iterator[bytes]:
        try:
            out = lz4.frame.decompress(bytes(data))
        except RuntimeError as error:
            raise WireError(str(error)) from None
        yield from (out[at : at + size_bytes] for at in range(0, len(out), size_bytes))

    real = log_validator.check_compressed_prefix

    def check_beginning(codec: int, data: Any) -> ErrorCode:
        return ErrorCode.NONE if codec == CompressionType.LZ4 else real(codec, data)

    compression._DECOMPRESSORS[CompressionType.LZ4] = pieces
    log_validator.check_compressed_prefix = check_beginning


def unknown_partition_ends_wait() -> None:
    """Answer a Fetch with an unknown partition at once, so a client that keeps naming it never waits."""
    fetch._UNREADABLE = ()


class WorkloadFault(NamedTuple):
    """Fault, and a pattern of the difference that it causes."""

    apply: Callable[[], None]
    expected_difference: str


WORKLOAD_FAULTS = {
    "cut-off-first-batch": WorkloadFault(
        cut_off_first_batch, r"cut off: \d+, on Kafka 0|errors: .*(KafkaException|KafkaError)"
    ),
    "unbounded-max-timestamp": WorkloadFault(unbounded_max_timestamp, r"-3, isolation 1.*on Kafka -1"),
    "linked-lz4-blocks": WorkloadFault(linked_lz4_blocks, r"lz4 linked.*on Kafka -1"),
    "unknown-partition-ends-wait": WorkloadFault(unknown_partition_ends_wait, r"held back: False|requests of API 1:"),
}


def is_detected(plant: str, differences: list[str]) -> bool:
    """Return True if differences show a planted fault."""
    return any(re.search(WORKLOAD_FAULTS[plant].expected_difference, line) for line in differences)


if __name__ == "__main__":
    WORKLOAD_FAULTS[sys.argv.pop(1)].apply()
    sys.exit(main(sys.argv[1:]))
