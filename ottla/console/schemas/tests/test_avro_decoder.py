"""Avro values: decoded as fastavro encodes them, limits that keep the decoder short, and malformed values."""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any

import fastavro
import pytest

from ottla.console.schemas.avro_decoder import MAX_RECURSIVE_BYTES, AvroDecoder
from ottla.console.schemas.value_decoder import MAX_DECODED_BYTES, InvalidSchema, UndecodableValue
from ottla.jobs.job import run_to_end

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
    ],
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "v", "type": "int"}, {"name": "children", "type": {"type": "array", "items": "Tree"}}],
}
LIST = {"type": "record", "name": "List", "fields": [{"name": "next", "type": ["null", "List"]}]}


def encode(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def decode(schema: Any, raw: bytes, position: int = 0) -> Any:
    return run_to_end(AvroDecoder(json.dumps(schema)).decode(raw, position))


def test_value_is_decoded_with_its_names() -> None:
    order = {"id": 7, "at": 5, "note": "a", "lines": [{"x": 1.5}], "state": "PAID", "raw": b"ab"}
    assert AvroDecoder(json.dumps(ORDER)).name == "Avro shop.Order"
    assert decode(ORDER, b"12345" + encode(ORDER, order), 5) == order


def test_schema_uses_the_types_of_its_references() -> None:
    part = json.dumps({"type": "record", "name": "shop.Part", "fields": [{"name": "n", "type": "int"}]})
    text = json.dumps({"type": "array", "items": "shop.Part"})
    decoder = AvroDecoder(text, {"shop.Part": part})
    assert run_to_end(decoder.decode(b"\x02\x0e\x00", 0)) == [{"n": 7}]


def test_recursive_value_is_decoded_up_to_a_limit() -> None:
    tree = {"v": 1, "children": [{"v": 2, "children": []}]}
    assert decode(TREE, encode(TREE, tree)) == tree
    deep = b"\x02" * (MAX_RECURSIVE_BYTES - 1) + b"\x00"
    assert decode(LIST, deep)["next"]["next"]
    with pytest.raises(UndecodableValue, match="1,025 bytes; with this schema at most 1,024 are decoded"):
        decode(LIST, b"\x02" + deep)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "array", "items": "null"}, "elements have no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "elements have no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": -1}}, "negative size"),
        ({"type": "fixed", "name": "F", "size": "x"}, "not an Avro schema"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, "elements have no bytes"),
        ({"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}, "without an end"),
        ({"type": "absent"}, "not an Avro schema"),
        (7, "not an Avro schema"),
        ({"type": "record", "name": "W", "fields": [{"name": f"f{n}", "type": "int"} for n in range(9000)]}, "parts"),
    ],
)
def test_schema_whose_values_cannot_be_limited_is_rejected(schema: Any, problem: str) -> None:
    with pytest.raises(InvalidSchema, match=problem):
        AvroDecoder(json.dumps(schema))


def test_text_that_is_no_json_is_rejected() -> None:
    for text in ("{", "", "[" * 100_000):
        with pytest.raises(InvalidSchema, match="not an Avro schema"):
            AvroDecoder(text)


def test_many_fields_without_bytes_lower_the_limit() -> None:
    wide = {"type": "record", "name": "W", "fields": [{"name": f"n{n}", "type": "null"} for n in range(999)]}
    wide["fields"].append({"name": "b", "type": "boolean"})  # type: ignore[attr-defined]
    assert len(decode({"type": "array", "items": wide}, b"\x04\x01\x00\x00")) == 2
    with pytest.raises(UndecodableValue, match="at most 99 are decoded"):
        decode({"type": "array", "items": wide}, bytes(200))
    with pytest.raises(UndecodableValue, match="at most 65,536"):
        decode("bytes", bytes(MAX_DECODED_BYTES + 1))


def test_bytes_behind_a_value_are_a_problem() -> None:
    with pytest.raises(UndecodableValue, match="1 bytes are left over"):
        decode("int", b"\x02\x02")


def test_changed_bytes_are_decoded_or_rejected_with_a_reason() -> None:
    random, order = Random(7), {"id": 7, "at": 5, "note": "ab", "lines": [{"x": 1.5}], "state": "NEW", "raw": b"ab"}
    raw, decoder = encode(ORDER, order), AvroDecoder(json.dumps(ORDER))
    problems = []
    for _ in range(300):
        changed = bytearray(raw[: random.randrange(len(raw) + 1)])
        for _ in range(random.randrange(3)):
            if changed:
                changed[random.randrange(len(changed))] = random.randrange(256)
        try:
            run_to_end(decoder.decode(bytes(changed), 0))
        except UndecodableValue as error:
            problems.append(str(error))
    assert len(problems) > 100
    assert all(text.startswith("not a value of Avro shop.Order: ") for text in problems)
