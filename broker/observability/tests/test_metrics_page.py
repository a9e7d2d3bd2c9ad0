"""Concurrent requests for the metrics page: shared renderings."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from ottla.broker.observability.metrics_endpoint import MetricsPage
from ottla.broker.tests.connection_fixture import ConnectionEnv, in_virtual_time
from ottla.jobs.job import Job


@pytest.mark.parametrize(
    ("takes_s", "patience_s", "expected"),
    [
        ([2, 2, 2], 10, {0: b"begun at 0", 1: b"begun at 2", 1.5: b"begun at 2", 5: b"begun at 5"}),
        ([12, 2], 10, {0: b"", 9: b"begun at 10", 9.5: b"begun at 10"}),
    ],
    ids=["each in time", "the first cancelled"],
)
def test_requests_during_a_rendering_share_the_next_page(
    takes_s: list[int], patience_s: float, expected: dict[float, bytes]
) -> None:
    """No request gets a page with a rendering that began before the request."""
    received, left = dict.fromkeys(expected, b""), iter(takes_s)

    async def run() -> None:
        env: Any = ConnectionEnv()

        def slow() -> Job[list[bytes]]:
            began = trio.current_time()
            yield env.sleep(next(left))
            return [b"begun at %d" % began]

        page = MetricsPage(env, slow)

        async def ask(at_s: float) -> None:
            await trio.sleep_until(at_s)
            with trio.move_on_after(patience_s):
                received[at_s] = b"".join(await page.render())

        async with trio.open_nursery() as nursery:
            for at_s in expected:
                nursery.start_soon(ask, at_s)

    in_virtual_time(run)
    assert received == expected
    assert list(left) == []
