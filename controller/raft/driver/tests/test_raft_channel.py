"""Connections to other controllers: one request at a time, made anew where they broke, told apart when they fail."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

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

PLACE = ("there", 9)


class ScriptedRaftConnection:
    """A connection; `ScriptedRaftNetwork.script` says what becomes of each request but the first."""

    peer, local = "there", ("here", 0)

    def __init__(self, net: ScriptedRaftNetwork) -> None:
        self.net = net
        self.answers = bytearray()
        self.broken = self.closed = False

    async def send(self, chunks: Sequence[Any]) -> None:
        if self.broken:
            raise OSError("reset")
        request = parse_request(memoryview(b"".join(chunks))[4:])
        if request.key is ApiKey.API_VERSIONS:
            newest = self.net.max_version
            answer: Message = ApiVersionsResponse(0, [ApiVersion(ApiKey.VOTE, 0, newest)])
        else:
            body = compiler.decode(request_class(request.key), request.version, request.frame, request.body_position)[0]
            self.net.received.append((request.client_id, request.version, body.voter_id))
            what = self.net.script.pop(0) if self.net.script else "answer"
            if what != "answer":
                self.broken = what == "reset"
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
        buffer[:count] = self.answers[:count]
        del self.answers[:count]
        return count

    def close(self) -> None:
        self.closed = True


class ScriptedRaftNetwork:
    """Network whose connections are refused while `refuses` is set."""

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
    """`RaftChannel` on that net."""

    def __init__(self) -> None:
        self.net = ScriptedRaftNetwork()
        env = ControllerTestEnv(MemoryDisk(random.Random(1), lambda: 0), iter(()))
        env.net = self.net
        self.address: tuple[str, int] | None = PLACE
        self.channel = RaftChannel(env, 7, 2000, lambda to: self.address)
        self.responses: list[Any] = []
        self.response_event = trio.Event()

    def ask(self, voter_id: int = 1) -> None:
        def encode(version: int) -> Message:
            if version < 2 and voter_id == 99:
                raise UnsupportedByPeer("too old")
            return VoteRequest("c", voter_id)

        self.channel.send(2, ApiKey.VOTE, encode, self.on_response)

    async def answer(self, voter_id: int = 1, seconds: float = 10) -> Any:
        """Ask, and wait for what comes of it."""
        self.response_event = trio.Event()
        self.ask(voter_id)
        with trio.fail_after(seconds):
            await self.response_event.wait()
        return self.responses[-1]

    def on_response(self, got: Any) -> None:
        self.responses.append(got)
        self.response_event.set()


async def opened(nursery: trio.Nursery) -> RaftChannelFixture:
    house = RaftChannelFixture()
    nursery.start_soon(house.channel.run)
    return house


@virtual
async def test_one_connection_serves_all_requests_under_its_own_name() -> None:
    async with trio.open_nursery() as nursery:
        house = await opened(nursery)
        for number in range(3):
            assert isinstance(await house.answer(number), VoteResponse)
        assert house.net.received == [("raft-client-7", 2, n) for n in range(3)]
        assert [place for _, place in house.net.dialled] == [PLACE]
        nursery.cancel_scope.cancel()
    assert all(line.closed for line in house.net.connections)


@virtual
async def test_a_request_that_waits_is_replaced_and_told_so() -> None:
    async with trio.open_nursery() as nursery:
        house = await opened(nursery)
        house.net.script = ["silence"]
        house.ask(1)
        await trio.sleep(0.1)
        house.ask(2)
        house.ask(3)
        assert [type(x) for x in house.responses] == [OSError], "the second: the third is newer"
        await trio.sleep(5)
        assert [n for _, _, n in house.net.received] == [1, 3]
        assert isinstance(house.responses[1], OSError)
        assert isinstance(house.responses[2], VoteResponse)
        nursery.cancel_scope.cancel()


@virtual
async def test_no_answer_in_time_is_an_error_and_the_connection_ends() -> None:
    async with trio.open_nursery() as nursery:
        house = await opened(nursery)
        house.net.script = ["silence"]
        began = trio.current_time()
        assert isinstance(await house.answer(), OSError)
        assert 1.99 < trio.current_time() - began < 2.1
        assert house.net.connections[0].closed
        assert isinstance(await house.answer(), VoteResponse)
        assert len(house.net.connections) == 2
        nursery.cancel_scope.cancel()


@virtual
async def test_a_connection_that_broke_while_it_rested_is_made_anew_at_once_and_nobody_is_told() -> None:
    async with trio.open_nursery() as nursery:
        house = await opened(nursery)
        await house.answer()
        house.net.connections[0].broken = True
        began = trio.current_time()
        assert isinstance(await house.answer(), VoteResponse)
        assert trio.current_time() - began < 0.01
        assert len(house.net.connections) == 2
        nursery.cancel_scope.cancel()


@virtual
async def test_who_refuses_is_gone_and_who_only_broke_off_is_not() -> None:
    async with trio.open_nursery() as nursery:
        house = await opened(nursery)
        house.net.refuses = True
        assert isinstance(await house.answer(), PeerConnectionRefusedError)
        house.net.refuses = False
        await house.answer()
        house.net.script = ["reset", "reset"]
        got = await house.answer()
        assert isinstance(got, OSError)
        assert not isinstance(got, PeerConnectionRefusedError)
        await house.answer()
        house.net.refuses = True
        house.net.connections[-1].broken = True
        began = trio.current_time()
        assert isinstance(await house.answer(), PeerConnectionRefusedError)
        assert trio.current_time() - began < 0.01
        nursery.cancel_scope.cancel()


@virtual
async def test_tries_to_connect_come_less_and_less_often() -> None:
    async with trio.open_nursery() as nursery:
        house = await opened(nursery)
        house.net.refuses = True
        for _ in range(8):
            await house.answer()
        times = [at for at, _ in house.net.dialled]
        waits = [round(b - a, 2) for a, b in pairwise(times)]
        assert waits == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.5]
        assert max(waits) == BACKOFF_MAX_S
        house.net.refuses = False
        await house.answer()
        house.net.refuses, house.net.connections[0].broken = True, True
        await house.answer()
        before = trio.current_time()
        await house.answer()
        assert trio.current_time() - before < 0.06, "after a success it begins anew"
        nursery.cancel_scope.cancel()


@virtual
async def test_who_moved_is_dialled_where_it_is_now_and_who_is_nowhere_not_at_all() -> None:
    async with trio.open_nursery() as nursery:
        house = await opened(nursery)
        await house.answer()
        house.address = ("elsewhere", 1)
        await house.answer()
        assert [place for _, place in house.net.dialled] == [PLACE, ("elsewhere", 1)]
        assert house.net.connections[0].closed
        house.address = None
        assert isinstance(await house.answer(), OSError)
        assert len(house.net.dialled) == 2
        nursery.cancel_scope.cancel()


@virtual
async def test_what_cannot_be_said_costs_no_connection() -> None:
    async with trio.open_nursery() as nursery:
        house = await opened(nursery)
        house.net.max_version = 1
        assert isinstance(await house.answer(99), UnsupportedByPeer)
        assert isinstance(await house.answer(99), WireError)
        assert isinstance(await house.answer(1), VoteResponse)
        assert len(house.net.connections) == 1
        nursery.cancel_scope.cancel()
