"""Events of a shard: order of responses, reads and failures."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing

from ottla.broker.coordinator.errors import to_client_error
from ottla.broker.coordinator.events import ShardUnloaded
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.coordinator.shard import MAX_EVENTS_PER_PASS, CoordinatorState
from ottla.broker.tests.coordinator_runtime_fixture import (
    E,
    Pair,
    ParkRequest,
    PutAndCount,
    PutManyInSlices,
    PutWithResult,
    RegisterRuntime,
    code_of,
    failing_replica,
    start_leading,
    with_runtime,
)
from ottla.jobs.state_machine import RECORDS_PER_STEP
from ottla.log.log_config import LogConfig
from ottla.wire.errors import ErrorCode, ProtocolError

# ---------------------------------------------------------------------- an event


@pytest.mark.behaviour("C-101")
def test_response_is_sent_when_high_watermark_reaches_its_records() -> None:
    fixture = start_leading(RegisterRuntime())
    first, second = fixture.put(("a", "1")), fixture.put(("b", "2"))
    assert fixture.machine.values == {"a": "1", "b": "2"}, "replayed behind the append"
    assert (first.answer, second.answer) == (None, None)
    fixture.replica.log.set_high_watermark(1)
    fixture.runtime.on_high_watermark_updated(fixture.replica)
    assert (first.answer, second.answer) == ("put", None)
    assert len(fixture.timers._armed) == 1
    fixture.commit()
    assert second.answer == "put"
    assert fixture.timers._armed == {}, "nobody is watched any more"


def test_response_without_followers_is_sent_at_once() -> None:
    assert start_leading(RegisterRuntime(followed=False)).put(("a", "1")).answer == "put"


@pytest.mark.behaviour("C-102")
def test_response_without_records_waits_for_earlier_records() -> None:
    fixture = start_leading(RegisterRuntime())
    fixture.put(("a", "1"))
    look = fixture.put()
    assert look.answer is None
    fixture.commit()
    assert look.answer == "put"
    assert fixture.put().answer == "put"


def test_unconditional_reply_is_sent_before_records_are_committed() -> None:
    fixture = start_leading(RegisterRuntime())
    fixture.put(("a", "1"))
    assert fixture.runtime.submit_to_partition(0, lambda t: PutAndCount(t, [])).answer == "1 values", (
        "nothing is committed"
    )
    fixture.shard.replica = failing_replica(fixture, ProtocolError(E.NOT_ENOUGH_REPLICAS))
    assert fixture.runtime.submit_to_partition(0, lambda t: PutAndCount(t, [("b", "2")])).answer == "1 values", (
        "whatever becomes of the records"
    )


def test_unconditional_reply_to_shard_loaded_is_sent_at_once() -> None:
    fixture = RegisterRuntime()
    fixture.greeted = PendingBrokerRequest()
    assert start_leading(fixture).shard.state is CoordinatorState.ACTIVE
    assert fixture.greeted.answer == "loaded"


@pytest.mark.behaviour("C-108")
def test_base_sequence_of_batches_is_configurable() -> None:
    fixture = start_leading(RegisterRuntime(followed=False, base_sequence=-1))
    fixture.put(("a", "1"))
    assert {h.base_sequence for h, _ in fixture.replica.log.segments.batches(0)} == {-1}


@pytest.mark.behaviour("C-107", "C-103")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (E.NETWORK_EXCEPTION, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.INVALID_FETCH_SIZE, E.UNKNOWN_SERVER_ERROR),
        (E.REBALANCE_IN_PROGRESS, E.REBALANCE_IN_PROGRESS),
    ],
)
def test_append_error_is_mapped_to_client_error(error: ErrorCode, expected: ErrorCode) -> None:
    assert to_client_error(error) is expected
    fixture = start_leading(RegisterRuntime())
    fixture.shard.replica = failing_replica(fixture, ProtocolError(error))
    assert code_of(fixture.put(("a", "1"))) is expected
    assert fixture.machine.values == {}, "nothing was replayed, so nothing is rolled back"


def test_append_os_error_reports_log_directory_and_answers_not_coordinator() -> None:
    fixture = start_leading(RegisterRuntime())
    error = OSError(5, "gone")
    fixture.shard.replica = failing_replica(fixture, error)
    assert code_of(fixture.put(("a", "1"))) is E.NOT_COORDINATOR
    assert fixture.failures == [(error, fixture.replica.log)]


def test_append_os_error_unloading_shard_answers_each_request_once() -> None:
    fixture = start_leading(RegisterRuntime())
    parked = fixture.runtime.submit_to_partition(0, ParkRequest)
    held = fixture.put(("a", "1"))
    shard = fixture.shard
    shard.replica = failing_replica(fixture, OSError(5, "gone"))
    fixture.on_failure = shard.unload
    promised = fixture.runtime.submit_to_partition(0, lambda pending: PutWithResult(pending, [("b", "2")]))
    assert code_of(held) is E.NOT_COORDINATOR
    assert parked.answer == ("unloaded", E.NOT_COORDINATOR)
    assert promised.answer == ("settled", E.NOT_COORDINATOR)
    assert [type(e) for e in fixture.machine.received].count(ShardUnloaded) == 1


def test_write_result_is_delivered_when_record_is_committed() -> None:
    fixture = start_leading(RegisterRuntime())
    pending = fixture.runtime.submit_to_partition(0, lambda t: PutWithResult(t, [("a", "1")]))
    assert pending.answer is None
    fixture.commit()
    assert pending.answer == ("settled", E.NONE)


def test_write_result_of_refused_append_has_error() -> None:
    fixture = start_leading(RegisterRuntime())
    fixture.shard.replica = failing_replica(fixture, ProtocolError(E.NOT_ENOUGH_REPLICAS))
    pending = fixture.runtime.submit_to_partition(0, lambda t: PutWithResult(t, [("a", "1")]))
    assert pending.answer == ("settled", E.COORDINATOR_NOT_AVAILABLE)


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_write_timeout_uses_monotonic_clock(step_ms: int) -> None:
    fixture = start_leading(RegisterRuntime())

    async def scenario() -> None:
        held = fixture.put(("a", "1"))
        await trio.sleep(1)
        real = fixture.env.now_ms
        fixture.env.now_ms = lambda: real() + step_ms
        later = fixture.put(("b", "1"))
        await trio.sleep(3.9)
        assert (held.answer, later.answer) == (None, None)
        await trio.sleep(0.2)
        assert code_of(held) is E.COORDINATOR_NOT_AVAILABLE
        assert later.answer is None
        await trio.sleep(1)
        assert code_of(later) is E.COORDINATOR_NOT_AVAILABLE

    with_runtime(fixture, scenario)


@pytest.mark.behaviour("C-105")
def test_write_timeout_answers_requests_and_keeps_record() -> None:
    fixture = start_leading(RegisterRuntime())

    async def scenario() -> None:
        early = fixture.put(("a", "1"))
        promise = fixture.runtime.submit_to_partition(0, lambda t: PutWithResult(t, [("b", "2")]))
        await trio.sleep(2)
        late = fixture.put(("c", "3"))
        await trio.sleep(2.999)
        assert early.answer is None
        await trio.sleep(0.002)
        assert code_of(early) is E.COORDINATOR_NOT_AVAILABLE
        assert promise.answer == ("settled", E.COORDINATOR_NOT_AVAILABLE)
        assert late.answer is None
        fixture.commit()
        assert late.answer == "put"
        assert fixture.machine.values == {"a": "1", "b": "2", "c": "3"}
        assert fixture.put(("d", "4")).answer is None
        await trio.sleep(10)

    with_runtime(fixture, scenario)


def test_write_timeout_does_not_apply_to_committed_records() -> None:
    fixture = start_leading(RegisterRuntime())

    async def scenario() -> None:
        first = fixture.put(("a", "1"))
        await trio.sleep(3)
        fixture.commit()
        second = fixture.put(("b", "2"))
        await trio.sleep(4)
        assert (first.answer, second.answer) == ("put", None), "the first one's time is not the second's"
        await trio.sleep(1.1)
        assert code_of(second) is E.COORDINATOR_NOT_AVAILABLE

    with_runtime(fixture, scenario)


def test_many_records_are_split_into_batches_and_oversized_record_is_refused() -> None:
    fixture = start_leading(RegisterRuntime(followed=False, settings=replace(LogConfig(), max_message_bytes=500)))
    assert fixture.put(*((f"k{n}", "v" * 50) for n in range(20))).answer == "put"
    batches = list(fixture.replica.log.segments.batches(0))
    assert len(batches) > 2
    assert all(len(raw) <= 500 for _, raw in batches)
    assert sum(h.records_count for h, _ in batches) == 20
    assert len(batches[0][1]) > 350, "as few batches as fit"
    assert {h.base_sequence for h, _ in batches} == {0}
    assert code_of(fixture.put(("small", "1"), ("big", "v" * 600), ("never", "1"))) is E.UNKNOWN_SERVER_ERROR
    assert fixture.machine.values["small"] == "1", "what was appended before stays"
    assert "never" not in fixture.machine.values


@pytest.mark.parametrize(("pair", "batches"), [(("k" * 79, "v" * 0), 1), (("k" * 30, "v" * 50), 2)])
def test_batch_may_have_exactly_max_message_bytes(pair: Pair, batches: int) -> None:
    limit = 61 + 2 * (21 + 79)
    fixture = start_leading(RegisterRuntime(followed=False, settings=replace(LogConfig(), max_message_bytes=limit)))
    fixture.put(pair, pair)
    assert len(list(fixture.replica.log.segments.batches(0))) == batches


def test_records_are_replayed_at_their_offsets() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))
    fixture.put(("a", "1"), ("b", "1"), ("c", "1"))
    fixture.put(("a", "2"), ("b", "2"))
    assert fixture.machine.offsets == [0, 1, 2, 3, 4]


def test_queued_events_are_processed_in_slices() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        fixture.runtime.submit_to_partition(0, lambda t: PutManyInSlices(t, RECORDS_PER_STEP))
        tickets = [fixture.put(("a", "1")) for _ in range(10 * MAX_EVENTS_PER_PASS)]
        turns = 0
        while tickets[-1].answer is None:
            turns += 1
            await trio.lowlevel.checkpoint()
        assert 6 <= turns <= 24

    with_runtime(fixture, scenario)


@pytest.mark.behaviour("C-106")
def test_log_appended_by_another_writer_reloads_shard() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        fixture.put(("a", "1"))
        parked = fixture.runtime.submit_to_partition(0, ParkRequest)
        fixture.write(b"foreign")
        assert code_of(fixture.put(("b", "2"))) is E.NOT_COORDINATOR
        assert parked.answer == ("unloaded", E.NOT_COORDINATOR)
        assert code_of(fixture.put()) is E.COORDINATOR_LOAD_IN_PROGRESS
        await trio.testing.wait_all_tasks_blocked()
        assert fixture.machine.values == {"a": "1", "foreign": "v", "b": "2"}
        assert fixture.put(("c", "3")).answer == "put"

    with_runtime(fixture, scenario)


# ---------------------------------------------------------------------- reading


def test_read_barrier_completes_when_earlier_records_are_committed() -> None:
    fixture = start_leading(RegisterRuntime())
    assert fixture.shard.read_barrier() is None
    fixture.put(("a", "1"))
    pending = fixture.shard.read_barrier()
    assert pending is not None
    assert pending.answer is None
    fixture.commit()
    assert pending.answer is True
    assert fixture.shard.read_barrier() is None


def test_read_barrier_of_unloaded_shard_returns_not_coordinator() -> None:
    fixture = start_leading(RegisterRuntime())
    fixture.put(("a", "1"))
    pending = fixture.shard.read_barrier()
    fixture.runtime.on_resignation(fixture.replica)
    assert pending is not None
    assert code_of(pending) is E.NOT_COORDINATOR
