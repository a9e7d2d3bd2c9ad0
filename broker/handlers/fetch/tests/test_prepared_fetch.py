"""Prepared Fetch: its responses and sessions equal those of the handler, byte for byte, for any requests."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.fetch.prepared_fetch import MAX_PARTITIONS
from ottla.broker.handlers.fetch.tests.fetch_comparison import (
    BATCHES,
    LEADER_EPOCH,
    NEWEST,
    SIZE,
    FetchComparison,
    open_session,
    request,
)
from ottla.broker.handlers.prepared_request import REPETITIONS
from ottla.broker.tests.handler_fixture import HandlerFixture, topic_id_of
from ottla.controller.metadata.image import MetadataImage, TopicImage
from ottla.log.tests.log_fixtures import append_committed, make_batch, make_marker, make_transactional_batch
from ottla.wire.messages.fetch import FetchRequest, ForgottenTopic


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("version", range(4, NEWEST + 1))
def test_prepared_fetch_serves_repeated_request_in_each_version(version: int, isolation: int) -> None:
    nodes = FetchComparison()
    nodes.repeat(request(("t", 0, 0), isolation=isolation), version)
    for offset in (3, 4, 0, 9, 15):
        nodes.fetch(request(("t", 0, offset), isolation=isolation), version)
    assert nodes.prepared == 6


@pytest.mark.parametrize("version", [7, 12, 13, NEWEST])
@pytest.mark.parametrize("parts", [["t"], ["t", "t", "u"]])
def test_prepared_fetch_serves_session_requests(version: int, parts: list[str]) -> None:
    nodes = FetchComparison()
    numbers = [parts[:at].count(name) for at, name in enumerate(parts)]

    def ask(offset: int, **more: Any) -> FetchRequest:
        named = zip(parts, numbers, strict=True)
        return request(*((name, number, offset + number) for name, number in named), **more)

    session = nodes.fetch(ask(0, epoch=0), version).session_id
    nodes.repeat(ask(0, session=session, epoch=1), version)
    before = nodes.prepared
    for epoch, offset in enumerate((3, 6, 9, 4), 2 + REPETITIONS):
        nodes.fetch(ask(offset, session=session, epoch=epoch), version)
    assert nodes.prepared == before + 4
    assert nodes.fetch(ask(0, session=session, epoch=1), version).error_code != 0


def test_prepared_fetch_session_epoch_wraps_to_one() -> None:
    nodes = FetchComparison()
    session = open_session(nodes, ("t", 0, 0))
    nodes.repeat(request(("t", 0, 0), session=session, epoch=1))

    def last(fixture: HandlerFixture) -> None:
        fixture.services.fetch_sessions.get(session).epoch = 2**31 - 1

    nodes.change(last)
    before = nodes.prepared
    for epoch in (2**31 - 1, 1, 2):
        nodes.fetch(request(("t", 0, 3), session=session, epoch=epoch))
    assert nodes.prepared == before + 3


def test_prepared_fetch_session_omits_unchanged_partitions() -> None:
    nodes = FetchComparison()
    session = open_session(nodes, ("t", 0, 0))
    nodes.repeat(request(("t", 0, 0), session=session, epoch=1))
    nodes.change(lambda fixture: fixture.hosted.replicas["t", 0].append(make_batch(10), 1_000_000))
    nodes.fetch(request(("t", 0, 3), session=session, epoch=2 + REPETITIONS))
    answer = nodes.fetch(request(("t", 0, 3 * BATCHES + 3), session=session, epoch=3 + REPETITIONS))
    assert answer.responses == []


def move_leader(fixture: HandlerFixture) -> None:
    fixture.hosted.replicas["t", 0].is_leader = False


def next_epoch(fixture: HandlerFixture) -> None:
    fixture.hosted.replicas["t", 0].leader_epoch += 1


def remove_replica(fixture: HandlerFixture) -> None:
    del fixture.hosted.replicas["t", 0]


def change_topic_id(fixture: HandlerFixture) -> None:
    image = fixture.hosted.image
    old, other = image.topics["t"], topic_id_of("other")
    topics = {**image.topics, "t": TopicImage("t", other, old.partitions)}
    fixture.hosted.image = MetadataImage(topics=topics, topic_names={**image.topic_names, other: "t"})


def lower_fetch_max_bytes(fixture: HandlerFixture) -> None:
    fixture.services.fetch_max_bytes = SIZE + 7


def fail_reads(fixture: HandlerFixture) -> None:
    fixture.env.disk.fault = lambda call, path: OSError(5, "broken")


CHANGES = [
    pytest.param(move_leader, False, id="another leader"),
    pytest.param(next_epoch, False, id="another leader epoch"),
    pytest.param(remove_replica, False, id="no replica here"),
    pytest.param(fail_reads, False, id="a disk that fails"),
    pytest.param(lower_fetch_max_bytes, True, id="a lower fetch.max.bytes"),
    pytest.param(change_topic_id, False, id="a topic created anew"),
]


@pytest.mark.parametrize(("change", "prepared"), CHANGES)
def test_prepared_fetch_notices_changes_of_the_node(change: Callable[[HandlerFixture], object], prepared: bool) -> None:
    nodes = FetchComparison()
    nodes.repeat(request(("t", 0, 0)))
    nodes.change(change)
    nodes.fetch(request(("t", 0, 3)))
    assert nodes.prepared == 1 + prepared


OTHER_REQUESTS = [
    pytest.param({"each": SIZE}, id="another limit of the partition"),
    pytest.param({"most": SIZE}, id="another limit"),
    pytest.param({"least": 1 << 20}, id="more bytes to wait for"),
    pytest.param({"leader_epoch": 4}, id="another leader epoch"),
    pytest.param({"isolation": 1}, id="another isolation level"),
    pytest.param({"epoch": 0}, id="a session to open"),
    pytest.param({"session": 5}, id="a session to close"),
]


@pytest.mark.parametrize("more", OTHER_REQUESTS)
def test_prepared_fetch_leaves_other_parameters_to_the_handler(more: dict[str, Any]) -> None:
    nodes = FetchComparison()
    nodes.repeat(request(("t", 0, 0)))
    nodes.fetch(request(("t", 0, 3), **more))
    assert nodes.prepared == 1


@pytest.mark.parametrize("offset", [3 * BATCHES, 3 * BATCHES + 1, -1, 2**62])
def test_prepared_fetch_leaves_offsets_without_records_to_the_handler(offset: int) -> None:
    nodes = FetchComparison()
    nodes.repeat(request(("t", 0, 0)))
    nodes.fetch(request(("t", 0, offset)))
    assert nodes.prepared == 1


def test_prepared_fetch_leaves_fewer_than_min_bytes_to_the_handler() -> None:
    nodes = FetchComparison()
    nodes.repeat(request(("t", 0, 0), least=2 * SIZE))
    nodes.fetch(request(("t", 0, 3 * BATCHES - 3), least=2 * SIZE))
    assert nodes.prepared == 1


def test_prepared_fetch_leaves_aborted_transactions_to_the_handler() -> None:
    nodes = FetchComparison()

    def abort(fixture: HandlerFixture) -> None:
        log = fixture.hosted.replicas["t", 0].log
        append_committed(log, make_transactional_batch(7, 0))
        append_committed(log, make_marker(7, 0))

    nodes.repeat(request(("t", 0, 0), isolation=1))
    nodes.change(abort)
    answer = nodes.fetch(request(("t", 0, 3 * BATCHES), isolation=1))
    assert len(answer.responses[0].partitions[0].aborted_transactions) == 1
    assert nodes.prepared == 1


def test_prepared_fetch_read_committed_ends_at_last_stable_offset() -> None:
    nodes = FetchComparison()

    def begin(fixture: HandlerFixture) -> None:
        append_committed(fixture.hosted.replicas["t", 0].log, make_transactional_batch(7, 0))

    nodes.change(begin)
    nodes.repeat(request(("t", 0, 0), isolation=1))
    answer = nodes.fetch(request(("t", 0, 3 * BATCHES - 3), isolation=1))
    row = answer.responses[0].partitions[0]
    assert (len(row.records), row.last_stable_offset < row.high_watermark) == (SIZE, True)
    assert nodes.prepared == 2


@pytest.mark.parametrize("readable", [True, False])
def test_prepared_fetch_leaves_unreadable_topic_to_the_handler(readable: bool) -> None:
    nodes = FetchComparison()
    authorizer = SimpleNamespace(may_read=lambda context, topic: False)
    nodes.repeat(request(("t", 0, 0)))
    for node in nodes.nodes:
        node.fixture.services.authorizer = authorizer
        node.peer.authorization_cache.readable_topics = {"t"} if readable else {"u"}
    nodes.fetch(request(("t", 0, 3)))
    assert nodes.prepared == 1 + readable


def test_prepared_fetch_leaves_requests_under_quotas_to_the_handler() -> None:
    nodes = FetchComparison()
    nodes.repeat(request(("t", 0, 0)))

    class Quotas:
        def max_fetch_bytes(self, *arguments: Any) -> int:
            return SIZE

        def fetch_throttle_ms(self, *arguments: Any) -> int:
            return 9

    def limit(fixture: HandlerFixture) -> None:
        fixture.services.quota_holder.quotas = Quotas()

    nodes.change(limit)
    assert nodes.fetch(request(("t", 0, 3))).throttle_time_ms == 9
    assert nodes.prepared == 1


def test_prepared_fetch_leaves_session_with_other_partitions_to_the_handler() -> None:
    nodes = FetchComparison()
    session = open_session(nodes, ("t", 0, 0))
    nodes.repeat(request(("t", 0, 0), session=session, epoch=1))
    before = nodes.prepared
    nodes.fetch(request(("u", 0, 0), session=session, epoch=2 + REPETITIONS))
    nodes.fetch(request(("t", 0, 3), session=session, epoch=3 + REPETITIONS))
    assert nodes.prepared == before
    forgotten = [ForgottenTopic("u", topic_id_of("u"), [0])]
    nodes.fetch(request(session=session, epoch=4 + REPETITIONS, forgotten=forgotten))
    nodes.fetch(request(("t", 0, 3), session=session, epoch=5 + REPETITIONS))
    assert nodes.prepared == before + 1


def test_prepared_fetch_leaves_closed_session_to_the_handler() -> None:
    nodes = FetchComparison()
    session = open_session(nodes, ("t", 0, 0))
    nodes.repeat(request(("t", 0, 0), session=session, epoch=1))
    nodes.fetch(request(("t", 0, 0), session=session))
    assert nodes.fetch(request(("t", 0, 3), session=session, epoch=2 + REPETITIONS)).error_code != 0


@pytest.mark.parametrize(("partitions", "prepared"), [(MAX_PARTITIONS, True), (MAX_PARTITIONS + 1, False)])
def test_prepared_fetch_has_a_limit_of_partitions(partitions: int, prepared: bool) -> None:
    nodes = FetchComparison()

    def host(fixture: HandlerFixture) -> None:
        fixture.hosted.host("many", partitions=partitions)
        for number in range(partitions):
            fixture.hosted.replicas["many", number].append(make_batch(10), 1_000_000)

    nodes.change(host)
    for _ in range(REPETITIONS + 1):
        nodes.fetch(request(*(("many", number, 0) for number in range(partitions)), each=SIZE))
    assert nodes.prepared == prepared


def test_prepared_fetch_requires_distinct_partitions() -> None:
    nodes = FetchComparison()
    for _ in range(REPETITIONS + 1):
        nodes.fetch(request(("t", 0, 0), ("t", 0, 3)))
    assert nodes.prepared == 0


NOT_PREPARED = [
    pytest.param({"epoch": 0}, id="sessions are opened"),
    pytest.param({"session": 5}, id="a session is closed"),
    pytest.param({"last_epoch": LEADER_EPOCH}, id="logs may diverge"),
]


@pytest.mark.parametrize("more", NOT_PREPARED)
def test_prepared_fetch_is_not_built_for_other_kinds_of_requests(more: dict[str, Any]) -> None:
    nodes = FetchComparison()
    for _ in range(REPETITIONS + 2):
        nodes.fetch(request(("t", 0, 0), **more))
    assert nodes.prepared == 0


def test_prepared_fetch_is_not_built_for_requests_with_forgotten_topics() -> None:
    nodes = FetchComparison()
    session = open_session(nodes, ("t", 0, 0))
    forgotten = [ForgottenTopic("u", topic_id_of("u"), [0])]
    for epoch in range(1, REPETITIONS + 3):
        nodes.fetch(request(("t", 0, 0), session=session, epoch=epoch, forgotten=forgotten))
    assert nodes.prepared == 0


def abort_first(fixture: HandlerFixture) -> None:
    log = fixture.hosted.replicas["t", 0].log
    append_committed(log, make_transactional_batch(7, 0))
    append_committed(log, make_marker(7, 0))
    for _ in range(3):
        fixture.hosted.replicas["t", 0].append(make_batch(10), 1_000_000)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(1000, 0, id="an offset out of range"),
        pytest.param(3 * BATCHES, 3 * BATCHES + 5, id="an aborted transaction"),
    ],
)
def test_prepared_fetch_is_not_built_for_responses_with_more_than_records(before: int, after: int) -> None:
    nodes = FetchComparison()
    nodes.change(abort_first)
    for _ in range(REPETITIONS):
        nodes.fetch(request(("t", 0, before), isolation=1))
    nodes.fetch(request(("t", 0, after), isolation=1))
    assert nodes.prepared == 0


def test_prepared_fetch_shares_max_bytes_among_partitions() -> None:
    nodes = FetchComparison()
    nodes.repeat(request(("t", 0, 3 * BATCHES - 3), ("t", 1, 0), most=3 * SIZE - 1))
    for offset in (3 * BATCHES - 6, 0):
        answer = nodes.fetch(request(("t", 0, offset), ("t", 1, 0), most=3 * SIZE - 1))
        assert [len(row.records) for row in answer.responses[0].partitions] == [2 * SIZE, 0]
    assert nodes.prepared == 1
    nodes.fetch(request(("t", 0, 3 * BATCHES - 3), ("t", 1, 3 * BATCHES - 3), most=3 * SIZE - 1))
    assert nodes.prepared == 2


def test_prepared_fetch_min_bytes_is_bounded_by_max_bytes() -> None:
    nodes = FetchComparison()
    nodes.repeat(request(("t", 0, 0), least=1 << 20, most=SIZE))
    nodes.fetch(request(("t", 0, 3), least=1 << 20, most=SIZE))
    assert nodes.prepared == 2


def test_prepared_fetch_leaves_requests_to_the_handler_during_log_creation() -> None:
    nodes = FetchComparison()
    nodes.repeat(request(("t", 0, 0)))

    def create(fixture: HandlerFixture) -> None:
        fixture.services.log_creator = {("t", 2)}

    nodes.change(create)
    nodes.fetch(request(("t", 0, 3)))
    assert nodes.prepared == 1


def test_prepared_fetch_values_equal_to_offset_markers_are_not_offsets() -> None:
    """A client may choose the values: the markers of offsets may occur elsewhere, too."""
    nodes = FetchComparison()
    for offset in (0, 3, 6, 9, 0x6B1D_A35E_97F4_0000, 3):
        query = request(("t", 0, offset), least=-0x680C_0000)
        query.max_wait_ms = 0x6B1D_A35E if offset < 100 else 0
        nodes.fetch(query)
    assert nodes.prepared == 0


@pytest.mark.parametrize("seed", range(6))
def test_prepared_fetch_random_requests_equal_the_handler(seed: int) -> None:
    rng = random.Random(seed)
    nodes = FetchComparison()
    parts: list[tuple[str, int]] = [("t", 0)]
    more: dict[str, Any] = {}
    version, session, epoch = NEWEST, 0, -1
    for _ in range(250):
        draw = rng.random()
        if draw < 0.03:
            version = rng.choice((4, 5, 7, 11, 12, 13, 16, NEWEST))
            session, epoch = 0, -1
        elif draw < 0.06:
            parts = rng.sample([("t", 0), ("t", 1), ("u", 0), ("u", 1)], rng.randint(1, 3))
        elif draw < 0.09:
            more = {"each": rng.choice((SIZE, 2 * SIZE, 1 << 20)), "isolation": rng.randint(0, 1)}
        elif draw < 0.12 and version >= 7:
            session, epoch = 0, 0
        elif draw < 0.16:
            name, number = rng.choice("tu"), rng.randint(0, 1)
            nodes.change(lambda f, at=(name, number): f.hosted.replicas[at].append(make_batch(10), 1_000_000))
        elif draw < 0.17:
            nodes.change(next_epoch)
        named = [(name, number, rng.randint(0, 3 * BATCHES)) for name, number in parts]
        answer = nodes.fetch(request(*named, session=session, epoch=epoch, leader_epoch=-1, **more), version)
        if epoch == 0:
            session, epoch = answer.session_id, 1 if answer.session_id else -1
        elif answer.error_code:
            session, epoch = 0, -1
        elif epoch > 0:
            epoch += 1
    assert nodes.prepared > 100
