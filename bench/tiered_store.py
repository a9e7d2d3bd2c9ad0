"""Speed of reading a remote segment: from the store, through an empty and a filled chunk cache, and from a local file.

``python -m bench.tiered_store [--mib 64]``: a directory and an S3-compatible server (moto) in another process. Each
number is the median of 5 rounds in turn, in MiB/s of sequential reads of 1 MiB, by the plain client also of 4 MiB; the
copy into the store is measured once.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from compat_tests.support.object_stores import object_store
from ottla.broker.storage.tiered.chunk_cache import CachedRemoteStorage
from ottla.broker.storage.tiered.chunk_directory import ChunkCacheOptions
from ottla.broker.storage.tiered.object_store import ObjectStore
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentMetadata
from ottla.broker.storage.tiered.segment_format import object_name
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.broker.storage.tiered.tests.segment_files import segment_metadata, write_segment
from ottla.runtime.real_disk import RealDisk
from ottla.wire.record_batch.crc import crc32c

MIB = 1024 * 1024
ROUNDS = 5
CHUNK_BYTES = 4 * MIB
Reader = Callable[[int, int], object]


def read_through(read: Reader, size: int, step: int) -> float:
    """Read ``size`` bytes by calls ``read(start, end)`` for ranges of ``step`` bytes in sequence; return MiB/s."""
    started = time.perf_counter()
    for start in range(0, size, step):
        read(start, min(start + step, size))
    return size / MIB / (time.perf_counter() - started)


def measure(objects: ObjectStore, directory: Path, size: int) -> dict[str, float]:
    """Copy a segment of ``size`` bytes to a store; return MiB/s of the copy and of each way to read it, by name."""
    disk = RealDisk()
    files = write_segment(disk, str(directory / "log"), random.Random(1).randbytes(size))
    store = SegmentStore(objects, disk)
    started = time.perf_counter()
    metadata = replace(segment_metadata(size), custom_metadata=store.copy_segment(segment_metadata(size), files))
    copy_speed = size / MIB / (time.perf_counter() - started)
    name = object_name(metadata)
    local = disk.open(str(files.log), readonly=True)
    speeds: dict[str, list[float]] = {}
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            shutil.rmtree(directory / "cache", ignore_errors=True)
            cached = segment_reader(open_cache(store, directory, pool), metadata)
            ways: list[tuple[str, Reader, int]] = [
                ("plain client, 1 MiB", lambda start, end: objects.get_range(name, start, end), MIB),
                ("plain client, 4 MiB", lambda start, end: objects.get_range(name, start, end), CHUNK_BYTES),
                ("store, verified", segment_reader(store, metadata), MIB),
                ("cache, cold", cached, MIB),
                ("cache, filled", cached, MIB),
                ("local file", lambda start, end: local.pread(end - start, start), MIB),
                ("local file, verified", lambda start, end: crc32c(local.pread(end - start, start)), MIB),
            ]
            for way, read, step in ways:
                speeds.setdefault(way, []).append(read_through(read, size, step))
    local.close()
    return {"copy, verified": copy_speed, **{way: statistics.median(each) for way, each in speeds.items()}}


def open_cache(store: SegmentStore, directory: Path, pool: ThreadPoolExecutor) -> CachedRemoteStorage:
    """Return a chunk cache over ``store`` that uses ``directory``/cache and reads ahead in a thread of ``pool``."""
    options = ChunkCacheOptions(str(directory / "cache"), chunk_bytes=CHUNK_BYTES)
    return CachedRemoteStorage(store, RealDisk(), options, lambda work: pool.submit(work) and None)


def segment_reader(storage: SegmentStore | CachedRemoteStorage, metadata: RemoteLogSegmentMetadata) -> Reader:
    """Return a function that reads the bytes [start, end) of the segment from ``storage``."""
    return lambda start, end: storage.fetch_segment(metadata, start, end)


def report(title: str, speeds: dict[str, float]) -> None:
    """Print the speeds, and the two ratios that matter."""
    print(title)
    for way, speed in speeds.items():
        print(f"  {way:<22} {speed:9.1f} MiB/s")
    print(f"  cold cache / plain client  {speeds['cache, cold'] / speeds['plain client, 1 MiB']:.2f}")
    print(f"  filled cache / local file  {speeds['cache, filled'] / speeds['local file']:.2f}")


def main() -> None:
    """Measure a directory and an S3-compatible server, and print the speeds of both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=64, help="length of the segment")
    options = parser.parse_args()
    size = options.mib * MIB
    with tempfile.TemporaryDirectory() as root:
        for title, s3 in (("directory", False), ("S3-compatible server", True)):
            with object_store(Path(root), s3=s3) as (objects, _):
                report(title, measure(objects, Path(root) / title, size))


if __name__ == "__main__":
    main()
