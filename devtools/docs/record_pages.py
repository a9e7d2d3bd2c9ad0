"""Generator of the reference pages of stored records: fields, version history and an example of each record."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from devtools.docs.api_pages import NOTE
from devtools.docs.example_messages import DIRECTORY_ID, example_message
from devtools.docs.message_layout import annotated_bytes, field_list, wrap
from ottla.controller.metadata.record_serde import FRAME_VERSION
from ottla.controller.raft.state_machine.events import HardState, ReplicaKey
from ottla.controller.raft.store.quorum_state_file import QUORUM_STATE, QuorumStateFile
from ottla.env.disk import read_file
from ottla.env.memory_disk import MemoryDisk
from ottla.wire.codec import compiler
from ottla.wire.codec.explain import explain
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.primitives import write_uvarint
from ottla.wire.codec.schema import Message, Versions
from ottla.wire.field_dump import FieldSpan, message_spans

WRITTEN_VERSIONS = {"GroupMetadataValue": 3}
"""Versions that brokers write where it is not the newest one."""


class RecordPage(NamedTuple):
    """Page of the records of one message module."""

    module: str
    title: str
    framing: str
    """Prefix in front of the fields: a key of `FRAMINGS`; ``json`` stands for a JSON file, which has none."""


PAGES = {
    "metadata": RecordPage("metadata_records", "Metadata records", "metadata"),
    "offsets-and-classic-groups": RecordPage("offset_records", "Records of offsets and classic groups", "coordinator"),
    "consumer-groups": RecordPage("consumer_group_records", "Records of consumer groups", "coordinator"),
    "share-groups": RecordPage("share_group_records", "Records of share groups", "coordinator"),
    "streams-groups": RecordPage("streams_group_records", "Records of streams groups", "coordinator"),
    "share-state": RecordPage("share_state_records", "Records of the share coordinator", "coordinator"),
    "transactions": RecordPage("transaction_records", "Records of transactions", "coordinator"),
    "control-records": RecordPage("control_records", "Control records", "control"),
    "producer-snapshot": RecordPage("producer_snapshot", "Producer snapshot", "version"),
    "quorum-state": RecordPage("quorum_state", "Quorum state", "json"),
    "consumer-protocol": RecordPage("consumer_protocol", "Consumer protocol and principal data", "version"),
    "remote-log-metadata": RecordPage("remote_log_records", "Records of remote log metadata", "remote"),
}
FRAMINGS = {
    "metadata": "The value of a record starts with three unsigned varints: frame version (1), record type and record "
    "version. Keys are null. A metadata snapshot has the same records, between a SnapshotHeaderRecord and a "
    "SnapshotFooterRecord ([control records](control-records.md)).",
    "coordinator": "The key of a record starts with its type as int16, the value with its version as int16. A null "
    "value (tombstone) deletes the key. The topic is compacted: the last record of each key counts.",
    "control": "A control record stands in a batch with the control bit set. Its key is a version (int16, 0) and a "
    "type (int16). Consumers skip control records.",
    "version": "The fields follow a version as int16.",
    "json": "The file is a JSON object with the fields below in camel case, and `data_version`.",
    "remote": "The value of a record starts with three unsigned varints: frame version (1), record type and record "
    "version. Keys are null.",
}


def records_of(page: RecordPage) -> list[type[Message]]:
    """Return the message classes of a page in the order of their source."""
    module = import_module(f"ottla.wire.messages.{page.module}")
    classes = [x for x in vars(module).values() if isinstance(x, type) and issubclass(x, Message)]
    return [x for x in classes if x.__module__ == module.__name__ and "SPEC" in vars(x)]


def example_version(cls: type[Message]) -> int:
    """Return the version of the example: the newest one that brokers write."""
    return WRITTEN_VERSIONS.get(cls.__name__, spec_of(cls).versions.high)


def _prefix(cls: type[Message], framing: str, version: int) -> list[tuple[str, int, bytes]]:
    """Return name, value and bytes of the fields in front of those of a record, which ``framing`` defines."""
    spec = spec_of(cls)
    match framing:
        case "metadata" | "remote":
            values = ("frame_version", FRAME_VERSION), ("type", spec.key), ("version", version)
            return [(name, value, write_uvarint(value)) for name, value in values]
        case "coordinator":
            name, number = ("type", spec.key) if spec.type == "coordinator-key" else ("version", version)
            return [(name, number, number.to_bytes(2, "big"))]
        case "version":
            return [("version", version, version.to_bytes(2, "big"))]
        case "control" if cls.__name__ in ("ControlRecordTypeSchema", "EndTxnMarker"):
            return [("version", version, version.to_bytes(2, "big"))]
        case _:
            return []


def example_record(cls: type[Message], framing: str) -> tuple[bytes, list[FieldSpan]]:
    """Return the bytes of an example of a record, and the byte ranges and values of its fields.

    The bytes include the prefix that ``framing`` (see `RecordPage`) defines.
    """
    version = example_version(cls)
    raw, spans = b"", []
    for name, value, data in _prefix(cls, framing, version):
        spans.append(FieldSpan(len(raw), len(raw) + len(data), name, value))
        raw += data
    body = example_message(cls, version)
    if framing == "control" and hasattr(body, "version"):
        body.version = version
    start = len(raw)
    raw += compiler.encode(body, version)
    fields, _ = message_spans(cls, version, raw, start)
    return raw, spans + fields


def quorum_state_text() -> str:
    """Return the JSON text of a quorum-state file as a node writes it; the file is in memory."""
    disk = MemoryDisk(random.Random(1), lambda: 0).session()
    disk.makedirs("/log")
    QuorumStateFile(HardState(5, 2, ReplicaKey(2, DIRECTORY_ID))).write(disk, f"/log/{QUORUM_STATE}")
    return read_file(disk, f"/log/{QUORUM_STATE}").decode()


def _section(cls: type[Message], framing: str) -> Iterator[str]:
    explanation, spec = explain(cls), spec_of(cls)
    served = Versions(spec.versions.low, spec.versions.high)
    kind = f", type {spec.key}" if spec.key >= 0 else ""
    flexible = "flexible" if spec.flexible.low <= spec.versions.high else "not flexible"
    versions = f"versions {served.low} to {served.high}" if served.low < served.high else f"version {served.low}"
    yield from ("", f"## {cls.__name__}", "")
    yield from wrap(
        f"{explanation.summary} ({versions[0].upper()}{versions[1:]}{kind}, {flexible}.) {explanation.versions}"
    )
    fields = list(field_list(cls, served))
    yield from ("", *(fields or ["No fields."]))
    if framing != "json":
        raw, spans = example_record(cls, framing)
        count = f"{len(raw)} byte{'s' if len(raw) != 1 else ''}"
        yield from ("", f"Example of version {example_version(cls)}, {count}:", "", *annotated_bytes(spans, raw))


def record_page(page: RecordPage) -> str:
    """Return the Markdown text of the page of the records of one message module."""
    classes = records_of(page)
    doc = sys.modules[classes[0].__module__].__doc__ or ""
    lines = [f"# {page.title}", NOTE, "", *wrap(doc), "", *wrap(FRAMINGS[page.framing]), ""]
    lines += wrap(
        "Columns of the examples: position, bytes in hexadecimal (`..`: more bytes follow), field and value. `ottla "
        "dump FILE` prints the records of a file."
    )
    for cls in classes:
        lines += _section(cls, page.framing)
    if page.framing == "json":
        lines += ["", "Example of version 1:", "", "```text", quorum_state_text().rstrip(), "```"]
    return "\n".join(lines) + "\n"


def index_page() -> str:
    """Return the Markdown text of ``docs/reference/records/README.md``, which lists all pages of records."""
    lines = ["# Stored records", NOTE, ""]
    lines += wrap(
        "This page lists the records that Kafka and Ottla store, for a reader of a data directory. Each page has "
        "the fields of its records, the history of their versions, and annotated bytes. Batches of records are "
        "explained in [on-disk format](../../explanation/on-disk-format.md)."
    )
    lines.append("")
    for name, page in PAGES.items():
        doc = " ".join((import_module(f"ottla.wire.messages.{page.module}").__doc__ or "").split())
        lines += wrap(f"[{page.title}]({name}.md): {doc}", 2, "- ")
    return "\n".join(lines) + "\n"
