"""The ten commonest client tests with faults, each with five stock clients that do what they document."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ottla
from compat_tests.faults.client_jobs import CLIENTS, RECORDS, TIMEOUT_S, ClientRun, FaultStage
from compat_tests.workloads.driver_processes import ToolchainMissing

pytestmark = pytest.mark.xdist_group(__name__)
KEYS = [f"k{i}".encode() for i in range(RECORDS)]
IDEMPOTENT = {"enable.idempotence": "true"}
SEEDS = range(1, 1 + int(os.environ.get("OTTLA_FAULT_SEEDS", "1")))
"""Seeds of random faults; ``make soak`` asks for more."""

START_AGAIN_S = 60.0
"""Time after which a consumer without a Fetch is started again.

On a busy machine kafka-python 3.0.12 may send nothing after a rebalance: its network loop is busy and never waits.
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultStage]:
    try:
        with FaultStage(tmp_path_factory.mktemp("drivers") / "log") as stage:
            yield stage
    except ToolchainMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def runs(stage: FaultStage, request: pytest.FixtureRequest) -> Iterator[list[ClientRun]]:
    name = request.node.name.removeprefix("test_").translate(str.maketrans("[]", "--"))[:70]
    assert stage.broker._error is None, repr(stage.broker._error)
    yield [ClientRun(stage, client, name) for client in CLIENTS]
    stage.broker.faults.clear()


def run_all(runs: list[ClientRun], start: Callable[[ClientRun], int]) -> dict[str, dict[str, Any]]:
    """Run a job of each client at the same time; return the results by client."""
    numbers = [(run, start(run)) for run in runs]
    return {run.client: run.wait(number) for run, number in numbers}


def handles(runs: list[ClientRun], add: Callable[[ClientRun], ottla.FaultHandle]) -> dict[str, ottla.FaultHandle]:
    """Add a fault for each client."""
    return {run.client: add(run) for run in runs}


def for_each(value: Any) -> dict[str, Any]:
    return dict.fromkeys(CLIENTS, value)


def applied(faults: dict[str, ottla.FaultHandle]) -> dict[str, int]:
    return {client: handle.applied for client, handle in faults.items()}


def read_all(runs: list[ClientRun], add: Callable[[ClientRun], ottla.FaultHandle]) -> dict[str, ottla.FaultHandle]:
    """Write records, add faults, and check that each client reads all records once."""
    for run in runs:
        for key in KEYS:
            run.broker.produce(run.topic, b"value", key=key)
    faults = handles(runs, add)
    results = run_all(runs, lambda run: run.start_consume())
    assert {run.client: run.offsets(results[run.client]) for run in runs} == for_each([*range(RECORDS)]), results
    assert {client: result["stop"] for client, result in results.items()} == for_each("end")
    return faults


def test_retries_after_a_retriable_error(runs: list[ClientRun]) -> None:
    faults = handles(
        runs, lambda run: run.broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS", topic=run.topic, times=2)
    )
    assert run_all(runs, lambda run: run.start_produce(IDEMPOTENT)) == for_each({"failed": {}})
    assert applied(faults) == for_each(2)
    assert {run.client: run.stored_keys() for run in runs} == for_each(KEYS)


def test_timeout_of_a_request_without_response(runs: list[ClientRun]) -> None:
    faults = handles(runs, lambda run: run.broker.faults.drop("Produce", topic=run.topic, times=1))
    settings = {
        "java": {"request.timeout.ms": "3000"},
        "confluent": {"socket.timeout.ms": "3000"},
        "kafka-python": {"request.timeout.ms": "3000"},
        "aiokafka": {"request.timeout.ms": "3000"},
        "franz-go": {"request.timeout.ms": "3000"},
    }
    results = run_all(runs, lambda run: run.start_produce({**IDEMPOTENT, **settings[run.client]}))
    assert applied(faults) == for_each(1)
    assert results == for_each({"failed": {}})
    assert {run.client: run.stored_keys() for run in runs} == for_each(KEYS)


def test_leader_change_makes_clients_refresh_metadata(runs: list[ClientRun]) -> None:
    faults = handles(
        runs, lambda run: run.broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic=run.topic, on_call=3)
    )
    refreshed = handles(runs, lambda run: run.broker.faults.delay("Metadata", 0, client_id=run.client_id))
    assert run_all(runs, lambda run: run.start_produce(IDEMPOTENT)) == for_each({"failed": {}})
    assert applied(faults) == for_each(1)
    assert {client: handle.calls >= 2 for client, handle in refreshed.items()} == for_each(True)
    assert {run.client: run.stored_keys() for run in runs} == for_each(KEYS)


def test_leader_change_moves_no_consumer_backwards(runs: list[ClientRun]) -> None:
    faults = read_all(
        runs, lambda run: run.broker.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=run.topic, times=2)
    )
    assert applied(faults) == for_each(2)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_neither_lose_nor_repeat_a_record(runs: list[ClientRun], seed: int) -> None:
    chances = {"probability": 0.15, "seed": seed}
    for run in runs:
        add = run.broker.faults
        add.disconnect("Produce", handled=True, topic=run.topic, **chances)
        add.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic=run.topic, probability=0.15, seed=seed + 1)
    assert run_all(runs, lambda run: run.start_produce(IDEMPOTENT)) == for_each({"failed": {}})
    assert {run.client: run.stored_keys() for run in runs} == for_each(KEYS)
    for run in runs:
        add = run.broker.faults
        add.half_response("Fetch", topic=run.topic, **chances)
        add.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=run.topic, probability=0.15, seed=seed + 1)
        add.error("ListOffsets", "NOT_LEADER_OR_FOLLOWER", topic=run.topic, probability=0.15, seed=seed + 2)
    results = run_all(runs, lambda run: run.start_consume())
    assert {run.client: run.offsets(results[run.client]) for run in runs} == for_each([*range(RECORDS)]), results


def test_throttling_delays_a_producer(runs: list[ClientRun]) -> None:
    faults = handles(runs, lambda run: run.broker.faults.throttle("Produce", 300, topic=run.topic, times=3))
    began_s = time.monotonic()
    assert run_all(runs, lambda run: run.start_produce(IDEMPOTENT)) == for_each({"failed": {}})
    assert time.monotonic() - began_s >= 0.9
    assert applied(faults) == for_each(3)
    assert {run.client: run.stored_keys() for run in runs} == for_each(KEYS)


def test_fenced_producer_cannot_commit(runs: list[ClientRun]) -> None:
    def start(run: ClientRun) -> int:
        transaction = {"id": f"txn-{run.client}", "size": RECORDS, "aborts": 0, "leave_open": True}
        return run.start_produce(transaction=transaction, sync=False)

    assert run_all(runs, start) == for_each({"failed": {}})
    old = ("aiokafka",)  # its versions of EndTxn know no other name for it
    code = lambda run: "INVALID_PRODUCER_EPOCH" if run.client in old else "PRODUCER_FENCED"  # noqa: E731
    faults = handles(runs, lambda run: run.broker.faults.error("EndTxn", code(run), client_id=run.client_id))
    results = run_all(runs, lambda run: run.start_finish())
    assert {client: handle.applied >= 1 for client, handle in faults.items()} == for_each(True)
    assert results == {
        "java": {"failed": {"ProducerFencedException": [0]}},
        "confluent": {"failed": {"KafkaException": [0]}},
        "kafka-python": {"failed": {"ProducerFencedError": [0]}},
        "aiokafka": {"failed": {"ProducerFenced": [0]}},
        "franz-go": {"failed": {"PRODUCER_FENCED": [0]}},
    }


def test_unknown_version_of_api_versions_is_answered_in_version_0(runs: list[ClientRun]) -> None:
    """aiokafka asks in version 0 only: it cannot fall back, and its start fails."""
    faults = handles(
        runs,
        lambda run: run.broker.faults.error("ApiVersions", "UNSUPPORTED_VERSION", client_id=run.client_id, times=1),
    )
    refused = {"aiokafka": {"failure": "KafkaConnectionError"}}
    results = run_all(runs, lambda run: run.start_produce(IDEMPOTENT))
    assert results == {**for_each({"failed": {}}), **refused}
    assert applied(faults) == for_each(1)
    assert {run.client: run.stored_keys() for run in runs} == {**for_each(KEYS), "aiokafka": []}


def test_slow_response_is_waited_for(runs: list[ClientRun]) -> None:
    faults = read_all(runs, lambda run: run.broker.faults.delay("Fetch", 1.0, topic=run.topic, times=1))
    assert applied(faults) == for_each(1)


def test_half_response_is_discarded(runs: list[ClientRun]) -> None:
    faults = read_all(runs, lambda run: run.broker.faults.half_response("Fetch", topic=run.topic, times=1))
    assert applied(faults) == for_each(1)


def test_reset_before_the_response_makes_no_duplicate(runs: list[ClientRun]) -> None:
    faults = handles(
        runs, lambda run: run.broker.faults.disconnect("Produce", handled=True, topic=run.topic, on_call=4)
    )
    assert run_all(runs, lambda run: run.start_produce(IDEMPOTENT)) == for_each({"failed": {}})
    assert applied(faults) == for_each(1)
    assert {run.client: run.stored_keys() for run in runs} == for_each(KEYS)


def test_clock_jump_ends_the_session_of_a_member_which_joins_again(runs: list[ClientRun]) -> None:
    broker = runs[0].broker
    joins = handles(runs, lambda run: run.broker.faults.delay("JoinGroup", 0, client_id=run.client_id))
    for run in runs:
        broker.produce(run.topic, *[b"first"] * RECORDS)
    reads = handles(runs, lambda run: run.broker.faults.delay("Fetch", 0, topic=run.topic))
    numbers = {run.client: run.start_consume(count=2 * RECORDS, group=run.topic) for run in runs}
    deadline_s = time.monotonic() + TIMEOUT_S
    next_start_s = time.monotonic() + START_AGAIN_S
    while not all(handle.calls >= 2 for handle in reads.values()):
        assert time.monotonic() < deadline_s, {client: handle.calls for client, handle in reads.items()}
        if time.monotonic() > next_start_s:
            for run in runs:
                if not reads[run.client].calls:
                    numbers[run.client] = run.start_consume(count=2 * RECORDS, group=run.topic)
            next_start_s = time.monotonic() + START_AGAIN_S
        time.sleep(0.05)
    before = {client: handle.calls for client, handle in joins.items()}
    next_jump_s = 0.0
    while not all(handle.calls > before[client] for client, handle in joins.items()):
        assert time.monotonic() < deadline_s, (before, {client: handle.calls for client, handle in joins.items()})
        if time.monotonic() > next_jump_s:  # a member that joins has no session that ends: it needs another jump
            broker.clock.advance(minutes=10)
            next_jump_s = time.monotonic() + 20
        time.sleep(0.05)
    for run in runs:
        broker.produce(run.topic, *[b"second"] * RECORDS)
    results = {run.client: run.wait(numbers[run.client]) for run in runs}
    seen = {run.client: sorted(set(run.offsets(results[run.client]))) for run in runs}
    assert seen == for_each([*range(2 * RECORDS)]), results
