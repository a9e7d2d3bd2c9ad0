"""List of groups with members and lag, and pages of share groups and streams groups."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.support.raw_client import RawClient
from ottla.console.pages import group_list
from ottla.console.tests.console_fixture import Browser, ConsoleFixture, console, next_event
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import incremental_alter_configs as iac
from ottla.wire.messages import metadata, offset_commit
from ottla.wire.messages import share_acknowledge as sha
from ottla.wire.messages import share_fetch as shf
from ottla.wire.messages import share_group_heartbeat as sgh
from ottla.wire.messages import streams_group_heartbeat as sth

pytestmark = pytest.mark.xdist_group(__name__)
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
ACCEPT = 1
GROUP_RESOURCE = 32
WITHIN_S = 120.0


@pytest.fixture(scope="module")
def running() -> Iterator[ConsoleFixture]:
    with console() as made:
        made.broker.client.create_topic("orders", 2)
        made.broker.produce("orders", *[b"x"] * 10, partition=0)
        made.broker.produce("orders", *[b"x"] * 20, partition=1)
        commit(made, "first", 0)  # creates the topic of the offsets
        yield made


@pytest.fixture
def browser(running: ConsoleFixture) -> Browser:
    return running.browser()


@pytest.fixture
def peer(running: ConsoleFixture) -> Iterator[RawClient]:
    client = RawClient(running.broker.port)
    with closing(client.sock):
        yield client


def wait_until(found: Callable[[], Any], problem: str) -> Any:
    deadline_s = time.monotonic() + WITHIN_S
    while not (result := found()):
        assert time.monotonic() < deadline_s, problem
        time.sleep(0.05)
    return result


def text_with(browser: Browser, path: str, wanted: str) -> str:
    """Return the text of a page once it has a text, which is a regular expression."""
    last = ""

    def found() -> str:
        nonlocal last
        last = browser.get(path).text
        return last if re.search(wanted, last) else ""

    try:
        return str(wait_until(found, wanted))
    except AssertionError:
        raise AssertionError((wanted, last)) from None


def consumer(running: ConsoleFixture, group: str) -> Consumer:
    servers = {"bootstrap.servers": running.broker.bootstrap_servers, "group.id": group, "client.id": "till"}
    return Consumer({**servers, "auto.offset.reset": "earliest", "enable.auto.commit": False})


def commit(running: ConsoleFixture, group: str, *offsets: int) -> None:
    member = consumer(running, group)
    member.commit(offsets=[TopicPartition("orders", n, offset) for n, offset in enumerate(offsets)], asynchronous=False)
    member.close()


def join_share_group(peer: RawClient, group: str) -> None:
    """Make a share group read from the start, and join it until both partitions are assigned."""
    rows = [
        iac.AlterableConfig("share.auto.offset.reset", 0, "earliest"),
        iac.AlterableConfig("share.assignment.interval.ms", 0, "0"),
    ]
    request = iac.IncrementalAlterConfigsRequest([iac.AlterConfigsResource(GROUP_RESOURCE, group, rows)])
    response = peer.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert [row.error_code for row in response.responses] == [0], response
    epoch = 0

    def assigned() -> int:
        nonlocal epoch
        beat = sgh.ShareGroupHeartbeatRequest(group, MEMBER, epoch, None, ["orders"])
        answer = peer.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, beat)
        if answer.error_code:
            return 0
        epoch = answer.member_epoch
        return sum(len(row.partitions) for row in answer.assignment.topic_partitions) if answer.assignment else 0

    assert wait_until(assigned, "assignment of the share group") == 2


def accept_records(peer: RawClient, group: str, ends: dict[int, int]) -> None:
    """Read records of partitions as the member of a share group, and accept those up to ``ends``.

    They are the records from offset 0 on.
    """
    found = peer.call(ApiKey.METADATA, 12, metadata.MetadataRequest([metadata.MetadataRequestTopic(name="orders")]))
    topic, epoch = found.topics[0].topic_id, 0
    acquired: set[int] = set()

    def has_acquired_all() -> bool:
        nonlocal epoch
        rows = [shf.FetchTopic(topic, [shf.FetchPartition(number) for number in ends])]
        request = shf.ShareFetchRequest(group, MEMBER, epoch, 100, 1, max_records=100, batch_size=100, topics=rows)
        answer = peer.call(ApiKey.SHARE_FETCH, 1, request)
        assert answer.error_code == 0, answer
        epoch += 1
        acquired.update(p.partition_index for t in answer.responses for p in t.partitions if p.acquired_records)
        return acquired == ends.keys()

    wait_until(has_acquired_all, "records of the share group")
    for number_of_request in (0, 1):  # the start offset is stored with the next acknowledgement
        partitions = []
        for number, end in ends.items():
            first, last = (end, end) if number_of_request else (0, end - 1)
            partitions.append(sha.AcknowledgePartition(number, [sha.AcknowledgementBatch(first, last, [ACCEPT])]))
        topics = [sha.AcknowledgeTopic(topic, partitions)]
        request = sha.ShareAcknowledgeRequest(group, MEMBER, epoch + number_of_request, topics=topics)
        answer = peer.call(ApiKey.SHARE_ACKNOWLEDGE, 1, request)
        assert [row.error_code for t in answer.responses for row in t.partitions] == [0, 0], answer


def join_streams_group(peer: RawClient, group: str) -> int:
    """Join a streams group with one subtopology until both tasks are assigned; return the member's epoch."""
    beat = sth.StreamsGroupHeartbeatRequest(group, MEMBER, 0, 0)
    beat.rebalance_timeout_ms, beat.process_id = 60_000, "p"
    beat.topology = sth.Topology(0, [sth.Subtopology("0", ["orders"])])
    beat.active_tasks = beat.standby_tasks = beat.warmup_tasks = []

    def assigned() -> list[Any]:
        answer = peer.call(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, beat)
        if answer.error_code:
            return []
        beat.member_epoch, beat.topology = answer.member_epoch, None
        return list(answer.active_tasks or ())

    tasks = wait_until(assigned, "tasks of the streams group")
    assert [(row.subtopology_id, sorted(row.partitions)) for row in tasks] == [("0", [0, 1])]
    beat.active_tasks = [sth.StreamsGroupHeartbeatRequestTaskIds("0", [0, 1])]
    answer = peer.call(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, beat)
    assert answer.error_code == 0, answer
    return int(answer.member_epoch)


def test_share_group_shows_members_assignment_and_lag(browser: Browser, peer: RawClient) -> None:
    join_share_group(peer, "sharers")
    accept_records(peer, "sharers", {0: 4, 1: 9})
    text = text_with(browser, "/group?id=sharers", r"orders 1 9 20 11 ")
    assert "Type share State Stable Lag 17 Members 1" in text
    assert f"{MEMBER} peer /127.0.0.1" in text
    assert "orders: 0, 1" in text
    assert re.search(r"Start offset .* orders 0 4 10 6 [\d.]+ peer orders 1 9 20 11 [\d.]+ peer", text), text
    assert "sharers share Stable share 1 17" in browser.get("/groups").text


def test_streams_group_shows_members_tasks_and_lag(browser: Browser, peer: RawClient) -> None:
    epoch = join_streams_group(peer, "streamers")
    rows = [offset_commit.OffsetCommitRequestPartition(0, 4), offset_commit.OffsetCommitRequestPartition(1, 9)]
    topics = [offset_commit.OffsetCommitRequestTopic("orders", partitions=rows)]
    request = offset_commit.OffsetCommitRequest("streamers", epoch, MEMBER, topics=topics)
    answer = peer.call(ApiKey.OFFSET_COMMIT, 9, request)
    assert [row.error_code for row in answer.topics[0].partitions] == [0, 0]
    text = text_with(browser, "/group?id=streamers", "State Stable")
    assert "Type streams State Stable Lag 17 Members 1" in text
    assert f"{MEMBER} peer /127.0.0.1" in text
    assert "subtopology 0: 0, 1" in text
    assert re.search(r"orders 0 4 10 6 [\d.]+ – orders 1 9 20 11 [\d.]+ –", text), text  # noqa: RUF001 - no client
    assert "streamers streams Stable streams 1 17" in browser.get("/groups").text


def test_group_list_shows_members_and_lag_and_a_dash_where_unknown(running: ConsoleFixture, browser: Browser) -> None:
    commit(running, "listed-empty", 5, 8)
    member = consumer(running, "listed-new")
    member.subscribe(["orders"])
    while not member.assignment():
        member.poll(0.1)
    text = browser.get("/groups?q=listed").text
    assert "Members Lag listed-empty classic Empty 0 17" in text
    assert "listed-new classic Stable consumer 1 –" in text  # noqa: RUF001 - without a committed offset
    member.close()


def test_group_list_is_sent_again_once_a_lag_has_changed(running: ConsoleFixture) -> None:
    commit(running, "lively", 5, 8)
    connection = HTTPConnection("127.0.0.1", running.port, timeout=WITHIN_S)
    with closing(connection):
        connection.request("GET", "/live/groups?q=lively")
        response = connection.getresponse()
        assert '<td class="number">0</td><td class="number">17</td>' in next_event(response, "live")
        commit(running, "lively", 10, 8)
        assert '<td class="number">0</td><td class="number">12</td>' in next_event(response, "live")


def test_group_list_beyond_the_maximum_of_partitions_has_no_lag(
    running: ConsoleFixture, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(running, "bounded-1", 5, 8)
    commit(running, "bounded-2", 5)
    monkeypatch.setattr(group_list, "MAX_LAG_PARTITIONS", 1)
    text = browser.get("/groups?q=bounded").text
    assert "bounded-1 classic Empty 0 –" in text  # noqa: RUF001 - unknown
    assert "bounded-2 classic Empty 0 5" in text
