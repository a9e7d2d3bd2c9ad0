"""Long polls of open tails: Fetch requests that wait at the leaders of partitions for records that were not read.

A poll has a connection of its own, so that other requests to the broker do not queue behind it, and goes on while its
page is updated with the records of other brokers: a cancelled request would close the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from ottla.console.in_process import LEADER_ONLY_FETCH_VERSION, SessionClient
from ottla.env.env import FOREVER_S
from ottla.wire.errors import ProtocolError, WireError
from ottla.wire.messages import fetch

if TYPE_CHECKING:
    from ottla.broker.requests.purgatory import Purgatory
    from ottla.env.env import Env

RETRY_S = 0.5
"""Pause in seconds after a poll that failed or was answered without records at once, before the next poll.

A new leader answers so while its high watermark is below the offset of the poll.
"""


class LeaderPolls:
    """Polls of all open tails of a console; `run` runs them."""

    def __init__(self, env: Env, purgatory: Purgatory) -> None:
        self.env = env
        self.purgatory = purgatory
        self.nursery: trio.Nursery | None = None
        """Nursery of the polls; None unless `run` runs."""

    async def run(self) -> None:
        """Run the polls that are started, until cancelled."""
        try:
            async with trio.open_nursery() as self.nursery:
                await self.env.sleep(FOREVER_S)
        finally:
            self.nursery = None


class TailPolls:
    """Polls of one tail: at most one at a time to each broker, with the principal of its session.

    The object is also the purgatory key that is completed when a broker has records, or its poll failed.
    """

    def __init__(self, polls: LeaderPolls, client: SessionClient, topic: str, wait_ms: float) -> None:
        """Create the object without polls.

        Args:
            polls: runs the polls.
            client: client of the session.
            topic: name of the tail's topic.
            wait_ms: longest time that a broker waits for records before it answers; then it is polled again.
        """
        self._polls = polls
        self._client = client
        self._topic = topic
        self._wait_ms = int(wait_ms)
        self._connections = client.create_connections()
        self._positions: Mapping[int, Mapping[int, int]] = {}
        """Next offset to read by partition number, by node id of the partitions' leader."""
        self._scopes: dict[int, trio.CancelScope] = {}
        """Cancel scope of the poll of each broker that is polled."""

    def start(self, positions: Mapping[int, Mapping[int, int]]) -> None:
        """Poll the leaders of partitions until one of them has records.

        A broker that is being polled gets the new positions with its next request. One that leads none of the
        partitions is no longer polled.

        Args:
            positions: next offset to read by partition number, by node id of the partitions' leader.
        """
        self._positions, nursery = positions, self._polls.nursery
        for node_id in positions:
            if node_id not in self._scopes and nursery is not None:
                scope = self._scopes[node_id] = trio.CancelScope()
                nursery.start_soon(self._poll, node_id, scope)

    async def _poll(self, node_id: int, scope: trio.CancelScope) -> None:
        try:
            with scope:
                while node_id in self._positions and not await self._has_changed(node_id):
                    pass
        finally:
            del self._scopes[node_id]
        self._polls.purgatory.check_and_complete(self)

    async def _has_changed(self, node_id: int) -> bool:
        """Return True once a broker has a record that was not read, False after the time to wait.

        After a pause: True if the request failed or a partition has an error, as after a change of its leader; False if
        the broker has responded without records within `RETRY_S`.
        """
        rows = [
            fetch.FetchPartition(number, fetch_offset=offset, partition_max_bytes=1)
            for number, offset in self._positions[node_id].items()
        ]
        topics = [fetch.FetchTopic(self._topic, partitions=rows)]
        request = fetch.FetchRequest(max_wait_ms=self._wait_ms, min_bytes=1, max_bytes=1, topics=topics)
        started_ms = self._polls.env.monotonic_ms()
        try:
            response = await self._client.fetch_over(self._connections, node_id, request, LEADER_ONLY_FETCH_VERSION)
        except (OSError, WireError, ProtocolError):
            has_failed = True
        else:
            partitions = [row for topic in response.responses for row in topic.partitions]
            if any(row.records for row in partitions):
                return True
            has_failed = any((response.error_code, *(row.error_code for row in partitions)))
        if has_failed or self._polls.env.monotonic_ms() - started_ms < RETRY_S * 1000:
            await self._polls.env.sleep(RETRY_S)
        return has_failed

    def close(self) -> None:
        """End the polls, and close their connections."""
        self._positions = {}
        for scope in self._scopes.values():
            scope.cancel()
        self._connections.close()
