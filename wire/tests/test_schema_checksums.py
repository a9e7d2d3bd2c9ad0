"""Schemas: unchanged since the comparison with Kafka, and version ranges as Kafka writes them."""

from __future__ import annotations

import pytest

from ottla.wire.codec.schema import NO_VERSIONS, Versions, fields_of
from ottla.wire.messages.catalogue import all_messages
from ottla.wire.messages.metadata import MetadataResponse
from ottla.wire.tests.schema_checksums import describe_fields, recorded_checksums, schema_checksums


def test_schema_checksums_equal_recorded_checksums() -> None:
    changed = {
        name: checksum for name, checksum in schema_checksums().items() if recorded_checksums().get(name) != checksum
    }
    assert not changed, (
        "compare with Kafka (compat_tests/vs_kafka/test_conformance.py),"
        " then python -m ottla.wire.tests.schema_checksums"
    )
    assert list(recorded_checksums()) == sorted(all_messages())
    assert len(recorded_checksums()) >= 270


def test_describe_fields_includes_inner_structs() -> None:
    assert "leader_epoch: int32 7+" in describe_fields(MetadataResponse)


@pytest.mark.parametrize(
    ("text", "versions", "again"),
    [
        ("0+", Versions(0, 32767), "0+"),
        ("2-4", Versions(2, 4), "2-4"),
        ("3", Versions(3, 3), "3"),
        ("4-4", Versions(4, 4), "4"),
        ("none", NO_VERSIONS, "none"),
    ],
)
def test_versions_parse_reads_kafkas_ranges(text: str, versions: Versions, again: str) -> None:
    assert Versions.parse(text) == versions
    assert str(versions) == again
    low, high = versions
    assert [low - 1 in versions, low in versions, high in versions, high + 1 in versions] == (
        [False, False, False, False] if text == "none" else [False, True, True, False]
    )
    assert "3" not in versions


def test_field_spec_default_value_and_array_element() -> None:
    fields = {f.name: f for f in fields_of(MetadataResponse)}
    assert fields["topics"].default_value() == []
    assert fields["topics"].default_value() is not fields["topics"].default_value()
    assert fields["cluster_id"].default_value() is None
    assert fields["topics"].is_array
    assert fields["topics"].element == "struct"
    assert not fields["cluster_id"].is_array
