"""Quota bindings cached on a connection: counted as without the cache, also through Produce and Fetch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.fetch.tests.test_fetch import request, rows_of
from ottla.broker.handlers.produce import produce
from ottla.broker.handlers.produce.tests.test_produce import request as bringing
from ottla.broker.quotas.client_quotas import QuotaManagers
from ottla.broker.quotas.tests.test_client_quotas import QuotaFixture, QuotaUser
from ottla.broker.requests.peer import UNKNOWN_QUOTA, Peer
from ottla.broker.tests import handler_fixture
from ottla.broker.tests.handler_fixture import start
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey


def held(fixture: QuotaFixture, user: QuotaUser, client: str, size: int) -> bool:
    """Return True when the cached binding covers these produced bytes, as the handler checks it."""
    binding = user.quota_bindings.produce
    return bool(binding.client_id == client and binding.try_record(size, fixture.wall_ms))


def test_cached_binding_counts_usage_of_all_clients_below_the_limit() -> None:
    fixture, user = QuotaFixture(), QuotaUser()
    fixture.set(100, client_id="c")
    assert not held(fixture, user, "c", 1), "nobody has looked yet"
    assert fixture.quotas.produce.maybe_record_and_get_throttle_ms(user, "c", 400, fixture.wall_ms) == 0
    assert held(fixture, user, "c", 500)
    assert fixture.produce(100) == 0  # now exactly at the limit
    assert not held(fixture, user, "c", 1)
    assert fixture.quotas.produce.maybe_record_and_get_throttle_ms(user, "c", 500, fixture.wall_ms) == 5000


@pytest.mark.parametrize("passes_ms", [-1, 1_000])
def test_cached_binding_is_valid_only_within_its_second(passes_ms: float) -> None:
    fixture, user = QuotaFixture(), QuotaUser()
    fixture.set(100, client_id="c")
    fixture.quotas.produce.maybe_record_and_get_throttle_ms(user, "c", 1, fixture.wall_ms)
    assert held(fixture, user, "c", 1)
    fixture.clock.ms += passes_ms
    assert not held(fixture, user, "c", 1)


@pytest.mark.parametrize(
    ("rate", "entity"), [(50, {"client_id": "c"}), (None, {"client_id": "c"}), (50, {"user": "u"}), (50, {"user": "x"})]
)
def test_cached_binding_is_invalidated_by_quota_changes(rate: float | None, entity: dict[str, str | None]) -> None:
    fixture, user = QuotaFixture(), QuotaUser()
    fixture.set(100, client_id="c")
    fixture.quotas.produce.maybe_record_and_get_throttle_ms(user, "c", 1, fixture.wall_ms)
    before = user.quota_bindings.produce
    fixture.set(rate, **entity)
    assert before.client_id is None
    assert not before.try_record(1, fixture.wall_ms)


def test_cached_unlimited_binding_is_valid_until_a_quota_is_set() -> None:
    fixture, user = QuotaFixture(), QuotaUser()
    fixture.set(100, client_id="other")
    assert fixture.quotas.produce.maybe_record_and_get_throttle_ms(user, "c", 10**9, fixture.wall_ms) == 0
    fixture.clock.ms += 10**7
    assert held(fixture, user, "c", 10**12)
    fixture.set(100, client_id=None)
    assert not held(fixture, user, "c", 1)
    assert fixture.quotas.produce.maybe_record_and_get_throttle_ms(user, "c", 2000, fixture.wall_ms) == 10_000, (
        "what was brought before did not count"
    )


def test_cached_binding_is_specific_to_client_id() -> None:
    fixture, user = QuotaFixture(), QuotaUser()
    fixture.set(100, client_id="c")
    fixture.set(200, client_id="d")
    assert fixture.quotas.produce.maybe_record_and_get_throttle_ms(user, "c", 1000, fixture.wall_ms) == 0
    assert not held(fixture, user, "d", 1)
    assert fixture.quotas.produce.maybe_record_and_get_throttle_ms(user, "d", 1500, fixture.wall_ms) == 0
    assert held(fixture, user, "d", 500)
    assert not held(fixture, user, "c", 0)


def test_evicted_binding_is_not_used_with_an_old_limit() -> None:
    fixture, user = QuotaFixture(), QuotaUser()
    fixture.set(100, client_id=None)
    fixture.quotas.produce.maybe_record_and_get_throttle_ms(user, "c", 1, fixture.wall_ms)
    for number in range(10_001):
        fixture.quotas.produce.binding("User:u", f"c{number}")
    assert not held(fixture, user, "c", 1)
    fixture.set(10, client_id=None)
    assert fixture.quotas.produce.maybe_record_and_get_throttle_ms(user, "c", 200, fixture.wall_ms) == 10_100


def test_overlong_client_id_has_no_cached_binding() -> None:
    fixture, user, name = QuotaFixture(), QuotaUser(), "x" * 300
    fixture.set(100, client_id=name)
    assert fixture.quotas.produce.maybe_record_and_get_throttle_ms(user, name, 10, fixture.wall_ms) == 0
    assert user.quota_bindings.produce is UNKNOWN_QUOTA


def test_fetch_binding_is_cached_unless_request_time_is_limited() -> None:
    fixture, user = QuotaFixture(), QuotaUser()
    fixture.set(100, key="consumer_byte_rate", client_id="c")
    assert fixture.fetch(user, "c", 10) == 0
    assert (user.quota_bindings.fetch.client_id, user.quota_bindings.fetch.max_in_window) == ("c", 1000)
    before = user.quota_bindings.fetch
    fixture.set(10, key="request_percentage", client_id="c")
    assert not before.try_record(1, fixture.wall_ms)
    assert fixture.fetch(user, "c", 10) == 0
    assert user.quota_bindings.fetch is before, "nothing new is held"
    fixture.set(None, key="request_percentage", client_id="c")
    assert fixture.fetch(user, "c", 10) == 0
    assert user.quota_bindings.fetch.client_id == "c"


@pytest.mark.parametrize("every_ms", [1, 50])
@pytest.mark.parametrize("key", ["producer_byte_rate", "consumer_byte_rate"])
def test_cached_binding_keeps_average_rate_at_the_quota(key: str, every_ms: int) -> None:
    fixture, user, had_bytes = QuotaFixture(), QuotaUser(), 0
    fixture.set(50_000, key=key, client_id="c")
    rates, name = (fixture.quotas.fetch, "fetch") if key.startswith("consumer") else (fixture.quotas.produce, "produce")
    until_ms = fixture.clock.ms + 120_000
    while fixture.clock.ms < until_ms:
        is_covered = getattr(user.quota_bindings, name).try_record(5_000, fixture.wall_ms)
        wait_ms = 0 if is_covered else rates.maybe_record_and_get_throttle_ms(user, "c", 5_000, fixture.wall_ms)
        if key.startswith("producer") or not wait_ms:
            had_bytes += 5_000
        fixture.clock.ms += max(wait_ms, every_ms)
    assert had_bytes == pytest.approx(50_000 * 120, rel=0.05)


# ---------------------------------------------------------------- through the handlers

SIZE = len(make_batch(10))


class QuotaConnection:
    """Connection to a node with topic t and ten batches, under quotas with a fixed clock."""

    def __init__(self) -> None:
        self.node, self.rules = handler_fixture.HandlerFixture(), QuotaFixture()
        replica = self.node.hosted.host("t")
        for _ in range(10):
            replica.append(make_batch(10), 1_000_000)
        env: Any = self.node.env
        self.rules.quotas = self.node.services.quota_holder.quotas = QuotaManagers(env)
        self.peer = Peer("127.0.0.1", ("here", 9092))

    def _context(self, key: ApiKey, version: int, client: str) -> Any:
        return replace(self.node.context(key, version, client), peer=self.peer, frame=bytes(100))

    def bring(self, client: str = "c") -> int:
        """Send a produce request of 100 bytes; return the throttle time."""
        value = bringing(("t", 0, bytearray(make_batch(10))), acks=1)
        answer: Any = produce.handle(self._context(ApiKey.PRODUCE, 12, client), value)
        return int(answer.throttle_time_ms)

    def fetch_bytes(self, client: str = "c", **more: Any) -> tuple[int, int]:
        """Fetch; return the bytes of records and the throttle time."""
        answer: Any = start(fetch.handle(self._context(ApiKey.FETCH, 12, client), request(("t", 0, 0), **more)))
        return sum(len(row.records) for row in rows_of(answer)), int(answer.throttle_time_ms)


def test_produce_requests_count_with_and_without_cached_binding() -> None:
    connection = QuotaConnection()
    connection.rules.set(100, client_id="c")
    waits = [connection.bring() for _ in range(12)]
    assert waits == [0] * 10 + [1000, 2000]
    assert connection.bring("other") == 0
    assert connection.bring() == 3000
    connection.rules.set(50, client_id="c")
    assert connection.bring() == 18_000


def test_fetches_count_and_are_bounded_by_the_quota() -> None:
    connection, row = QuotaConnection(), fetch.PARTITION_OVERHEAD_BYTES
    connection.rules.set((3 * SIZE + 2 * row) / 10, key="consumer_byte_rate", client_id="c")
    assert connection.fetch_bytes(most=SIZE) == (SIZE, 0)
    assert connection.peer.quota_bindings.fetch.client_id == "c"
    assert connection.fetch_bytes(most=SIZE) == (SIZE, 0)
    assert connection.fetch_bytes("other") == (10 * SIZE, 0)
    size_bytes, wait_ms = connection.fetch_bytes()
    assert (size_bytes, wait_ms > 0) == (0, True), "what it holds bounds each, and all of them together"
    connection.rules.set(SIZE, key="consumer_byte_rate", client_id="c")
    assert connection.fetch_bytes(most=SIZE) == (SIZE, 0)


@pytest.mark.parametrize("holds", [False, True])
def test_fetch_reads_no_more_than_its_quota_allows(*, holds: bool) -> None:
    connection = QuotaConnection()
    most = int(SIZE * 3.5)
    connection.rules.set(most / 10, key="consumer_byte_rate", client_id="c")
    if holds:
        connection.rules.quotas.fetch.maybe_record_and_get_throttle_ms(
            connection.peer, "c", 0, connection.node.env.now_ms()
        )
    assert (connection.peer.quota_bindings.fetch is UNKNOWN_QUOTA) is not holds
    assert connection.fetch_bytes() == (0, round(fetch.PARTITION_OVERHEAD_BYTES / most * 10_000))
