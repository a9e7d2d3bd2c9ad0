"""Blocking client for tests: topics and their records, deletion of groups, waits for records and for a group's lag.

Each call opens its own connections, so that threads may share a client and a broker may restart between calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient, leader_may_move
from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity
from ottla.client.murmur2 import partition_for_key
from ottla.client.record_splitting import append_in_batches
from ottla.runtime.blocking_env import BlockingEnv, run_blocking
from ottla.tools.topic_record import TopicRecord
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.record_batch.records import NewRecord

T = TypeVar("T")
REQUEST_TIMEOUT_S = 30.0
WAIT_TIMEOUT_S = 10.0
_POLL_S = 0.02
_EARLIEST, _LATEST = -2, -1
_OFFSET_FETCH_WITH_NAMES = 9
"""Newest version of OffsetFetch that identifies topics by name."""
_COORDINATOR_LOADS = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class ExpectationFailed(AssertionError):
    """Raised if at the end of a timeout a topic has too few records, or a group too much lag or no committed offset."""


def _as_bytes(value: bytes | str | None) -> bytes | None:
    """Return a key or value as bytes; text is encoded as UTF-8.

    Raises:
        TypeError: the value is neither bytes nor text nor None.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"bytes, text or None expected, not {type(value).__name__}: {value!r}")


def _check(code: int, message: str | None, subject: str) -> None:
    """Check an error code of a response; ``subject`` precedes the message.

    Raises:
        ProtocolError: the code is not 0.
    """
    if code:
        raise ProtocolError(ErrorCode(code), f"{subject}: {message or ErrorCode(code).text}")


class BlockingClient:
    """Blocking client: ConnectionError without a bootstrap server that accepts the login, OSError if another fails.

    Args:
        bootstrap_servers: ``HOST:PORT``, or several separated by commas.
        access: TLS and SASL settings.
    """

    def __init__(self, bootstrap_servers: str, access: ConnectionSecurity = NO_SECURITY) -> None:
        self.bootstrap_servers = bootstrap_servers
        """``HOST:PORT``, or several separated by commas: the argument."""
        self._access = access
        self._env = BlockingEnv()

    def _run(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Call ``work`` with a new client of the cluster and return its result.

        Raises:
            ConnectionError: no bootstrap server can be reached, or accepts the credentials; others as ``work``.
        """

        async def main() -> T:
            client = ClusterClient(
                BlockingEnv(), self.bootstrap_servers, timeout_s=REQUEST_TIMEOUT_S, access=self._access
            )
            try:
                await client.bootstrap_channel()
            except OSError as error:
                raise ConnectionError(
                    f"cannot connect to {self.bootstrap_servers}: {error.strerror or error}"
                ) from None
            try:
                return await work(client)
            finally:
                client.close()

        return run_blocking(main())

    def check_connection(self) -> None:
        """Open a connection to the cluster, and close it.

        Raises:
            ConnectionError: the cluster cannot be reached, or rejects the credentials.
        """

        async def nothing(client: ClusterClient) -> None:
            pass

        self._run(nothing)

    # ------------------------------------------------------------------ topics and groups

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a topic with ``settings`` and wait until its partitions have leaders; -1 selects the broker's default.

        Raises:
            ProtocolError: the topic exists, a value is refused, or the new topic has no leaders after about a second.
        """
        text = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in (settings or {}).items()
        }
        configs = [CreatableTopicConfig(key, value) for key, value in text.items()]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, replication_factor, configs=configs)], 30_000)
        row = self._run(lambda client: client.call(request)).topics[0]
        _check(row.error_code, row.error_message, f"topic {name}")
        self._wait_for_leaders(name)

    def _wait_for_leaders(self, topic: str) -> None:
        """Wait until each partition of a topic has a leader, for about a second; ProtocolError is raised then."""
        self._run(lambda client: client.partitions(topic, create=True))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait for the response.

        Raises:
            ProtocolError: the topic does not exist, or the client may not delete it.
        """
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name)], timeout_ms=30_000)
        row = self._run(lambda client: client.call(request, 6)).responses[0]
        _check(row.error_code, row.error_message, f"topic {name}")

    def delete_group(self, group: str) -> None:
        """Delete a group without members.

        Raises:
            ProtocolError: the group does not exist, or has members.
        """

        async def delete(client: ClusterClient) -> Any:
            return await (await self._coordinator(client, group)).call(DeleteGroupsRequest([group]))

        _check(self._run(delete).results[0].error_code, None, f"group {group}")

    async def _coordinator(self, client: ClusterClient, group: str) -> Channel:
        """Return a group's coordinator; raise ProtocolError without one for `WAIT_TIMEOUT_S`, or for another error."""
        channel = await client.bootstrap_channel()
        deadline_ms = self._env.monotonic_ms() + WAIT_TIMEOUT_S * 1000
        while True:  # the first request after a start creates __consumer_offsets
            row: Any = await channel.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
            row = row.coordinators[0]
            if row.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE or self._env.monotonic_ms() > deadline_ms:
                break
            await self._env.sleep(_POLL_S)
        _check(row.error_code, row.error_message, f"group {group}")
        await client.metadata([])
        return await client.broker(row.node_id)

    # ------------------------------------------------------------------ records

    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Append records to a topic, which is created if the broker permits that, and wait for their acknowledgement.

        Args:
            topic: name of the topic.
            values: value of each record: bytes, text in UTF-8, or None for a tombstone.
            key: key of all records.
            headers: headers of all records.
            partition: partition of all records; None selects that of the key as in Kafka's clients (murmur2), or round
                robin without a key, from the first partition in each call.
            timestamp_ms: timestamp of all records in milliseconds since 1970; None stands for the current time.

        Raises:
            ProtocolError: no such partition, or a batch was refused; earlier batches stay.
            TypeError: a key, value or header is neither bytes nor text nor None.
        """
        raw_key = _as_bytes(key)
        raw_headers = tuple((name, _as_bytes(value)) for name, value in (headers or {}).items())
        raw_values = [_as_bytes(value) for value in values]
        time_ms = self._env.now_ms() if timestamp_ms is None else int(timestamp_ms)

        async def append(client: ClusterClient) -> None:
            numbers = await client.partitions(topic, create=True)
            batches: dict[int, list[NewRecord]] = {}
            if partition is not None and partition not in numbers:
                raise ProtocolError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} of topic {topic} does not exist"
                )
            for index, value in enumerate(raw_values):
                number = partition
                if number is None:
                    at = index % len(numbers) if raw_key is None else partition_for_key(raw_key, len(numbers))
                    number = numbers[at]
                batches.setdefault(number, []).append(NewRecord(raw_key, value, time_ms, raw_headers))
            for number, records in batches.items():
                await append_in_batches(records, partial(client.produce, topic, number))

        self._run(append)

    def records(self, topic: str, *, committed: bool = False) -> list[TopicRecord]:
        """Return all records of a topic, ordered by partition and offset.

        Args:
            topic: name of the topic.
            committed: leave out records of open and aborted transactions (``read_committed``).

        Raises:
            ProtocolError: the topic does not exist, or a partition cannot be read for `LEADER_MOVE_TIMEOUT_MS`.
        """

        async def read(client: ClusterClient) -> list[TopicRecord]:
            out: list[TopicRecord] = []
            for number in await client.partitions(topic):
                read_one = partial(self._read_partitions, client, topic, [number], committed=committed)
                out += await client.retry_while_leader_moves(read_one, leader_may_move)
            return out

        return self._run(read)

    async def _read_partitions(
        self, client: ClusterClient, topic: str, numbers: Sequence[int], *, committed: bool
    ) -> list[TopicRecord]:
        out = []
        for number in numbers:
            at = await client.list_offset(topic, number, _EARLIEST)
            end = await client.list_offset(topic, number, _LATEST, committed=committed)
            while at < end:
                found = await client.read_records(topic, number, at, 0, committed=committed)
                out += [
                    TopicRecord(topic, number, x.offset, x.timestamp_ms, x.key, x.value, tuple(x.headers))
                    for x in found.records
                    if x.offset < end
                ]
                if found.next_offset == at:
                    break
                at = found.next_offset
        return out

    # ------------------------------------------------------------------ waiting

    def _wait(
        self, probe: Callable[[ClusterClient], Awaitable[T | None]], failure: Callable[[], str], timeout_s: float
    ) -> T:
        """Call ``probe`` repeatedly until its result is not None, and return the result.

        Raises:
            ExpectationFailed: no result after ``timeout_s``; the message is that of ``failure``. ProtocolError: that of
                ``probe``, but one of `LEADER_MOVE_CODES` only then.
        """

        async def poll(client: ClusterClient) -> T:
            deadline_ms = self._env.monotonic_ms() + timeout_s * 1000
            while True:
                try:
                    result = await probe(client)
                    if result is not None:
                        return result
                except ProtocolError as error:  # a leader moves: the probe is repeated
                    if not leader_may_move(error) or self._env.monotonic_ms() >= deadline_ms:
                        raise
                    client.invalidate_leaders()
                if self._env.monotonic_ms() >= deadline_ms:
                    raise ExpectationFailed(f"{failure()} (after {timeout_s:g} s)")
                await self._env.sleep(_POLL_S)

        return self._run(poll)

    def expect(
        self, topic: str, count: int, *, timeout_s: float = WAIT_TIMEOUT_S, committed: bool = False
    ) -> list[TopicRecord]:
        """Wait until a topic has at least ``count`` records, none if it does not exist, and return all of its records.

        Raises:
            ExpectationFailed: the topic has fewer records after ``timeout_s``. ProtocolError: it cannot be read.
        """
        last: list[TopicRecord] = []

        async def probe(client: ClusterClient) -> list[TopicRecord] | None:
            try:
                numbers = await client.partitions(topic)
                last[:] = await self._read_partitions(client, topic, numbers, committed=committed)
            except ProtocolError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                return [] if count <= 0 else None
            return list(last) if len(last) >= count else None

        return self._wait(probe, lambda: f"topic {topic} has {len(last)} records, {count} expected", timeout_s)

    def wait_for(
        self, group: str, *, lag: int = 0, topic: str | None = None, timeout_s: float = WAIT_TIMEOUT_S
    ) -> None:
        """Wait until a group has committed offsets and its lag is at most ``lag`` records.

        The lag is the sum over all partitions of the topics in which the group has committed an offset, with control
        records; a partition without a committed offset counts from its first record. An unknown group has none yet.

        Args:
            group: id of the group.
            lag: maximum lag in records.
            topic: topic to consider; None stands for all topics with a committed offset.
            timeout_s: maximum time to wait.

        Raises:
            ExpectationFailed: after ``timeout_s`` the lag is larger, or no offset is committed.
        """
        last: list[int] = []

        async def probe(client: ClusterClient) -> bool | None:
            found = await self._lag(client, group, topic)
            last[:] = [] if found is None else [found]
            return True if found is not None and found <= lag else None

        def failure() -> str:
            where = "" if topic is None else f" in topic {topic}"
            if not last:
                return f"group {group} has committed no offset{where}"
            return f"group {group} has a lag of {last[0]} records{where}, at most {lag} expected"

        self._wait(probe, failure, timeout_s)

    async def _lag(self, client: ClusterClient, group: str, topic: str | None) -> int | None:
        """Return the lag of a group in records; None if it has no committed offset or its coordinator is loading."""
        channel = await self._coordinator(client, group)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
        answer: Any = await channel.call(request, channel.version_for(ApiKey.OFFSET_FETCH, _OFFSET_FETCH_WITH_NAMES))
        stored = answer.groups[0]
        if stored.error_code in _COORDINATOR_LOADS:
            return None
        _check(stored.error_code, None, f"group {group}")
        committed = {
            each.name: {
                row.partition_index: row.committed_offset for row in each.partitions if row.committed_offset >= 0
            }
            for each in stored.topics
            if topic in (None, each.name)
        }
        topics = [name for name, offsets in committed.items() if offsets]
        return await self._sum_lag(client, topics, committed) if topics else None

    async def _sum_lag(
        self, client: ClusterClient, topics: Sequence[str], committed: Mapping[str, Mapping[int, int]]
    ) -> int:
        total = 0
        for name in topics:
            for number in await client.partitions(name):
                offset = committed[name].get(number)
                if offset is None:
                    offset = await client.list_offset(name, number, _EARLIEST)
                total += max(0, await client.list_offset(name, number, _LATEST) - offset)
        return total
