"""Byte rates of clients (S-345 to S-349 and P-99), and their throttling of connections."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.broker.api_spec import MutationQuota
from ottla.broker.config.limits import MAX_QUOTA_COUNTERS
from ottla.broker.quotas.client_quotas import QuotaManagers
from ottla.broker.quotas.quota_table import COUNTER_EXPIRY_MS, UNLIMITED, Rate
from ottla.broker.requests.peer import QuotaBindings
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.wire.messages import metadata_records
from ottla.wire.messages.create_topics import CreateTopicsResponse


class QuotaClock:
    def __init__(self) -> None:
        self.ms = 5_000.0

    def monotonic_ms(self) -> float:
        return self.ms


class QuotaUser:
    def __init__(self, principal: str = "User:u") -> None:
        self.principal = principal
        self.throttle_ms = 0
        self.request_timer: Any = None
        self.quota_bindings = QuotaBindings()


class FixedRequestTimer:
    """Timer that reports given request times."""

    def __init__(self, *laps_ms: float) -> None:
        self.laps_ms = list(laps_ms)

    def lap_ms(self) -> float:
        return self.laps_ms.pop(0)


class QuotaFixture:
    """Quotas as records, and a clock."""

    def __init__(self) -> None:
        self.clock = QuotaClock()
        env: Any = self.clock
        self.quotas = QuotaManagers(env)
        self.image = MetadataImage()
        self.ahead_ms = 1.7e12

    def set(self, rate: float | None, key: str = "producer_byte_rate", **entity: str | None) -> None:
        """Set a quota; None as ``client_id`` or ``user`` is the default entity, a rate of None removes the quota."""
        rows = [metadata_records.EntityData(kind.replace("_", "-"), name) for kind, name in entity.items()]
        draft = ImageBuilder(self.image)
        draft.replay(metadata_records.ClientQuotaRecord(rows, key, rate or 0.0, rate is None))
        self.image, before = run_to_end(draft.image(1, 1)), draft
        self.quotas.publish(self.image, run_to_end(before.delta(self.image)))

    def produce(self, size: int, client: str = "c", user: str = "u") -> int:
        return self.quotas.produce.maybe_record_and_get_throttle_ms(
            QuotaUser(f"User:{user}"), client, size, self.wall_ms
        )

    @property
    def wall_ms(self) -> float:
        """Return the wall clock time of requests."""
        return self.clock.ms + self.ahead_ms

    def fetch(self, user: QuotaUser, client: str, size: int) -> int:
        return self.quotas.fetch_throttle_ms(user, client, size, self.wall_ms)


# ---------------------------------------------------------------- the rate (345)


def test_rate_window_is_at_least_ten_seconds() -> None:
    rate = Rate()
    rate.record(1100, 0)
    assert rate.measure(0) == (110.0, 10_000.0)
    assert rate.measure(500) == (pytest.approx(1100 / 10.5), 10_500.0)
    assert rate.measure(999) == (pytest.approx(1100 / 10.999), 10_999.0)


def test_rate_sample_lasts_one_second_from_its_first_use() -> None:
    rate = Rate()
    for at in (0, 400, 999, 1000, 1999, 2500):
        rate.record(10, at)
    assert len(rate._samples) == 3
    assert [s.value for s in rate._samples] == [30, 20, 10]
    assert rate.measure(2500) == (pytest.approx(60 / 10.5), 10_500.0)


def test_rate_covers_eleven_seconds_when_window_is_full() -> None:
    rate = Rate()
    for second in range(30):
        rate.record(100, second * 1000)
    value, window_ms = rate.measure(29_999)
    assert window_ms == 10_999  # twelve samples are kept; the one of second 18 has been idle for too long
    assert value == pytest.approx(1100 / 10.999)


def test_rate_sample_idle_for_eleven_seconds_is_reset() -> None:
    rate = Rate()
    rate.record(1000, 0)
    assert rate.measure(10_999)[0] > 0
    assert rate.measure(11_000) == (0.0, 10_000.0)


# ---------------------------------------------------------------- the delay (346)


@pytest.mark.behaviour("S-345")
@pytest.mark.parametrize("seed", range(20))
def test_rate_fast_path_equals_sum_of_samples(seed: int) -> None:
    """Compared with the rule as Kafka defines it: a list of samples, summed up at each measurement."""
    rng, rate, now_ms = Random(seed), Rate(), 5_000.0
    ahead_ms, directly = 1e6, 0
    samples: list[list[float]] = []  # [start, last, value] each; the newest comes first
    for _ in range(2_000):
        now_ms += rng.choice([0.0, 0.5, 90.0, 400.0, 999.0, 1_000.0, 3_000.0 * rng.random(), 12_000.0 * rng.random()])
        if rng.random() < 0.7:
            value = float(rng.randrange(1_000))
            if now_ms + ahead_ms < rate.fast_until_ms and rate.recorded + value <= rate.remaining:
                rate.recorded, rate.recorded_ms = rate.recorded + value, now_ms + ahead_ms
                directly += 1
            else:
                rate.record(value, now_ms)
            if not samples or now_ms - samples[-1][0] >= 1_000:
                samples = [*samples[-11:], [now_ms, now_ms, 0.0]]
            samples[-1][1:] = [now_ms, samples[-1][2] + value]
        else:
            for sample in samples:
                if now_ms - sample[1] >= 11_000:
                    sample[:] = [now_ms, now_ms, 0.0]
            window_ms = now_ms - min((x[0] for x in samples), default=now_ms)
            window_ms = max(window_ms + max(0, 10 - window_ms // 1_000) * 1_000, 1.0)
            total = sum(x[2] for x in samples)
            assert rate.measure(now_ms) == pytest.approx((total * 1_000 / window_ms, window_ms))
            if samples:
                rate.open_fast_path(rng.choice([total, total + 500, 1e9]), now_ms, now_ms + ahead_ms)
    assert directly > 40


def test_throttle_time_lasts_until_rate_is_at_the_limit() -> None:
    fixture = QuotaFixture()
    fixture.set(100, client_id="c")
    assert fixture.produce(1000) == 0  # exactly at it
    assert fixture.produce(500) == 5000  # 150 a second over 10 s: half of it too much
    fixture.clock.ms += 5000
    assert fixture.produce(0) == 5000  # less than ten seconds count as ten, as in Kafka
    fixture.clock.ms += 6000
    assert fixture.produce(0) == 0


@pytest.mark.parametrize("set_by_ms", [0, -3_600_000, 3_600_000])
def test_throttle_time_does_not_depend_on_wall_clock(set_by_ms: float) -> None:
    fixture = QuotaFixture()
    fixture.set(100, client_id="c")
    for _ in range(5):
        assert fixture.produce(100) == 0
        fixture.clock.ms += 100
    fixture.ahead_ms += set_by_ms
    for _ in range(5):
        assert fixture.produce(100) == 0
        fixture.clock.ms += 100
    assert fixture.produce(500) == 5_000  # 1,500 in a window that counts as ten seconds


def test_usage_of_clients_sharing_a_counter_is_added() -> None:
    fixture = QuotaFixture()
    fixture.set(100, user="u")
    for client in ("a", "b", "a", "b"):
        assert fixture.produce(200, client) == 0
    assert fixture.produce(400, "a") == 2000
    fixture.set(50, user="u")
    assert fixture.produce(0, "b") == 14_000


@pytest.mark.parametrize("rate", [1.0, 5e-324])
def test_throttle_time_is_at_most_maximum_int32(rate: float) -> None:
    """Kafka's number overflows; here the response could not be encoded at all."""
    fixture = QuotaFixture()
    fixture.set(rate, user="u")
    assert fixture.produce(100_000_000) == 2**31 - 1
    fixture.set(rate, key="controller_mutation_rate", user="u")
    answer = CreateTopicsResponse()
    changes = fixture.quotas.new_mutation_quota(QuotaUser(), "c", MutationQuota(strict_since=6), 5)
    assert changes is not None
    changes.record(10_000_000)
    changes.set_throttle_time(answer)
    assert answer.throttle_time_ms == 2**31 - 1


def test_usage_is_counted_only_with_a_quota_of_that_type() -> None:
    fixture = QuotaFixture()
    assert not fixture.quotas.is_enabled
    fixture.set(100, key="consumer_byte_rate", client_id="c")
    assert fixture.quotas.is_enabled
    assert fixture.produce(10**9) == 0
    fixture.set(100, client_id="c")
    assert fixture.produce(1000) == 0
    fixture.set(None, client_id="c")
    assert fixture.produce(10**9) == 0
    fixture.set(None, key="consumer_byte_rate", client_id="c")
    assert not fixture.quotas.is_enabled


def test_quotas_of_other_types_do_not_enable_client_quotas() -> None:
    fixture = QuotaFixture()
    fixture.set(1, key="connection_creation_rate", ip="10.0.0.1")
    assert not fixture.quotas.is_enabled


# ---------------------------------------------------------------- request times (346, 349)


def timed(fixture: QuotaFixture, *laps_ms: float) -> QuotaUser:
    user = QuotaUser()
    user.request_timer = FixedRequestTimer(*laps_ms)
    return user


def test_requests_are_timed_only_with_a_request_quota() -> None:
    fixture = QuotaFixture()
    fixture.set(100, client_id="c")
    assert (fixture.quotas.is_enabled, fixture.quotas.times_requests) == (True, False)
    fixture.set(10, key="request_percentage", client_id="c")
    assert fixture.quotas.times_requests
    assert fixture.quotas.request_throttle_ms(QuotaUser(), "c") == 0, "a request that is not timed"
    fixture.set(None, key="request_percentage", client_id="c")
    assert (fixture.quotas.is_enabled, fixture.quotas.times_requests) == (True, False)


def test_request_percentage_100_is_one_second_per_second() -> None:
    fixture = QuotaFixture()
    fixture.set(10, key="request_percentage", user="u")
    user = timed(fixture, 1000, 20)
    assert fixture.quotas.request_throttle_ms(user, "c") == 0, "a second in ten is ten percent"
    assert fixture.quotas.request_throttle_ms(user, "c") == 200, "10.2 percent in ten seconds: a fiftieth too much"
    assert user.throttle_ms == 200


def test_request_throttle_time_is_at_most_one_second() -> None:
    fixture = QuotaFixture()
    fixture.set(1, key="request_percentage", user="u")
    assert fixture.quotas.request_throttle_ms(timed(fixture, 60_000), "c") == 1000


def test_response_time_counts_for_next_request() -> None:
    fixture = QuotaFixture()
    fixture.set(1, key="request_percentage", user="u")
    user = timed(fixture, 50, 100, 0)
    assert fixture.quotas.request_throttle_ms(user, "c") == 0
    fixture.quotas.record_response(user, "c")
    assert user.throttle_ms == 0
    assert fixture.quotas.request_throttle_ms(user, "c") == 1000, "1.5 percent: it would be five seconds"


def test_fetch_throttled_by_request_time_records_no_bytes() -> None:
    fixture = QuotaFixture()
    fixture.set(1, key="request_percentage", user="u")
    fixture.set(100, key="consumer_byte_rate", user="u")
    user = timed(fixture, 110, 0)
    assert fixture.fetch(user, "c", 900) == 1000
    assert fixture.fetch(QuotaUser(), "c", 1000) == 0, "nothing was counted before"
    assert fixture.fetch(QuotaUser(), "c", 500) == 5000


def test_changed_limit_applies_to_existing_counters() -> None:
    fixture = QuotaFixture()
    fixture.set(1000, user="u")
    assert fixture.produce(5000) == 0
    fixture.set(100, user="u")
    assert fixture.produce(0) == 40_000  # 500 a second, four times too much over 10 s


def test_counters_idle_for_an_hour_are_removed() -> None:
    fixture = QuotaFixture()
    fixture.set(100, client_id=None)
    for number in range(5):
        fixture.produce(1, client=f"c{number}")
    kind = fixture.quotas._managers_by_key["producer_byte_rate"]
    assert len(kind._counters) == 5
    fixture.clock.ms += COUNTER_EXPIRY_MS
    fixture.produce(1, client="c0")
    assert len(kind._counters) == 1


@pytest.mark.behaviour("P-9")
def test_throttled_fetch_returns_no_records_and_is_not_counted() -> None:
    fixture = QuotaFixture()
    fixture.set(100, key="consumer_byte_rate", client_id="c")
    user = QuotaUser()
    assert fixture.fetch(user, "c", 900) == 0
    assert fixture.fetch(user, "c", 600) == 5000
    assert user.throttle_ms == 5000
    assert fixture.fetch(user, "c", 100) == 0
    assert fixture.quotas.max_fetch_bytes(user, "c", 10**6) == 1000
    assert fixture.quotas.max_fetch_bytes(user, "c", 10) == 10
    assert fixture.quotas.max_fetch_bytes(user, "other", 10**6) == 10**6


NAMED: dict[str, dict[str, str | None]] = {
    "user and client": {"user": "u", "client_id": "c"},
    "user and any client": {"user": "u", "client_id": None},
    "user": {"user": "u"},
    "any user and client": {"user": None, "client_id": "c"},
    "any user and any client": {"user": None, "client_id": None},
    "any user": {"user": None},
    "client": {"client_id": "c"},
    "any client": {"client_id": None},
}


@pytest.mark.parametrize("first", range(len(NAMED)))
def test_most_specific_quota_entity_applies(first: int) -> None:
    fixture = QuotaFixture()
    for number, entity in enumerate(list(NAMED.values())[first:], first + 1):
        fixture.set(number * 1000, **entity)
    bound = fixture.quotas._managers_by_key["producer_byte_rate"].binding("User:u", "c")
    assert bound is not None
    assert bound.limit == (first + 1) * 1000


@pytest.mark.parametrize(
    ("entity", "shared"),
    [
        ({"client_id": "c"}, {("u", "c"), ("v", "c")}),
        ({"client_id": None}, {("u", "c"), ("v", "c")}),
        ({"user": "u"}, {("u", "c"), ("u", "d")}),
        ({"user": None}, {("u", "c"), ("u", "d")}),
        ({"user": "u", "client_id": "c"}, {("u", "c")}),
        ({"user": None, "client_id": None}, {("u", "c")}),
    ],
)
def test_quota_entity_determines_shared_counters(entity: dict[str, str | None], shared: set[tuple[str, str]]) -> None:
    fixture = QuotaFixture()
    fixture.set(100, **entity)
    kind = fixture.quotas._managers_by_key["producer_byte_rate"]
    mine = kind.binding("User:u", "c")
    assert mine is not None
    same = {
        (u, c)
        for u in "uv"
        for c in "cd"
        if (found := kind.binding(f"User:{u}", c)) is not None and found.counter_key == mine.counter_key
    }
    assert same == shared


def test_client_without_client_id_has_only_user_quota() -> None:
    fixture = QuotaFixture()
    fixture.set(100, client_id=None)
    kind = fixture.quotas._managers_by_key["producer_byte_rate"]
    assert kind.binding("User:u", "").limit == UNLIMITED
    fixture.set(200, user=None)
    found = kind.binding("User:u", "")
    assert found is not None
    assert found.limit == 200


def test_quotas_of_first_image_apply() -> None:
    fixture = QuotaFixture()
    fixture.set(100, user="u")
    env: Any = fixture.clock
    again = QuotaManagers(env)
    again.publish(fixture.image, MetadataDelta.from_empty(fixture.image))
    assert again.is_enabled
    assert again.produce.maybe_record_and_get_throttle_ms(QuotaUser(), "c", 2000, fixture.wall_ms) == 10_000


def test_counters_of_changing_client_ids_are_bounded() -> None:
    fixture = QuotaFixture()
    fixture.set(100, client_id=None)
    kind = fixture.quotas._managers_by_key["producer_byte_rate"]
    assert fixture.produce(5_000, "busy") > 0
    for number in range(MAX_QUOTA_COUNTERS + 5_000):
        fixture.produce(1, f"c{number}")
        if number % 1000 == 0:
            assert fixture.produce(1, "busy") > 0, "who comes again is known again"
    assert len(kind._counters) == MAX_QUOTA_COUNTERS
    for number in range(100):
        fixture.produce(1, "x" * 30_000 + str(number))
    assert max(len(client) for _, client in [*kind._counters, *kind.bindings]) <= 255


def test_quota_of_overlong_client_id_applies_only_to_it() -> None:
    fixture, name = QuotaFixture(), "x" * 300
    fixture.set(10, client_id=name)
    assert fixture.produce(5_000, name) > 0
    assert fixture.produce(5_000, name + "y") == 0
