"""Activity of the Raft replica of a node: rates, commit latency and traffic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.observability.metrics_builder import MetricsBuilder
from ottla.broker.observability.raft_metrics import RaftMetrics
from ottla.broker.observability.tests.metrics_fixture import samples
from ottla.client.channel import ChannelTraffic
from ottla.controller.raft.state_machine.events import LogAppend, Ready
from ottla.jobs.job import run_to_end


class RaftMetricsFixture:
    """`RaftMetrics` of a leader without connections, created at 1,000 ms."""

    def __init__(self) -> None:
        driver: Any = SimpleNamespace(machine=SimpleNamespace(is_leader=True), traffic=None)
        self.driver = driver
        self.metrics = RaftMetrics(driver, 1000)

    def step(self, now_ms: float, *appends: LogAppend, committed: int | None = None) -> None:
        self.metrics.observe(now_ms, Ready(appends=list(appends), committed=committed))

    def samples(self, now_ms: float) -> dict[str, float]:
        page = MetricsBuilder()
        self.metrics.add_metrics(page, now_ms)
        found = samples(b"".join(run_to_end(page.finish())))
        return {name.removeprefix("kafka_server_"): value for name, value in found.items()}


@pytest.fixture
def fixture() -> RaftMetricsFixture:
    return RaftMetricsFixture()


def test_appended_and_fetched_records_have_their_own_rates(fixture: RaftMetricsFixture) -> None:
    fixture.step(2000, LogAppend(0, 4, 1), LogAppend(4, 2, 1))
    fixture.step(3000, LogAppend(6, 60, 1, verbatim=True))
    found = fixture.samples(41_000)
    assert found["raftmetrics_append_records_rate"] == 6 / 40
    assert found["raftmetrics_fetch_records_rate"] == 60 / 40


def test_rate_after_creation_is_over_a_whole_window(fixture: RaftMetricsFixture) -> None:
    fixture.step(1001, LogAppend(0, 30, 1))
    assert fixture.samples(1002)["raftmetrics_append_records_rate"] == 1


def test_rate_leaves_out_records_before_two_windows(fixture: RaftMetricsFixture) -> None:
    fixture.step(2000, LogAppend(0, 60, 1))
    rates = [fixture.samples(1000 + s * 1000)["raftmetrics_append_records_rate"] for s in range(90)]
    assert rates[29] == 2
    assert rates[59] == pytest.approx(60 / 59)
    assert rates[60] == 0


def test_rate_of_rare_scrapes_is_since_the_previous_one(fixture: RaftMetricsFixture) -> None:
    fixture.samples(101_000)
    fixture.step(102_000, LogAppend(0, 50, 1))
    assert fixture.samples(201_000)["raftmetrics_append_records_rate"] == 0.5
    assert fixture.samples(301_000)["raftmetrics_append_records_rate"] == 0


def test_commit_latency_is_average_time_per_record(fixture: RaftMetricsFixture) -> None:
    fixture.step(2000, LogAppend(0, 1, 1))
    fixture.step(2010, LogAppend(1, 4, 1), committed=1)
    assert fixture.samples(2010)["raftmetrics_commit_latency_avg"] == 10
    fixture.step(2020, committed=4)
    assert fixture.samples(2020)["raftmetrics_commit_latency_avg"] == 10, "the batch ends at 5"
    fixture.step(2030, committed=5)
    assert fixture.samples(2030)["raftmetrics_commit_latency_avg"] == (10 + 20 / 4) / 2


def test_commit_latency_is_absent_without_commits(fixture: RaftMetricsFixture) -> None:
    name = "raftmetrics_commit_latency_avg"
    fixture.step(2000, LogAppend(0, 1, 1))
    fixture.driver.machine.is_leader = False
    fixture.step(2010, LogAppend(0, 2, 2, verbatim=True), committed=2)
    assert name not in fixture.samples(2010), "the batch was not committed in this leadership"
    fixture.driver.machine.is_leader = True
    fixture.step(3000, LogAppend(2, 1, 3))
    fixture.step(3001, committed=3)
    found = {s: name in fixture.samples(s * 1000) for s in range(4, 100)}
    assert found[4]
    assert found[60]
    assert not found[99]


def test_traffic_is_zero_before_the_first_request(fixture: RaftMetricsFixture) -> None:
    names = [f"raftchannelmetrics_{name}_total" for name in ("request", "outgoing_byte", "response", "incoming_byte")]
    assert [fixture.samples(1000)[name] for name in names] == [0, 0, 0, 0]
    traffic = fixture.driver.traffic = ChannelTraffic()
    traffic.requests, traffic.request_bytes, traffic.responses, traffic.response_bytes = 1, 2, 3, 4
    assert [fixture.samples(1000)[name] for name in names] == [1, 2, 3, 4]
