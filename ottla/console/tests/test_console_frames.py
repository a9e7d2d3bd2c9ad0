"""Requests of one connection on a page: fields with explanations, bounds, permissions, end of the observation."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Set
from html import unescape
from http.client import HTTPConnection, HTTPResponse
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.broker.config.limits import MAX_CONSOLE_CAPTURES, MAX_CONSOLE_FRAMES
from ottla.broker.observability.request_observers import NO_APIS, PreparedRequestCounts
from ottla.broker.requests.peer import Peer
from ottla.console.frame_capture import FLOODED_FRAMES, CapturedExchange, ConnectionCapture, FrameCapture
from ottla.console.frame_fields import MAX_FIELDS, build_hex_dump, request_fields, visible_request
from ottla.console.live_pace import LivePace
from ottla.console.pcap import MEDIA_TYPE
from ottla.console.tests.console_fixture import TIMEOUT_S, Browser, ConsoleFixture, console, next_event
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request, parse_request
from ottla.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.xdist_group(__name__)
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def running() -> Iterator[ConsoleFixture]:
    with console() as made:
        made.broker.client.create_topic("orders", 1)
        yield made


@pytest.fixture
def browser(running: ConsoleFixture) -> Browser:
    return running.browser()


def frames_link(browser: Browser, client: str) -> str:
    """Return the page of the connection that sent the newest Produce."""
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:  # the client replaces its first connection
        page = browser.get(f"/connections?q={client}")
        links = [found["href"] for tag, found in page.markup.tags if tag == "a" and "/frames" in found.get("href", "")]
        if "Produce v" in page.text and len(links) == 1:
            return links[0]
    pytest.fail(page.text)


def test_requests_of_a_connection_are_shown_with_explanations(running: ConsoleFixture, browser: Browser) -> None:
    client = Producer({"bootstrap.servers": running.broker.bootstrap_servers, "client.id": f"till {HOSTILE}"})
    client.produce("orders", b"secret value")
    client.flush(60)
    link = frames_link(browser, "till")
    assert "No requests so far." in browser.get(link).text
    connection = HTTPConnection("127.0.0.1", running.port, timeout=TIMEOUT_S)
    connection.request("GET", f"/live{link}")
    response = connection.getresponse()
    assert "No requests so far." in next_event(response)
    html = ""
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        for value in (b"secret value", b"x" * 100_000):
            client.produce("orders", value)
            client.flush(60)
        client.list_topics(timeout=300)
        html = next_event(response)
        if "acks: -1" in html and "too large" in html and "Metadata v" in html:
            break
    assert "bytes: too large to be shown" in html
    assert "cluster_id" in html
    assert "acks: -1" in html
    assert "secret value" not in html
    assert HOSTILE not in html
    connection.close()
    client.produce("orders", b"more")
    assert client.flush(60) == 0, "the connection works after the observation"


def test_closed_connection_is_an_error(browser: Browser) -> None:
    assert browser.get("/frames?connection=99999").status == 400
    assert browser.get("/frames").status == 400


def open_live(browser: Browser, link: str) -> HTTPResponse:
    """Open the live part of a page with the cookie of the browser's session."""
    connection = HTTPConnection("127.0.0.1", browser.port, timeout=TIMEOUT_S)
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    connection.request("GET", f"/live{link}", headers={"Cookie": cookie})
    return connection.getresponse()


def capture_until(response: HTTPResponse, text: str, send: Callable[[], object]) -> str:
    """Send requests until the live part has a text; return the address of the newest request's page."""
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        send()
        html = next_event(response)
        if text in html:
            return unescape(next(part for part in html.split('"') if part.startswith("/frame?")))
    pytest.fail(html)


def test_bytes_of_a_frame_stand_beside_its_fields_without_secrets(running: ConsoleFixture, browser: Browser) -> None:
    client = Producer({"bootstrap.servers": running.broker.bootstrap_servers, "client.id": "till"})

    def send() -> None:
        client.produce("orders", b"secret value", key=b"secret key", headers={"source": b"secret"})
        client.flush(60)

    send()
    browser.get("/connections")
    live = open_live(browser, "/frames?api=Produce")
    assert "No requests so far." in next_event(live)
    link = capture_until(live, "; response", send)
    page = browser.get(link)
    assert re.search(r"Queued [\d.]+ behind other requests", page.text)
    assert "topic_data[0].name orders" in page.text or "topic_data[0].topic_id" in page.text
    assert "batch[0].record[0].header[0].header_name source" in page.text
    assert "record[0].value (12 bytes)" in page.text
    assert "secret" not in page.text
    assert b"secret".hex(" ") not in page.html
    marked = [found["data-field"] for tag, found in page.markup.tags if tag == "span" and "data-field" in found]
    rows = {found["data-field"] for tag, found in page.markup.tags if tag == "tr" and "data-field" in found}
    assert marked[0] == "0"
    assert set(marked) <= rows
    saved = browser.request("GET", link.replace("/frame?", "/frames/pcap?"))
    assert saved.headers["Content-Type"] == MEDIA_TYPE
    assert (b"till" in saved.body, b"secret" in saved.body) == (True, False)
    assert running.browser().get(link).status == 400, "the capture belongs to the session"
    live.close()
    assert browser.get(link).status == 200, "the frames stay when their page is closed"
    for _ in range(MAX_CONSOLE_CAPTURES):
        other = open_live(browser, "/frames?api=Fetch")
        next_event(other)
        other.close()
    page = browser.get(link)
    assert (page.status, "newer ones have replaced them" in page.text) == (400, True)


def test_update_that_leaves_out_requests_is_flooded(
    running: ConsoleFixture, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    flooded: list[bool] = []
    next_pause_s = LivePace.next_pause_s

    def record(self: LivePace, now_ms: float, took_s: float, *, is_flooded: bool) -> float:
        flooded.append(is_flooded)
        return next_pause_s(self, now_ms, took_s, is_flooded=is_flooded)

    monkeypatch.setattr(LivePace, "next_pause_s", record)
    client, is_seen = Producer({"bootstrap.servers": running.broker.bootstrap_servers}), threading.Event()

    def send() -> None:
        while not is_seen.is_set():
            client.list_topics(timeout=300)

    response = open_live(browser, "/frames?api=Metadata")
    assert "No requests so far." in next_event(response)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(2):  # the pause after the first one has been computed by the second one
            while "are left out" not in next_event(response):
                pass
    finally:
        is_seen.set()
        sender.join()
    assert not flooded[0]
    assert any(flooded)


def test_unknown_api_is_an_error(browser: Browser) -> None:
    assert browser.get("/frames?api=Absent").status == 400


def test_settings_with_secrets_are_hidden() -> None:
    request = AlterConfigsRequest(
        [
            AlterConfigsResource(
                4, "1", [AlterableConfig("ssl.key.password", "hush"), AlterableConfig("num.io.threads", "9")]
            )
        ]
    )
    raw = bytes(encode_request(ApiKey.ALTER_CONFIGS, 2, 0, "x", request))
    listed = run(request_fields(ApiKey.ALTER_CONFIGS, 2, raw))
    values = {field.path: field.value for field in listed.fields}
    assert values["resources[0].configs[0].value"] == "(4 bytes)"
    assert values["resources[0].configs[1].value"] == "9"
    assert b"hush" not in visible_request(ApiKey.ALTER_CONFIGS, raw, listed)
    rows = run(build_hex_dump(raw, listed.fields))
    assert b"hush".hex(" ") not in " ".join(part.text for row in rows for part in row.parts)
    assert sum(part.text.count("**") for row in rows for part in row.parts) == 4


@pytest.mark.parametrize("size", [0, 4, 9, 20, 40])
def test_incomplete_frame_is_shown_as_far_as_it_can_be_decoded(size: int) -> None:
    request = MetadataRequest([MetadataRequestTopic(name="ab") for _ in range(16)], False)
    raw = bytes(encode_request(ApiKey.METADATA, 8, 0, "x", request))[:size]
    listed = run(request_fields(ApiKey.METADATA, 8, raw))
    assert listed.problem
    assert all(field.stop <= max(size, 4) for field in listed.fields)
    run(build_hex_dump(raw, listed.fields))


def test_fields_beyond_the_limit_are_counted_as_missing() -> None:
    request = MetadataRequest([MetadataRequestTopic(name="ab") for _ in range(16_000)], False)
    raw = bytes(encode_request(ApiKey.METADATA, 8, 0, "x", request))
    listed = run(request_fields(ApiKey.METADATA, 8, raw))
    assert (len(listed.fields), listed.problem) == (MAX_FIELDS, "Only the first 1,000 fields are shown.")


def run(job: Any) -> Any:
    """Run a job to its end."""
    while True:
        try:
            next(job)
        except StopIteration as done:
            return done.value


def test_requests_are_decoded_once_and_with_pauses() -> None:
    request = MetadataRequest([MetadataRequestTopic(name="ab") for _ in range(16_000)], False)
    frame = parse_request(memoryview(bytearray(encode_request(ApiKey.METADATA, 8, 0, "x", request)))[4:])
    source: Any = SimpleNamespace(
        env=SimpleNamespace(now_ms=lambda: 0, monotonic_ms=lambda: 0.0),
        number=1,
        connection=SimpleNamespace(host="127.0.0.1"),
        server=("127.0.0.1", 9092),
    )
    exchange = CapturedExchange(1, source, frame, bytes(frame.frame))
    assert sum(1 for _ in exchange.format()) > 200
    assert "include_topic_authorized_operations: False" in exchange.request_text
    assert sum(1 for _ in exchange.format()) == 0


class ObservedConnection:
    """Connection that records the APIs of which its observer needs messages, at each update."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self.updates: list[Set[ApiKey]] = []

    def observe(self, observer: ConnectionCapture) -> Callable[[], None]:
        self.observer = observer
        self.update_observation()
        return self.updates.clear

    def update_observation(self) -> None:
        self.updates.append(self.observer.needs_messages_of)


def observe_metadata() -> tuple[FrameCapture, Any]:
    """Return a capture of Metadata requests, and the only connection that it observes."""
    env: Any = SimpleNamespace(uuid=lambda: bytes(16), monotonic_ms=lambda: 0.0, now_ms=lambda: 0)
    capture = FrameCapture(env, "session", ApiKey.METADATA)
    connection: Any = ObservedConnection()
    capture.observe([(1, connection)])
    return capture, connection


def receive(connection: Any, count: int) -> Peer:
    """Let a connection receive Metadata requests that are not prepared."""
    peer = Peer("h", ("a", 1))
    raw = memoryview(encode_request(ApiKey.METADATA, 12, 1, "me", MetadataRequest()))[4:]
    for _ in range(count):
        connection.observer.received(peer, parse_request(raw))
    return peer


def test_full_capture_needs_no_messages_until_it_is_read() -> None:
    capture, connection = observe_metadata()
    peer = receive(connection, MAX_CONSOLE_FRAMES + 1)
    assert connection.updates == [{ApiKey.METADATA}, NO_APIS]
    connection.observer.answered_prepared(peer, PreparedRequestCounts(ApiKey.METADATA, 5, 500, 500, 1.0))
    connection.observer.answered_prepared(peer, PreparedRequestCounts(ApiKey.FETCH, 5, 500, 500, 1.0))
    run_to_end(capture.read_exchanges())
    assert connection.updates == [{ApiKey.METADATA}, NO_APIS, {ApiKey.METADATA}]
    receive(connection, 1)
    assert capture.exchanges[-1].number == MAX_CONSOLE_FRAMES + 1 + 5 + 1
    assert capture.skipped == 6
    capture.close()
    assert connection.updates == []


def test_capture_stores_few_requests_until_no_more_come_than_it_shows() -> None:
    capture, connection = observe_metadata()
    stored = []
    for count in (MAX_CONSOLE_FRAMES, MAX_CONSOLE_FRAMES + 1, 100, 0, 20, MAX_CONSOLE_FRAMES):
        skipped = capture.skipped
        receive(connection, count)
        stored.append(count - (capture.skipped - skipped))
        run_to_end(capture.read_exchanges())
    assert stored == [30, 30, FLOODED_FRAMES, 0, 20, 30]


def test_capture_is_read_again_after_more_requests_than_it_shows() -> None:
    capture, connection = observe_metadata()
    peer = receive(connection, MAX_CONSOLE_FRAMES + 1)
    run_to_end(capture.read_exchanges())
    assert capture.is_changed, "the next reading lets the capture store as many as before"
    run_to_end(capture.read_exchanges())
    assert not capture.is_changed
    connection.observer.answered_prepared(peer, PreparedRequestCounts(ApiKey.METADATA, 5, 500, 500, 1.0))
    assert capture.is_changed, "the number of skipped requests has changed"
