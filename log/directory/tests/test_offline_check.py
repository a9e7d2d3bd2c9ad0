"""Offline check: reports the result of recovery without changing a file."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.meta_properties import MetaProperties
from ottla.log.directory.offline_check import check, repair
from ottla.log.log_config import LogConfig
from ottla.log.recovery.log_loader import create_log, open_log
from ottla.log.tests.log_fixtures import NOW, SMALL, TOPIC_ID, append_batches
from ottla.runtime.real_disk import RealDisk

COMPACTED = LogConfig(compact=True)


def directory(tmp_path: Path) -> str:
    path = str(tmp_path / "data")
    disk = RealDisk()
    disk.makedirs(path)
    LogDirectory(disk, path).write_meta_properties(MetaProperties("c" * 22, 1, bytes(range(16))), NOW)
    for number in range(2):
        log = create_log(disk, f"{path}/t-{number}", "t", number, TOPIC_ID, SMALL, NOW)
        append_batches(log, 60)
        log.close()
    return path


def digest(path: str) -> dict[str, str]:
    return {
        str(p): hashlib.sha256(p.read_bytes()).hexdigest() + str(p.stat().st_mtime_ns)
        for p in sorted(Path(path).rglob("*"))
        if p.is_file()
    }


def test_check_undamaged_directory_reports_no_problem(tmp_path: Path) -> None:
    verdicts = list(check(RealDisk(), directory(tmp_path), NOW))
    assert [(v.topic, v.partition, v.log_start_offset, v.log_end_offset) for v in verdicts] == [
        ("t", 0, 0, 180),
        ("t", 1, 0, 180),
    ]
    assert all((v.truncated_bytes, v.removed_files, v.problem) == (0, [], None) for v in verdicts)


@pytest.mark.parametrize("seed", range(12))
def test_check_reports_result_of_recovery_without_changes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = directory(tmp_path)
    victim = rng.choice(sorted((tmp_path / "data" / "t-1").glob("*.log"))[:-1])
    raw = bytearray(victim.read_bytes())
    at = rng.randrange(len(raw))
    if rng.random() < 0.5:
        raw[at] ^= 1 << rng.randrange(8)
    else:
        del raw[at:]
    victim.write_bytes(raw)
    before = digest(path)
    _, verdict = check(RealDisk(), path, NOW)
    assert digest(path) == before
    names = {p.name for p in (tmp_path / "data" / "t-1").iterdir()}
    sizes = {p.name: p.stat().st_size for p in (tmp_path / "data" / "t-1").glob("*.log")}
    log = open_log(RealDisk(), f"{path}/t-1", "t", 1, COMPACTED, NOW, clean=False)
    assert verdict.log_end_offset == log.log_end_offset
    left = {p.name: p.stat().st_size for p in (tmp_path / "data" / "t-1").glob("*.log")}
    assert verdict.truncated_bytes == sum(sizes[n] - left[n] for n in left)
    assert set(verdict.removed_files) == {n for n in names if not (tmp_path / "data" / "t-1" / n).exists()}


def test_check_without_log_directory_raises_corrupt_file(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match="Not a log directory"):
        list(check(RealDisk(), str(tmp_path), NOW))


def damaged(tmp_path: Path) -> tuple[str, Path]:
    path = directory(tmp_path)
    segment = sorted(Path(f"{path}/t-1").glob("*.log"))[1]
    raw = bytearray(segment.read_bytes())
    raw[400] ^= 1
    segment.write_bytes(bytes(raw))
    return path, segment


def test_check_damaged_segment_reports_reason(tmp_path: Path) -> None:
    path, segment = damaged(tmp_path)
    good, bad = check(RealDisk(), path, NOW)
    assert good.recovery_notes == []
    assert bad.recovery_notes[0].startswith(f"Corruption found in segment {segment}, truncating to offset ")
    assert "bad CRC at" in bad.recovery_notes[0]
    assert (
        len([n for n in bad.recovery_notes if "Deleting segment" in n])
        == len(list(Path(f"{path}/t-1").glob("*.log"))) - 2
    )


def test_repair_does_as_checked_and_is_idempotent(tmp_path: Path) -> None:
    path, _ = damaged(tmp_path)
    findings = list(check(RealDisk(), path, NOW))
    assert list(repair(RealDisk(), path, NOW)) == findings[1].recovery_notes
    after = list(check(RealDisk(), path, NOW))
    assert [v.log_end_offset for v in after] == [v.log_end_offset for v in findings]
    assert all((v.truncated_bytes, v.recovery_notes, v.problem) == (0, [], None) for v in after)
    before = digest(path)
    assert list(repair(RealDisk(), path, NOW)) == []
    assert {k: v for k, v in digest(path).items() if k.endswith(".log")} == {
        k: v for k, v in before.items() if k.endswith(".log")
    }
