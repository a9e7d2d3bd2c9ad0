"""Selection of connections to close when file descriptors are short."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from ottla.broker.network.acceptor import Acceptor
from ottla.broker.network.idle_connections import CLOSED_FRACTION, UNUSED_IDLE_FACTOR, close_most_idle


class FakeConnection:
    """Part of a connection that the selection uses."""

    def __init__(self, idle_ms: float, *, has_spoken: bool = True, is_authenticated: bool = True) -> None:
        self._idle_ms = idle_ms
        self.has_received = has_spoken
        self.is_authenticated = is_authenticated
        self.is_closed = False

    def idle_ms(self, now_ms: float) -> float:
        return self._idle_ms

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.behaviour("S-357")
def test_close_most_idle_closes_the_connection_that_was_idle_for_longest() -> None:
    connections = [FakeConnection(idle_ms) for idle_ms in (5, 900, 30)]
    assert close_most_idle(connections, 0) == 1
    assert [x.is_closed for x in connections] == [False, True, False]
    assert close_most_idle(connections, 0) == 1
    assert [x.is_closed for x in connections] == [False, True, True], "each time another one"


@pytest.mark.parametrize("state", [(False, True), (True, False), (False, False)])
@pytest.mark.parametrize(("idle_ms", "goes"), [(9, True), (7, False)])
def test_close_most_idle_weighs_the_time_of_silent_and_unauthenticated_connections(
    idle_ms: float, state: tuple[bool, bool], *, goes: bool
) -> None:
    silent = FakeConnection(idle_ms, has_spoken=state[0], is_authenticated=state[1])
    spoken = FakeConnection(9 * UNUSED_IDLE_FACTOR)
    close_most_idle([silent, spoken], 0)
    assert (silent.is_closed, spoken.is_closed) == (goes, not goes)


def test_close_most_idle_of_many_closes_a_part_at_once() -> None:
    connections = [FakeConnection(idle_ms) for idle_ms in range(10 * CLOSED_FRACTION)]
    assert close_most_idle(connections, 0) == 10
    assert [x.is_closed for x in connections] == [False] * (9 * CLOSED_FRACTION + CLOSED_FRACTION - 10) + [True] * 10


def test_close_most_idle_without_open_connections_returns_0() -> None:
    one = FakeConnection(1)
    one.close()
    assert close_most_idle([one], 0) == close_most_idle([], 0) == 0


def test_acceptor_sheds_from_the_listener_with_most_connections() -> None:
    class Dispatched:
        class services:  # noqa: N801 - an attribute
            class env:  # noqa: N801
                monotonic_ms = staticmethod(lambda: 0.0)

            class config:  # noqa: N801
                number = staticmethod(lambda key: -1)

        class connection_log:  # noqa: N801
            log = staticmethod(lambda *values: collected.append(values))

    class Silent:
        port = 1
        on_descriptors_low: Any = None

        async def accept(self) -> Any:
            await trio.sleep_forever()

        def close(self) -> None:
            pass

    collected: list[Any] = []
    acceptors: list[Any] = [Acceptor(Dispatched()) for _ in range(2)]  # type: ignore[arg-type]
    for acceptor in acceptors:
        acceptor.node_acceptors = acceptors
    acceptors[0]._connections = {FakeConnection(1_000)}
    acceptors[1]._connections = {FakeConnection(1), FakeConnection(2)}
    listener: Any = Silent()

    async def main() -> None:
        with trio.move_on_after(0):
            await acceptors[0].run(listener)

    trio.run(main)
    assert listener.on_descriptors_low() == 1
    assert [x.is_closed for x in acceptors[0].connections] == [False]
    assert sorted(x.is_closed for x in acceptors[1].connections) == [False, True]
    assert "Too many open files: closed" in collected[0][2]
