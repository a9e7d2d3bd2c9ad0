"""Checksums of all message schemas, recorded in ``schema_checksums.txt`` so that a changed schema fails a test.

The schemas are compared with Kafka's jars where Java is available; ``python -m ottla.wire.tests.schema_checksums``
records the compared schemas.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.schema import Message, fields_of
from ottla.wire.messages.catalogue import all_messages

CHECKSUMS_PATH = Path(__file__).with_name("schema_checksums.txt")


def describe_fields(cls: type[Message]) -> str:
    """Return the text of all fields of a message's schema, inner ones included."""
    out = []
    for field in fields_of(cls):
        ranges = " ".join(str(versions) for versions in (field.versions, field.nullable, field.tagged))
        inner = describe_fields(field.struct) if field.struct is not None else ""
        default = "{}" if field.kind == "struct" and field.default is not None else repr(field.default_value())
        marks = f"{field.tag} {field.ignorable} {field.never_compact}"
        out.append(f"{field.name}: {field.kind} {ranges} {marks} = {default} ({inner})")
    return "\n".join(out)


def schema_checksums() -> dict[str, str]:
    """Return the checksum of spec and fields by message name."""
    return {
        name: f"{zlib.crc32(f'{tuple(spec_of(cls))!r} {describe_fields(cls)}'.encode()):08x}"
        for name, cls in sorted(all_messages().items())
    }


def recorded_checksums() -> dict[str, str]:
    """Return the recorded checksums."""
    return dict(line.split() for line in CHECKSUMS_PATH.read_text().splitlines())  # type: ignore[misc]


if __name__ == "__main__":
    CHECKSUMS_PATH.write_text("".join(f"{name} {checksum}\n" for name, checksum in schema_checksums().items()))
