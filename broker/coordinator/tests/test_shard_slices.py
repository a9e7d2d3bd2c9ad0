"""Long events of a shard, which run in slices."""

from __future__ import annotations

import trio
import trio.testing

from ottla.broker.coordinator.events import WriteResult
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.tests.coordinator_runtime_fixture import (
    E,
    PutManyInSlices,
    RegisterRuntime,
    code_of,
    failing_replica,
    start_leading,
    with_runtime,
)
from ottla.jobs.state_machine import RECORDS_PER_STEP
from ottla.wire.errors import ProtocolError


def test_long_event_runs_in_slices_and_later_events_wait() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            long = fixture.runtime.submit_to_partition(0, lambda t: PutManyInSlices(t, 10 * RECORDS_PER_STEP))
            assert len(fixture.machine.values) == RECORDS_PER_STEP
            after = fixture.put(("many-7", "after"))
            assert after.answer is None
            assert await long.wait() == "done"
            assert turns >= 9
            assert await after.wait() == "put"
            nursery.cancel_scope.cancel()
        assert len(fixture.machine.values) == 10 * RECORDS_PER_STEP
        assert fixture.machine.values["many-7"] == "after"
        assert fixture.put(("x", "y")).answer == "put", "and then everything goes at once again"

    with_runtime(fixture, scenario)


def test_event_shorter_than_a_slice_completes_at_once() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))
    assert fixture.runtime.submit_to_partition(0, lambda t: PutManyInSlices(t, RECORDS_PER_STEP - 1)).answer == "done"
    assert fixture.runtime.submit_to_partition(0, lambda t: PutManyInSlices(t, RECORDS_PER_STEP)).answer is None, (
        "whether there is more must be looked for"
    )


def test_append_error_in_a_slice_stops_the_event() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        fixture.shard.replica = failing_replica(fixture, ProtocolError(E.NOT_ENOUGH_REPLICAS), after=2)
        completion = PendingBrokerRequest()
        long = fixture.runtime.submit_to_partition(0, lambda t: PutManyInSlices(t, 10 * RECORDS_PER_STEP, completion))
        answer = await long.wait()
        assert answer.code is E.COORDINATOR_NOT_AVAILABLE
        await trio.testing.wait_all_tasks_blocked()
        assert completion.answer == ("settled", E.COORDINATOR_NOT_AVAILABLE)
        assert len(fixture.machine.values) == 2 * RECORDS_PER_STEP

    with_runtime(fixture, scenario)


def test_event_error_in_a_slice_is_returned_and_written_records_stay() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        completion = PendingBrokerRequest()
        long = fixture.runtime.submit_to_partition(
            0, lambda t: PutManyInSlices(t, 10 * RECORDS_PER_STEP, completion, 3 * RECORDS_PER_STEP - 1)
        )
        queued = fixture.put(("b", "2"))
        assert (await long.wait()).code is E.GROUP_MAX_SIZE_REACHED
        assert await queued.wait() == "put"
        assert completion.answer == ("settled", E.GROUP_MAX_SIZE_REACHED)
        assert len(fixture.machine.values) == 2 * RECORDS_PER_STEP + 1, "what was written before stays"

    with_runtime(fixture, scenario)


def test_shard_unloaded_between_slices_answers_long_and_queued_events() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        completion = PendingBrokerRequest()
        long = fixture.runtime.submit_to_partition(0, lambda t: PutManyInSlices(t, 10 * RECORDS_PER_STEP, completion))
        queued = fixture.put(("b", "2"))
        await trio.lowlevel.checkpoint()
        fixture.runtime.on_resignation(fixture.replica)
        assert code_of(long) is E.NOT_COORDINATOR
        assert code_of(queued) is E.NOT_COORDINATOR
        assert completion.answer == ("settled", E.NOT_COORDINATOR)
        end = fixture.replica.log.log_end_offset
        await trio.testing.wait_all_tasks_blocked()
        assert fixture.replica.log.log_end_offset == end, "nothing is written any more"
        assert [type(e) for e in fixture.machine.received].count(WriteResult) == 1

    with_runtime(fixture, scenario)


def test_event_submitted_before_tasks_start_is_processed_later() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))
    long = fixture.runtime.submit_to_partition(0, lambda t: PutManyInSlices(t, 3 * RECORDS_PER_STEP))

    async def scenario() -> None:
        assert await long.wait() == "done"

    with_runtime(fixture, scenario)
