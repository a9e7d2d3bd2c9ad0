"""Schemas are those that were held against Kafka's own; each claim of a message class reaches its codec."""

from __future__ import annotations

import pytest

from ottla.wire.codec.schema import NO_VERSIONS, Versions, fields_of
from ottla.wire.messages.catalogue import all_messages
from ottla.wire.messages.metadata import MetadataResponse
from ottla.wire.tests.schema_checksums import describe_fields, recorded_checksums, schema_checksums


def test_every_schema_is_the_one_that_was_compared_with_kafkas() -> None:
    changed = {
        name: checksum for name, checksum in schema_checksums().items() if recorded_checksums().get(name) != checksum
    }
    assert not changed, (
        "compare with Kafka (compat_tests/vs_kafka/test_conformance.py),"
        " then python -m ottla.wire.tests.schema_checksums"
    )
    assert list(recorded_checksums()) == sorted(all_messages())
    assert len(recorded_checksums()) >= 270


def test_inner_structs_count_too() -> None:
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
def test_a_range_of_versions_is_read_as_kafka_writes_it(text: str, versions: Versions, again: str) -> None:
    assert Versions.parse(text) == versions
    assert str(versions) == again
    low, high = versions
    assert [low - 1 in versions, low in versions, high in versions, high + 1 in versions] == (
        [False, False, False, False] if text == "none" else [False, True, True, False]
    )
    assert "3" not in versions


def test_what_a_field_is_when_it_is_not_on_the_wire() -> None:
    fields = {f.name: f for f in fields_of(MetadataResponse)}
    assert fields["topics"].default_value() == []
    assert fields["topics"].default_value() is not fields["topics"].default_value()
    assert fields["cluster_id"].default_value() is None
    assert fields["topics"].is_array
    assert fields["topics"].element == "struct"
    assert not fields["cluster_id"].is_array
