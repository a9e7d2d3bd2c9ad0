"""``ottla tier``: list, verify, extract segments in a remote store and rebuild their metadata, without a broker."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from ottla.broker.storage.tiered.cloud_store import InvalidStoreError
from ottla.broker.storage.tiered.remote_storage import CorruptRemoteSegmentError, RemoteStorageError
from ottla.broker.storage.tiered.segment_format import check_topic
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.broker.storage.tiered.store_settings import (
    CACHE_PATH_KEY,
    DEFAULT_PREFIX,
    URL_KEY,
    open_segment_store,
    parse_store_settings,
    store_values,
)
from ottla.cli.arguments import command_parser, integer
from ottla.cli.common import OUTPUTS, parse_key_values, print_output
from ottla.cli.errors import CommandFailed, failure_text
from ottla.env.log_escaping import escape
from ottla.log.java_properties import MalformedProperties, load_settings
from ottla.runtime.blocking_env import BlockingEnv
from ottla.runtime.real_disk import RealDisk
from ottla.tools.remote_segments import (
    ObjectProblem,
    StoredSegment,
    choose_segments,
    extract_segment,
    list_segments,
    metadata_record_to_json,
    metadata_records,
    remove_unfinished_uploads,
    verify_segment,
)
from ottla.wire.codec.primitives import uuid_to_string

TEXT = """Read segments of tiered storage in a directory or an object store. No broker is needed. Only
`verify --remove-uploads` changes the store.

URL: /directory, file:///directory, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix. An object store needs
the package obstore (pip install 'ottla[tiered]'). Credentials come from the environment, as for the store's own
tools, or from settings: store.NAME and client.NAME are those of obstore.

examples:
  ottla tier list /mnt/tier
  ottla tier list s3://segments/cluster-1 --topic events -o json
  ottla tier verify s3://segments --set store.endpoint=http://127.0.0.1:9000 --set client.allow_http=true
  ottla tier extract /mnt/tier --topic events --partition 3 --to restored
  ottla tier rebuild /mnt/tier | ottla produce __remote_log_metadata -i json
Status: 0 done, 1 an object is damaged or could not be read, 2 wrong arguments.
"""
PREFIX_SETTING = "remote.log.storage.manager.impl.prefix"
UPLOAD_MAX_AGE_HOURS = 24
METADATA_PARTITIONS = 50
"""Default of `remote.log.metadata.topic.num.partitions`."""


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("tier", TEXT)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in (
        ("list", "list the segments of a store"),
        ("verify", "read every segment completely and verify its checksums"),
        ("extract", "write segments as files of Kafka's log, indexes included"),
        (
            "rebuild",
            "print the records of __remote_log_metadata that describe the segments, for `ottla produce -i json`",
        ),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(needs_utf8=True)
        verb.add_argument("url", metavar="URL", help="directory or object store")
        verb.add_argument("--topic", metavar="NAME", required=name == "extract", help="only this topic")
        verb.add_argument("--partition", metavar="N", type=integer(0), help="only this partition")
        verb.add_argument("--config", metavar="FILE", help=f"file of a broker with {DEFAULT_PREFIX}* settings")
        help_text = "setting of the store; overrides the file"
        verb.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help=help_text)
        if name == "list":
            verb.add_argument(
                "-o", "--output", choices=OUTPUTS, default="text", help="format of the output (default: text)"
            )
        elif name == "extract":
            verb.add_argument("--to", metavar="DIR", required=True, help="directory for the partitions' directories")
        elif name == "rebuild":
            help_text = f"partitions of __remote_log_metadata (default: {METADATA_PARTITIONS})"
            verb.add_argument("--partitions", type=integer(1), default=METADATA_PARTITIONS, metavar="N", help=help_text)
        else:
            help_text = f"remove unfinished uploads of a directory that are older than {UPLOAD_MAX_AGE_HOURS} hours"
            verb.add_argument("--remove-uploads", action="store_true", help=help_text)
    return parser


def _settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the store: URL, and those of the file overridden by ``--set``; caches are left out.

    Raises:
        CommandFailed: the file cannot be read or is malformed, or ``--set`` has another form than ``KEY=VALUE``.
    """
    settings: dict[str, str] = {}
    if options.config is not None:
        try:
            with open(options.config, "rb") as file:
                properties = load_settings(file.read())
        except (OSError, MalformedProperties) as error:
            raise CommandFailed(f"{options.config}: {getattr(error, 'strerror', None) or error}") from None
        settings = store_values(properties, properties.get(PREFIX_SETTING, DEFAULT_PREFIX))
        settings = {key: value for key, value in settings.items() if not key.startswith("chunk.cache.")}
    settings |= {key.removeprefix(DEFAULT_PREFIX): value for key, value in parse_key_values(options.set).items()}
    settings.pop(CACHE_PATH_KEY, None)
    return {**settings, URL_KEY: options.url}


def _report(problem: ObjectProblem) -> None:
    sys.stdout.flush()
    print(f"ottla tier: {escape(problem.name)}: {escape(problem.reason)}", file=sys.stderr)


def _segments(
    store: SegmentStore, options: argparse.Namespace, problems: list[ObjectProblem]
) -> Iterator[StoredSegment]:
    """Yield the stored segments of ``--topic`` and ``--partition``.

    Objects that are not valid segments are printed on standard error and appended to ``problems``.

    Raises:
        RemoteStorageError: the store failed.
    """
    for each in list_segments(store, options.topic, options.partition):
        if isinstance(each, ObjectProblem):
            problems.append(each)
            _report(each)
        else:
            yield each


def _row(segment: StoredSegment) -> dict[str, object]:
    metadata = segment.metadata
    return {
        "topic": metadata.segment_id.topic,
        "partition": metadata.segment_id.partition,
        "start": metadata.start_offset,
        "end": metadata.end_offset,
        "bytes": metadata.segment_size_bytes,
        "max_timestamp_ms": metadata.max_timestamp_ms,
        "leader_epochs": sorted(metadata.segment_leader_epochs),
        "topic_id": uuid_to_string(metadata.segment_id.topic_id),
        "segment_id": uuid_to_string(metadata.segment_id.id),
        "broker": metadata.broker_id,
        "object": segment.object.name,
        "object_bytes": segment.object.size_bytes,
    }


_TEXT_COLUMNS = ("topic", "partition", "start", "end", "bytes", "max_timestamp_ms", "segment_id")


def _list(store: SegmentStore, options: argparse.Namespace, problems: list[ObjectProblem]) -> None:
    rows = [_row(each) for each in _segments(store, options, problems)]
    rows.sort(key=lambda row: (row["topic"], row["partition"], row["start"], row["segment_id"]))
    if options.output == "text":
        rows = [{name: row[name] for name in _TEXT_COLUMNS} for row in rows]
    print_output(rows, options.output, "no segments")


def _verify(store: SegmentStore, options: argparse.Namespace, problems: list[ObjectProblem]) -> None:
    count = size = 0
    for each in _segments(store, options, problems):
        problem = verify_segment(store, each)
        count += 1
        size += each.object.size_bytes
        if problem is not None:
            problems.append(problem)
            _report(problem)
    if options.remove_uploads:
        before_ms = BlockingEnv().now_ms() - UPLOAD_MAX_AGE_HOURS * 3_600_000
        for name in remove_unfinished_uploads(store.objects, before_ms):
            print(f"removed an unfinished upload: {escape(name)}")
    print(f"{count} segments of {size} bytes verified, {len(problems)} damaged objects")


def _extract(store: SegmentStore, options: argparse.Namespace, problems: list[ObjectProblem]) -> None:
    extraction = choose_segments(_segments(store, options, problems))
    if not extraction.chosen and not problems:
        raise CommandFailed(f"no segments of topic {options.topic}")
    for problem in extraction.omitted:
        _report(problem)
    disk = RealDisk()
    for each in extraction.chosen:
        try:
            print(escape(extract_segment(store, disk, each, options.to)))
        except CorruptRemoteSegmentError as error:
            problems.append(ObjectProblem(each.object.name, str(error).removeprefix(f"{each.object.name}: ")))
            _report(problems[-1])


def _rebuild(store: SegmentStore, options: argparse.Namespace, problems: list[ObjectProblem]) -> None:
    segments = sorted(
        _segments(store, options, problems),
        key=lambda each: (*each.metadata.segment_id[:3], each.metadata.event_timestamp_ms, each.metadata.start_offset),
    )
    for segment in segments:
        for record in metadata_records(segment.metadata, options.partitions):
            print(json.dumps(metadata_record_to_json(record)))


_VERBS = {"list": _list, "verify": _verify, "extract": _extract, "rebuild": _rebuild}


def run(arguments: list[str]) -> int:
    """Run ``ottla tier`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 if an object is damaged or no segment, or after a failure that is printed; 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = _parser().parse_args(arguments)
    problems: list[ObjectProblem] = []
    try:
        if options.topic is not None:
            check_topic(options.topic)
        store = open_segment_store(parse_store_settings(_settings(options)), RealDisk())
        _VERBS[options.verb](store, options, problems)
    except KeyboardInterrupt:
        return 130
    except (CommandFailed, InvalidStoreError, RemoteStorageError, OSError, ValueError) as error:
        sys.stdout.flush()
        print(f"ottla tier: {escape(failure_text(error))}", file=sys.stderr)
        return 1
    return int(bool(problems))
