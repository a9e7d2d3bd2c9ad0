"""Records: read, filter, look at, follow, export, append; hostile and large records."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, IncompleteRead

import pytest
from confluent_kafka import Producer

from ottla.broker.config.limits import MAX_CONSOLE_BATCH_BYTES, MAX_CONSOLE_SCAN_BYTES
from ottla.console.pages.records import encode_json_records
from ottla.console.record_scan import MatchingRecord
from ottla.console.record_text import format_bytes, format_hex, format_json
from ottla.console.tests.console_fixture import TIMEOUT_S, Browser, ConsoleFixture, console, next_event
from ottla.tools.json_records import record_to_json
from ottla.wire.record_batch.records import Record

pytestmark = pytest.mark.xdist_group(__name__)
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def running() -> Iterator[ConsoleFixture]:
    with console({"message.max.bytes": 20_000_000, "socket.request.max.bytes": 40_000_000}) as made:
        made.broker.client.create_topic("orders", 2)
        for number in range(100):
            value = json.dumps({"order": {"id": number, "lines": [{"sku": f"sku-{number}"}]}})
            made.broker.produce(
                "orders",
                value,
                key=f"key-{number}",
                headers={"source": "shop" if number % 2 else "web"},
                partition=number % 2,
                timestamp_ms=1_700_000_000_000 + number,
            )
        yield made


@pytest.fixture
def browser(running: ConsoleFixture) -> Browser:
    return running.browser()


def offsets(browser: Browser, query: str) -> list[tuple[str, str]]:
    """Return partition and offset of each row."""
    page = browser.get(f"/records?name=orders&{query}")
    assert page.status == 200, page.text
    links = [found["href"] for tag, found in page.markup.tags if tag == "a" and "/record?" in found.get("href", "")]
    return [(link.partition("partition=")[2].partition("&")[0], link.partition("offset=")[2]) for link in links]


def test_newest_records_come_first(browser: Browser) -> None:
    assert offsets(browser, "limit=4") == [("1", "49"), ("0", "49"), ("1", "48"), ("0", "48")]
    assert offsets(browser, "limit=2&partition=0") == [("0", "49"), ("0", "48")]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("from=start&limit=2", [("0", "0"), ("0", "1")]),
        ("from=offset&at=48&partition=1", [("1", "48"), ("1", "49")]),
        ("from=offset&at=99", []),
        ("from=time&at=1700000000097", [("0", "49"), ("1", "48"), ("1", "49")]),
        ("from=start&key=key-42", [("0", "21")]),
        ("from=start&contains=sku-77", [("1", "38")]),
        ("from=start&header=source=shop&limit=1", [("1", "0")]),
        ("from=start&header=absent", []),
        ("from=start&path=order.id&equals=42", [("0", "21")]),
        ("from=start&path=$.order.lines.0.sku&equals=sku-7", [("1", "3")]),
        ("from=start&path=order.lines.7", []),
    ],
)
def test_query_finds_the_records_that_match(browser: Browser, query: str, expected: list[tuple[str, str]]) -> None:
    assert offsets(browser, query) == expected


def test_pages_of_a_query_give_each_record_once(browser: Browser) -> None:
    path, seen = "/records?name=orders&from=start&limit=30", []
    while path:
        page = browser.get(path)
        links = [found.get("href", "") for tag, found in page.markup.tags if tag == "a"]
        seen += [link for link in links if link.startswith("/record?")]
        path = next((link for link in links if "next_offset" in link), "")
    assert len(seen) == len(set(seen)) == 100


@pytest.mark.parametrize("query", ["from=absent", "partition=9", "at=x&from=offset", "limit=0", "limit=999"])
def test_invalid_query_is_an_error_with_the_field(browser: Browser, query: str) -> None:
    assert browser.get(f"/records?name=orders&{query}").status == 400


def test_record_is_shown_as_json_text_and_bytes(browser: Browser) -> None:
    page = browser.get("/record?name=orders&partition=0&offset=21")
    assert '"sku": "sku-42"' in page.text
    assert "000000 6b 65 79 2d 34 32 key-42" in page.text
    assert "source web" in page.text
    assert browser.get("/record?name=orders&partition=0&offset=99").status == 400


def test_export_has_each_record_as_a_line_of_json(browser: Browser) -> None:
    page = browser.request("GET", "/records/export?name=orders&from=start&header=source=web")
    assert page.headers["Content-Type"] == "application/x-ndjson"
    assert page.headers["Content-Disposition"] == 'attachment; filename="orders.jsonl"'
    rows = [json.loads(line) for line in page.body.splitlines()]
    assert [row["offset"] for row in rows] == list(range(50))
    assert rows[1]["headers"] == {"source": "web"}


def test_export_breaks_off_at_a_batch_that_it_cannot_read(running: ConsoleFixture, browser: Browser) -> None:
    settings = {"bootstrap.servers": running.broker.bootstrap_servers, "message.max.bytes": 20_000_000}
    running.broker.client.create_topic("gaps", 1)
    producer = Producer({**settings, "compression.type": "gzip"})
    producer.produce("gaps", bytes(MAX_CONSOLE_BATCH_BYTES + 1))
    producer.flush(120)
    page = browser.request("GET", "/records/export?name=gaps&from=start")
    assert (page.status, "Batch at offset 0 of partition 0" in page.text) == (400, True), page.text
    running.broker.client.create_topic("later-gaps", 1)
    running.broker.produce("later-gaps", b"first")
    producer.produce("later-gaps", bytes(MAX_CONSOLE_BATCH_BYTES + 1))
    producer.flush(120)
    running.broker.produce("later-gaps", b"last")
    with pytest.raises(IncompleteRead):
        browser.request("GET", "/records/export?name=later-gaps&from=start")
    assert "Batch at offset 1 of partition 0" in browser.get("/records?name=later-gaps&from=start").text


def test_record_is_appended_after_a_confirmation(running: ConsoleFixture, browser: Browser) -> None:
    running.broker.client.create_topic("appends", 3)
    form = browser.get("/records/produce?name=appends").form("/records/produce")
    fields = {name: value for name, value in form.fields.items() if name != "key_null"}
    form = form._replace(fields=fields)
    confirmation, done = browser.change(form, key="user-7", value=HOSTILE, headers="a=1\nb")
    assert HOSTILE not in confirmation.html
    assert "Header a: 1" in confirmation.text
    assert "The record has offset 0 in appends-" in done.text
    (record,) = running.broker.records("appends")
    assert (record.key, record.value, record.headers) == (b"user-7", HOSTILE.encode(), (("a", b"1"), ("b", None)))
    browser.change(form, key="user-7", value="", value_null="1", partition="2")
    assert running.broker.records("appends")[-1].value is None
    assert browser.submit(form, partition="9").status == 400


def test_markup_in_keys_values_and_headers_is_shown_as_text(running: ConsoleFixture, browser: Browser) -> None:
    running.broker.produce("hostile", HOSTILE, key=HOSTILE, headers={HOSTILE: HOSTILE})
    running.broker.produce("hostile", b"\xff\x00\x1b[2J", key=b"\x80")
    for path in ("/records?name=hostile", "/record?name=hostile&partition=0&offset=0"):
        page = browser.get(path)
        assert "<script>alert" not in page.html
        assert HOSTILE in page.text
    assert "ff001b5b324a (6 bytes)" in browser.get("/records?name=hostile").text


def test_large_records_are_shortened_and_bounded(running: ConsoleFixture, browser: Browser) -> None:
    for _ in range(5):
        running.broker.produce("large", b"x" * 10_000_000)
    page = browser.get("/records?name=large&from=start")
    assert len(page.body) < 100_000
    assert "(10,000,000 bytes)" in page.text
    assert page.text.count("(10,000,000 bytes)") == MAX_CONSOLE_SCAN_BYTES // 10_000_000 + 1
    assert "Continue" in page.text
    page = browser.get("/record?name=large&partition=0&offset=0")
    assert len(page.body) < 200_000
    page = browser.get("/records?name=large&from=start&contains=absent")
    assert "0 records" in page.text


def test_new_record_appears_in_the_open_list(running: ConsoleFixture) -> None:
    running.broker.produce("tail", b"first")
    connection = HTTPConnection("127.0.0.1", running.port, timeout=TIMEOUT_S)
    connection.request("GET", "/live/records?name=tail")
    response = connection.getresponse()
    assert "first" in next_event(response, "live")
    produced = threading.Thread(target=running.broker.produce, args=("tail", b"second"))
    produced.start()
    assert "second" in next_event(response, "live")
    produced.join()
    connection.close()


def test_text_of_bytes_is_cut_at_whole_characters() -> None:
    assert format_bytes(None) == "null"
    assert format_bytes("é".encode() * 3000, 10) == "é" * 10 + "… (6,000 bytes)"
    assert format_bytes(b"x" + "é".encode() * 100, 10) == "x" + "é" * 9 + "… (201 bytes)"
    assert format_bytes(b"a\x00b") == "a�b"
    assert format_json(b"[" * 10_000) is None
    assert format_json(b'"text"') is None
    assert format_json(b"[" * 900 + b"1," * 1000 + b"1" + b"]" * 900) is None, "mostly indentation"
    assert format_json(b"[" + b"1," * 30_000 + b"1]") is None
    assert format_json(b'{"a": ["\xc3\xa9"]}') == '{\n  "a": [\n    "\u00e9"\n  ]\n}'
    assert format_hex(b"") == ""


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batch_is_shown_as_fields_beside_its_bytes(running: ConsoleFixture, browser: Browser, codec: str) -> None:
    name = f"batches-{codec}"
    running.broker.client.create_topic(name, 1)
    settings = {"compression.type": codec, "linger.ms": 10_000}
    client = Producer({"bootstrap.servers": running.broker.bootstrap_servers, **settings})
    for number in range(3):
        client.produce(name, b"value" * 50, key=b"k%d" % number, headers={"source": HOSTILE.encode()}, partition=0)
    client.flush(60)
    page = browser.get(f"/batch?name={name}&partition=0&offset=1")
    assert "batch[0].magic 2 " in page.text
    assert "(valid)" in page.text
    assert f"record[1].key {b'k1'.hex(' ')} Key; it usually selects the partition." in page.text
    assert "record[2].header[0].header_name source" in page.text
    assert ("Uncompressed records" in page.text) is (codec != "none")
    assert HOSTILE not in page.html
    assert browser.get(f"/batch?name={name}&partition=0&offset=9").status == 400


def test_export_is_imported_again(running: ConsoleFixture, browser: Browser) -> None:
    running.broker.client.create_topic("copy", 2)
    exported = browser.request("GET", "/records/export?name=orders&from=start&header=source=web").body.decode()
    form = browser.get("/records/import?name=copy").form("/records/import")
    confirmation, done = browser.change(form, lines=exported)
    assert "records are appended to copy-0." in confirmation.text
    assert "50 records were appended to copy." in done.text
    again = browser.request("GET", "/records/export?name=copy&from=start").body.decode()
    rows = [[json.loads(line) for line in text.splitlines()] for text in (exported, again)]
    for row in (*rows[0], *rows[1]):
        del row["topic"], row["offset"]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("nonsense", "line 1: JSON object expected"),
        ('{"value": "a"}\n{"amount": "a"}', "line 2: unknown field: amount"),
        ('{"partition": 7}', "line 1: the topic has no partition 7"),
        ("{}\n" * 1001, "too many lines (limit 1000)"),
    ],
)
def test_invalid_import_appends_nothing(browser: Browser, lines: str, problem: str) -> None:
    form = browser.get("/records/import?name=orders").form("/records/import")
    page = browser.submit(form, lines=lines, confirmed="yes")
    assert (page.status, problem in page.text) == (400, True), page.text


@pytest.mark.parametrize("value", [b"x" * 300_000, b"\xff" * 200_000, 'é\u2028"\\'.encode() * 60_000, b"", None])
def test_large_record_is_exported_in_pieces(value: bytes | None) -> None:
    record = Record(7, 8, b"k", value, (("h", b"v"),))
    job, steps = encode_json_records("t", [MatchingRecord(3, record, False)]), 0
    while True:
        try:
            next(job)
            steps += 1
        except StopIteration as done:
            pieces = done.value
            break
    assert json.loads(b"".join(pieces)) == record_to_json("t", 3, record)
    assert max(len(piece) for piece in pieces) <= 6 * 64 * 1024
    assert steps >= len(value or b"") // 100_000
