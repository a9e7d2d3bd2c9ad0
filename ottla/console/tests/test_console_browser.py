"""Console in a headless Chromium: each page and change, no script error, no other host, no serious finding of axe.

Set ``OTTLA_PICTURES`` to a directory to keep pictures of the pages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import ottla
from compat_tests.support.processes import free_port
from ottla.broker.config.limits import MAX_CONSOLE_FRAMES
from ottla.console.page import PageRequest, View
from ottla.console.pages.routes import PAGES
from ottla.console.pages.topics import get_topic_partitions
from ottla.console.tests.console_fixture import ConsoleFixture, console

pytestmark = pytest.mark.xdist_group(__name__)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is not None and subprocess.run([CHROMIUM, "--version"], capture_output=True, check=False).returncode:
    CHROMIUM = None  # its installation was interrupted
PICTURES = os.environ.get("OTTLA_PICTURES")


@pytest.fixture(scope="module")
def running() -> Iterator[ConsoleFixture]:
    with console() as made:
        made.broker.client.create_topic("orders", 3)
        made.broker.produce("orders", b"value", key="key", headers={"source": "shop"}, partition=1)
        reader = Consumer({"bootstrap.servers": made.broker.bootstrap_servers, "group.id": "readers"})
        reader.commit(offsets=[TopicPartition("orders", 1, 0)], asynchronous=False)
        yield made
        reader.close()


TIMEOUT_MS = 120_000


class Walk:
    """Browser page with the errors it has met."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.address = address
        self.problems: list[str] = []
        page.on("console", self._on_message)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", self._on_request)

    def _on_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith(self.address):
            self.problems.append(f"request to {request.url}")

    def open(self, path: str) -> None:
        self.page.goto(self.address + path)
        self.check(path)

    def check(self, name: str) -> None:
        from axe_playwright_python.sync_playwright import Axe

        self.page.wait_for_load_state()
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            found = Axe().run(self.page).response["violations"]
            serious = [each for each in found if each["impact"] in ("serious", "critical")]
            assert serious == [], (name, scheme, [(each["id"], each["nodes"][0]["html"]) for each in serious])
            if PICTURES:
                file = name.partition("?")[0].strip("/").replace("/", "-") or "overview"
                self.page.screenshot(path=f"{PICTURES}/{file}-{scheme}.png", full_page=True)

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()


@contextmanager
def browse(port: int) -> Iterator[Walk]:
    """Open a browser at a console; there must be no problem at the end."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=TIMEOUT_MS)
        sync_api.expect.set_options(timeout=TIMEOUT_MS)
        made = Walk(browser.new_page(), f"http://127.0.0.1:{port}")
        made.page.set_default_timeout(TIMEOUT_MS)
        yield made
        browser.close()
    assert made.problems == []


@pytest.fixture
def walk(running: ConsoleFixture) -> Iterator[Walk]:
    with browse(running.port) as made:
        yield made


def test_each_page_has_no_script_error_and_no_serious_finding(walk: Walk) -> None:
    for path in (
        "/",
        "/topics",
        "/topics?internal=1",
        "/topic?name=orders",
        "/records?name=orders",
        "/record?name=orders&partition=1&offset=0",
        "/batch?name=orders&partition=1&offset=0",
        "/records/produce?name=orders",
        "/records/import?name=orders",
        "/groups",
        "/readers",
        "/group?id=readers",
        "/group/offsets?id=readers",
        "/connections",
        "/cluster",
        "/cluster/rebalance",
        "/cluster/drain?broker=1",
        "/topic/new",
        "/topic/partitions?name=orders",
        "/topic/setting?name=orders&key=retention.ms",
        "/topic/delete-records?name=orders&partition=0",
    ):
        walk.open(path)


def test_narrow_page_does_not_scroll_sideways(walk: Walk) -> None:
    walk.page.set_viewport_size({"width": 360, "height": 700})
    for path in (
        "/",
        "/topics",
        "/topic?name=orders",
        "/records?name=orders",
        "/group?id=readers",
        "/connections",
        "/cluster",
        "/cluster/rebalance",
        "/cluster/drain?broker=1",
    ):
        walk.open(path)
        width = walk.page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, (path, width)


def test_topic_is_created_changed_and_deleted_with_the_mouse(walk: Walk) -> None:
    walk.open("/topic/new")
    walk.page.get_by_label("Name").fill("walked")
    walk.page.get_by_label("Partitions").fill("2")
    walk.press("Continue…")
    walk.check("/confirm")
    walk.press("Create the topic")
    walk.check("/done")
    walk.page.get_by_role("link", name="Continue").click()
    walk.page.get_by_role("link", name="Add partitions").click()
    walk.page.get_by_label("Partitions in all").fill("4")
    walk.press("Continue…")
    walk.press("Add the partitions")
    walk.open("/topic?name=walked")
    walk.press("Delete the topic…")
    walk.check("/delete")
    walk.press("Delete the topic")
    assert "Topic walked was deleted." in walk.page.inner_text("main")


def test_pages_are_reached_with_the_keyboard(walk: Walk) -> None:
    walk.open("/")
    walk.page.keyboard.press("Tab")
    assert walk.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    walk.page.keyboard.press("Tab")
    walk.page.keyboard.press("Tab")
    walk.page.keyboard.press("Enter")
    walk.page.wait_for_url("**/topics")


def test_requests_of_a_connection_are_shown_while_the_page_is_open(running: ConsoleFixture, walk: Walk) -> None:
    expect = pytest.importorskip("playwright.sync_api").expect
    client = Consumer({"bootstrap.servers": running.broker.bootstrap_servers, "group.id": "x", "client.id": "till"})
    client.list_topics(timeout=300)
    client.committed([TopicPartition("orders", 0)], timeout=300)
    walk.open("/connections?q=till")
    walk.page.locator("#live tbody a").first.click()
    expect(walk.page.locator("#live-status")).to_have_text("Updated while it changes.")
    for _ in range(5):
        client.list_topics(timeout=300)
        client.committed([TopicPartition("orders", 0)], timeout=300)
    expect(walk.page.locator("#live summary").first).to_be_visible()
    walk.page.locator("#live summary").first.click()
    walk.check("/frames")
    with walk.page.expect_download() as saved:
        walk.page.get_by_role("link", name="Save as pcap").click()
    assert saved.value.suggested_filename == "ottla.pcap"
    walk.page.locator("#live details a").first.click()
    walk.page.get_by_role("link", name="header.correlation_id").first.click()
    assert walk.page.locator("pre .marked").inner_text().count(" ") == 3, "the four bytes of the field are marked"
    expect(walk.page.locator("tr.marked .meaning")).to_contain_text("response")
    walk.check("/frame")
    walk.page.locator("pre [data-field]").first.click()
    expect(walk.page.locator("tr.marked th")).to_have_text("size")
    client.close()


def test_page_is_kept_up_to_date_and_paused(running: ConsoleFixture, walk: Walk) -> None:
    walk.open("/topic?name=orders")
    expect = pytest.importorskip("playwright.sync_api").expect
    status = walk.page.locator("#live-status")
    expect(status).to_have_text("Updated while it changes.")
    running.broker.produce("orders", *[b"more"] * 70, partition=0)
    expect(walk.page.locator("#live tbody tr").first).to_contain_text("70")
    walk.press("Pause updates")
    expect(status).to_have_text("Updates are paused.")
    walk.press("Continue updates")


def test_status_of_a_page_after_a_problem_is_that_of_the_next_update(
    walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_failing = False

    async def update(page: PageRequest) -> View:
        if is_failing:
            raise OSError("the broker is not reached")
        return await get_topic_partitions(page)

    monkeypatch.setitem(PAGES, "/topic", PAGES["/topic"]._replace(live=update, live_s=0.1))
    walk.open("/topic?name=orders")
    status = walk.page.locator("#live-status")
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(status).to_have_text("Updated while it changes.")
    is_failing = True
    expect(status).to_have_text("Not updated: the broker is not reached")
    is_failing = False
    expect(status).to_have_text("Updated while it changes.")


def test_live_pages_under_load_count_skipped_items(running: ConsoleFixture, walk: Walk) -> None:
    expect = pytest.importorskip("playwright.sync_api").expect
    client = Consumer({"bootstrap.servers": running.broker.bootstrap_servers, "group.id": "x"})
    running.broker.produce("busy", b"first")
    for path, text in (("/records?name=busy", "skipped"), ("/frames?api=Metadata", "left out")):
        walk.open(path)
        expect(walk.page.locator("#live-status")).to_have_text("Updated while it changes.")
        live, found = walk.page.locator("#live"), False
        deadline_s = time.monotonic() + TIMEOUT_MS / 1000
        while not found:
            assert time.monotonic() < deadline_s, live.inner_text()
            running.broker.produce("busy", *[b"record"] * 300)
            for _ in range(60):
                client.list_topics(timeout=300)
            found = text in live.inner_text()
        walk.check(path)
    assert walk.page.locator("#live details").count() == MAX_CONSOLE_FRAMES
    client.close()


def test_three_nodes_are_walked_after_a_login() -> None:
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    pytest.importorskip("playwright.sync_api")
    port = free_port()
    settings = {"ottla.console.listener": f"127.0.0.1:{port}"}
    with ottla.Cluster(3, settings=settings, sasl="SCRAM-SHA-512") as cluster, browse(port) as walk:
        config = cluster.client_config("confluent")
        walk.open("/topics")
        assert walk.page.url.endswith("/login")
        walk.check("/login")
        walk.page.get_by_label("User").fill(config["sasl.username"])
        walk.page.get_by_label("Password").fill(config["sasl.password"])
        walk.press("Log in")
        walk.open("/topic/new")
        walk.page.get_by_label("Name").fill("walked")
        walk.page.get_by_label("Partitions").fill("3")
        walk.page.get_by_label("Replicas").fill("3")
        walk.press("Continue…")
        walk.press("Create the topic")
        for path in ("/", "/topic?name=walked", "/records?name=walked", "/connections"):
            walk.open(path)
        walk.open("/cluster")
        assert walk.page.get_by_role("columnheader", name="Broker").count() == 3
        walk.press("Log out")
        assert walk.page.url.endswith("/login")
