"""Pages and changes of topics, as a browser without scripts uses them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

import ottla
from ottla.console.tests.console_fixture import TIMEOUT_S, Browser, ConsoleFixture, console

pytestmark = pytest.mark.xdist_group(__name__)


@pytest.fixture(scope="module")
def running() -> Iterator[ConsoleFixture]:
    with console() as made:
        made.broker.client.create_topic("orders", 3, settings={"retention.ms": "1000000"})
        made.broker.produce("orders", *[f"value {n}" for n in range(30)])
        yield made


@pytest.fixture
def browser(running: ConsoleFixture) -> Browser:
    return running.browser()


def test_overview_shows_nodes_partitions_and_traffic(browser: Browser) -> None:
    page = browser.get("/")
    assert "Broker Quorum Leads Replicas 1 127.0.0.1:" in page.text
    assert "alive leader" in page.text
    assert "Offline partitions 0" in page.text
    assert f"Version of node 1 Ottla {ottla.__version__} Protocol version Apache Kafka 4.3.1" in page.text
    assert "Warnings" not in page.text


def test_topic_shows_partitions_with_offsets_and_settings_with_sources(browser: Browser) -> None:
    assert "orders 3 1 0" in browser.get("/topics").text
    assert "No topics." in browser.get("/topics?q=nothing").text
    page = browser.get("/topic?name=orders")
    assert re.search(r"0 1 1 1 0 10 10 \d+ B 1 Delete", page.text), (
        "partition, leader, replicas, in sync, first, end, records, size, segments"
    )
    assert "retention.ms 1000000 topic" in page.text
    assert "segment.ms 604800000 default" in page.text


def test_topics_show_records_and_bytes_in_a_second(running: ConsoleFixture, browser: Browser) -> None:
    running.broker.produce("busy", *["value of the record"] * 100)
    found = re.search(r"busy 1 1 0 [\d.]+ \S+ ([\d,.]+) ([\d,.]+ [KM]?i?B)", browser.get("/topics?q=busy").text)
    assert found is not None
    assert float(found[1].replace(",", "")) > 0
    assert found[2] != "0 B"


def test_topic_shows_the_number_of_segments_of_each_partition(running: ConsoleFixture, browser: Browser) -> None:
    running.broker.client.create_topic("rolled", 2, settings={"segment.bytes": "1048576"})
    for _ in range(3):
        running.broker.produce("rolled", "x" * 600_000, partition=1)
    text = browser.get("/topic?name=rolled").text
    assert re.search(r" 0 1 1 1 0 0 0 0 B 1 Delete .* 1 1 1 1 0 3 3 [\d.]+ MiB 3 Delete", text), text


def test_unknown_topic_page_and_path_are_errors_with_a_name(browser: Browser) -> None:
    page = browser.get("/topic?name=absent")
    assert (page.status, "topic absent does not exist" in page.text) == (404, True)
    assert browser.get("/topic").status == 400
    assert browser.get("/absent").status == 404
    assert browser.request("PUT", "/").status == 405
    assert browser.get("/topics?first=x").status == 400
    assert browser.get("/topics?first=99999999999999999999999").status == 400


def test_topic_is_created_altered_extended_and_deleted_after_confirmations(
    browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.console")
    form = browser.get("/topic/new").form("/topic/new")
    refused = browser.submit(form, name="not/allowed", partitions="2")
    assert refused.status == 400
    confirmation, done = browser.change(form, name="made", partitions="2", settings="retention.ms=5000")
    assert "A new topic with 2 partitions" in confirmation.text
    assert "Topic made was created with 2 partitions." in done.text
    assert "retention.ms 5000 topic" in browser.get("/topic?name=made").text

    form = browser.get("/topic/partitions?name=made").form("/topic/partitions")
    assert browser.submit(form, total="2").status == 400
    confirmation, done = browser.change(form, total="5")
    assert "the order by key is lost" in confirmation.text
    assert "Topic made has 5 partitions." in done.text

    form = browser.get("/topic/setting?name=made&key=retention.ms").form("/topic/setting")
    confirmation, done = browser.change(form, value="7000")
    assert "retention.ms is 5000 now" in confirmation.text
    assert "retention.ms 7000 topic" in browser.get("/topic?name=made").text
    assert browser.submit(browser.submit(form, value="x").form("/topic/setting")).status == 400
    browser.change(form, remove="yes")
    assert "retention.ms 604800000 default" in browser.get("/topic?name=made").text

    confirmation, done = browser.change(browser.get("/topic?name=made").form("/topic/delete"))
    assert "5 partitions with up to 0 records are lost for good" in confirmation.text
    assert "Topic made was deleted." in done.text
    assert browser.get("/topic?name=made").status == 404
    lines = [record.getMessage() for record in caplog.records if "Change by console" in record.getMessage()]
    assert len(lines) == 6
    assert lines[0].endswith("from host = 127.0.0.1: Create topic made: done")
    assert "failed:" in lines[3]


def test_form_without_confirmation_changes_nothing(browser: Browser) -> None:
    browser.submit(browser.get("/topic?name=orders").form("/topic/delete"))
    assert browser.get("/topic?name=orders").status == 200


def test_records_before_an_offset_are_deleted_after_their_number_was_named(
    running: ConsoleFixture, browser: Browser
) -> None:
    running.broker.produce("shrinks", *[b"x"] * 10)
    form = browser.get("/topic/delete-records?name=shrinks&partition=0").form("/topic/delete-records")
    confirmation, done = browser.change(form, before="4")
    assert "Up to 4 records before offset 4 of shrinks-0 are lost" in confirmation.text
    assert "shrinks-0 starts at offset 4." in done.text
    assert "0 1 1 1 4 10 6" in browser.get("/topic?name=shrinks").text


def read_events(port: int, path: str, count: int) -> list[tuple[str, str]]:
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    connection.request("GET", path)
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "text/event-stream"
    out = []
    while len(out) < count:
        line = response.readline().decode()
        assert line, "the stream has ended"
        if line.startswith("event: "):
            out.append((line[7:].strip(), json.loads(response.readline().decode().removeprefix("data: "))))
    connection.close()
    return out


def test_live_part_of_a_topic_is_sent_again_once_it_has_changed(running: ConsoleFixture) -> None:
    running.broker.produce("lively", b"1")
    (name, html), *_ = read_events(running.port, "/live/topic?name=lively", 1)
    assert name == "live"
    assert '<td class="number">1</td>' in html
    problem = "topic absent: topic absent does not exist"
    assert read_events(running.port, "/live/topic?name=absent", 1) == [("problem", problem)]


def test_static_files_have_their_types_and_no_page_names_another_host(browser: Browser) -> None:
    assert browser.get("/static/console.css").headers["Content-Type"] == "text/css; charset=utf-8"
    assert browser.get("/static/console.js").headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert browser.get("/static/icon.svg").headers["Content-Type"] == "image/svg+xml"
    for path in ("/", "/topics", "/topic?name=orders", "/topic/new"):
        for _, found in browser.get(path).markup.tags:
            for name in ("href", "src", "action"):
                assert found.get(name, "/")[0] in "/#", found
