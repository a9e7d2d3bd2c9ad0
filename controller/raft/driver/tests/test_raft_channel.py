"""Channel to another controller: one request at a time, reconnection, and types of failures."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import trio

from ottla.controller.raft.driver.raft_channel import (
    BACKOFF_MAX_S,
    PeerConnectionRefusedError,
    RaftChannel,
    UnsupportedByPeer,
)
from ottla.controller.tests.controller_fixture import ControllerTestEnv
from ottla.controller.tests.test_quorum_controller import virtual
from ottla.env.memory_disk import MemoryDisk
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.framing import encode_response, parse_request
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.vote import VoteRequest, VoteResponse

ADDRESS = ("there", 9)


class ScriptedRaftConnection:
    """Connection; `ScriptedRaftNetwork.script` sets the result of each request but the first."""

    peer, local = "there", ("here", 0)

    def __init__(self, net: ScriptedRaftNetwork) -> None:
        self.net = net
        self.answers = bytearray()
        self.sent_bytes = self.received_bytes = 0
        self.broken = self.closed = False

    async def send(self, chunks: Sequence[Any]) -> None:
        if self.broken:
            raise OSError("reset")
        self.sent_bytes += sum(map(len, chunks))
        request = parse_request(memoryview(b"".join(chunks))[4:])
        if request.key is ApiKey.API_VERSIONS:
            newest = self.net.max_version
            answer: Message = ApiVersionsResponse(0, [ApiVersion(ApiKey.VOTE, 0, newest)])
        else:
            body = compiler.decode(request_class(request.key), request.version, request.frame, request.body_position)[0]
            self.net.received.append((request.client_id, request.version, body.voter_id))
            action = self.net.script.pop(0) if self.net.script else "answer"
            if action != "answer":
                self.broken = action == "reset"
                return
            answer = VoteResponse(0)
        for chunk in encode_response(request.key, request.version, request.correlation_id, answer):
            self.answers += chunk

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        await trio.lowlevel.checkpoint()
        if not self.answers:
            if self.broken:
                raise OSError("reset")
            await trio.sleep(timeout_s)
            return 0
        count = min(len(buffer), len(self.answers))
        self.received_bytes += count
        buffer[:count] = self.answers[:count]
        del self.answers[:count]
        return count

    def close(self) -> None:
        self.closed = True


class ScriptedRaftNetwork:
    """Network that refuses connections while `refuses` is set."""

    def __init__(self) -> None:
        self.refuses = False
        self.max_version = 2
        self.script: list[str] = []
        self.received: list[tuple[str, int, int]] = []
        self.connections: list[ScriptedRaftConnection] = []
        self.dialled: list[tuple[float, tuple[str, int]]] = []

    async def listen(self, host: str, port: int, buffers: Any = None) -> Any:
        raise NotImplementedError

    async def connect(self, host: str, port: int) -> ScriptedRaftConnection:
        await trio.lowlevel.checkpoint()
        self.dialled.append((trio.current_time(), (host, port)))
        if self.refuses:
            raise ConnectionRefusedError(111, "refused")
        self.connections.append(ScriptedRaftConnection(self))
        return self.connections[-1]


class RaftChannelFixture:
    """`RaftChannel` on a scripted network."""

    def __init__(self) -> None:
        self.net = ScriptedRaftNetwork()
        env = ControllerTestEnv(MemoryDisk(random.Random(1), lambda: 0), iter(()))
        env.net = self.net
        self.address: tuple[str, int] | None = ADDRESS
        self.channel = RaftChannel(env, 7, 2000, lambda to: self.address)
        self.responses: list[Any] = []
        self.response_event = trio.Event()

    def send_vote(self, voter_id: int = 1) -> None:
        def encode(version: int) -> Message:
            if version < 2 and voter_id == 99:
                raise UnsupportedByPeer("too old")
            return VoteRequest("c", voter_id)

        self.channel.send(2, ApiKey.VOTE, encode, self.on_response)

    async def answer(self, voter_id: int = 1, seconds: float = 10) -> Any:
        """Send a request and return its result."""
        self.response_event = trio.Event()
        self.send_vote(voter_id)
        with trio.fail_after(seconds):
            await self.response_event.wait()
        return self.responses[-1]

    def on_response(self, got: Any) -> None:
        self.responses.append(got)
        self.response_event.set()


async def start_channel(nursery: trio.Nursery) -> RaftChannelFixture:
    fixture = RaftChannelFixture()
    nursery.start_soon(fixture.channel.run)
    return fixture


@pytest.mark.behaviour("R-252")
@virtual
async def test_raft_channel_sends_all_requests_on_one_connection() -> None:
    async with trio.open_nursery() as nursery:
        fixture = await start_channel(nursery)
        for number in range(3):
            assert isinstance(await fixture.answer(number), VoteResponse)
        assert fixture.net.received == [("raft-client-7", 2, n) for n in range(3)]
        assert [address for _, address in fixture.net.dialled] == [ADDRESS]
        nursery.cancel_scope.cancel()
    assert all(connection.closed for connection in fixture.net.connections)


@virtual
async def test_raft_channel_waiting_request_is_replaced_by_newer_one() -> None:
    async with trio.open_nursery() as nursery:
        fixture = await start_channel(nursery)
        fixture.net.script = ["silence"]
        fixture.send_vote(1)
        await trio.sleep(0.1)
        fixture.send_vote(2)
        fixture.send_vote(3)
        assert [type(x) for x in fixture.responses] == [OSError], "the third request replaced the second"
        await trio.sleep(5)
        assert [n for _, _, n in fixture.net.received] == [1, 3]
        assert isinstance(fixture.responses[1], OSError)
        assert isinstance(fixture.responses[2], VoteResponse)
        nursery.cancel_scope.cancel()


@virtual
async def test_raft_channel_request_timeout_closes_connection() -> None:
    async with trio.open_nursery() as nursery:
        fixture = await start_channel(nursery)
        fixture.net.script = ["silence"]
        began = trio.current_time()
        assert isinstance(await fixture.answer(), OSError)
        assert 1.99 < trio.current_time() - began < 2.1
        assert fixture.net.connections[0].closed
        assert isinstance(await fixture.answer(), VoteResponse)
        assert len(fixture.net.connections) == 2
        nursery.cancel_scope.cancel()


@virtual
async def test_raft_channel_broken_idle_connection_is_reopened_transparently() -> None:
    async with trio.open_nursery() as nursery:
        fixture = await start_channel(nursery)
        await fixture.answer()
        fixture.net.connections[0].broken = True
        began = trio.current_time()
        assert isinstance(await fixture.answer(), VoteResponse)
        assert trio.current_time() - began < 0.01
        assert len(fixture.net.connections) == 2
        nursery.cancel_scope.cancel()


@virtual
async def test_raft_channel_connection_refused_differs_from_broken_connection() -> None:
    async with trio.open_nursery() as nursery:
        fixture = await start_channel(nursery)
        fixture.net.refuses = True
        assert isinstance(await fixture.answer(), PeerConnectionRefusedError)
        fixture.net.refuses = False
        await fixture.answer()
        fixture.net.script = ["reset", "reset"]
        got = await fixture.answer()
        assert isinstance(got, OSError)
        assert not isinstance(got, PeerConnectionRefusedError)
        await fixture.answer()
        fixture.net.refuses = True
        fixture.net.connections[-1].broken = True
        began = trio.current_time()
        assert isinstance(await fixture.answer(), PeerConnectionRefusedError)
        assert trio.current_time() - began < 0.01
        nursery.cancel_scope.cancel()


@pytest.mark.behaviour("R-252")
@virtual
async def test_raft_channel_connection_attempts_back_off_exponentially() -> None:
    async with trio.open_nursery() as nursery:
        fixture = await start_channel(nursery)
        fixture.net.refuses = True
        for _ in range(8):
            await fixture.answer()
        times = [at for at, _ in fixture.net.dialled]
        waits = [round(b - a, 2) for a, b in pairwise(times)]
        assert waits == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.5]
        assert max(waits) == BACKOFF_MAX_S
        fixture.net.refuses = False
        await fixture.answer()
        fixture.net.refuses, fixture.net.connections[0].broken = True, True
        await fixture.answer()
        before = trio.current_time()
        await fixture.answer()
        assert trio.current_time() - before < 0.06, "success resets the backoff"
        nursery.cancel_scope.cancel()


@virtual
async def test_raft_channel_changed_address_is_dialled_and_missing_address_fails() -> None:
    async with trio.open_nursery() as nursery:
        fixture = await start_channel(nursery)
        await fixture.answer()
        fixture.address = ("elsewhere", 1)
        await fixture.answer()
        assert [address for _, address in fixture.net.dialled] == [ADDRESS, ("elsewhere", 1)]
        assert fixture.net.connections[0].closed
        fixture.address = None
        assert isinstance(await fixture.answer(), OSError)
        assert len(fixture.net.dialled) == 2
        nursery.cancel_scope.cancel()


@virtual
async def test_raft_channel_request_unsupported_by_peer_keeps_connection() -> None:
    async with trio.open_nursery() as nursery:
        fixture = await start_channel(nursery)
        fixture.net.max_version = 1
        assert isinstance(await fixture.answer(99), UnsupportedByPeer)
        assert isinstance(await fixture.answer(99), WireError)
        assert isinstance(await fixture.answer(1), VoteResponse)
        assert len(fixture.net.connections) == 1
        nursery.cancel_scope.cancel()


@virtual
async def test_raft_channel_counts_requests_and_bytes_of_all_connections() -> None:
    async with trio.open_nursery() as nursery:
        fixture = await start_channel(nursery)
        await fixture.answer()
        traffic, sent = fixture.channel.traffic, [fixture.net.connections[0].sent_bytes]
        assert (traffic.requests, traffic.responses) == (2, 2), "ApiVersions and Vote"
        assert traffic.request_bytes == sum(sent) > 0
        assert traffic.response_bytes == fixture.net.connections[0].received_bytes > 0
        fixture.net.script = ["silence"]
        assert isinstance(await fixture.answer(), OSError)
        assert (traffic.requests, traffic.responses) == (3, 2)
        await fixture.answer()
        assert (traffic.requests, traffic.responses) == (5, 4)
        assert traffic.request_bytes == sum(each.sent_bytes for each in fixture.net.connections)
        assert traffic.response_bytes == sum(each.received_bytes for each in fixture.net.connections)
        nursery.cancel_scope.cancel()
