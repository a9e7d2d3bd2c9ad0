"""Pages of groups, connections and the cluster; reset of offsets."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.support.raw_client import RawClient
from ottla.console.tests.console_fixture import Browser, ConsoleFixture, console
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

pytestmark = pytest.mark.xdist_group(__name__)
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def running() -> Iterator[ConsoleFixture]:
    with console() as made:
        made.broker.client.create_topic("orders", 2)
        made.broker.produce("orders", *[b"x"] * 10, partition=0)
        made.broker.produce("orders", *[b"x"] * 20, partition=1)
        yield made


@pytest.fixture
def browser(running: ConsoleFixture) -> Browser:
    return running.browser()


def consumer(running: ConsoleFixture, group: str, protocol: str = "classic", **settings: str) -> Consumer:
    servers = {"bootstrap.servers": running.broker.bootstrap_servers, "group.id": group, "group.protocol": protocol}
    return Consumer({**servers, "auto.offset.reset": "earliest", "enable.auto.commit": False, **settings})


def commit(running: ConsoleFixture, group: str, *offsets: int) -> None:
    member = consumer(running, group)
    member.commit(offsets=[TopicPartition("orders", n, offset) for n, offset in enumerate(offsets)], asynchronous=False)
    member.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_shows_members_assignment_and_lag(running: ConsoleFixture, browser: Browser, protocol: str) -> None:
    name = f"readers-{protocol}"
    member = consumer(running, name, protocol, **{"client.id": "till"})
    member.subscribe(["orders"])
    seen = 0
    while seen < 10:
        seen += len(member.consume(10 - seen, 0.5))
    member.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
    page = browser.get(f"/group?id={name}")
    assert f"Type {protocol} State Stable Lag 6 Members 1" in page.text
    assert "till /127.0.0.1" in page.text
    assert "orders: 0, 1" in page.text
    assert re.search(r"orders 0 4 10 6 [\d.]+ till orders 1 – 20 – – till", page.text)  # noqa: RUF001 - unknown numbers
    assert f"{name} {protocol} Stable consumer" in browser.get("/groups").text
    refused = browser.submit(browser.get(f"/group/offsets?id={name}").form("/group/offsets"), target="earliest")
    assert (refused.status, "stop its members first" in refused.text) == (400, True)
    refused = browser.submit(browser.submit(page.form("/group/delete")).form("/group/delete"))
    assert refused.status == 400, refused.text
    member.close()


@pytest.mark.parametrize(
    ("fields", "offsets"),
    [
        ({"target": "earliest"}, (0, 0)),
        ({"target": "latest"}, (10, 20)),
        ({"target": "offset", "value": "15"}, (10, 15)),
        ({"target": "shift", "value": "-2"}, (3, 6)),
        ({"target": "time", "value": "0"}, (0, 0)),
        ({"target": "time", "value": "9999999999999"}, (10, 20)),
        ({"target": "latest", "topic": "orders", "partition": "1"}, (5, 20)),
    ],
)
def test_offsets_are_shown_before_they_are_reset(
    running: ConsoleFixture, browser: Browser, fields: dict[str, str], offsets: tuple[int, int]
) -> None:
    commit(running, "resets", 5, 8)
    form = browser.get("/group/offsets?id=resets").form("/group/offsets")
    confirmation = browser.submit(form, **fields)
    assert f"orders-1: 8 becomes {offsets[1]}" in confirmation.text
    assert "orders 0 5 10 5" in browser.get("/group?id=resets").text, "a dry run changes nothing"
    done = browser.submit(confirmation.form("/group/offsets"))
    assert "of group resets were set" in done.text
    text = browser.get("/group?id=resets").text
    assert f"orders 0 {offsets[0]} 10 {10 - offsets[0]}" in text
    assert f"orders 1 {offsets[1]} 20 {20 - offsets[1]}" in text


def test_invalid_reset_and_unknown_group_are_errors_with_the_cause(running: ConsoleFixture, browser: Browser) -> None:
    commit(running, "invalid", 5)
    form = browser.get("/group/offsets?id=invalid").form("/group/offsets")
    for fields in (
        {"target": "absent"},
        {"target": "offset", "value": ""},
        {"target": "offset", "value": "x"},
        {"target": "latest", "topic": "absent"},
        {"target": "latest", "topic": "orders", "partition": "9"},
    ):
        assert browser.submit(form, **fields).status in (400, 404), fields
    page = browser.get("/group?id=absent")
    assert (page.status, "group absent: the group does not exist" in page.text) == (404, True)


def test_group_without_members_is_deleted_and_a_hostile_id_is_text(running: ConsoleFixture, browser: Browser) -> None:
    commit(running, HOSTILE, 5)
    page = browser.get("/groups")
    assert HOSTILE not in page.html
    link = next(found["href"] for tag, found in page.markup.tags if tag == "a" and "script" in found.get("href", ""))
    page = browser.get(link)
    assert HOSTILE not in page.html
    confirmation, done = browser.change(page.form("/group/delete"))
    assert "its offsets in 1 partitions are lost" in confirmation.text
    assert HOSTILE not in confirmation.html + done.html
    assert browser.get(link).status == 404


def test_connections_show_client_software_and_last_request(running: ConsoleFixture, browser: Browser) -> None:
    client = consumer(running, "g", **{"client.id": HOSTILE})
    client.list_topics(timeout=300)
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:  # the client replaces its first connection
        page = browser.get("/connections")
        if "confluent-kafka-python" in page.text:
            break
    assert HOSTILE not in page.html
    assert f"{HOSTILE} confluent-kafka-python" in page.text
    assert "PLAINTEXT User:ANONYMOUS" in page.text
    numbers = r"[\d.]+ s (\S+ \S+) (\S+ \S+) 0 0 B 0.0 s none \S"
    counts = re.search(rf"User:ANONYMOUS \S+ v\d+ {numbers} .*ApiVersions v\d", page.text)
    assert counts is not None, page.text
    assert "0 B" not in counts.groups()
    assert "No connections." in browser.get("/connections?q=absent").text
    client.close()


def test_cluster_shows_quorum_and_replicas(browser: Browser) -> None:
    page = browser.get("/cluster")
    assert "Leader node 1 Epoch 1" in page.text
    assert "1 leader" in page.text
    assert "orders 0 0 leader orders 1 0 leader" in page.text
    assert "Feature levels Node metadata.version eligible.leader.replicas.version" in page.text
    assert "In use 30 (4.3-IV0) 1 1 1 1 1 2 1 7 to 30 (4.3-IV0) 0 to 1 0 to 1 0 to 1 0 to 1 0 to 1 0 to 2" in page.text
    assert "No partitions." in browser.get("/cluster?problems=1").text


def test_group_shows_its_rebalances(running: ConsoleFixture, browser: Browser) -> None:
    second = consumer(running, "moving", "consumer", **{"client.id": "stock"})
    deadline_s = time.monotonic() + 240
    text = ""
    while "till" not in text:  # members of a shard that is new to the node are not listed as joined
        assert time.monotonic() < deadline_s
        first = consumer(running, "moving", "consumer", **{"client.id": "till"})
        first.subscribe(["orders"])
        while not first.assignment() and time.monotonic() < deadline_s:
            first.poll(0.1)
        for _ in range(25):
            first.poll(0.1)
            text = browser.get("/group?id=moving").text.partition("Rebalances Time Epoch Duration Joined Left")[2]
        if "till" not in text:
            first.close()
    second.subscribe(["orders"])
    while not second.assignment():
        first.poll(0.1)
        second.poll(0.1)
        assert time.monotonic() < deadline_s
    second.close()
    while time.monotonic() < deadline_s:
        first.poll(0.1)
        text = browser.get("/group?id=moving").text
        if "stock (left)" in text:
            break
    assert "stock (left)" in text
    assert "till" in text.partition("Rebalances Time Epoch Duration Joined Left")[2]
    first.close()


def test_lag_in_seconds_is_the_age_of_the_next_record(running: ConsoleFixture, browser: Browser) -> None:
    running.broker.client.create_topic("old", 1)
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    running.broker.produce("old", b"a", timestamp_ms=an_hour_ago - 3_600_000, partition=0)
    running.broker.produce("old", b"b", timestamp_ms=an_hour_ago, partition=0)
    for offset, seconds in ((0, 7200), (1, 3600), (2, 0)):
        member = consumer(running, "late")
        member.commit(offsets=[TopicPartition("old", 0, offset)], asynchronous=False)
        member.close()
        found = re.search(r"old 0 \d 2 \d ([\d.]+) ", browser.get("/group?id=late").text)
        assert found is not None
        assert 0 <= float(found[1]) - seconds < 600


def test_reader_without_commits_is_listed_with_its_position(running: ConsoleFixture, browser: Browser) -> None:
    raw = RawClient(running.broker.port)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=0,
        topics=[FetchTopic("orders", partitions=[FetchPartition(1, fetch_offset=7, partition_max_bytes=100)])],
    )
    answer = raw.call(ApiKey.FETCH, 12, request)
    assert answer.session_id > 0
    assert "peer orders 1 7 20 13" in browser.get("/readers?q=peer").text
    assert "No readers." in browser.get("/readers?q=absent").text
    raw.sock.close()
