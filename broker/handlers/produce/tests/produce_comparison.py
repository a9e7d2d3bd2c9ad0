"""Two nodes that get the same Produce requests: one serves them prepared where it can, the other is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.handlers.prepared_request import REPETITIONS
from ottla.broker.handlers.produce import produce
from ottla.broker.requests.peer import Peer
from ottla.broker.tests.handler_fixture import HandlerFixture, resolve, run_virtual, topic_id_of
from ottla.log.log_config import LogConfig
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.codec import compiler
from ottla.wire.framing import encode_request, encode_response, parse_request
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

NEWEST = 13
NO_RESPONSE = b""


class ProducingNode:
    """Node with one connection; its requests are served prepared, or always by the handler."""

    def __init__(self, *, prepares: bool, settings: LogConfig | None = None) -> None:
        self.fixture = HandlerFixture()
        self.peer = Peer("127.0.0.1", ("here", 9092))
        self.prepares = prepares
        self.was_prepared = False
        for name in ("t", "u"):
            self.fixture.hosted.host(name, partitions=2, settings=settings)

    def produce(self, frame: bytes) -> bytes:
        """Return the bytes of the response to a request."""
        buffer, end = bytearray(b"1234size" + frame + b"the next request"), 8 + len(frame)
        prepared = self.peer.prepared_request
        chunks: Any = prepared.respond(memoryview(buffer), 8, end) if self.prepares and prepared is not None else None
        self.was_prepared = chunks is not None
        if chunks is None:
            view = memoryview(buffer)[8:end]
            header = parse_request(view)
            body, _ = compiler.decode(request_class(ApiKey.PRODUCE), header.version, view, header.body_position)
            context = self.fixture.context(ApiKey.PRODUCE, header.version, header.client_id)
            context.peer, context.frame = self.peer, view

            async def handle() -> Any:
                return await resolve(produce.handle(context, body))

            try:
                response = run_virtual(handle)
            except produce.CloseConnection:
                return b"closed"
            if response is None:
                return NO_RESPONSE
            chunks = encode_response(ApiKey.PRODUCE, header.version, header.correlation_id, response)
        return b"".join(bytes(chunk) for chunk in chunks)

    def logs(self) -> list[Any]:
        """Return the state and the bytes of each log."""
        return [
            (
                log.log_start_offset,
                log.log_end_offset,
                log.high_watermark,
                [bytes(raw) for _, raw in log.segments.batches()],
                [getattr(replica.traffic, name) for name in type(replica.traffic).__slots__],
            )
            for replica in self.fixture.hosted.replicas.values()
            for log in [replica.log]
        ]


class ProduceComparison:
    """Two nodes that get the same requests: one may serve them prepared, the other is the oracle."""

    def __init__(self, settings: LogConfig | None = None) -> None:
        self.nodes = tuple(ProducingNode(prepares=prepares, settings=settings) for prepares in (True, False))
        self.prepared = 0
        """Number of requests that were served prepared."""
        self._correlation_id = -1000

    def produce(self, request: ProduceRequest, version: int = NEWEST, client_id: str | None = "client") -> Any:
        """Serve a request on both nodes, compare, and return the decoded response."""
        self._correlation_id += 7
        frame = encode_request(ApiKey.PRODUCE, version, self._correlation_id, client_id, request)[4:]
        raw, expected = (node.produce(frame) for node in self.nodes)
        assert raw == expected
        assert self.nodes[0].logs() == self.nodes[1].logs()
        assert len(self.nodes[0].fixture.failures) == len(self.nodes[1].fixture.failures)
        self.prepared += self.nodes[0].was_prepared
        if raw in (NO_RESPONSE, b"closed"):
            return raw
        return compiler.decode(ProduceResponse, version, raw, 9 if version >= 9 else 8)[0]

    def repeat(self, version: int = NEWEST, **more: Any) -> None:
        """Serve a request until the next one like it is served prepared."""
        for _ in range(REPETITIONS):
            self.produce(request(make_batch(0), **more), version)
        before = self.prepared
        self.produce(request(make_batch(0), **more), version)
        assert self.prepared == before + 1

    def change(self, action: Callable[[HandlerFixture], object]) -> None:
        """Apply a change to both nodes."""
        for node in self.nodes:
            action(node.fixture)


def request(raw: bytes | bytearray | None, *, topic: str = "t", index: int = 0, acks: int = -1) -> ProduceRequest:
    data = TopicProduceData(topic, topic_id_of(topic), [PartitionProduceData(index, raw)])
    return ProduceRequest(None, acks, 1000, [data])
