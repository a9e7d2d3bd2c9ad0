"""Two nodes that get the same Fetch requests: one serves them prepared where it can, the other is the oracle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ottla.broker.fetch_sessions.fetch_session import FetchSession
from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.prepared_request import REPETITIONS
from ottla.broker.requests.peer import Peer
from ottla.broker.storage.tiered.tests.remote_reads_fixture import TieredFixture
from ottla.broker.tests.handler_fixture import HandlerFixture, resolve, run_virtual, topic_id_of
from ottla.env.disk import FileSlice
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.codec import compiler
from ottla.wire.framing import encode_request, encode_response, parse_request
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

NEWEST = 18
SIZE = len(make_batch(10))
BATCHES, LEADER_EPOCH = 6, 3


class FetchingNode:
    """Node with one connection; its requests are served prepared, or always by the handler."""

    def __init__(self, fixture: HandlerFixture, *, prepares: bool) -> None:
        self.fixture = fixture
        self.peer = Peer("127.0.0.1", ("here", 9092))
        self.prepares = prepares
        self.was_prepared = False

    def host(self) -> None:
        """Host the topics t and u, with two partitions each."""
        for name in ("t", "u"):
            replica = self.fixture.hosted.host(name, partitions=2)
            for _ in range(BATCHES):
                for number in (0, 1):
                    self.fixture.hosted.replicas[name, number].append(make_batch(10), 1_000_000)
            assert replica.is_leader

    def fetch(self, frame: bytes) -> bytes:
        """Return the bytes of the response to a request."""
        view = memoryview(frame)
        prepared = self.peer.prepared_request
        chunks = (
            prepared.respond(memoryview(bytearray(b"size" + frame)), 4, 4 + len(frame))
            if self.prepares and prepared is not None
            else None
        )
        self.was_prepared = chunks is not None
        if chunks is None:
            header = parse_request(view)
            body, _ = compiler.decode(request_class(ApiKey.FETCH), header.version, view, header.body_position)
            context = self.fixture.context(ApiKey.FETCH, header.version)
            context.peer, context.frame = self.peer, view

            async def handle() -> Any:
                return await resolve(fetch.handle(context, body))

            answer = self.run(handle)
            chunks = encode_response(ApiKey.FETCH, header.version, header.correlation_id, answer)
        return b"".join(chunk.read_all() if isinstance(chunk, FileSlice) else chunk for chunk in chunks)

    def run(self, handle: Callable[[], Awaitable[Any]]) -> Any:
        """Run the handler of a request; return its response."""
        return self.fixture.run(handle) if isinstance(self.fixture, TieredFixture) else run_virtual(handle)

    def sessions(self) -> list[Any]:
        """Return the state of each session, in the order of the cache."""
        cache: dict[int, FetchSession] = self.fixture.services.fetch_sessions._sessions
        return [
            (
                session.id,
                session.epoch,
                session.last_used_ms,
                [{name: getattr(want, name) for name in type(want).__slots__} for want in session.partitions.values()],
            )
            for session in cache.values()
        ]

    def traffic(self) -> list[tuple[int, int, int]]:
        """Return the traffic counters of each partition."""
        replicas = self.fixture.hosted.replicas.values()
        return [(r.traffic.fetches, r.traffic.failed_fetches, r.traffic.bytes_out) for r in replicas]


class FetchComparison:
    """Two nodes that get the same requests: one may serve them prepared, the other is the oracle."""

    def __init__(self, fixtures: Sequence[HandlerFixture] = ()) -> None:
        """Create the nodes, with the topics t and u, or of two fixtures that are equal."""
        prepares, oracle = fixtures or (HandlerFixture(), HandlerFixture())
        self.nodes = FetchingNode(prepares, prepares=True), FetchingNode(oracle, prepares=False)
        if not fixtures:
            for node in self.nodes:
                node.host()
        self.prepared = 0
        """Number of requests that were served prepared."""
        self._correlation_id = 0

    def fetch(self, request: FetchRequest, version: int = NEWEST) -> Any:
        """Serve a request on both nodes, compare, and return the decoded response."""
        self._correlation_id += 7
        now_ms = float(self._correlation_id)
        for node in self.nodes:
            node.fixture.env.monotonic_ms = lambda: now_ms  # type: ignore[method-assign]
        frame = encode_request(ApiKey.FETCH, version, self._correlation_id, "client", request)[4:]
        raw, expected = (node.fetch(frame) for node in self.nodes)
        assert raw == expected
        assert self.nodes[0].sessions() == self.nodes[1].sessions()
        assert self.nodes[0].traffic() == self.nodes[1].traffic()
        self.prepared += self.nodes[0].was_prepared
        return compiler.decode(fetch.FetchResponse, version, raw, 9 if version >= 12 else 8)[0]

    def repeat(self, request: FetchRequest, version: int = NEWEST) -> None:
        """Serve a request until the next one like it is served prepared."""
        for _ in range(REPETITIONS):
            self.fetch(request, version)
            if request.session_epoch > 0:
                request.session_epoch += 1
        before = self.prepared
        self.fetch(request, version)
        if request.session_epoch > 0:
            request.session_epoch += 1
        assert self.prepared == before + 1

    def change(self, action: Callable[[HandlerFixture], object]) -> None:
        """Apply a change to both nodes."""
        for node in self.nodes:
            action(node.fixture)


def request(*parts: tuple[str, int, int], **more: Any) -> FetchRequest:
    """Return a request for (topic, partition, offset) of each partition."""
    topics: list[FetchTopic] = []
    for name, number, offset in parts:
        if not topics or topics[-1].topic != name:
            topics.append(FetchTopic(name, topic_id_of(name)))
        row = FetchPartition(
            number,
            fetch_offset=offset,
            partition_max_bytes=more.get("each", 2 * SIZE),
            current_leader_epoch=more.get("leader_epoch", LEADER_EPOCH),
            last_fetched_epoch=more.get("last_epoch", -1),
        )
        topics[-1].partitions.append(row)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=more.get("least", 1),
        max_bytes=more.get("most", 1 << 24),
        isolation_level=more.get("isolation", 0),
        session_id=more.get("session", 0),
        session_epoch=more.get("epoch", -1),
        topics=topics,
        replica_state=ReplicaState(more.get("follower", -1)),
        forgotten_topics_data=more.get("forgotten", []),
    )


def open_session(nodes: FetchComparison, *parts: tuple[str, int, int]) -> int:
    """Return the id of a new session of these partitions."""
    opened: int = nodes.fetch(request(*parts, epoch=0)).session_id
    assert opened
    return opened
