"""Open list of the newest records: what it reads, skips, drops and waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.tests.connection_fixture import in_virtual_time
from ottla.broker.tests.handler_fixture import VirtualEnv
from ottla.console.in_process import SessionClient
from ottla.console.leader_polls import LeaderPolls
from ottla.console.live_pace import LivePace
from ottla.console.page import PageRequest, View
from ottla.console.pages import record_tail
from ottla.console.pages.routes import PAGES
from ottla.console.record_scan import ScanRange
from ottla.console.record_tail import RecordTail
from ottla.console.tests.console_fixture import ConsoleFixture, console, next_event
from ottla.jobs.task_timer import TaskTimer

pytestmark = pytest.mark.xdist_group(__name__)


@pytest.fixture(scope="module")
def running() -> Iterator[ConsoleFixture]:
    with console() as made:
        yield made


@pytest.fixture
def connection(running: ConsoleFixture) -> Iterator[HTTPConnection]:
    made = HTTPConnection("127.0.0.1", running.port, timeout=120)
    yield made
    made.close()


def open_tail(connection: HTTPConnection, query: str) -> HTTPResponse:
    connection.request("GET", f"/live/records?{query}")
    return connection.getresponse()


def event_with(response: HTTPResponse, text: str) -> str:
    """Return the first event that contains a text."""
    while text not in (html := next_event(response, "live")):
        pass
    return html


def test_records_beyond_the_limit_are_skipped_and_counted(running: ConsoleFixture, connection: HTTPConnection) -> None:
    running.broker.produce("flood", b"first")
    response = open_tail(connection, "name=flood&limit=20")
    assert "1 records; 1 looked at." in next_event(response, "live")
    running.broker.produce("flood", *[b"v%d" % number for number in range(300)])
    html = event_with(response, "v299")
    looked_at = int(html.partition("records; ")[2].partition(" looked at")[0])
    skipped = int(html.partition("looked at, ")[2].partition(" skipped: they came faster")[0])
    assert looked_at + skipped == 301
    assert skipped > 0
    assert html.count("<tr>") == 1 + 20


def counted_since(html: str) -> str:
    """Return the time since which an open list counts."""
    return html.partition(" Counted since ")[2].partition("Z.")[0]


def test_open_list_counts_since_its_connection(running: ConsoleFixture, connection: HTTPConnection) -> None:
    running.broker.produce("counted", b"first")
    response = open_tail(connection, "name=counted")
    since = counted_since(next_event(response, "live"))
    running.broker.produce("counted", b"second")
    html = event_with(response, "second")
    assert "2 records; 2 looked at." in html
    assert counted_since(html) == since != ""
    running.broker.produce("counted", b"third")
    event_with(response, "third")
    connection.close()
    html = next_event(open_tail(connection, "name=counted&limit=1"), "live")
    assert "1 records; 1 looked at." in html, "counts start with the newest records"
    assert counted_since(html) > since
    assert " Counted since " not in running.browser().get("/records?name=counted").text


def test_filter_of_an_open_list_holds_for_new_records(running: ConsoleFixture, connection: HTTPConnection) -> None:
    running.broker.produce("filtered", b"good 1", b"bad 1")
    response = open_tail(connection, "name=filtered&contains=good")
    assert "1 records; 2 looked at." in next_event(response, "live")
    running.broker.produce("filtered", b"bad 2", b"good 2")
    html = event_with(response, "good 2")
    assert "2 records; 4 looked at." in html
    assert html.index("good 2") < html.index("good 1")
    assert "bad" not in html


def test_deleted_records_leave_the_open_list(running: ConsoleFixture, connection: HTTPConnection) -> None:
    running.broker.produce("deleted", b"old 1", b"old 2")
    response = open_tail(connection, "name=deleted")
    assert "old 2" in next_event(response, "live")
    browser = running.browser()
    form = browser.get("/topic/delete-records?name=deleted&partition=0").form("/topic/delete-records")
    _, done = browser.change(form, before="1")
    assert "deleted-0 starts at offset 1." in done.text
    running.broker.produce("deleted", b"new")
    html = event_with(response, "new")
    assert "old 1" not in html
    assert "old 2" in html


def test_deleted_records_leave_the_open_list_without_new_ones(
    running: ConsoleFixture, connection: HTTPConnection
) -> None:
    running.broker.produce("emptied", b"old 1", b"old 2")
    response = open_tail(connection, "name=emptied")
    assert "old 1" in next_event(response, "live")
    browser = running.browser()
    browser.change(
        browser.get("/topic/delete-records?name=emptied&partition=0").form("/topic/delete-records"), before="1"
    )
    html = next_event(response, "live")
    assert "old 1" not in html
    assert "old 2" in html


def test_truncated_records_leave_the_open_list_without_new_ones(
    running: ConsoleFixture, connection: HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends(*_: object) -> dict[tuple[str, int], int]:
        return {("truncated", 0): 1}

    running.broker.produce("truncated", b"old 1", b"old 2")
    response = open_tail(connection, "name=truncated")
    assert "old 2" in next_event(response, "live")
    monkeypatch.setattr(record_tail, "list_offsets", ends)
    html = next_event(response, "live")
    assert "old 1" in html
    assert "old 2" not in html


def test_open_list_has_the_records_of_a_topic_that_is_created_again_between_updates(
    running: ConsoleFixture, connection: HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_recreated = threading.Event()

    async def wait(page: PageRequest) -> None:
        await trio.to_thread.run_sync(is_recreated.wait, abandon_on_cancel=True)

    monkeypatch.setitem(PAGES, "/records", PAGES["/records"]._replace(wait=wait))
    running.broker.produce("recreated", *[b"old %d" % number for number in range(9)])
    response = open_tail(connection, "name=recreated")
    assert "old 8" in next_event(response, "live")
    browser = running.browser()
    browser.change(browser.get("/topic?name=recreated").form("/topic/delete"))
    running.broker.produce("recreated", b"new 0", b"new 1")
    is_recreated.set()
    html = event_with(response, "new 1")
    assert "new 0" in html
    assert "old" not in html


def test_open_list_has_the_records_of_a_partition_that_is_added(
    running: ConsoleFixture, connection: HTTPConnection
) -> None:
    running.broker.produce("widened", b"first")
    response = open_tail(connection, "name=widened")
    assert "first" in next_event(response, "live")
    browser = running.browser()
    browser.change(browser.get("/topic/partitions?name=widened").form("/topic/partitions"), total="2")
    running.broker.produce("widened", b"second", partition=1)
    assert "first" in event_with(response, "second")


@pytest.mark.parametrize("query", ["name=led-again", "name=led-again&partition=1"])
def test_open_list_has_the_records_of_a_partition_that_had_no_leader(
    running: ConsoleFixture, connection: HTTPConnection, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    browser = running.browser()
    if browser.get("/topic?name=led-again").status == 404:
        browser.change(browser.get("/topic/new").form("/topic/new"), name="led-again", partitions="2")
        running.broker.produce("led-again", b"second", partition=1)
    with monkeypatch.context() as patched:
        find_leader_id = SessionClient.find_leader_id
        patched.setattr(
            SessionClient,
            "find_leader_id",
            lambda self, topic, number: -1 if number == 1 else find_leader_id(self, topic, number),
        )
        response = open_tail(connection, query)
        assert "0 records" in next_event(response, "live")
    assert "1 records; 1 looked at." in event_with(response, "second")


def test_list_starts_again_after_unread_records_were_deleted(
    running: ConsoleFixture, connection: HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.broker.produce("restarted", b"old 1", b"old 2")
    browser = running.browser()
    form = browser.get("/topic/delete-records?name=restarted&partition=0").form("/topic/delete-records")
    browser.change(form, before="1")
    response = open_tail(connection, "name=restarted")
    assert "1 records; 1 looked at." in next_event(response, "live")
    monkeypatch.setattr(RecordTail, "next_ranges", lambda self, ends: [ScanRange(0, 0, end) for end in ends.values()])
    running.broker.produce("restarted", b"new")
    assert "2 records; 2 looked at." in event_with(response, "new")


def test_update_that_skips_records_is_flooded(
    running: ConsoleFixture, connection: HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    flooded: list[bool] = []
    took_s: list[float] = []

    def next_pause_s(self: LivePace, now_ms: float, took: float, *, is_flooded: bool) -> float:
        flooded.append(is_flooded)
        took_s.append(took)
        return 0.0

    monkeypatch.setattr(LivePace, "next_pause_s", next_pause_s)
    monkeypatch.setattr(TaskTimer, "lap_ms", lambda self: 7000.0)
    running.broker.produce("paced", *[b"first"] * 300)
    response = open_tail(connection, "name=paced&limit=20")
    assert "20 records; 20 looked at." in next_event(response, "live")
    running.broker.produce("paced", *[b"v%d" % number for number in range(300)])
    event_with(response, "v299")
    running.broker.produce("paced", b"later")
    event_with(response, "later")
    assert not flooded[0], "the first list skips nothing"
    assert any(flooded)
    assert set(took_s) == {7.0}, "the event loop time of an update counts, not its waits"


def test_open_list_waits_for_records_before_each_update(
    running: ConsoleFixture, connection: HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []

    async def wait(page: PageRequest) -> None:
        waits.append(page.text("name"))
        await record_tail.wait_for_records(page)

    monkeypatch.setitem(PAGES, "/records", PAGES["/records"]._replace(wait=wait))
    running.broker.produce("awaited", b"first")
    response = open_tail(connection, "name=awaited")
    assert "first" in next_event(response, "live")
    assert waits == []
    running.broker.produce("awaited", b"second")
    event_with(response, "second")
    assert waits


def test_same_list_is_sent_again_after_a_problem(
    running: ConsoleFixture, connection: HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []

    async def update(page: PageRequest) -> View:
        calls.append(None)
        if len(calls) == 2:
            raise OSError("the broker is not reached")
        return await record_tail.get_newest_records(page)

    monkeypatch.setitem(PAGES, "/records", PAGES["/records"]._replace(live=update, wait=None))
    running.broker.produce("interrupted", b"first")
    response = open_tail(connection, "name=interrupted")
    html = next_event(response, "live")
    assert next_event(response) == "the broker is not reached"
    assert next_event(response) == html


class TailFixture:
    """Page with a tail that has read a topic up to offset 10 in each partition, and the node's partitions."""

    def __init__(self, partitions: int = 1, *, high_watermark: int = 10) -> None:
        env: Any = VirtualEnv()
        self.purgatory = Purgatory(env)
        self.replicas = {
            ("t", number): SimpleNamespace(is_leader=True, log=SimpleNamespace(high_watermark=high_watermark))
            for number in range(partitions)
        }
        services = SimpleNamespace(purgatory=self.purgatory)
        image = SimpleNamespace(topics={"t": SimpleNamespace(partitions={})})
        manager = SimpleNamespace(get=lambda topic, number: self.replicas.get((topic, number)), image=image)
        node: Any = SimpleNamespace(
            components=SimpleNamespace(replica_manager=manager, services=services),
            local=SimpleNamespace(node_id=1),
            leader_polls=LeaderPolls(env, self.purgatory),
        )
        tail = RecordTail(50, [ScanRange(number, 10, 10) for number in range(partitions)])
        client: Any = SimpleNamespace(create_connections=lambda: None)
        unused: Any = None
        self.page = PageRequest(node, unused, unused, client, {"name": "t"}, {"tail": tail})

    def waited_s(self) -> float:
        """Wait for records; after 0.5 s one is appended to the last partition. Return the time of the wait."""
        waited: list[float] = []

        async def append() -> None:
            await trio.sleep(0.5)
            last = max(self.replicas, default=("t", 0))
            if last in self.replicas:
                self.replicas[last].log = SimpleNamespace(high_watermark=11)
            self.purgatory.check_and_complete(("fetch", *last))

        async def run() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(append)
                started = trio.current_time()
                await record_tail.wait_for_records(self.page)
                waited.append(trio.current_time() - started)

        in_virtual_time(run)
        assert len(self.purgatory) == 0
        return waited[0]


def test_wait_for_records_ends_with_the_next_record() -> None:
    assert TailFixture(3).waited_s() == pytest.approx(0.5)


def test_wait_for_records_ends_at_once_if_there_are_unread_ones() -> None:
    assert TailFixture(high_watermark=12).waited_s() == 0


def test_wait_for_records_below_the_tail_does_not_end_at_once() -> None:
    assert TailFixture(high_watermark=8).waited_s() == pytest.approx(0.5)


def test_wait_for_records_ends_after_two_seconds_without_any() -> None:
    fixture = TailFixture()
    fixture.purgatory.check_and_complete = lambda key: None  # type: ignore[method-assign]
    assert fixture.waited_s() == pytest.approx(2.0)


def test_wait_for_records_of_too_many_partitions_ends_at_once() -> None:
    assert TailFixture(101).waited_s() == 0


def test_wait_for_records_of_a_partition_without_leader_ends_after_two_seconds() -> None:
    fixture = TailFixture(2)
    del fixture.replicas["t", 1]
    fixture.purgatory.check_and_complete = lambda key: None  # type: ignore[method-assign]
    assert fixture.waited_s() == pytest.approx(2.0)


def test_wait_for_records_ends_at_once_before_the_first_update() -> None:
    fixture = TailFixture()
    fixture.page.memory.clear()
    assert fixture.waited_s() == 0
