"""Many who read the page of numbers at once: how many there may be, and what they share."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.observability import metrics_endpoint
from ottla.broker.observability.tests.test_metrics_endpoint import numbers
from ottla.broker.tests.connection_fixture import ClientStream, ConnectionEnv, FakeListener, in_virtual_time
from ottla.jobs.job import Job

ASKED = b"GET /metrics HTTP/1.1\r\n\r\n"


def test_of_many_who_are_connected_the_one_that_is_silent_for_longest_gives_way() -> None:
    silent, asking = [ClientStream() for _ in range(40)], [ClientStream(reads=False) for _ in range(32)]
    late, last = ClientStream(), ClientStream()

    async def run() -> None:
        world: Any = ConnectionEnv()
        door: Any = FakeListener()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(metrics_endpoint.serve_metrics, world, numbers([]), door)
            for line in silent:
                await door.send.send(line)
                await trio.sleep(0.01)
            assert [line.is_closed for line in silent] == [True] * 8 + [False] * 32
            late.send_bytes(ASKED)
            await door.send.send(late)
            await trio.testing.wait_all_tasks_blocked()
            assert late.received.startswith(b"HTTP/1.1 200 OK")
            for line in asking:
                line.send_bytes(ASKED)
                await door.send.send(line)
                await trio.testing.wait_all_tasks_blocked()
            assert all(line.is_closed for line in silent)
            last.send_bytes(ASKED)
            await door.send.send(last)
            await trio.testing.wait_all_tasks_blocked()
            assert (last.is_closed, last.received) == (True, b""), "all others are being answered"
            assert not any(line.is_closed for line in asking)
            await trio.sleep(11)
            await door.send.send(again := ClientStream())
            again.send_bytes(ASKED)
            await trio.testing.wait_all_tasks_blocked()
            assert again.received.startswith(b"HTTP/1.1 200 OK"), "the others were hung up on"
            nursery.cancel_scope.cancel()

    in_virtual_time(run)


@pytest.mark.parametrize(
    ("takes_s", "told"),
    [
        ([2, 2, 2], {0: b"begun at 0", 1: b"begun at 2", 1.5: b"begun at 2", 5: b"begun at 5"}),
        ([12, 2], {0: b"", 9: b"begun at 10", 9.5: b"begun at 10"}),
    ],
    ids=["each in time", "the first without patience"],
)
def test_those_who_ask_while_a_page_is_made_get_the_next_one_together(
    monkeypatch: pytest.MonkeyPatch, takes_s: list[int], told: dict[float, bytes]
) -> None:
    """None gets one that was begun before he asked."""
    lines, left = {at: ClientStream() for at in told}, iter(takes_s)

    def slow(env: Any, _: Any) -> Job[bytes]:
        began = trio.current_time()
        yield env.sleep(next(left))
        return b"begun at %d" % began

    monkeypatch.setattr(metrics_endpoint, "render_page", slow)

    async def run() -> None:
        world: Any = ConnectionEnv()
        door: Any = FakeListener()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(metrics_endpoint.serve_metrics, world, numbers([]), door)
            for at, line in lines.items():
                await trio.sleep_until(at)
                line.send_bytes(ASKED)
                await door.send.send(line)
            await trio.sleep(30)
            nursery.cancel_scope.cancel()

    in_virtual_time(run)
    assert {at: line.received.rpartition(b"\r\n\r\n")[2] for at, line in lines.items()} == told
    assert list(left) == []
