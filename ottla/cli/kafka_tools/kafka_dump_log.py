"""``ottla kafka-dump-log``: the tool ``kafka-dump-log.sh``, which prints segments, indexes and snapshots.

Source: ``DumpLogSegments`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.cli.errors import failure_text
from ottla.cli.kafka_tools.index_entries import (
    check_offset_index,
    check_time_index,
    offset_entries,
    require_position,
    time_entries,
    unchecked_offset_index,
)
from ottla.cli.kafka_tools.tool_options import STDERR, ToolFailed, ToolOptions, has, java_integer
from ottla.env.disk import Disk, read_file
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.segment.indexes import OFFSET_ENTRY_BYTES, read_txn_index
from ottla.runtime.real_disk import RealDisk
from ottla.tools.message_json import message_to_json
from ottla.tools.segment_file_reader import SegmentFileReader
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages import control_records as ctl
from ottla.wire.record_batch import legacy_records
from ottla.wire.record_batch.batch_header import (
    DELETE_HORIZON_BIT,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    increment_sequence,
)
from ottla.wire.record_batch.compression import compression_type_of
from ottla.wire.record_batch.control_record import (
    ControlRecordType,
    decode_control_record,
    parse_end_transaction_marker,
    read_control_type,
)
from ottla.wire.record_batch.records import Record, iterate_records

if TYPE_CHECKING:
    from ottla.cli.kafka_tools.log_record_parsers import RecordParser

TEXT = (
    "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly "
    "corrupt log segment."
)
INDENT = "|"
BOOTSTRAP = "bootstrap.checkpoint"
DECODERS = (
    *("offsets-decoder", "transaction-log-decoder", "cluster-metadata-decoder", "share-group-state-decoder"),
    *("key-decoder-class", "value-decoder-class"),
)
"""Options each of which also prints the records."""
_CONTROL_TITLES: dict[type[Message], str] = {
    ctl.LeaderChangeMessage: "LeaderChange:",
    ctl.SnapshotHeaderRecord: "SnapshotHeader",
    ctl.SnapshotFooterRecord: "SnapshotFooter",
    ctl.KRaftVersionRecord: "KRaftVersion",
    ctl.VotersRecord: "KRaftVoters",
}


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-dump-log", TEXT)
    out.flag("print-data-log", "Print the content of records; set if a decoder option is specified.")
    out.flag("verify-index-only", "Verify the index without printing its content.")
    out.flag("index-sanity-check", "Check the sanity of the index without printing its content.")
    out.option("files", "REQUIRED: The comma separated list of data and index log files to be dumped.")
    out.option("max-message-size", "Accepted for compatibility; has no effect.", java_integer)
    out.option("max-bytes", "Limit of bytes to read of a .log file.", java_integer)
    out.flag("deep-iteration", "Print the metadata of records, too; set with --print-data-log.")
    text = "Class that decodes {}: StringDecoder (the default), IntegerDecoder or LongDecoder of Kafka's tools."
    out.optional_value("value-decoder-class", text.format("values"))
    out.optional_value("key-decoder-class", text.format("keys"))
    out.flag("offsets-decoder", "Parse the records as those of the __consumer_offsets topic.")
    out.flag("transaction-log-decoder", "Parse the records as those of the __transaction_state topic.")
    out.flag("cluster-metadata-decoder", "Parse the records as cluster metadata.")
    out.flag("share-group-state-decoder", "Parse the records as those of the __share_group_state topic.")
    out.flag("skip-record-metadata", "Skip metadata when printing records, and control records.")
    return out


class LogDump:
    """Dump of files to standard output, which collects errors of indexes and gaps in offsets for `print_errors`.

    Gaps are found only if records are printed, or with ``--deep-iteration``.

    Args:
        disk: disk with the files.
        options: parsed arguments.
    """

    def __init__(self, disk: Disk, options: argparse.Namespace) -> None:
        self._disk = disk
        self._options = options
        self._parse: RecordParser | None = None
        self._mismatches: dict[str, dict[int, int]] = {}
        self._jumps: dict[str, dict[int, int]] = {}
        self._time_errors: dict[str, dict[str, list[str]]] = {}

    def dump(self, path: str) -> None:
        """Print the content of a file by its suffix; an unknown suffix is reported on standard error.

        Raises:
            ToolFailed: the file is malformed, its name is not a number, or an option is invalid. A malformed producer
                snapshot is only reported on standard error.
            OSError: it cannot be read.
        """
        print(f"Dumping {path}")
        suffix = os.path.splitext(path)[1]
        stem = os.path.basename(path).partition(".")[0]
        if suffix not in (".log", ".checkpoint", ".index", ".timeindex", ".snapshot", ".txnindex"):
            sys.stdout.flush()
            print(f"Ignoring unknown file {path}", file=sys.stderr)
            return
        is_known = suffix == ".checkpoint" or stem.isdecimal()
        if not is_known:
            raise ToolFailed(f'For input string: "{stem}"')
        try:
            if suffix in (".log", ".checkpoint"):
                self._segment(path, stem)
            elif suffix in (".index", ".timeindex"):
                self._index(path, int(stem))
            elif suffix == ".snapshot":
                self._producers(path)
            else:
                self._aborted(path)
        except (CorruptFile, WireError) as error:
            raise ToolFailed(str(error)) from None

    # ------------------------------------------------------------------ segments

    def _segment(self, path: str, stem: str) -> None:
        self._parse = _record_parser(self._options)
        name = os.path.basename(path)
        if name.endswith(".log"):
            print(f"Log starting offset: {int(stem)}")
        elif name == BOOTSTRAP:
            print("KRaft bootstrap snapshot")
        else:
            offset, _, epoch = stem.partition("-")
            if not (offset.isdecimal() and epoch.isdecimal()):
                raise ToolFailed("No value present")
            print(f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}")
        is_deep = self._options.deep_iteration or self._parse is not None
        most = self._options.max_bytes
        if most is not None and most < 0:
            raise ToolFailed(f"Invalid size: {most} in read from {path}")
        end, before = 0, -1
        with SegmentFileReader(self._disk, path, most) as segment:
            for position, header, raw in segment.batches():
                print(_batch_text(header, position, is_valid=legacy_records.any_crc_matches(raw, header)))
                end = position + header.size_bytes
                for record in iterate_records(raw, header) if is_deep else ():
                    if record.offset != before + 1:
                        self._jumps.setdefault(os.path.abspath(path), {})[before] = record.offset
                    before = record.offset
                    print(self._record_text(header, record))
        if end < segment.size_bytes and most is None:
            print(f"Found {segment.size_bytes - end} invalid bytes at the end of {name}")

    def _record_text(self, header: BatchHeader, record: Record) -> str:
        skips = self._options.skip_record_metadata
        out = "" if skips else _metadata_text(header, record)
        if self._parse is None or header.is_control:
            return out
        found = self._parse(record)
        prefix = f"{INDENT} " if skips else " "
        if found.key is not None:
            out += f"{prefix}key: {found.key}"
            prefix = " "
        return out if found.value is None else f"{out}{prefix}payload: {found.value}"

    # ------------------------------------------------------------------ indexes

    def _index(self, path: str, base: int) -> None:
        check = self._check_times if path.endswith(".timeindex") else self._check_offsets
        with SegmentFileReader(self._disk, f"{os.path.splitext(path)[0]}.log") as segment:
            check(path, base, segment)

    def _check_offsets(self, path: str, base: int, segment: SegmentFileReader) -> None:
        """Compare the entries of an offset index with its segment; print them unless ``--verify-index-only`` is set.

        With ``--index-sanity-check`` only `check_offset_index` is called.
        """
        raw = read_file(self._disk, path)
        if len(raw) < OFFSET_ENTRY_BYTES:
            print(f"{path} is empty.")
            return
        if self._options.index_sanity_check:
            check_offset_index(base, raw, path)
            print(f"{path} passed sanity check.")
            return
        for offset, position in offset_entries(base, raw):
            require_position(position, segment.path)
            header = segment.header_at(position)
            if header is None or header.last_offset != offset:
                last_offset = -1 if header is None else header.last_offset
                self._mismatches.setdefault(os.path.abspath(path), {})[offset] = last_offset
            if not self._options.verify_index_only:
                print(f"offset: {offset} position: {position}")

    def _check_times(self, path: str, base: int, segment: SegmentFileReader) -> None:
        """Compare the entries of a time index with its segment; print them unless ``--verify-index-only`` is set.

        With ``--index-sanity-check`` only `check_time_index` is called.
        """
        index = unchecked_offset_index(base, read_file(self._disk, f"{os.path.splitext(path)[0]}.index"))
        raw_times = read_file(self._disk, path)
        if self._options.index_sanity_check:
            check_time_index(base, raw_times, path)
            print(f"{path} passed sanity check.")
            return
        errors = self._time_errors.setdefault(os.path.abspath(path), {})
        before = -1
        for timestamp, offset in time_entries(base, raw_times):
            position = index.lookup(offset)
            require_position(position, segment.path)
            found = segment.locate(offset, position)
            if found is None or found.last_offset != offset:
                at = -1 if found is None else found.last_offset
                text = f"Indexed offset: {offset}, found log offset: {at}"
                errors.setdefault("The following indexed offsets are not found in :", []).append(text)
            else:
                raw = segment.file.pread(found.size_bytes, found.position)
                records = iterate_records(raw, legacy_records.parse_any_header(raw))
                newest = max((record.timestamp_ms for record in records), default=NO_TIMESTAMP)
                if newest != timestamp:
                    text = f"  Index timestamp: {timestamp}, log timestamp: {newest}"
                    errors.setdefault("Found timestamp mismatch in :", []).append(text)
                if before >= timestamp:
                    text = f"  Index timestamp: {timestamp}, Previously indexed timestamp: {before}"
                    errors.setdefault("Found out of order timestamp in :", []).append(text)
            if not self._options.verify_index_only:
                print(f"timestamp: {timestamp} offset: {offset}")
            before = timestamp

    # ------------------------------------------------------------------ producers

    def _producers(self, path: str) -> None:
        try:
            producers = ProducerStateManager.unpack(read_file(self._disk, path), path).producers
        except CorruptFile as error:
            sys.stdout.flush()
            print(error, file=sys.stderr)
            return
        for number, state in producers.items():
            first = "OptionalLong.empty" if state.txn_first_offset < 0 else f"OptionalLong[{state.txn_first_offset}]"
            text = (
                f"producerId: {number} producerEpoch: {state.epoch} coordinatorEpoch: {state.coordinator_epoch} "
                f"currentTxnFirstOffset: {first} lastTimestamp: {state.timestamp_ms}"
            )
            for batch in state.batches[-1:]:
                text += (
                    f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                    f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} "
                    f"timestamp: {batch.timestamp_ms}"
                )
            print(text)

    def _aborted(self, path: str) -> None:
        for entry in read_txn_index(self._disk, path):
            print(
                f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
                f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
            )

    def print_errors(self) -> None:
        """Print the index errors and offset gaps that `dump` found in all files so far on standard error."""
        for line in self._error_lines():
            print(line, file=sys.stderr)

    def _error_lines(self) -> Iterator[str]:
        for path, found in self._mismatches.items():
            yield f"Mismatches in :{path}"
            for offset, other in sorted(found.items(), reverse=True):
                yield f"  Index offset: {offset}, log offset: {other}"
        for title in (
            "Found timestamp mismatch in :",
            "Found out of order timestamp in :",
            "The following indexed offsets are not found in :",
        ):
            for path, errors in self._time_errors.items():
                if title in errors:
                    yield f"{title}{path}"
                    yield from errors[title]
        for path, found in self._jumps.items():
            yield f"Non-consecutive offsets in {path}"
            for offset, other in sorted(found.items()):
                yield f"  {offset} is followed by {other}"


def _timestamp_type(header: BatchHeader) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.has_log_append_time else "CreateTime"


def _batch_text(header: BatchHeader, position: int, *, is_valid: bool) -> str:
    out = f"offset: {header.last_offset}"
    if header.magic >= 2:
        has_horizon = header.attributes & DELETE_HORIZON_BIT
        horizon = f"OptionalLong[{header.base_timestamp}]" if has_horizon else "OptionalLong.empty"
        out = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.records_count} "
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
            f"partitionLeaderEpoch: {header.partition_leader_epoch} "
            f"isTransactional: {_java(header.is_transactional)} isControl: {_java(header.is_control)} "
            f"deleteHorizonMs: {horizon}"
        )
    codec = compression_type_of(header.attributes).name.lower()
    return (
        f"{out} position: {position} {_timestamp_type(header)}: {header.max_timestamp} size: {header.size_bytes} "
        f"magic: {header.magic} compresscodec: {codec} crc: {header.crc} isvalid: {_java(is_valid)}"
    )


def _java(value: bool) -> str:  # noqa: FBT001
    return str(value).lower()


def _metadata_text(header: BatchHeader, record: Record) -> str:
    sizes = [-1 if raw is None else len(raw) for raw in (record.key, record.value)]
    out = (
        f"{INDENT} offset: {record.offset} {_timestamp_type(header)}: {record.timestamp_ms} "
        f"keySize: {sizes[0]} valueSize: {sizes[1]}"
    )
    if header.magic >= 2:
        sequence = header.base_sequence
        if sequence != NO_SEQUENCE:
            sequence = increment_sequence(sequence, record.offset - header.base_offset)
        out += f" sequence: {sequence} headerKeys: [{','.join(key for key, _ in record.headers)}]"
    return out + _control_text(record) if header.is_control else out


def _control_text(record: Record) -> str:
    marker = parse_end_transaction_marker(record)
    if marker is not None:
        name = ControlRecordType(marker.control_type).name
        return f" endTxnMarker: {name} coordinatorEpoch: {marker.coordinator_epoch}"
    message = decode_control_record(record)
    if message is None:
        return f" controlType: UNKNOWN({read_control_type(record)})"
    version = getattr(message, "version", 0)
    shown = json.dumps(message_to_json(message, version), separators=(",", ":"))
    return f" {_CONTROL_TITLES[type(message)]} {shown}"


def _record_parser(options: argparse.Namespace) -> RecordParser | None:
    """Return the parser of records that the options select; None if no records are printed.

    Raises:
        ToolFailed: a decoder class is unknown.
    """
    if not any(has(options, name) for name in ("print-data-log", *DECODERS)):
        return None
    # lazy: 18.8 ms, 940 kB: only to print records
    from ottla.cli.kafka_tools.log_record_parsers import DEFAULT_DECODER, INTERNAL_PARSERS, plain_parser

    for name, parse in INTERNAL_PARSERS.items():
        if has(options, name):
            return parse
    decoders = options.key_decoder_class, options.value_decoder_class
    return plain_parser(*(name or DEFAULT_DECODER for name in decoders))


def run(arguments: list[str]) -> int:
    """Run ``kafka-dump-log`` on files of this machine; return exit status 0, or 1 after a failure that is printed.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    parser.require(options, "files")
    try:
        dump = LogDump(RealDisk(), options)
        for path in options.files.split(","):
            dump.dump(path)
    except (ToolFailed, OSError) as error:
        sys.stdout.flush()
        return STDERR.print(ToolFailed(failure_text(error)))
    sys.stdout.flush()
    dump.print_errors()
    return 0
