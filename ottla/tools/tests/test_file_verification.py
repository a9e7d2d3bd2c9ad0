"""``ottla dump --verify``: no output for valid files, exact messages for damaged ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.cli.commands import dump
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.producers.transaction_verification import VERIFICATION_DISABLED, TxnAppendContext
from ottla.log.recovery.log_loader import create_log
from ottla.runtime.real_disk import RealDisk
from ottla.tools.file_verification import find_problems
from ottla.wire.record_batch import batch_header, records

NOW = 1_800_000_000_000


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Directory of a cleanly closed partition with segments, indexes, aborted transactions and snapshots."""
    settings = LogConfig(segment_bytes=4000, index_interval_bytes=200)
    log = create_log(RealDisk(), str(tmp_path / "t-0"), "t", 0, bytes(16), settings, NOW)
    for number in range(60):
        transactional = number % 3 == 0
        more = {
            "attributes": batch_header.TRANSACTIONAL_BIT,
            "producer_id": 5,
            "producer_epoch": 0,
            "base_sequence": number // 3,
        }
        items = [records.NewRecord(b"k%d" % i, bytes(50), NOW + number) for i in range(2)]
        if transactional:
            data = bytearray(records.build_batch(items[:1], **more))  # type: ignore[arg-type]
            log.append_as_leader(data, 0, NOW, txn=TxnAppendContext(VERIFICATION_DISABLED))
            marker = records.NewRecord(b"\0\0\0\0", bytes(6), NOW + number)
            control = {
                **more,
                "attributes": batch_header.TRANSACTIONAL_BIT | batch_header.CONTROL_BIT,
                "base_sequence": -1,
            }
            log.append_as_leader(bytearray(records.build_batch([marker], **control)), 0, NOW, AppendOrigin.COORDINATOR)  # type: ignore[arg-type]
        else:
            log.append_as_leader(bytearray(records.build_batch(items)), 0, NOW)
    log.set_high_watermark(log.log_end_offset)
    log.close()
    assert len(log.segments) > 2
    return tmp_path / "t-0"


def verify(path: Path) -> list[str]:
    return list(find_problems(RealDisk(), str(path)))


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(bytes(raw))


def test_dump_verify_valid_partition_prints_no_problem(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(p) for p in partition.iterdir()]
    assert dump.run(["--verify", *names]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_find_problems_reports_every_flipped_bit(partition: Path, suffix: str) -> None:
    rng = random.Random(1)
    path = min(p for p in partition.iterdir() if p.suffix == suffix)
    raw = path.read_bytes()
    missed = []
    for _ in range(60):
        at = rng.randrange(len(raw))
        flip(path, at)
        if not verify(path):
            missed.append(at)
        path.write_bytes(raw)
    # The leader epoch of a batch, and data of a transaction index from other files, cannot be verified.
    allowed = {".log": 8, ".txnindex": 60}.get(suffix, 0)
    assert len(missed) <= allowed, missed


def test_dump_verify_reports_batch_with_position(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = min(partition.glob("*.log"))
    position, header = list(batch_header.iterate_batches(path.read_bytes()))[3]
    flip(path, position + 65)
    assert dump.run(["--verify", str(path)]) == 1
    assert f"batch of offset {header.base_offset} at {position}: bad CRC" in capsys.readouterr().out


def test_find_problems_reports_index_without_segment(partition: Path) -> None:
    first = min(partition.glob("*.log"))
    first.unlink()
    assert verify(first.with_suffix(".index")) == ["its segment is missing"]
