"""Segments that `ottla tier extract` writes, read by Kafka's dump tool."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from compat_tests.support.processes import java_tool
from ottla.cli.tests.command_runs import run_command
from ottla.tools.tests.tier_fixtures import filled_store
from ottla.wire.record_batch.records import NewRecord, build_batch

KINDS = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}


def test_kafka_dumps_extracted_segments_as_the_originals(tmp_path: Path) -> None:
    _, log, copied = filled_store(tmp_path)
    out = tmp_path / "out"
    done = run_command("tier", "extract", f"{tmp_path}/tier", "--topic", "t", "--to", str(out))
    assert (done.status, done.err) == (0, "")
    extracted = sorted(path for path in (out / "t-0").iterdir() if path.suffix in KINDS)
    assert {path.suffix for path in extracted} == KINDS
    assert len([path for path in extracted if path.suffix == ".log"]) == len(copied)
    dumps = []
    for directory in (out / "t-0", Path(log.directory)):
        names = ",".join(str(directory / path.name) for path in extracted)
        text = java_tool("DumpLogSegments", "--files", names, "--deep-iteration", "--print-data-log")
        for word in ("Exception", "Mismatches", "Error", "corrupt", "isvalid: false"):
            assert word not in text, text
        dumps.append(text.replace(str(directory), "DIR"))
    assert dumps[0] == dumps[1]
    assert dumps[0].count("baseOffset: ") > 50
    assert dumps[0].count("producerId: 9 ") > 10
    assert "lastStableOffset" in dumps[0], "the transaction index is read"


def test_kafka_decodes_rebuilt_metadata_records(tmp_path: Path) -> None:
    _, _, copied = filled_store(tmp_path)
    done = run_command("tier", "rebuild", f"{tmp_path}/tier")
    assert (done.status, done.err) == (0, "")
    values = [base64.b64decode(json.loads(line)["value_base64"]) for line in done.out.splitlines()]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(build_batch([NewRecord(None, value, 1_000_000) for value in values]))
    text = java_tool("DumpLogSegments", "--files", str(path), "--remote-log-metadata-decoder")
    assert "Could not deserialize" not in text, text
    assert text.count("RemoteLogSegmentMetadata{") == len(copied), text
    assert text.count("RemoteLogSegmentMetadataUpdate{") == len(copied), text
    for metadata in copied:
        assert f"startOffset={metadata.start_offset}, endOffset={metadata.end_offset}," in text
