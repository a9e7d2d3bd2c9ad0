"""Memory budget of decoding: requests with 200,000 elements fit, counts far above the content do not.

Sources: CVE-2026-111108 and CVE-2026-111115.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Generator
from typing import Any

import pytest

from ottla.wire.api_keys import ApiKey, request_class, request_spec
from ottla.wire.codec import compiler, decode_budget
from ottla.wire.codec.decode_budget import DecodeBudget, estimate_instance_bytes
from ottla.wire.codec.schema import FieldSpec, Message, fields_of
from ottla.wire.errors import WireError
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import OffsetCommitRequestPartition
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

MIB = 1 << 20


def run(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def spent_bytes(message: Message, version: int) -> int:
    """Return the bytes that decoding a message charges to its budget."""
    raw = compiler.encode(message, version)
    paid = DecodeBudget(len(raw))
    before = paid.remaining_bytes + paid.remaining_early_bytes
    run(compiler.decode_job(type(message), version, raw, 0, paid))
    return before - paid.remaining_bytes - paid.remaining_early_bytes


@pytest.mark.parametrize(
    ("request_bytes", "for_all", "for_elements"),
    [
        (0, 16 * MIB, 0),
        (1, 16 * MIB + 2, 4),
        (8 * MIB, (16 + 16) * MIB, 32 * MIB),
        (8 * MIB + 1, (16 + 16) * MIB + 2, 32 * MIB),
        (100 * MIB, (16 + 200) * MIB, 32 * MIB),
    ],
)
def test_decode_budget_is_16_mib_plus_twice_the_request_and_early_elements(
    request_bytes: int, for_all: int, for_elements: int
) -> None:
    fresh = DecodeBudget(request_bytes)
    assert (fresh.remaining_bytes, fresh.remaining_early_bytes) == (for_all, for_elements)


def test_charge_elements_uses_the_early_budget_first() -> None:
    left = DecodeBudget(100)
    left.charge_elements(399)
    assert (left.remaining_early_bytes, left.remaining_bytes) == (1, 16 * MIB + 200)
    left.charge_elements(1)
    assert (left.remaining_early_bytes, left.remaining_bytes) == (0, 16 * MIB + 200)
    left.charge_elements(3)
    assert (left.remaining_early_bytes, left.remaining_bytes) == (0, 16 * MIB + 197)
    left.charge(7)
    left.charge_elements(16 * MIB + 190)
    with pytest.raises(WireError, match="far more memory"):
        left.charge_elements(1)


def test_charge_one_byte_above_the_budget_raises_wire_error() -> None:
    left = DecodeBudget(0)
    left.charge(16 * MIB)
    left.charge(0)
    with pytest.raises(WireError, match="far more memory"):
        left.charge(1)


@pytest.mark.parametrize(
    ("message", "version", "cost"),
    [
        (FindCoordinatorRequest(coordinator_keys=[""] * 100), 6, 100 * (9 + 32)),
        (FindCoordinatorRequest(coordinator_keys=["abc"]), 6, 41 + "abc".__sizeof__()),
        (
            OffsetFetchRequest("", [OffsetFetchRequestTopics("", partition_indexes=[7] * 100)]),
            7,
            9 + 32 + 64 + 100 * 41,
        ),
        (CreateTopicsRequest([CreatableTopic("")] * 10), 7, 10 * (9 + 16 + 5 * 8 + 2 * 64 + 2 * 32)),
        (FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(7)])]), 18, 9 + 136 + 9 + 16 + 8 * 8 + 6 * 32),
    ],
)
def test_decode_charges_elements_and_strings(message: Message, version: int, cost: int) -> None:
    assert spent_bytes(message, version) == cost


def test_decode_charges_present_tagged_number() -> None:
    def of(partition: FetchPartition) -> int:
        return spent_bytes(FetchRequest(topics=[FetchTopic(partitions=[partition])]), 17)

    assert of(FetchPartition(7, replica_directory_id=b"x" * 16)) == of(FetchPartition(7)) + decode_budget.NUMBER_BYTES


def test_estimate_instance_bytes_is_within_25_percent_of_measured_size() -> None:
    def real(make: Any) -> float:
        tracemalloc.start()
        kept = [make(n) for n in range(1000, 3000)]
        size = tracemalloc.get_traced_memory()[0] / len(kept)
        tracemalloc.stop()
        return size

    for cls, version, make in (
        (OffsetCommitRequestPartition, 8, lambda n: OffsetCommitRequestPartition(n, 10**9 + n, n + 5000, "")),
        (FetchPartition, 12, lambda n: FetchPartition(n, n + 5000, 10**9 + n, n + 9000, 10**10 + n, 10**6 + n)),
        (CreatableTopic, 7, lambda n: CreatableTopic("", n, n + 5000)),
    ):
        assert estimate_instance_bytes(cls, version) == pytest.approx(real(make), rel=0.25)


MANY = 400_000
HOSTILE: dict[str, tuple[int, Callable[[], Message]]] = {
    "empty structs": (7, lambda: CreateTopicsRequest([CreatableTopic("")] * (4 * MANY))),
    "empty structs in one": (
        8,
        lambda: OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup("", topics=[OffsetFetchRequestTopics(partition_indexes=[])] * MANY)]
        ),
    ),
    "empty arrays in structs": (12, lambda: FetchRequest(topics=[FetchTopic("")] * MANY)),
    "numbers": (7, lambda: OffsetFetchRequest("g", [OffsetFetchRequestTopics(partition_indexes=[7] * (8 * MANY))])),
    "wide texts": (6, lambda: FindCoordinatorRequest(coordinator_keys=["\U0001f600" + "x" * 32_000] * 400)),
    "empty texts": (6, lambda: FindCoordinatorRequest(coordinator_keys=[""] * (3 * MANY))),
    "names": (9, lambda: MetadataRequest([MetadataRequestTopic(name="")] * (3 * MANY))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_decode_hostile_request_raises_wire_error_in_bounded_memory(name: str) -> None:
    """Elements of a few bytes became objects of 100 bytes before authentication (CVE-2026-111108)."""
    version, make = HOSTILE[name]
    message = make()
    raw = compiler.encode(message, version)
    steps = compiler.decode_job(type(message), version, raw, 0, DecodeBudget(len(raw)))
    tracemalloc.start()
    with pytest.raises(WireError, match="far more memory"):
        run(steps)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 16 * MIB + 6 * len(raw) + MIB


# ---------------------------------------------------------------- valid requests

HONEST = """
    PRODUCE FETCH LIST_OFFSETS METADATA OFFSET_COMMIT OFFSET_FETCH FIND_COORDINATOR JOIN_GROUP LEAVE_GROUP
    SYNC_GROUP DESCRIBE_GROUPS DELETE_TOPICS DELETE_RECORDS OFFSET_FOR_LEADER_EPOCH TXN_OFFSET_COMMIT
    CREATE_ACLS DELETE_ACLS DESCRIBE_CONFIGS ALTER_CONFIGS INCREMENTAL_ALTER_CONFIGS DESCRIBE_LOG_DIRS
    DELETE_GROUPS ELECT_LEADERS LIST_PARTITION_REASSIGNMENTS OFFSET_DELETE DESCRIBE_PRODUCERS
    DESCRIBE_TRANSACTIONS LIST_TRANSACTIONS CONSUMER_GROUP_HEARTBEAT CONSUMER_GROUP_DESCRIBE
    DESCRIBE_TOPIC_PARTITIONS VOTE FETCH_SNAPSHOT
"""
ELEMENTS = 200_000
SCALE = 100


def fits(message: Message, version: int) -> bool:
    """Return True if a message `SCALE` times as long stays within the budget of its bytes."""
    raw = compiler.encode(message, version)
    usual, large = DecodeBudget(len(raw) * SCALE), DecodeBudget(len(raw))
    run(compiler.decode_job(type(message), version, raw, 0, large))
    before = DecodeBudget(len(raw))
    texts = before.remaining_bytes - large.remaining_bytes
    try:
        usual.charge_elements(SCALE * (before.remaining_early_bytes - large.remaining_early_bytes))
        usual.charge(SCALE * texts)
    except WireError:
        return False
    return True


def typical_value(spec: FieldSpec, number: int) -> Any:
    """Return a value of typical size."""
    large = {"int16": 20_000, "uint16": 9092, "int32": 1_000_000_000, "int64": 10**12}
    match spec.kind.removeprefix("[]"):
        case "string":
            return f"topic-{100_000 + number}"
        case "uuid":
            return number.to_bytes(16, "big")
        case "bytes" | "records":
            return bytes(70)
        case "float64":
            return 0.5
        case kind:
            return large.get(kind, 0) + number % 10_000 * (kind in large)


def build_instance(cls: type[Message], version: int, path: list[str], counts: list[int], number: int = 1) -> Any:
    """Return an instance with the given numbers of elements in the arrays of a path, other arrays empty."""
    values: dict[str, Any] = {}
    for spec in fields_of(cls):
        if version not in spec.versions or version in spec.tagged:
            values[spec.name] = spec.default_value()
        elif path and spec.name == path[0]:
            some = range(number, number + counts[0])
            if spec.struct is None:
                values[spec.name] = [typical_value(spec, n) for n in some]
            else:
                values[spec.name] = [build_instance(spec.struct, version, path[1:], counts[1:], n) for n in some]
        elif spec.is_array or spec.kind == "struct":
            values[spec.name] = None if version in spec.nullable else spec.default_value()
        else:
            values[spec.name] = typical_value(spec, number)
    return cls(**values)


def paths(cls: type[Message], version: int) -> list[list[str]]:
    """Return every path from a class down through its arrays."""
    out = []
    for spec in fields_of(cls):
        if spec.is_array and version in spec.versions and version not in spec.tagged:
            out.append([spec.name])
            out += [[spec.name, *rest] for rest in (paths(spec.struct, version) if spec.struct else [])]
    return out


@pytest.mark.parametrize("name", HONEST.split())
def test_decode_valid_request_of_200000_elements_fits_its_budget(name: str) -> None:
    cls, version = request_class(ApiKey[name]), request_spec(ApiKey[name]).versions.high
    some = ELEMENTS // SCALE
    for path in paths(cls, version):
        deep = len(path) - 1
        for counts in [[1] * deep + [some]] + [[1] * (deep - 1) + [some // 2, 1]] * (deep > 0):
            message = build_instance(cls, version, path, counts)
            assert fits(message, version), path
