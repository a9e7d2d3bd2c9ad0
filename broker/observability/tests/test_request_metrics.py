"""Requests by API: counts, errors, and the quantiles of their times."""

from __future__ import annotations

import pytest

from ottla.broker.observability.metrics_builder import MetricsBuilder
from ottla.broker.observability.request_metrics import HISTOGRAM_BUCKETS, RequestMetrics, bucket_of, error_codes
from ottla.broker.observability.request_observers import PreparedRequestCounts
from ottla.broker.observability.request_samples import RequestSampler, bucket_end_ms, quantiles
from ottla.broker.observability.tests.metrics_fixture import collect
from ottla.broker.requests.peer import Peer
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.compiler import response_array
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import RequestFrame
from ottla.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


class Requests:
    """Requests of one connection, each with the time it takes."""

    def __init__(self) -> None:
        self.now_ms = 1000.0
        self.metrics = RequestMetrics(lambda: self.now_ms)
        self.sampler = RequestSampler(self.metrics)
        self.peer = Peer("h", ("a", 1))
        self.peer.collects_errors = True

    def request(self, key: ApiKey, total_ms: float, waited_ms: float = 0.0, errors: tuple[int, ...] = ()) -> None:
        frame = RequestFrame(key, 3, 1, "me", memoryview(bytes(20)), 8, 3)
        self.peer.request_started_ms = self.now_ms
        self.metrics.received(self.peer, frame)
        for code in errors:
            self.peer.add_request_error(code)
        self.now_ms += total_ms
        self.peer.request_waited_ms = waited_ms
        self.metrics.answered(self.peer, frame, (), 9)

    def samples(self) -> dict[str, float]:
        page = MetricsBuilder()
        return collect(self.sampler.add_samples(page, self.now_ms), page)


def test_requests_and_their_bytes_are_counted_by_api() -> None:
    requests = Requests()
    requests.request(ApiKey.PRODUCE, 1)
    requests.metrics.received(requests.peer, RequestFrame(ApiKey.PRODUCE, 3, 1, "me", memoryview(bytes(20)), 8, 3))
    requests.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, 1)
    found = requests.samples()
    assert found["kafka_network_requestmetrics_requests_total{request=Produce}"] == 2
    assert found["ottla_answers_total{request=Produce}"] == 1
    assert found["ottla_request_bytes_total{request=Produce}"] == 48
    assert found["ottla_answer_bytes_total{request=Produce}"] == 9
    assert found["ottla_answers_total{request=OffsetForLeaderEpoch}"] == 1


def test_prepared_requests_count_as_others() -> None:
    requests = Requests()
    requests.metrics.answered_prepared(requests.peer, PreparedRequestCounts(ApiKey.PRODUCE, 3, 72, 27, 2.0))
    prepared = requests.samples()
    others = Requests()
    for _ in range(3):
        others.request(ApiKey.PRODUCE, 2)
    assert prepared == {**others.samples(), **{name: prepared[name] for name in prepared if "seconds" in name}}
    assert prepared["ottla_request_bytes_total{request=Produce}"] == 72


def test_times_are_split_into_local_and_remote() -> None:
    requests = Requests()
    for _ in range(98):
        requests.request(ApiKey.FETCH, 1)
    for _ in range(2):
        requests.request(ApiKey.FETCH, 500, waited_ms=490)
    found, name = requests.samples(), "kafka_network_requestmetrics"
    total = {q: found[f"{name}_totaltimems{{request=Fetch,quantile={q}}}"] for q in ("0.50", "0.98", "0.99")}
    assert total["0.50"] == total["0.98"] == pytest.approx(1, rel=0.25)
    assert total["0.99"] == pytest.approx(500, rel=0.25)
    assert found[f"{name}_localtimems{{request=Fetch,quantile=0.99}}"] == pytest.approx(10, rel=0.25)
    assert found[f"{name}_remotetimems{{request=Fetch,quantile=0.50}}"] == pytest.approx(490, rel=0.25)
    assert found[f"{name}_totaltimems_count{{request=Fetch}}"] == 100
    assert found[f"{name}_remotetimems_count{{request=Fetch}}"] == 2


def test_quantiles_are_those_of_the_last_two_minutes() -> None:
    requests, at = Requests(), "kafka_network_requestmetrics_totaltimems{request=Fetch,quantile=0.50}"
    requests.now_ms = 100_000.0
    requests.request(ApiKey.FETCH, 1000)
    assert requests.samples()[at] == pytest.approx(1000, rel=0.25)
    requests.now_ms += 30_000
    assert requests.samples()[at] == pytest.approx(1000, rel=0.25)
    requests.now_ms += 61_000
    requests.request(ApiKey.FETCH, 1)
    assert requests.samples()[at] == pytest.approx(1, rel=0.25)
    requests.now_ms += 61_000
    found = requests.samples()
    assert at not in found, "no request in the window"
    assert found["kafka_network_requestmetrics_totaltimems_count{request=Fetch}"] == 2


def test_buckets_are_at_most_a_quarter_wide_and_in_order() -> None:
    before = -1
    for elapsed_us in sorted({0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 100, 999, 1000, 10**6, 3 * 10**6, 10**12, 2**62}):
        bucket = bucket_of(elapsed_us)
        assert before <= bucket < HISTOGRAM_BUCKETS
        before = bucket
        end_us = bucket_end_ms(bucket) * 1000
        assert elapsed_us < end_us <= max(elapsed_us * 1.25 + 0.001, elapsed_us + 1)


def test_quantiles_of_empty_histogram_are_none() -> None:
    assert quantiles([0] * HISTOGRAM_BUCKETS) is None


def test_errors_are_counted_by_api_and_code() -> None:
    requests = Requests()
    requests.request(ApiKey.PRODUCE, 1, errors=(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE))
    requests.request(ApiKey.PRODUCE, 1, errors=(ErrorCode.MESSAGE_TOO_LARGE, 9999))
    requests.request(ApiKey.PRODUCE, 1)
    frame = RequestFrame(ApiKey.HEARTBEAT, 3, 1, "me", memoryview(bytes(20)), 8, 3)
    requests.metrics.received(requests.peer, frame)
    requests.metrics.completed(requests.peer, frame, HeartbeatResponse(0, ErrorCode.UNKNOWN_MEMBER_ID))
    found, name = requests.samples(), "kafka_network_requestmetrics_errors_total"
    assert found[f"{name}{{request=Produce,error=MESSAGE_TOO_LARGE}}"] == 2
    assert found[f"{name}{{request=Produce,error=NOT_LEADER_OR_FOLLOWER}}"] == 1
    assert found[f"{name}{{request=Produce,error=9999}}"] == 1
    assert found[f"{name}{{request=Heartbeat,error=UNKNOWN_MEMBER_ID}}"] == 1
    assert not [key for key in found if "error=NONE" in key]


def test_error_codes_of_rows_are_found_and_their_number_is_bounded() -> None:
    rows = [CreatableTopicResult("t", bytes(16), ErrorCode.TOPIC_ALREADY_EXISTS) for _ in range(1000)]
    assert 150 < len(list(error_codes(CreateTopicsResponse(0, rows)))) <= 200
    streamed = CreateTopicsResponse(0, response_array(CreateTopicsResponse, 7))
    streamed.topics.append(rows[0])
    assert list(error_codes(streamed)) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    parts = [
        OffsetCommitResponsePartition(0, 0),
        OffsetCommitResponsePartition(1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    nested = OffsetCommitResponse(0, [OffsetCommitResponseTopic("t", partitions=parts)])
    assert list(error_codes(nested)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_last_error_of_a_connection_is_kept() -> None:
    requests = Requests()
    requests.request(ApiKey.FETCH, 1, errors=(1, 6))
    assert requests.peer.last_error == (ApiKey.FETCH, 6, 1001.0)
    requests.request(ApiKey.PRODUCE, 1)
    frame = RequestFrame(ApiKey.HEARTBEAT, 3, 1, "me", memoryview(bytes(20)), 8, 3)
    requests.metrics.received(requests.peer, frame)
    requests.metrics.completed(requests.peer, frame, HeartbeatResponse(0, 0))
    assert requests.peer.last_error == (ApiKey.FETCH, 6, 1001.0)
    requests.metrics.completed(requests.peer, frame, HeartbeatResponse(0, 25))
    assert requests.peer.last_error == (ApiKey.HEARTBEAT, 25, 1002.0)


def test_errors_of_rows_are_not_kept_without_an_observer() -> None:
    peer = Peer("h", ("a", 1))
    for _ in range(1000):
        peer.add_request_error(1)
    assert peer.request_errors is None


def test_errors_of_prepared_requests_are_counted_for_their_api() -> None:
    requests = Requests()
    requests.peer.add_request_error(ErrorCode.KAFKA_STORAGE_ERROR)
    requests.metrics.answered_prepared(requests.peer, PreparedRequestCounts(ApiKey.PRODUCE, 3, 300, 150, 1.0))
    requests.request(ApiKey.FETCH, 1)
    found, name = requests.samples(), "kafka_network_requestmetrics_errors_total"
    assert found[f"{name}{{request=Produce,error=KAFKA_STORAGE_ERROR}}"] == 1
    assert requests.peer.request_errors is None
