"""Long responses between a broker and the controller: decoded and scanned in steps."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from ottla.broker.handlers.controller.tests.test_controller_listener import ControllerListenerFixture
from ottla.broker.handlers.controller.tests.test_envelope import enveloped
from ottla.broker.requests.peer import Peer
from ottla.broker.tests.controller_channel_fixture import ControllerChannelFixture, sealed_response
from ottla.broker.tests.handler_fixture import resolve, run_virtual
from ottla.jobs.time_slice import TimeSlice
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import encode_request, parse_request
from ottla.wire.messages import create_topics
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)

COUNT = 1000
CREATE = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("a", 1, 1)])
MADE = create_topics.CreateTopicsResponse(
    topics=[create_topics.CreatableTopicResult(str(n), error_message=None) for n in range(COUNT)]
)


class Pauses:
    """Counter of the pauses of all time slices, each of which is used up at once."""

    count = 0


async def count_pause(time_slice: TimeSlice) -> None:
    Pauses.count += 1
    await trio.lowlevel.checkpoint()


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pauses, "count", 0)
    monkeypatch.setattr(TimeSlice, "is_used_up", lambda self: True)
    monkeypatch.setattr(TimeSlice, "yield_now", count_pause)


def test_forwarded_response_is_decoded_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = ControllerChannelFixture(monkeypatch)
    there = fixture.add_remote(1)
    there.responses = [sealed_response(MADE, 5)]
    fixture.local_controller.address = ("h", 1)
    asking = fixture.forwardable_request(CREATE, 5)

    async def scenario() -> None:
        assert await fixture.channel.forward(asking, CREATE) == MADE

    fixture.run(scenario, there)
    assert Pauses.count >= COUNT / 100


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.NOT_CONTROLLER])
def test_envelope_response_is_scanned_for_not_controller_in_steps(code: ErrorCode) -> None:
    listener = ControllerListenerFixture()
    last = create_topics.CreatableTopicResult("last", error_code=code)
    listener.quorum.answer = create_topics.CreateTopicsResponse(topics=[*MADE.topics, last])
    frame = memoryview(encode_request(ApiKey.ENVELOPE, 0, 5, "7", enveloped(CREATE, 7))[4:])

    async def scenario() -> Any:
        peer = Peer("10.0.0.2", ("here", 9093), "CONTROLLER")
        return await resolve(listener.dispatcher.handle_request(peer, parse_request(frame)))

    assert run_virtual(scenario).error_code == code
    assert Pauses.count >= COUNT


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.NOT_CONTROLLER])
def test_controller_response_is_scanned_for_not_controller_in_steps(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    fixture = ControllerChannelFixture(monkeypatch)
    there = fixture.add_remote(1)
    parts = [AlterPartitionResponsePartitionData(n) for n in range(COUNT)]
    parts[-1].error_code = code
    answers: list[Message] = [AlterPartitionResponse(topics=[AlterPartitionResponseTopicData(bytes(16), parts)])]
    there.responses = [*answers, AlterPartitionResponse()]
    fixture.local_controller.address = ("h", 1)

    async def scenario() -> None:
        answer = await fixture.channel.submit(AlterPartitionRequest(7))
        assert len(answer.topics) == (code is ErrorCode.NONE)  # the request was repeated

    fixture.run(scenario, there)
    assert Pauses.count >= COUNT - 1
