"""Groups of reports of prepared requests, their times, and what is reported when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.network.prepared_request_counter import BURSTS_PER_REPORT, PreparedRequestCounter
from ottla.broker.observability.request_observers import PreparedRequestCounts
from ottla.wire.api_keys import ApiKey

PRODUCE: Any = SimpleNamespace(key=ApiKey.PRODUCE)
FETCH: Any = SimpleNamespace(key=ApiKey.FETCH)


class CounterFixture:
    """Counter with a clock that the test sets, and its reports."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.reports: list[PreparedRequestCounts] = []
        self.time_slice = SimpleNamespace(started_ms=0.0)
        env: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        observer: Any = SimpleNamespace(answered_prepared=lambda peer, counts: self.reports.append(counts))
        time_slice: Any = self.time_slice
        peer: Any = None
        self.counter = PreparedRequestCounter(env, peer, time_slice, observer)

    def burst(self, prepared: Any, requests: int, elapsed_ms: float = 0.0) -> None:
        """Count a burst with 100 bytes for each request and 10 for each response."""
        self.time_slice.started_ms = self.now_ms
        self.counter.start(prepared, 1000, 50, 7)
        self.now_ms += elapsed_ms
        self.counter.stop(1000 + 100 * requests, 50 + 10 * requests, 7 + requests)


@pytest.fixture
def fixture() -> CounterFixture:
    return CounterFixture()


def test_bursts_are_reported_together_with_the_time_of_the_first(fixture: CounterFixture) -> None:
    for number in range(BURSTS_PER_REPORT):
        assert fixture.reports == []
        fixture.burst(PRODUCE, 2, elapsed_ms=3.0 if number == 0 else 50.0)
    count = 2 * BURSTS_PER_REPORT
    assert fixture.reports == [(ApiKey.PRODUCE, count, 100 * count, 10 * count, 3.0)]


def test_report_hands_over_unreported_counts_once(fixture: CounterFixture) -> None:
    fixture.counter.report()
    assert fixture.reports == []
    fixture.burst(PRODUCE, 3)
    fixture.counter.report()
    fixture.counter.report()
    assert [each.requests for each in fixture.reports] == [3]
    fixture.burst(PRODUCE, 4)
    fixture.counter.report()
    assert [each.requests for each in fixture.reports] == [3, 4]


def test_start_with_another_prepared_request_reports_the_former(fixture: CounterFixture) -> None:
    fixture.burst(PRODUCE, 3)
    fixture.counter.start(FETCH, 0, 0, 0)
    assert [(each.key, each.requests) for each in fixture.reports] == [(ApiKey.PRODUCE, 3)]
    fixture.counter.start(PRODUCE, 500, 20, 2)  # the burst of the other one ends here
    assert fixture.reports[1:] == [(ApiKey.FETCH, 2, 500, 20, 0.0)]


def test_stop_without_a_burst_counts_nothing(fixture: CounterFixture) -> None:
    fixture.burst(PRODUCE, 3)
    fixture.counter.stop(5000, 500, 50)
    fixture.counter.report()
    assert [each.requests for each in fixture.reports] == [3]
