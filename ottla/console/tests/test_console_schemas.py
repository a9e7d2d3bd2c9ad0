"""Keys and values with schemas from files and a stand-in for a schema registry; malformed ones are shown as hex."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.broker.config.limits import MAX_CONSOLE_SCHEMA_BYTES, MAX_CONSOLE_SCHEMA_LOOKUPS
from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.console.console_server import ConsoleListener
from ottla.console.pages import records
from ottla.console.schemas.schema_store import LEAST_SCHEMA_BYTES, SchemaCache
from ottla.console.schemas.tests.test_avro_decoder import encode
from ottla.console.schemas.tests.test_protobuf_decoder import ORDER, order_file
from ottla.console.tests.console_fixture import Browser, ConsoleFixture, console
from ottla.console.tests.schema_registry_fixture import SchemaRegistry, schema_registry

pytestmark = pytest.mark.xdist_group(__name__)
AVRO_ORDER = {"type": "record", "name": "shop.Order", "fields": [{"name": "note", "type": "string"}]}
HOSTILE = "<script>alert(1)</script>"


class SchemaFixture(NamedTuple):
    made: ConsoleFixture
    registry: SchemaRegistry
    directory: Path

    def show(self, topic: str, *values: bytes | None, key: bytes | None = None) -> str:
        """Append records to a new topic; return the text of the page that lists them, the first one first."""
        self.made.broker.client.create_topic(topic, 1)
        self.made.broker.produce(topic, *values, key=key, partition=0)
        page = self.made.browser().get(f"/records?name={topic}&from=start&limit=200")
        assert page.status == 200, page.text
        assert HOSTILE not in page.html
        return page.text


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaFixture]:
    directory = tmp_path_factory.mktemp("schemas")
    with schema_registry() as registry:
        settings = {"ottla.console.schema.dir": str(directory), "ottla.console.schema.registry": registry.url}
        with console(settings) as made:
            yield SchemaFixture(made, registry, directory)


@pytest.fixture
def browser(running: SchemaFixture) -> Browser:
    return running.made.browser()


def framed(schema_id: int, value: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + value


def test_avro_value_of_a_file_is_decoded_with_and_without_an_id(running: SchemaFixture) -> None:
    (running.directory / "avro-file-value.avsc").write_text(json.dumps(AVRO_ORDER))
    raw = encode(AVRO_ORDER, {"note": HOSTILE})
    text = running.show("avro-file", raw, framed(9, raw), None)
    assert text.count('{"note": "<script>alert(1)</script>"} Avro shop.Order, avro-file-value.avsc') == 2
    assert "null" in text


def test_protobuf_key_and_value_of_files_are_decoded(running: SchemaFixture) -> None:
    size = len(order_file().SerializeToString())
    raw = b"\x0a" + bytes([size & 0x7F | 0x80, size >> 7]) + order_file().SerializeToString()
    (running.directory / "proto-key.desc").write_bytes(raw)
    (running.directory / "proto-value@shop.Order.desc").write_bytes(raw)
    text = running.show("proto", ORDER, framed(3, b"\x02\x02" + ORDER), key=framed(3, b"\x04\x02\x00\x0a\x01s"))
    assert text.count('"state": "PAID"') == 2
    assert "Protobuf shop.Order, proto-value@shop.Order.desc" in text
    assert '{"sku": "s"} Protobuf shop.Order.Line, proto-key.desc' in text


def test_value_that_is_malformed_is_shown_as_hex_with_the_reason(running: SchemaFixture, browser: Browser) -> None:
    (running.directory / "bad-value.avsc").write_text(json.dumps(AVRO_ORDER))
    text = running.show("bad", b"\x7fabc", b"\x04abc")
    assert "7f616263 (4 bytes) bad-value.avsc: not a value of Avro shop.Order" in text
    assert "1 bytes are left over" in text
    page = browser.get("/record?name=bad&partition=0&offset=0")
    assert page.status == 200
    assert "bad-value.avsc: not a value of Avro shop.Order: " in page.text
    assert "000000 7f 61 62 63" in page.text


def test_records_that_their_schema_does_not_describe_are_found(running: SchemaFixture, browser: Browser) -> None:
    (running.directory / "poison-value.avsc").write_text(json.dumps("string"))
    good, bad = encode("string", "good"), b"\x7fpoison"
    running.show("poison", *[good] * 300, bad, *[good] * 300, bad, None)
    page = browser.get("/records?name=poison&from=start&undecodable=1")
    assert "2 records; 603 looked at" in page.text
    assert page.html.count("offset=300") == page.html.count("offset=601") == 1
    newest = browser.get("/records?name=poison&undecodable=1")
    assert newest.html.count("offset=601") == 1
    file = browser.request("GET", "/records/export?name=poison&from=start&undecodable=1").body
    assert [json.loads(line)["offset"] for line in file.splitlines()] == [300, 601]


def test_records_that_their_schema_does_not_describe_have_limited_size(
    running: SchemaFixture, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    (running.directory / "sized-value.avsc").write_text(json.dumps("string"))
    running.show("sized", *[b"\x7fpoison"] * 100)
    monkeypatch.setattr(records, "MAX_CONSOLE_SCAN_BYTES", 100)
    monkeypatch.setattr(records, "_EXPORT_STEP", 10)
    page = browser.get("/records?name=sized&from=start&undecodable=1&limit=200")
    assert "20 records; 20 looked at" in page.text
    assert "next_offset=20" in page.html


def test_file_that_is_malformed_or_replaced_is_noticed(running: SchemaFixture, browser: Browser) -> None:
    file = running.directory / "changed-value.avsc"
    file.write_text("{")
    assert "02 (1 bytes) changed-value.avsc: not an Avro schema" in running.show("changed", b"\x02")
    file.write_text(json.dumps("int"))
    assert "1 Avro int, changed-value.avsc" in browser.get("/records?name=changed&from=start").text
    file.unlink()
    assert "changed-value.avsc" not in browser.get("/records?name=changed&from=start").text


def test_schemas_of_the_registry_are_found_by_their_ids(running: SchemaFixture, browser: Browser) -> None:
    documents = running.registry.documents
    part = {"type": "record", "name": "shop.Part", "fields": [{"name": "n", "type": "int"}]}
    references = [{"name": "shop.Part", "subject": "shop/part", "version": 2}]
    documents["/schemas/ids/11"] = {"schema": '["null", "shop.Part"]', "references": references}
    documents["/subjects/shop%2Fpart/versions/2"] = {"schema": json.dumps(part), "id": 10}
    documents["/schemas/ids/12"] = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    serialized = base64.b64encode(order_file().SerializeToString()).decode()
    documents["/schemas/ids/12?format=serialized"] = {"schema": serialized, "schemaType": "PROTOBUF"}
    documents["/schemas/ids/13"] = {"schema": "{}", "schemaType": "JSON"}
    values = framed(11, b"\x02\x0e"), framed(12, b"\x02\x02" + ORDER), framed(13, b'{"a": [1]}')
    text = running.show("registry", *values)
    assert '{"n": 7} Avro union, schema 11' in text
    assert '"lines": [{"sku": "a"}, {}]' in text
    assert "Protobuf shop.Order, schema 12" in text
    assert '{"a": [1]} JSON, schema 13' in text
    before = len(running.registry.requests)
    page = browser.get("/record?name=registry&partition=0&offset=1")
    assert "Protobuf shop.Order, schema 12" in page.text
    assert '"sku": "a"' in page.text
    assert len(running.registry.requests) == before, "schemas are kept"


def test_problem_of_the_registry_is_the_reason_beside_the_bytes(running: SchemaFixture) -> None:
    documents = running.registry.documents
    documents["/schemas/ids/22"] = b"no JSON"
    documents["/schemas/ids/23"] = {"schema": "{"}
    documents["/schemas/ids/24"] = {"schema": "x", "schemaType": "THRIFT"}
    documents["/schemas/ids/25"] = {"schema": '"int"', "references": [{"name": "x"}]}
    documents["/schemas/ids/26"] = [1]
    documents["/schemas/ids/27"] = {"schema": "x", "schemaType": "PROTOBUF"}
    documents["/schemas/ids/27?format=serialized"] = {"schema": "no base 64!"}
    documents["/schemas/ids/28"] = {"schema": '"int"', "references": 5}
    documents["/schemas/ids/29"] = (
        b'{"schema": "x", "references": [{"name": "x", "subject": "x", "version": Infinity}]}'
    )
    documents["/schemas/ids/30"] = {"schema": "x", "references": [{"name": "x", "subject": "\ud800", "version": 1}]}
    long_name = {"type": "record", "name": "N" * 10_000, "fields": [{"name": "x", "type": "int"}]}
    documents["/schemas/ids/31"] = {"schema": json.dumps(long_name)}
    text = running.show("problems", *(framed(schema_id, b"\x01") for schema_id in range(21, 32)))
    assert "000000001501 (6 bytes) schema 21: schema registry: /schemas/ids/21: status 404" in text
    assert "schema 22: schema registry: no JSON" in text
    assert "schema 23: not an Avro schema" in text
    assert "schema 24: schema type THRIFT is not known" in text
    assert "schema 25: malformed references" in text
    assert "schema 26: schema registry: no JSON object" in text
    assert "schema 27: the registry returned no serialized descriptor" in text
    assert all(f"schema {schema_id}: malformed references" in text for schema_id in (28, 29, 30))
    assert "(10,005 characters), schema 31" in text
    assert "N" * 1000 not in text


def test_schema_with_too_large_references_is_rejected(running: SchemaFixture) -> None:
    documents = running.registry.documents
    rows = [{"name": f"r{number}", "subject": f"r{number}", "version": 1} for number in range(6)]
    documents["/schemas/ids/41"] = {"schema": '"int"', "references": rows}
    for row in rows:
        documents[f"/subjects/{row['subject']}/versions/1"] = {"schema": " " * 200_000}
    text = running.show("large", framed(41, b"\x02"))
    assert "schema 41: more than 1,048,576 characters with its references" in text


def test_cache_of_schemas_keeps_the_last_used_ones_of_limited_size() -> None:
    cache = SchemaCache[int, str]()
    most = MAX_CONSOLE_SCHEMA_BYTES // LEAST_SCHEMA_BYTES
    for number in range(most + 5):
        cache.put(number, f"schema {number}", 10)
        assert cache.get(0) == "schema 0"
    assert (len(cache), cache.get(5), cache.get(6)) == (most, None, "schema 6")
    for number in range(3):
        cache.put(number, "large", MAX_CONSOLE_SCHEMA_BYTES // 2)
    assert (len(cache), cache.get(0), cache.get(2)) == (2, None, "large")
    cache.put(2, "small", 1)
    cache.put(3, "large", MAX_CONSOLE_SCHEMA_BYTES // 2 - LEAST_SCHEMA_BYTES)
    assert len(cache) == 3


def test_page_loads_a_limited_number_of_schemas(running: SchemaFixture) -> None:
    before = len(running.registry.requests)
    text = running.show("many", *(framed(1000 + n, b"\x02") for n in range(MAX_CONSOLE_SCHEMA_LOOKUPS + 5)))
    assert len(running.registry.requests) - before == MAX_CONSOLE_SCHEMA_LOOKUPS
    assert text.count("a page loads at most 20 schemas") == 5


def test_missing_library_is_the_reason_beside_the_bytes(
    running: SchemaFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    (running.directory / "missing-value.avsc").write_text('"int"')
    text = running.show("missing", b"\x02")
    assert "fastavro is not installed: pip install 'ottla[schemas]'" in text


def test_registry_that_is_no_url_is_rejected_at_the_start() -> None:
    values = {"ottla.console.listener": "127.0.0.1:0", "ottla.console.schema.registry": "127.0.0.1:8081"}
    with pytest.raises(ConfigException, match=r"ottla\.console\.schema\.registry must be a URL"):
        ConsoleListener(NodeConfig(values=values))


def test_directory_that_is_missing_is_a_reason_and_no_error_page() -> None:
    with console({"ottla.console.schema.dir": "/absent/schemas"}) as made:
        made.broker.produce("t", b"x", partition=0)
        page = made.browser().get("/records?name=t&from=start")
        assert page.status == 200
        assert "78 (1 bytes) schema directory: /absent/schemas: No such file or directory" in page.text
