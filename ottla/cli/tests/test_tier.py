"""``ottla tier`` over a directory and an S3-compatible server."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from ottla.broker.storage.tiered.cloud_store import CloudStore, CloudStoreOptions
from ottla.broker.storage.tiered.remote_log_metadata import (
    RemoteLogSegmentMetadataUpdate,
    decode_remote_log_metadata,
    metadata_partition,
    updated,
)
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentMetadata, RemoteLogSegmentState
from ottla.broker.storage.tiered.segment_format import object_name
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.broker.storage.tiered.tests.s3_server import running_server
from ottla.cli.tests.command_runs import run_command
from ottla.log.tests.log_fixtures import TOPIC_ID
from ottla.runtime.real_disk import RealDisk
from ottla.tools.json_records import record_from_json
from ottla.tools.tests.tier_fixtures import copy_segments, filled_store, write_log


def test_tier_list_prints_segments_in_the_order_of_offsets(tmp_path: Path) -> None:
    _, _, copied = filled_store(tmp_path)
    done = run_command("tier", "list", f"file://{tmp_path}/tier", "-o", "json")
    assert done.status == 0
    rows = json.loads(done.out)
    assert [(row["start"], row["end"]) for row in rows] == [(x.start_offset, x.end_offset) for x in copied]
    assert rows[0] | {"object_bytes": 0} == {
        "topic": "t",
        "partition": 0,
        "start": 0,
        "end": copied[0].end_offset,
        "bytes": copied[0].segment_size_bytes,
        "max_timestamp_ms": copied[0].max_timestamp_ms,
        "leader_epochs": [0],
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
        "segment_id": "AQEBAQEBAQEBAQEBAQEBAQ",
        "broker": 1,
        "object": object_name(copied[0]),
        "object_bytes": 0,
    }
    text = run_command("tier", "list", f"{tmp_path}/tier").out.decode().splitlines()
    assert text[0].split() == ["topic", "partition", "start", "end", "bytes", "max_timestamp_ms", "segment_id"]
    assert len(text) == len(copied) + 1


def test_tier_list_of_a_store_without_segments_prints_no_row(tmp_path: Path) -> None:
    done = run_command("tier", "list", str(tmp_path))
    assert (done.status, done.out, done.err) == (0, b"", "no segments\n")
    assert run_command("tier", "list", str(tmp_path), "-o", "json").out == b"[]\n"


def test_tier_verify_names_damaged_objects(tmp_path: Path) -> None:
    _, _, copied = filled_store(tmp_path)
    done = run_command("tier", "verify", f"{tmp_path}/tier")
    assert done.status == 0
    assert done.out.startswith(b"%d segments of " % len(copied))
    assert done.out.endswith(b" verified, 0 damaged objects\n")
    path = tmp_path / "tier" / object_name(copied[1])
    raw = bytearray(path.read_bytes())
    raw[7] ^= 1
    path.write_bytes(raw)
    (path.parent / "other.segment").write_bytes(b"x" * 100)
    done = run_command("tier", "verify", f"{tmp_path}/tier")
    assert done.status == 1
    assert f"ottla tier: {object_name(copied[1])}: records are damaged: wrong checksum (chunk at 0)\n" in done.err
    assert "other.segment: no segment object, or a truncated one" in done.err
    assert done.out.endswith(b" verified, 2 damaged objects\n")


def test_tier_verify_removes_old_uploads_only_with_its_option(tmp_path: Path) -> None:
    _, _, copied = filled_store(tmp_path)
    old = tmp_path / "tier" / f"{object_name(copied[0])}.upload"
    new = old.with_name("new.segment.upload")
    for path in (old, new):
        path.write_bytes(b"part")
    os.utime(old, (1, 1))
    assert run_command("tier", "verify", f"{tmp_path}/tier").status == 0
    assert old.exists()
    done = run_command("tier", "verify", f"{tmp_path}/tier", "--remove-uploads")
    assert done.out.splitlines()[0] == f"removed an unfinished upload: {old.relative_to(tmp_path / 'tier')}".encode()
    assert (old.exists(), new.exists()) == (False, True)


def test_tier_extract_writes_files_of_the_partition(tmp_path: Path) -> None:
    store, log, copied = filled_store(tmp_path)
    copy_segments(store, write_log(tmp_path / "data", "t", 1), 100)
    out = tmp_path / "out"
    command = ("tier", "extract", f"{tmp_path}/tier", "--topic", "t", "--partition", "0", "--to", str(out))
    done = run_command(*command)
    assert (done.status, done.err) == (0, "")
    assert len(done.out.splitlines()) == len(copied)
    assert os.listdir(out) == ["t-0"]
    for path in (out / "t-0").glob("*.log"):
        assert path.read_bytes() == (Path(log.directory) / path.name).read_bytes()
    again = run_command(*command)
    assert again.status == 1
    assert again.err == f"ottla tier: {out}/t-0/{0:020d}.log: File exists\n"


def test_tier_extract_goes_on_after_a_damaged_segment(tmp_path: Path) -> None:
    _, _, copied = filled_store(tmp_path)
    path = tmp_path / "tier" / object_name(copied[0])
    raw = bytearray(path.read_bytes())
    raw[7] ^= 1
    path.write_bytes(raw)
    done = run_command("tier", "extract", f"{tmp_path}/tier", "--topic", "t", "--to", str(tmp_path / "out"))
    assert done.status == 1
    assert len(done.err.splitlines()) == 1
    assert len(done.out.splitlines()) == len(copied) - 1


def test_tier_takes_settings_from_a_file_and_options_for_an_object_store(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    with running_server() as server:
        options = CloudStoreOptions(client={"allow_http": "true"})
        store = SegmentStore(CloudStore("s3://segments/one", server.settings(), options), RealDisk())
        copied = copy_segments(store, write_log(tmp_path / "data", "t", 0))
        lines = [f"rsm.config.store.{key}={value}" for key, value in server.settings().items() if key != "endpoint"]
        config.write_text("\n".join(["rsm.config.chunk.cache.path=/nope", "rsm.config.client.allow_http=true", *lines]))
        settings = ("--config", str(config), "--set", f"store.endpoint={server.endpoint}")
        listed = run_command("tier", "list", "s3://segments/one", *settings, "-o", "json")
        assert len(json.loads(listed.out)) == len(copied)
        done = run_command(
            "tier", "extract", "s3://segments/one", *settings, "--topic", "t", "--to", str(tmp_path / "o")
        )
        assert (done.status, len(done.out.splitlines())) == (0, len(copied))
        renamed = tmp_path / "renamed.properties"
        renamed.write_text(
            "remote.log.storage.manager.impl.prefix=x.\n" + config.read_text().replace("rsm.config.", "x.")
        )
        done = run_command("tier", "verify", "s3://segments/one", "--config", str(renamed), *settings[2:])
        assert done.status == 0


def test_tier_rebuild_prints_records_that_give_the_metadata_of_the_copies(tmp_path: Path) -> None:
    _, _, copied = filled_store(tmp_path)
    done = run_command("tier", "rebuild", f"{tmp_path}/tier")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert len(lines) == 2 * len(copied)
    rebuilt: dict[bytes, RemoteLogSegmentMetadata] = {}
    for number, line in enumerate(lines):
        taken = record_from_json(line)
        assert taken.partition == metadata_partition(TOPIC_ID, 0, 50)
        assert (taken.key, taken.headers, taken.timestamp_ms) == (None, (), copied[number // 2].event_timestamp_ms)
        assert taken.value is not None
        record = decode_remote_log_metadata(taken.value)
        if isinstance(record, RemoteLogSegmentMetadata):
            rebuilt[record.segment_id.id] = record
        else:
            assert isinstance(record, RemoteLogSegmentMetadataUpdate)
            rebuilt[record.segment_id.id] = updated(rebuilt[record.segment_id.id], record)
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    assert list(rebuilt.values()) == [replace(each, state=finished) for each in copied]


def test_tier_rebuild_names_damaged_objects_and_prints_the_others(tmp_path: Path) -> None:
    _, _, copied = filled_store(tmp_path)
    (tmp_path / "tier" / object_name(copied[0])).write_bytes(b"damaged")
    done = run_command("tier", "rebuild", f"{tmp_path}/tier", "--partitions", "1")
    assert done.status == 1
    assert done.err.startswith(f"ottla tier: {object_name(copied[0])}: no segment object")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert len(rows) == 2 * len(copied) - 2
    assert {row["partition"] for row in rows} == {0}
