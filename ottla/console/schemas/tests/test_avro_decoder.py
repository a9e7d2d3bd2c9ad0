"""Avro values: decoded as fastavro encodes them, limits that keep the decoder short, and malformed values."""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any

import fastavro
import pytest

from ottla.console.schemas.avro_decoder import AvroDecoder, build_avro_decoder
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


def build(schema: Any, references: dict[str, str] | None = None) -> AvroDecoder:
    return run_to_end(build_avro_decoder(json.dumps(schema), references))


def decode(schema: Any, raw: bytes, position: int = 0) -> Any:
    return run_to_end(build(schema).decode(raw, position))


def test_value_is_decoded_with_its_names() -> None:
    order = {"id": 7, "at": 5, "note": "a", "lines": [{"x": 1.5}], "state": "PAID", "raw": b"ab"}
    assert build(ORDER).name == "Avro shop.Order"
    assert decode(ORDER, b"12345" + encode(ORDER, order), 5) == order


def test_schema_uses_the_types_of_its_references() -> None:
    part = json.dumps({"type": "record", "name": "shop.Part", "fields": [{"name": "n", "type": "int"}]})
    decoder = build({"type": "array", "items": "shop.Part"}, {"shop.Part": part})
    assert run_to_end(decoder.decode(b"\x02\x0e\x00", 0)) == [{"n": 7}]


def test_recursive_value_is_decoded_up_to_a_limit() -> None:
    tree = {"v": 1, "children": [{"v": 2, "children": []}]}
    assert decode(TREE, encode(TREE, tree)) == tree
    deep = b"\x02" * 1023 + b"\x00"
    assert decode(LIST, deep)["next"]["next"]
    with pytest.raises(UndecodableValue, match="1,025 bytes; with this schema at most 1,024 are decoded"):
        decode(LIST, b"\x02" + deep)


def nested_cycle(records: int) -> Any:
    """Return a recursive schema with a number of records within each other in each cycle, which has one byte."""
    schema: Any = ["null", "Outer"]
    for number in range(records):
        schema = {"type": "record", "name": f"R{number}", "fields": [{"name": "x", "type": schema}]}
    return {"type": "record", "name": "Outer", "fields": [{"name": "x", "type": schema}]}


@pytest.mark.parametrize(("records", "most"), [(0, 1024), (1, 682), (10, 170), (90, 22)])
def test_records_nested_in_a_cycle_lower_the_limit(records: int, most: int) -> None:
    raw, levels = b"\x02" * (most - 1) + b"\x00", 0
    value = decode(nested_cycle(records), raw)
    while value is not None:
        value, levels = value["x"], levels + 1
    assert levels == most * (records + 1)
    with pytest.raises(UndecodableValue, match=f"at most {most:,} are decoded"):
        decode(nested_cycle(records), b"\x02" + raw)


def test_longest_chain_of_types_is_decoded() -> None:
    fields: list[Any] = [{"name": "a0", "type": {"type": "record", "name": "R0", "fields": []}}]
    for number in range(1, 1660):
        inner = [{"name": "x", "type": f"R{number - 1}"}]
        fields.append({"name": f"a{number}", "type": [{"type": "record", "name": f"R{number}", "fields": inner}]})
    value, levels = decode([{"type": "record", "name": "W", "fields": fields}, "R1659"], b"\x02"), 0
    while value:
        value, levels = value["x"], levels + 1
    assert levels == 1659


def test_type_named_as_a_primitive_type_does_not_replace_it() -> None:
    record = {"type": "record", "name": "null", "fields": [{"name": "x", "type": "long"}]}
    elements = {"name": "a", "type": {"type": "array", "items": "null"}}
    schema = {"type": "record", "name": "W", "fields": [{"name": "n", "type": ["int", record]}, elements]}
    with pytest.raises(InvalidSchema, match="an array whose elements have no bytes"):
        build(schema)


def test_type_that_references_define_twice_is_rejected() -> None:
    long_part = {"type": "record", "name": "B", "fields": [{"name": "q", "type": "int"}]}
    first = json.dumps({"type": "record", "name": "C", "fields": [{"name": "b", "type": long_part}]})
    second = json.dumps({"type": "record", "name": "B", "fields": [{"name": "q", "type": "null"}]})
    elements = {"name": "a", "type": {"type": "array", "items": "B"}}
    with pytest.raises(InvalidSchema, match="two types with the name B"):
        build(
            {"type": "record", "name": "W", "fields": [{"name": "c", "type": "C"}, elements]},
            {"C": first, "B": second},
        )


def test_schema_that_claims_to_be_parsed_is_parsed() -> None:
    claim = {"__fastavro_parsed__": True, "__fastavro_parsed": True, "__named_schemas": {"E": {"type": "null"}}}
    reference = json.dumps({"type": "record", "name": "R", "fields": [], **claim})
    with pytest.raises(InvalidSchema, match="UnknownType: E"):
        build({"type": "array", "items": "E"}, {"R": reference})


def test_doubling_of_records_without_bytes_is_rejected() -> None:
    fields: list[Any] = [{"name": "a0", "type": {"type": "record", "name": "R0", "fields": []}}]
    for number in range(1, 1100):
        twice = [{"name": name, "type": f"R{number - 1}"} for name in "xy"]
        fields.append({"name": f"a{number}", "type": {"type": "record", "name": f"R{number}", "fields": twice}})
    with pytest.raises(InvalidSchema, match="values of more than 100,000 parts"):
        build(["null", {"type": "record", "name": "W", "fields": fields}])


def test_default_that_avro_permits_is_no_reason_to_reject_a_schema() -> None:
    field = {"name": "x", "type": {"type": "double"}, "default": 0}
    assert decode({"type": "record", "name": "R", "fields": [field]}, bytes(8)) == {"x": 0.0}


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
        ([["int"]] * 20_000, "more than 10,000 objects and lists"),
    ],
)
def test_schema_whose_values_cannot_be_limited_is_rejected(schema: Any, problem: str) -> None:
    with pytest.raises(InvalidSchema, match=problem):
        build(schema)


def test_text_that_is_no_json_is_rejected() -> None:
    for text in ("{", "", "[" * 100_000):
        with pytest.raises(InvalidSchema, match="not an Avro schema"):
            run_to_end(build_avro_decoder(text))


def test_many_fields_without_bytes_lower_the_limit() -> None:
    wide = {"type": "record", "name": "W", "fields": [{"name": f"n{n}", "type": "null"} for n in range(999)]}
    wide["fields"].append({"name": "b", "type": "boolean"})  # type: ignore[attr-defined]
    assert len(decode({"type": "array", "items": wide}, b"\x04\x01\x00\x00")) == 2
    with pytest.raises(UndecodableValue, match="at most 99 are decoded"):
        decode({"type": "array", "items": wide}, bytes(200))
    for schema in (["null", "int"], {"type": "map", "values": "int"}, {"type": "array", "items": ["null", "int"]}):
        with pytest.raises(UndecodableValue, match="at most 50,000 are decoded"):
            decode(schema, bytes(50_001))
    with pytest.raises(UndecodableValue, match="at most 65,536"):
        decode("bytes", bytes(MAX_DECODED_BYTES + 1))


def test_bytes_behind_a_value_are_a_problem() -> None:
    with pytest.raises(UndecodableValue, match="1 bytes are left over"):
        decode("int", b"\x02\x02")


def test_changed_bytes_are_decoded_or_rejected_with_a_reason() -> None:
    random, order = Random(7), {"id": 7, "at": 5, "note": "ab", "lines": [{"x": 1.5}], "state": "NEW", "raw": b"ab"}
    raw, decoder = encode(ORDER, order), build(ORDER)
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
