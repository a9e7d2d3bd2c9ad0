"""Response checks: each property of a response, broken on its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.observability import request_observers
from ottla.broker.requests.peer import Peer
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.framing import encode_request, encode_response, parse_request
from ottla.wire.messages import fetch as fetch_messages
from ottla.wire.messages import produce, share_fetch
from ottla.wire.record_batch import batch_header, records
from sim.checkers.response_checks import InvalidResponse, ResponseChecker, install

LIMIT = 10_000


def batch(offset: int, count: int = 3) -> bytes:
    raw = bytearray(records.build_batch([records.NewRecord(None, b"v" * 20, 0)] * count))
    batch_header.set_offset_and_epoch(raw, 0, offset, 0)
    return bytes(raw)


SIZE = len(batch(0))
SHORT = len(batch(0, 1))


def checks(*, compact: bool = False, tiered: bool = False) -> ResponseChecker:
    log = SimpleNamespace(config=SimpleNamespace(compact=compact, tiering=SimpleNamespace(is_enabled=tiered)))
    services: Any = SimpleNamespace(
        fetch_max_bytes=LIMIT,
        metadata=SimpleNamespace(image=SimpleNamespace(topic_names={})),
        replica_manager=SimpleNamespace(get=lambda topic, partition: SimpleNamespace(log=log)),
    )
    return ResponseChecker(services)


def check(checker: ResponseChecker, key: ApiKey, version: int, requested: Message, response: Message) -> None:
    request = parse_request(memoryview(encode_request(key, version, 1, "client", requested))[4:])
    chunks = encode_response(key, version, 1, response)
    checker.answered(Peer("h", ("here", 1)), request, chunks, sum(len(chunk) for chunk in chunks))


def fetch(
    *parts: tuple[int, bytes],
    offset: int = 0,
    each: int = 1000,
    most: int = 5000,
    isolation: int = 0,
    replica: int = -1,
    compact: bool = False,
    tiered: bool = False,
    requested: tuple[int, ...] = (),
    high_watermark: int = 100,
    stable: int = 90,
) -> None:
    """Check the response (partition, records) to a Fetch of these partitions."""
    wanted = [
        fetch_messages.FetchPartition(number, fetch_offset=offset, partition_max_bytes=each) for number in requested
    ]
    wanted = wanted or [
        fetch_messages.FetchPartition(n, fetch_offset=offset, partition_max_bytes=each) for n, _ in parts
    ]
    rows = [fetch_messages.PartitionData(n, 0, high_watermark, stable, 0, records=raw) for n, raw in parts]
    request = fetch_messages.FetchRequest(
        replica_id=replica,
        max_bytes=most,
        isolation_level=isolation,
        topics=[fetch_messages.FetchTopic("t", partitions=wanted)],
    )
    response = fetch_messages.FetchResponse(responses=[fetch_messages.FetchableTopicResponse("t", partitions=rows)])
    check(checks(compact=compact, tiered=tiered), ApiKey.FETCH, 12, request, response)


GOOD: list[tuple[list[tuple[int, bytes]], dict[str, Any]]] = [
    ([(0, b"")], {}),
    ([(0, batch(0)), (1, batch(0) + batch(3))], {}),
    ([(0, batch(0) + batch(3)[:-1])], {"each": 2 * SIZE - 1}),
    ([(0, batch(0) + b"12")], {}),
    ([(0, batch(0)), (1, b"")], {"each": 1}),
    ([(1, b""), (0, batch(0)), (2, b"")], {"most": 0}),
    ([(0, b"")], {"each": -5}),
    ([(0, batch(3)), (1, batch(3))], {"offset": 5}),
    ([(0, batch(6)), (1, batch(9))], {"offset": 5, "compact": True}),
    ([(0, batch(0) + batch(9))], {}),
    ([(0, batch(98))], {"offset": 98, "replica": 2, "high_watermark": 3}),
    ([(0, batch(87))], {"offset": 87, "isolation": 1}),
    ([(0, batch(90))], {"offset": 90, "isolation": 0}),
    ([(0, batch(0)), (1, batch(0, 1))], {"each": SHORT, "most": 2 * SHORT, "tiered": True}),
]


@pytest.mark.parametrize(("parts", "more"), GOOD)
def test_check_of_valid_fetch_response_passes(parts: list[tuple[int, bytes]], more: dict[str, Any]) -> None:
    fetch(*parts, **more)


BAD: list[tuple[list[tuple[int, bytes]], dict[str, Any], str]] = [
    ([(0, batch(0)[:-1])], {}, "no whole batch"),
    ([(0, batch(0)), (1, batch(0)[:1])], {}, "no whole batch in 1 bytes"),
    ([(0, batch(0))], {"offset": 3}, "ends below"),
    ([(0, batch(3))], {"offset": 2}, "begins above"),
    ([(0, batch(3) + batch(3))], {"offset": 3}, "behind offset 5"),
    ([(0, batch(3) + batch(0)[:-1])], {"offset": 3}, "batch 0 behind offset 5"),
    ([(0, batch(98))], {"offset": 98}, "offset 100 at or above 100"),
    ([(0, batch(88))], {"offset": 88, "isolation": 1}, "offset 90 at or above 90"),
    ([(0, batch(87) + batch(90)[:-1])], {"offset": 87, "isolation": 1}, "offset 90 at or above 90"),
    ([(0, b"no batch at all, but long enough")], {}, "no batch begins"),
    ([(0, batch(0) + batch(3))], {"each": SIZE}, "limit"),
    ([(0, batch(0)), (1, batch(0))], {"each": SIZE - 1}, "limit"),
    ([(0, batch(0)), (1, batch(0))], {"most": 2 * SIZE - 1}, "limit"),
    ([(0, batch(0)), (1, batch(0))], {"most": 1}, "limit"),
    ([(0, batch(0)), (1, batch(0))], {"tiered": True, "each": SIZE - 1}, "limit"),
    ([(0, batch(0)), (1, batch(0, 1))], {"each": SHORT, "most": 2 * SHORT}, "limit"),
    ([(0, batch(0)), (1, batch(0, 1))], {"each": SHORT, "most": 2 * SHORT - 1, "tiered": True}, "limit"),
    ([(0, batch(0)), (0, batch(0))], {}, "answered twice"),
    ([(0, b""), (1, b"")], {"requested": (0,)}, "was not asked for"),
    ([(0, b"")], {"requested": (0, 1)}, "1 partitions are not answered"),
]


def test_first_tiered_partition_counts_with_at_most_its_limit() -> None:
    big = batch(0, 9)
    limits = {"each": SIZE, "most": 2 * SIZE}
    fetch((0, big), (1, batch(0)), tiered=True, **limits)
    with pytest.raises(InvalidResponse, match="limit"):
        fetch((0, big), (1, batch(0)), **limits)


@pytest.mark.parametrize(("parts", "more", "text"), BAD)
def test_check_of_fetch_response_with_broken_property_fails(
    parts: list[tuple[int, bytes]], more: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidResponse, match=text):
        fetch(*parts, **more)


def test_check_of_fetch_session_uses_offsets_and_limits_of_earlier_requests() -> None:
    checker = checks()

    def ask(session: int, epoch: int, named: list[int], expected: dict[int, bytes], gone: tuple[int, ...] = ()) -> None:
        wanted = [fetch_messages.FetchPartition(number, fetch_offset=3, partition_max_bytes=SIZE) for number in named]
        request = fetch_messages.FetchRequest(
            max_bytes=5000,
            session_id=session,
            session_epoch=epoch,
            topics=[fetch_messages.FetchTopic("t", partitions=wanted)],
            forgotten_topics_data=[fetch_messages.ForgottenTopic("t", partitions=list(gone))],
        )
        rows = [fetch_messages.PartitionData(number, 0, 100, 100, 0, records=raw) for number, raw in expected.items()]
        response = fetch_messages.FetchResponse(
            session_id=7, responses=[fetch_messages.FetchableTopicResponse("t", partitions=rows)]
        )
        check(checker, ApiKey.FETCH, 12, request, response)

    ask(0, 0, [0, 1], {0: b"", 1: b""})
    ask(7, 1, [], {1: batch(3)})
    ask(7, 2, [2], {})
    ask(7, 3, [], {2: batch(3)})
    with pytest.raises(InvalidResponse, match="ends below fetch offset 3"):
        ask(7, 4, [], {1: batch(0)})
    with pytest.raises(InvalidResponse, match="limit"):
        ask(7, 5, [], {1: batch(3) + batch(6)})
    with pytest.raises(InvalidResponse, match="was not asked for"):
        ask(7, 6, [], {1: batch(3)}, gone=(1,))


@pytest.mark.parametrize("expected", [[], [0, 0], [1]])
def test_check_of_produce_response_with_missing_or_extra_partition_fails(expected: list[int]) -> None:
    request = produce.ProduceRequest(
        None, 1, 0, [produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(0, batch(0))])]
    )

    def answer(*numbers: int) -> produce.ProduceResponse:
        rows = [produce.PartitionProduceResponse(number, base_offset=5) for number in numbers]
        return produce.ProduceResponse([produce.TopicProduceResponse("t", partition_responses=rows)])

    check(checks(), ApiKey.PRODUCE, 9, request, answer(0))
    with pytest.raises(InvalidResponse, match="asked for"):
        check(checks(), ApiKey.PRODUCE, 9, request, answer(*expected))


@pytest.mark.parametrize(
    ("raw", "acquired", "text"),
    [
        (batch(3), [(3, 5)], ""),
        (batch(3) + batch(6), [(4, 4), (6, 7)], ""),
        (b"", [], ""),
        (batch(3)[:-1], [(3, 5)], "behind the last whole batch"),
        (batch(3), [], "bytes"),
        (b"", [(3, 5)], "bytes"),
        (batch(3) + batch(6), [(6, 7), (4, 4)], "AcquiredRecords"),
        (batch(3) + batch(6), [(6, 7)], "for"),
        (batch(3) + batch(6), [(4, 5)], "for"),
    ],
)
def test_check_of_share_fetch_response_compares_batches_and_acquired_records(
    raw: bytes, acquired: list[tuple[int, int]], text: str
) -> None:
    row = share_fetch.PartitionData(
        0, records=raw, acquired_records=[share_fetch.AcquiredRecords(*each, 1) for each in acquired]
    )
    response = share_fetch.ShareFetchResponse(responses=[share_fetch.ShareFetchableTopicResponse(b"t" * 16, [row])])
    if not text:
        check(checks(), ApiKey.SHARE_FETCH, 1, share_fetch.ShareFetchRequest("g", "m"), response)
        return
    with pytest.raises(InvalidResponse, match=text):
        check(checks(), ApiKey.SHARE_FETCH, 1, share_fetch.ShareFetchRequest("g", "m"), response)


def test_install_called_twice_registers_one_checker() -> None:
    install()
    install()
    assert request_observers.request_observer_factories.count(ResponseChecker) == 1
