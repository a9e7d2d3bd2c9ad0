"""Timing of requests, and throttling of connections with too much event loop time."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.quotas.client_quotas import QuotaManagers
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time, job_of
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import metadata_records
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

BEAT = ApiKey.HEARTBEAT


# ---------------------------------------------------------------- a connection


def limited(monkeypatch: pytest.MonkeyPatch, percent: float) -> DispatcherFixture:
    fixture = DispatcherFixture(monkeypatch)
    env: Any = fixture.env
    quotas = QuotaManagers(env)
    draft = ImageBuilder(MetadataImage())
    draft.replay(
        metadata_records.ClientQuotaRecord(
            [metadata_records.EntityData("user", "ANONYMOUS")], "request_percentage", percent, False
        )
    )
    image = run_to_end(draft.image(1, 1))
    quotas.publish(image, run_to_end(draft.delta(image)))
    fixture.services.quota_holder.quotas, fixture.services.quota_holder.times_requests = quotas, True
    return fixture


def beat(number: int) -> bytes:
    return frame(BEAT, 1, number, HeartbeatRequest("g", 0, "m"))


def answered_at(fixture: DispatcherFixture, stream: ClientStream) -> list[float]:
    """Serve; return the times of the responses in seconds of the event loop's clock."""
    out: list[float] = []
    send = stream.send

    async def timed_send(chunks: Any) -> None:
        out.append(trio.current_time())
        await send(chunks)

    stream.send = timed_send  # type: ignore[method-assign]

    async def run() -> None:
        began = trio.current_time()
        await fixture.connection(stream).serve()
        out[:] = [at - began for at in out]

    in_virtual_time(run)
    return out


def test_request_over_time_quota_is_answered_and_next_read_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = limited(monkeypatch, 1)

    def handler(context: Any, request: Any) -> HeartbeatResponse:
        fixture.env.work(102)
        return HeartbeatResponse()

    fixture.serve(BEAT, handler)
    stream = ClientStream()
    stream.send_bytes(beat(1) + beat(2))
    stream.disconnect()
    times = answered_at(fixture, stream)
    waits = [answer.throttle_time_ms for _, answer in stream.responses(BEAT, 1)]  # type: ignore[attr-defined]
    assert waits[0] == pytest.approx(200, abs=2)
    assert waits[1] == 1000, "a second at most"
    assert times[1] - times[0] == pytest.approx(waits[0] / 1000, abs=0.001)


def test_wait_in_handler_is_not_request_time(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = limited(monkeypatch, 1)

    async def later() -> HeartbeatResponse:
        await trio.sleep(30)
        return HeartbeatResponse()

    fixture.serve(BEAT, lambda context, request: job_of(later()))
    stream = ClientStream()
    stream.send_bytes(beat(1))

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fixture.connection(stream).serve)
            await trio.sleep(31)
            stream.disconnect()

    in_virtual_time(run)
    ((_, answer),) = stream.responses(BEAT, 1)
    assert answer.throttle_time_ms == 0  # type: ignore[attr-defined]


def test_write_txn_markers_are_exempt_from_request_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = limited(monkeypatch, 1)

    def handler(context: Any, request: Any) -> WriteTxnMarkersResponse:
        fixture.env.work(5_000)
        return WriteTxnMarkersResponse()

    fixture.serve(ApiKey.WRITE_TXN_MARKERS, handler, quota=BROKER_APIS[ApiKey.WRITE_TXN_MARKERS].quota)
    stream = ClientStream()
    stream.send_bytes(frame(ApiKey.WRITE_TXN_MARKERS, 1, 1, WriteTxnMarkersRequest()) * 2)
    stream.disconnect()
    assert answered_at(fixture, stream) == [0.0]


def test_requests_on_controller_listener_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = limited(monkeypatch, 1)
    seen: list[Any] = []

    def handler(context: Any, request: Any) -> HeartbeatResponse:
        seen.append(context.peer.request_timer)
        return HeartbeatResponse()

    fixture.serve(BEAT, handler)
    fixture.serve(ApiKey.ENVELOPE, handler)
    stream = ClientStream()
    stream.send_bytes(beat(1))
    stream.disconnect()
    answered_at(fixture, stream)
    assert seen == [None]
