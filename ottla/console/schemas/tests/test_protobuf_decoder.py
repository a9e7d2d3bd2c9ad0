"""Protobuf messages: decoded by descriptor sets, message indexes, and malformed messages."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from ottla.console.schemas.protobuf_decoder import (
    MAX_FILE_PARTS,
    ProtobufSchema,
    build_protobuf_schema,
    read_message_indexes,
    split_descriptor_set,
)
from ottla.console.schemas.value_decoder import MAX_DECODED_BYTES, InvalidSchema, UndecodableValue
from ottla.jobs.job import run_to_end
from ottla.wire.codec.primitives import write_varlong

Field = descriptor_pb2.FieldDescriptorProto


def add_field(message: Any, name: str, number: int, kind: int, type_name: str = "", *, repeated: bool = False) -> None:
    label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
    message.field.add(name=name, number=number, type=kind, label=label, type_name=type_name or None)


def order_file() -> Any:
    """Return the descriptor of ``shop.Order``, which has a nested message, an enum, a map and a timestamp."""
    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="PAID", number=1)
    other, order = file.message_type.add(name="Other"), file.message_type.add(name="Order")
    add_field(other, "n", 1, Field.TYPE_INT32)
    line = order.nested_type.add(name="Line")
    add_field(line, "sku", 1, Field.TYPE_STRING)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    add_field(entry, "key", 1, Field.TYPE_STRING)
    add_field(entry, "value", 2, Field.TYPE_INT64)
    add_field(order, "id", 1, Field.TYPE_INT64)
    add_field(order, "lines", 2, Field.TYPE_MESSAGE, ".shop.Order.Line", repeated=True)
    add_field(order, "state", 3, Field.TYPE_ENUM, ".shop.State")
    add_field(order, "tags", 4, Field.TYPE_MESSAGE, ".shop.Order.TagsEntry", repeated=True)
    add_field(order, "at", 5, Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add_field(order, "flags", 6, Field.TYPE_BOOL, repeated=True)
    return file


def build(*files: tuple[str, bytes]) -> ProtobufSchema:
    return run_to_end(build_protobuf_schema(files))


def order_schema() -> ProtobufSchema:
    return build(("", order_file().SerializeToString()))


ORDER = b"\x08\x07\x12\x03\x0a\x01a\x12\x00\x18\x01\x22\x05\x0a\x01x\x10\x05\x2a\x02\x08\x09\x32\x02\x01\x00"
DECODED = {
    "id": 7,
    "lines": [{"sku": "a"}, {}],
    "state": "PAID",
    "tags": {"x": 5},
    "at": {"seconds": 9},
    "flags": [True, False],
}


def test_message_is_decoded_with_its_names() -> None:
    decoder = order_schema().decoder_by_name("shop.Order")
    assert decoder.name == "Protobuf shop.Order"
    assert run_to_end(decoder.decode(b"12345" + ORDER, 5)) == DECODED


def test_message_types_are_found_by_indexes() -> None:
    schema = order_schema()
    assert schema.decoder_by_indexes((0,)).name == "Protobuf shop.Other"
    assert schema.decoder_by_indexes((1,)).name == "Protobuf shop.Order"
    assert schema.decoder_by_indexes((1, 0)).name == "Protobuf shop.Order.Line"
    for indexes in ((2,), (1, 5), (-1,)):
        with pytest.raises(UndecodableValue, match="no message type"):
            schema.decoder_by_indexes(indexes)
    with pytest.raises(UndecodableValue, match=r"no message type shop\.Absent"):
        schema.decoder_by_name("shop.Absent")


def test_descriptor_set_has_the_imported_files() -> None:
    part = descriptor_pb2.FileDescriptorProto(name="part.proto", package="shop")
    add_field(part.message_type.add(name="Part"), "n", 1, Field.TYPE_INT32)
    main = descriptor_pb2.FileDescriptorProto(name="main.proto", package="shop", dependency=["part.proto"])
    add_field(main.message_type.add(name="Main"), "part", 1, Field.TYPE_MESSAGE, ".shop.Part")
    time = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(time)
    raw = descriptor_pb2.FileDescriptorSet(file=[time, part, main]).SerializeToString()
    decoder = build(*split_descriptor_set(raw)).decoder_by_name("")
    assert decoder.name == "Protobuf shop.Main"
    assert run_to_end(decoder.decode(b"\x0a\x02\x08\x07", 0)) == {"part": {"n": 7}}
    with pytest.raises(InvalidSchema, match="not a complete descriptor set"):
        build(("", main.SerializeToString()))
    renamed = build(("part.proto", part.SerializeToString()), ("", main.SerializeToString()))
    assert renamed.decoder_by_name("").name == "Protobuf shop.Main"


@pytest.mark.parametrize("raw", [b"\xff", b"orders", b""])
def test_malformed_descriptor_set_is_rejected(raw: bytes) -> None:
    with pytest.raises(InvalidSchema, match="descriptor set"):
        build(*split_descriptor_set(raw))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(b"\x00", ((0,), 1)), (b"\x02\x00", ((0,), 2)), (b"\x04\x02\x06", ((1, 3), 3)), (b"\x02\x02\x08", ((1,), 2))],
)
def test_message_indexes_are_read(raw: bytes, expected: tuple[tuple[int, ...], int]) -> None:
    assert read_message_indexes(raw, 0) == expected


@pytest.mark.parametrize("raw", [b"", b"\x04\x02", b"\x01", b"\xff" * 20, bytes(write_varlong(1 << 40)), b"\x80"])
def test_malformed_message_indexes_are_a_problem(raw: bytes) -> None:
    with pytest.raises(UndecodableValue, match="malformed message indexes"):
        read_message_indexes(raw, 0)


@pytest.mark.parametrize("raw", [b"\x08", b"\x12\x7f", ORDER[:-1], b"\xff" * 30, b"\x0a\x02\xff\xff"])
def test_malformed_message_is_a_problem_with_a_reason(raw: bytes) -> None:
    with pytest.raises(UndecodableValue, match=r"not a message of Protobuf shop\.Order"):
        run_to_end(
            order_schema().decoder_by_name("shop.Order.Line" if raw[:1] == b"\x0a" else "shop.Order").decode(raw, 0)
        )


def wide_file(fields: int) -> Any:
    """Return the descriptor of ``Top``, which has a list of ``Wide``, a message type with many fields."""
    file = descriptor_pb2.FileDescriptorProto(name="wide.proto", package="shop")
    wide, top = file.message_type.add(name="Wide"), file.message_type.add(name="Top")
    for number in range(1, fields + 1):
        add_field(wide, f"f{number}", number, Field.TYPE_INT64)
    add_field(top, "wide", 1, Field.TYPE_MESSAGE, "Wide", repeated=True)
    return file


def test_wide_nested_messages_lower_the_limit() -> None:
    decoder = build(("", wide_file(3000).SerializeToString())).decoder_by_name("shop.Top")
    assert run_to_end(decoder.decode(b"\x0a\x00" * 500, 0)) == {"wide": [{}] * 500}
    with pytest.raises(UndecodableValue, match="with this schema at most 1,044 are decoded"):
        run_to_end(decoder.decode(b"\x0a\x00" * 30_000, 0))


def test_file_with_too_many_parts_is_rejected() -> None:
    build(("", wide_file(MAX_FILE_PARTS - 3).SerializeToString()))
    with pytest.raises(InvalidSchema, match=r"wide\.proto: more than 5,000 message types, fields and enum values"):
        build(("", wide_file(MAX_FILE_PARTS).SerializeToString()))


def test_long_chain_of_message_types_is_decoded() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="chain.proto", package="shop")
    for number in range(1500):
        add_field(file.message_type.add(name=f"T{number}"), "x", 1, Field.TYPE_MESSAGE, f".shop.T{(number + 1) % 1500}")
    schema = build(("", file.SerializeToString()))
    assert run_to_end(schema.decoder_by_name("shop.T0").decode(b"\x0a\x02\x0a\x00", 0)) == {"x": {"x": {}}}
    assert run_to_end(schema.decoder_by_name("shop.T1").decode(b"\x0a\x00", 0)) == {"x": {}}


def test_malformed_entry_types_of_maps_are_rejected_as_the_library_trusts_them() -> None:
    files = [order_file() for _ in range(8)]
    files[0].message_type[0].options.map_entry = True
    entries = [file.message_type[1].nested_type[1] for file in files]
    entries[1].field[0].number = 3
    entries[2].field[1].name = "other"
    entries[3].field[0].type = Field.TYPE_DOUBLE
    entries[4].nested_type.add(name="Within")
    files[5].message_type[1].field[3].MergeFrom(Field(label=Field.LABEL_OPTIONAL))
    add_field(files[6].message_type[0], "entry", 2, Field.TYPE_MESSAGE, ".shop.Order.TagsEntry")
    add_field(files[7].message_type[1], "again", 9, Field.TYPE_MESSAGE, ".shop.Order.TagsEntry", repeated=True)
    for file in files:
        with pytest.raises(InvalidSchema, match=r"entry type \S+ of a map"):
            build(("", file.SerializeToString()))


def test_entry_type_of_a_map_is_no_message_type_of_a_record() -> None:
    with pytest.raises(UndecodableValue, match=r"shop\.Order\.TagsEntry is the entry type of a map"):
        order_schema().decoder_by_indexes((1, 1))


def test_file_of_the_library_is_imported_by_its_whole_name_only() -> None:
    main = descriptor_pb2.FileDescriptorProto(name="main.proto", package="shop", dependency=["any.proto"])
    with pytest.raises(InvalidSchema, match="not a complete descriptor set"):
        build(("", main.SerializeToString()))


@pytest.mark.parametrize("names", [("any", "api"), ("api", "any"), ("type", "source_context", "any")])
def test_files_of_the_library_are_imported_in_any_order(names: tuple[str, ...]) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in names)
    add_field(file.message_type.add(name="M"), "n", 1, Field.TYPE_INT32)
    decoder = build(("", file.SerializeToString())).decoder_by_name("M")
    assert run_to_end(decoder.decode(b"\x08\x07", 0)) == {"n": 7}


def test_message_that_is_too_large_is_not_decoded() -> None:
    decoder = order_schema().decoder_by_name("shop.Order")
    most = MAX_DECODED_BYTES - 4
    flags = b"\x32" + bytes([most & 0x7F | 0x80, most >> 7 & 0x7F | 0x80, most >> 14]) + bytes(most)
    assert len(run_to_end(decoder.decode(flags, 0))["flags"]) == most
    with pytest.raises(UndecodableValue, match="at most 65,536 are decoded"):
        run_to_end(decoder.decode(flags + b"\x08\x07", 0))
