"""``ottla top``: parsing of metrics pages, rates, and the table of a node."""

from __future__ import annotations

import json
import socket

import pytest

import ottla
from ottla.cli.commands.top import Scrape, merge_samples, parse_metrics, request_rates, topic_rates
from ottla.cli.tests.command_runs import run_command

PAGE = """# HELP x y
kafka_server_brokertopicmetrics_messagesin_total 7.0
kafka_server_brokertopicmetrics_messagesin_total{topic="a\\"b"} 5.0
kafka_server_brokertopicmetrics_bytesin_total{topic="a\\"b"} 500.0
kafka_server_brokertopicmetrics_messagesin_total{topic="c"} 2.0
kafka_network_requestmetrics_requests_total 30
kafka_network_requestmetrics_requests_total{request="Fetch"} 30
kafka_network_requestmetrics_errors_total{request="Fetch",error="NONE"} 29
kafka_network_requestmetrics_errors_total{request="Fetch",error="X"} 4
kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.99"} 12.34
nonsense
"""
MESSAGES = "kafka_server_brokertopicmetrics_messagesin_total"


def test_parse_metrics_unescapes_labels_and_skips_other_lines() -> None:
    samples = parse_metrics(PAGE)
    assert samples[MESSAGES, (("topic", 'a"b'),)] == 5
    assert samples[MESSAGES, ()] == 7
    assert len(samples) == 9


def test_merge_samples_adds_counters_and_takes_largest_quantile() -> None:
    one = parse_metrics('a 1\nb{quantile="0.5"} 3\n')
    assert merge_samples([one, one, parse_metrics('b{quantile="0.5"} 2\n')]) == {
        ("a", ()): 2,
        ("b", (("quantile", "0.5"),)): 3,
    }


def test_rates_are_increases_per_second_and_busiest_first() -> None:
    before, after = Scrape(1000, {}), Scrape(3000, parse_metrics(PAGE))
    rows = topic_rates(before, after)
    assert [(row["topic"], row["records_in/s"], row["bytes_in/s"]) for row in rows] == [('a"b', 2.5, 250), ("c", 1, 0)]
    assert request_rates(before, after) == [
        {"request": "Fetch", "requests/s": 15, "errors/s": 2, "median_ms": None, "p99_ms": 12.3}
    ]


def test_rate_of_a_counter_that_started_again_is_zero() -> None:
    before, after = Scrape(0, parse_metrics(f'{MESSAGES}{{topic="c"}} 9')), Scrape(1, parse_metrics(PAGE))
    assert [row["records_in/s"] for row in topic_rates(before, after) if row["topic"] == "c"] == [0]


def test_top_prints_topics_and_requests_of_a_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with ottla.Broker(settings={"ottla.metrics.listener": address}) as broker:
        broker.client.create_topic("events")
        broker.client.produce("events", b"x")
        done = run_command("top", "--http", address, "--times", "1", "--interval", "0", "-o", "json")
        assert done.status == 0, done
        assert "events" in [row["topic"] for row in json.loads(done.out)]
        done = run_command("top", "--http", address, "--times", "2", "--interval", "0", "--by", "request")
        assert done.out.count(b"connections, 0 under-replicated partitions") == 2
        assert b"Produce" in done.out


@pytest.mark.parametrize("words", ["--http 127.0.0.1:1", "--http host.invalid:1"])
def test_top_without_a_node_is_one_line(words: str) -> None:
    done = run_command("top", *words.split())
    assert (done.status, len(done.err.splitlines())) == (1, 1)
    assert words.split()[1] in done.err
