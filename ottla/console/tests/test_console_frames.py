"""Requests of one connection on a page: fields with explanations, bounds, permissions, end of the observation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest
from confluent_kafka import Producer

from ottla.console.frame_capture import CapturedExchange
from ottla.console.tests.console_fixture import Browser, ConsoleFixture, console
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request, parse_request
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
    for _ in range(500):  # the client replaces its first connection
        page = browser.get(f"/connections?q={client}")
        links = [found["href"] for tag, found in page.markup.tags if tag == "a" and "/frames" in found.get("href", "")]
        if "Produce v" in page.text and len(links) == 1:
            return links[0]
    pytest.fail(page.text)


def next_event(response: HTTPResponse) -> str:
    while not (line := response.readline()).startswith(b"event: "):
        assert line
    return str(json.loads(response.readline().removeprefix(b"data: ")))


def test_requests_of_a_connection_are_shown_with_explanations(running: ConsoleFixture, browser: Browser) -> None:
    client = Producer({"bootstrap.servers": running.broker.bootstrap_servers, "client.id": f"till {HOSTILE}"})
    client.produce("orders", b"secret value")
    client.flush(10)
    link = frames_link(browser, "till")
    assert "No requests so far." in browser.get(link).text
    connection = HTTPConnection("127.0.0.1", running.port, timeout=30)
    connection.request("GET", f"/live{link}")
    response = connection.getresponse()
    assert "No requests so far." in next_event(response)
    html = ""
    for _ in range(50):
        for value in (b"secret value", b"x" * 100_000):
            client.produce("orders", value)
            client.flush(10)
        client.list_topics(timeout=10)
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
    assert client.flush(10) == 0, "the connection works after the observation"


def test_closed_connection_is_an_error(browser: Browser) -> None:
    assert browser.get("/frames?connection=99999").status == 400
    assert browser.get("/frames").status == 400


def test_requests_are_decoded_once_and_with_pauses() -> None:
    request = MetadataRequest([MetadataRequestTopic(name="ab") for _ in range(16_000)], False)
    frame = parse_request(memoryview(bytearray(encode_request(ApiKey.METADATA, 8, 0, "x", request)))[4:])
    exchange = CapturedExchange(1, frame, bytes(frame.frame), 0.0)
    assert sum(1 for _ in exchange.format()) > 200
    assert "include_topic_authorized_operations: False" in exchange.request_text
    assert sum(1 for _ in exchange.format()) == 0
