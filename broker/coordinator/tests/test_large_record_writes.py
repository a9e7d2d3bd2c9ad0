"""Large records that a shard writes: they are encoded in steps, and appended only while the shard is active."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.coordinator.record_batches import encode_records
from ottla.broker.tests.coordinator_runtime_fixture import (
    E,
    Pair,
    RegisterRuntime,
    code_of,
    start_leading,
    with_runtime,
)
from ottla.jobs.job import Job, run_to_end
from ottla.jobs.state_machine import Effects, RequestReply
from ottla.wire.errors import WireError

STEPS = 80


@pytest.fixture(autouse=True)
def pauses_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.jobs.time_slice.BACKGROUND_SLICE_MS", 0.0)


class PutInSlice:
    """Event with one record and one reply, both written in a slice."""

    def __init__(self, pending: Any, slice_pending: Any) -> None:
        self.pending_request = pending
        self.slice_pending = slice_pending


def start_with_slow_encoding() -> tuple[RegisterRuntime, PendingBrokerRequest, PendingBrokerRequest]:
    """Return a shard with a record that is encoded in ``STEPS`` steps, and an event that writes one."""
    fixture = start_leading(RegisterRuntime(followed=False))
    encode = fixture.shard._serde.encode

    def encode_job(record: Pair) -> Job[tuple[bytes, bytes | None]]:
        for _ in range(STEPS):
            yield
        return encode(record)

    fixture.shard._serde = fixture.shard._serde._replace(encode_job=encode_job)
    handle, slice_pending = fixture.machine.handle, PendingBrokerRequest()

    def slices(event: PutInSlice) -> Iterator[Effects[Pair]]:
        yield Effects([("a", "1")], [RequestReply(event.slice_pending, "written")])

    def handle_slices(now_ms: int, event: Any) -> Effects[Pair]:
        if isinstance(event, PutInSlice):
            return Effects(replies=[RequestReply(event.pending_request, "done")], continuation=slices(event))
        return handle(now_ms, event)

    fixture.machine.handle = handle_slices  # type: ignore[method-assign]
    return (
        fixture,
        fixture.runtime.submit_to_partition(0, lambda pending: PutInSlice(pending, slice_pending)),
        slice_pending,
    )


def test_record_encoded_in_steps_is_appended_after_last_step() -> None:
    fixture, whole, of_slice = start_with_slow_encoding()

    async def scenario() -> None:
        for _ in range(STEPS):
            assert fixture.machine.values == {}
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert fixture.machine.values == {"a": "1"}
        assert (of_slice.answer, whole.answer) == ("written", "done")

    with_runtime(fixture, scenario)


def test_shard_unloaded_while_record_is_encoded_writes_none_and_answers_all() -> None:
    fixture, whole, of_slice = start_with_slow_encoding()

    async def scenario() -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        end = fixture.replica.log.log_end_offset
        fixture.runtime.on_resignation(fixture.replica)
        await trio.testing.wait_all_tasks_blocked()
        assert fixture.replica.log.log_end_offset == end
        assert (code_of(whole), code_of(of_slice)) == (E.NOT_COORDINATOR, E.NOT_COORDINATOR)

    with_runtime(fixture, scenario)


def test_encode_records_error_is_raised_while_batch_is_built() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))

    def fail(record: Pair) -> Any:
        raise WireError(record[0])
        yield

    serde = fixture.shard._serde._replace(encode=lambda record: next(fail(record)), encode_job=fail)
    encoded = iter(run_to_end(encode_records(serde, [("a", "1")])))
    with pytest.raises(WireError, match="a"):
        next(encoded)
