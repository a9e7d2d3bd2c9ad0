"""Replica assignment of new partitions, manual or automatic; limits of number and size of a request's records.

Source: ``ReplicationControlManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from ottla.controller.limits import MAX_METADATA_BATCH_BYTES, MAX_RECORDS_PER_REQUEST
from ottla.controller.metadata.directory_id import default_directory_id
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration
from ottla.controller.partitions.replica_placer import RandomFunction, StripedReplicaPlacer
from ottla.jobs.job import Job
from ottla.jobs.sequences import YIELD_EVERY, first_occurrences
from ottla.wire.errors import ErrorCode, ProtocolError

T = TypeVar("T")
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."
TOO_MANY_RECORDS = "Unable to perform excessively large batch operation."


class RequestTooLarge(Exception):
    """Request that is rejected as a whole: every item gets the error ``code``."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.POLICY_VIOLATION) -> None:
        super().__init__(message)
        self.code = code


def utf8_size(texts: Iterable[str | None]) -> int:
    """Return the total size in bytes of strings in UTF-8; None counts as 0."""
    return sum(len(t) if t.isascii() else len(t.encode("utf-8", "surrogatepass")) for t in texts if t is not None)


def check_batch_limits(records_count: int, texts_bytes: int) -> None:
    """Check that the records of a request fit into one batch, by their number and the size of their strings in bytes.

    All other fields are small, and are not counted.

    Raises:
        RequestTooLarge: POLICY_VIOLATION for too many records, RECORD_LIST_TOO_LARGE for too many bytes.
    """
    if records_count > MAX_RECORDS_PER_REQUEST:
        raise RequestTooLarge(TOO_MANY_RECORDS)
    if texts_bytes > MAX_METADATA_BATCH_BYTES:
        limit = f"the maximum allowed batch size of {MAX_METADATA_BATCH_BYTES}"
        why = f"The total record(s) size of {texts_bytes} exceeds {limit}"
        raise RequestTooLarge(why, ErrorCode.RECORD_LIST_TOO_LARGE)


def refuse_all_job(
    items: Iterable[T], key: Callable[[T], Hashable], twice: set[Hashable], row: Callable[[T], Any], rows: list[Any]
) -> Job[None]:
    """Append the error row of each distinct item of a request that is rejected as a whole to ``rows``, as a job.

    Args:
        items: items of the request.
        key: returns the identity of an item.
        twice: keys of duplicate items.
        row: returns the error row of an item.
        rows: result rows of the response, to which they are appended.
    """
    for found in first_occurrences(items, key, twice):
        if found is not None:
            rows.append(row(found[0]))
        yield None


def active_brokers(image: MetadataImage, ids: Iterable[int]) -> tuple[int, ...]:
    """Return the broker ids among ``ids`` that may be in an ISR: registered, not fenced, not in controlled shutdown."""
    found = ((i, image.brokers.get(i)) for i in ids)
    return tuple(i for i, b in found if b is not None and not b.fenced and not b.in_controlled_shutdown)


def new_partition(image: MetadataImage, replicas: Sequence[int], isr: tuple[int, ...]) -> PartitionRegistration:
    """Return the state of a new partition, whose leader is the first of ``isr``; all brokers must be registered."""
    dirs = tuple(default_directory_id(image.brokers[i].log_dirs) for i in replicas)
    return PartitionRegistration(tuple(replicas), isr, isr[0], 0, 0, dirs)


def validate_manual_assignment(image: MetadataImage, replicas: Sequence[int], factor: int | None) -> None:
    """Check the replicas of a manual assignment for one partition.

    ``factor``: replication factor of the topic's other partitions; None if any number is valid.

    Raises:
        ProtocolError: INVALID_REPLICA_ASSIGNMENT: empty, a duplicate or unregistered broker, or not ``factor``
            replicas.
    """
    if not replicas:
        raise _wrong("The manual partition assignment includes an empty replica list.")
    before = None
    for broker in sorted(replicas):
        if broker not in image.brokers:
            raise _wrong(f"The manual partition assignment includes broker {broker}, but no such broker is registered.")
        if broker == before:
            raise _wrong(f"The manual partition assignment includes the broker {broker} more than once.")
        before = broker
    if factor is not None and len(replicas) != factor:
        raise _wrong(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )


def _wrong(why: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def manual_assignment(
    image: MetadataImage, assignments: Sequence[tuple[int, Sequence[int]]], factor: int | None
) -> Job[list[PartitionRegistration]]:
    """Return the partitions of manual assignments (number, replicas), in ascending order of the numbers, as a job.

    The numbers are not in the result; gaps in them are not rejected.
    ``factor``: required number of replicas; None for any, but the same for all.

    Raises:
        ProtocolError: INVALID_REPLICA_ASSIGNMENT: as `validate_manual_assignment`, a duplicate number, no live replica.
    """
    made: dict[int, PartitionRegistration] = {}
    for number, replicas in assignments:
        if number in made:
            raise _wrong(f"Found multiple manual partition assignments for partition {number}")
        validate_manual_assignment(image, replicas, factor)
        factor = len(replicas)
        isr = active_brokers(image, replicas)
        if not isr:
            raise _wrong(
                f"All brokers specified in the manual partition assignment for partition {number} are fenced or in "
                "controlled shutdown."
            )
        made[number] = new_partition(image, replicas, isr)
        if len(made) % YIELD_EVERY == 0:  # the client chooses the numbers
            yield None
    return [made[number] for number in sorted(made)]


def automatic_assignment(
    image: MetadataImage, count: int, factor: int, random: RandomFunction
) -> Job[list[PartitionRegistration]]:
    """Return ``count`` new partitions, for each of which `StripedReplicaPlacer` chooses ``factor`` replicas, as a job.

    Raises:
        ProtocolError: INVALID_REPLICATION_FACTOR: too few usable brokers.
    """
    placer = StripedReplicaPlacer(image, factor, random)
    made: list[PartitionRegistration] = []
    for number in range(count):
        replicas = placer.place_next()
        made.append(new_partition(image, replicas, active_brokers(image, replicas)))
        if number % YIELD_EVERY == 0:
            yield None
    return made
