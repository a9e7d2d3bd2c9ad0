"""Comparison of message classes with the schemas in Kafka's jars: every message, version, field, default, tag."""

from __future__ import annotations

import json
import re
import zipfile
from typing import Any

import pytest

from compat_tests.support.jars import kafka_jar
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.schema import ZERO_UUID, Message, Versions, fields_of
from ottla.wire.messages.catalogue import all_messages

HOMES = {
    "kafka-clients": "common/message/",
    "kafka-metadata": "common/metadata/",
    "kafka-group-coordinator": "common/message/",
    "kafka-transaction-coordinator": "common/message/",
    "kafka-share-coordinator": "common/message/",
    "kafka-raft": "common/message/",
    "kafka-storage": "message/",
}


def schemas() -> dict[str, dict[str, Any]]:
    out = {}
    for stem in HOMES:
        with zipfile.ZipFile(kafka_jar(stem)) as jar:
            for name in jar.namelist():
                if name.endswith(".json"):
                    text = jar.read(name).decode()
                    kept = "\n".join(line for line in text.split("\n") if not line.strip().startswith("//"))
                    value = json.loads(kept)
                    if isinstance(value, dict) and "validVersions" in value:
                        out[value["name"]] = value
    return out


def snake(name: str) -> str:
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def default_of(field: dict[str, Any], *, is_struct: bool) -> Any:
    kind = field["type"]
    given = field.get("default")
    if given == "null":
        return None
    if kind.startswith("[]"):
        return []
    if is_struct:
        return "struct"
    if given is None:
        zero = {"string": "", "bytes": b"", "records": None, "uuid": ZERO_UUID, "bool": False, "float64": 0.0}
        return zero.get(kind, 0)
    if kind == "string":
        return given
    if kind == "bool":
        return str(given).lower() == "true"
    return float(given) if kind == "float64" else int(str(given), 0)


def compare(name: str, cls: type[Message], fields: list[dict[str, Any]], common: dict[str, Any]) -> list[str]:
    """Return the differences of one struct, its inner ones included."""
    out = []
    ours = fields_of(cls)
    if [s.name for s in ours] != [snake(f["name"]) for f in fields]:
        return [f"{name}: fields {[s.name for s in ours]}, Kafka has {[f['name'] for f in fields]}"]
    for spec, field in zip(ours, fields, strict=True):
        at = f"{name}.{field['name']}"
        kind = field["type"]
        element = kind.removeprefix("[]")
        is_struct = element[0].isupper()
        want = {
            "kind": ("[]" if kind.startswith("[]") else "") + ("struct" if is_struct else element),
            "versions": Versions.parse(field.get("versions") or field["taggedVersions"]),
            "nullable": Versions.parse(field.get("nullableVersions", "none")),
            "tagged": Versions.parse(field.get("taggedVersions", "none")),
            "tag": field.get("tag", -1),
            "ignorable": str(field.get("ignorable", False)).lower() == "true",
            "never_compact": field.get("flexibleVersions") == "none",
        }
        for key, value in want.items():
            if getattr(spec, key) != value:
                out.append(f"{at}: {key} {getattr(spec, key)}, Kafka has {value}")
        default = default_of(field, is_struct=is_struct)
        fresh = spec.default_value()
        if default == "struct":
            default = spec.struct() if spec.struct is not None else None
        if fresh != default or type(fresh) is not type(default):
            out.append(f"{at}: default {fresh!r}, Kafka has {default!r}")
        if is_struct:
            assert spec.struct is not None, at
            inner = field.get("fields") or common[element]["fields"]
            out += compare(at, spec.struct, inner, common)
    return out


def test_message_classes_equal_schemas_of_kafka() -> None:
    theirs = {name: s for name, s in schemas().items() if s["validVersions"] != "none"}
    ours = all_messages()
    assert len(theirs) >= 270
    assert sorted(ours) == sorted(theirs)
    differences = []
    for name, schema in theirs.items():
        spec = spec_of(ours[name])
        want = (
            schema["type"],
            schema.get("apiKey", -1),
            Versions.parse(schema["validVersions"]),
            Versions.parse(schema.get("flexibleVersions", "none")),
            tuple(schema.get("listeners", ())),
            str(schema.get("latestVersionUnstable", False)).lower() == "true",
        )
        if tuple(spec) != want:
            differences.append(f"{name}: {tuple(spec)}, Kafka has {want}")
        common = {c["name"]: c for c in schema.get("commonStructs", [])}
        differences += compare(name, ours[name], schema.get("fields", []), common)
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("change", ["kind", "tag", "default"])
def test_compare_with_changed_schema_returns_difference(change: str) -> None:
    schema = schemas()["FetchResponse"]
    field = schema["fields"][0]
    if change == "kind":
        field["type"] = "int64"
    elif change == "tag":
        field["tag"] = 7
    else:
        field["default"] = "5"
    common = {c["name"]: c for c in schema.get("commonStructs", [])}
    assert compare("FetchResponse", all_messages()["FetchResponse"], schema["fields"], common)
