"""Segments in the simulated object store, with its faults and killed processes."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest
import trio

from ottla.broker.storage.tiered.chunk_directory import ChunkCacheOptions
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from ottla.broker.storage.tiered.segment_format import object_name
from ottla.broker.storage.tiered.tests.segment_files import random_records, segment_metadata, write_segment
from ottla.env.memory_disk import ProcessKilled
from sim.engine.object_store import SimObjectStore, SimReadAhead, SimStoreFaults
from sim.engine.processes import SimProcess
from sim.engine.simulation import Simulation

SIZE = 300_000
FAULTY = SimStoreFaults(
    slow=0.05, failing=0.1, lost_response=0.1, denied=0.02, truncated=0.05, damaged=0.05, unfinished=0.5
)


class StoreRun:
    """Processes that copy, read and delete segments in one store, with what they were told."""

    def __init__(self, seed: int, faults: SimStoreFaults) -> None:
        self.simulation = Simulation(seed)
        self.rng = random.Random(seed)
        self.store = SimObjectStore(self.simulation, replace(faults))
        self.copied: dict[bytes, RemoteLogSegmentMetadata] = {}
        self.started: dict[bytes, RemoteLogSegmentMetadata] = {}
        self.lines: list[str] = []
        self.errors: dict[str, int] = {}
        self.reads = 0
        self.fetched_ahead = 0
        self.simulation.trace.listen = self.lines.append

    async def copy(self, process: SimProcess, number: int) -> None:
        """Copy a segment again and again, each time with a new id, until it is stored."""
        remote = self.store.segment_store(process)
        files = await process.env.in_thread(
            partial(write_segment, process.session, "/log/events-3", random_records(SIZE, number), base=number)
        )
        while True:
            metadata = segment_metadata(SIZE, number=self.rng.randrange(2**60), start=number)
            self.started[metadata.segment_id.id] = metadata
            try:
                custom = await process.env.in_thread(partial(remote.copy_segment, metadata, files))
            except RemoteStorageError as error:
                self.count(error)
                continue
            self.copied[metadata.segment_id.id] = replace(metadata, custom_metadata=custom)
            return

    async def read(self, process: SimProcess, count: int) -> None:
        """Read ranges of stored segments; each result equals the records or is an error."""
        options = ChunkCacheOptions("/cache", 500_000, 100_000, 1)
        ahead = SimReadAhead(process)
        self.simulation.start_soon(ahead.run)
        remote = await process.env.in_thread(partial(self.store.cached_store, process, options, ahead.submit))
        for _ in range(count):
            await process.env.sleep(self.rng.random())
            if not self.copied:
                continue
            metadata = self.rng.choice(list(self.copied.values()))
            start = self.rng.randrange(SIZE)
            end = start + self.rng.randrange(1, 150_000)
            try:
                data = await process.env.in_thread(partial(remote.fetch_segment, metadata, start, end))
            except RemoteStorageError as error:
                self.count(error)
                continue
            assert data == random_records(SIZE, metadata.start_offset)[start:end]
            self.reads += 1
        self.fetched_ahead += remote.stats.fetched_ahead
        process.kill()

    def count(self, error: RemoteStorageError) -> None:
        name = type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1

    async def clean_up(self, process: SimProcess) -> None:
        """Delete the objects of all copies that did not succeed, until the store has confirmed each."""
        remote = self.store.segment_store(process)
        for metadata in [m for key, m in self.started.items() if key not in self.copied]:
            while True:
                try:
                    await process.env.in_thread(partial(remote.delete_segment, metadata))
                    break
                except RemoteStorageError as error:
                    self.count(error)

    async def main(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(6):
                process = self.simulation.process(f"host-{number % 3}")
                nursery.start_soon(self.copy, process, number)
                nursery.start_soon(self.read, self.simulation.process(f"host-{number % 3}"), 8)
        await self.clean_up(self.simulation.process("host-0"))

    def run(self) -> StoreRun:
        self.simulation.run(self.main)
        return self


@pytest.mark.parametrize("seed", [0, 2, 3, 7])
def test_segments_survive_a_faulty_store_and_cleanup_leaves_no_orphans(seed: int) -> None:
    run = StoreRun(seed, FAULTY).run()
    assert len(run.copied) == 6
    assert run.reads > 10
    assert run.errors["RetriableRemoteStorageError"] > 5
    assert "RemoteResourceNotFoundError" not in run.errors, "a segment whose copy succeeded is found"
    assert run.fetched_ahead > 0
    names = [object_name(metadata) for metadata in run.copied.values()]
    assert run.store.orphans(names) == []
    assert sorted(run.store.objects) == sorted(names)


def test_same_seed_gives_the_same_calls() -> None:
    first, second, other = (StoreRun(seed, FAULTY).run() for seed in (7, 7, 8))
    assert first.lines == second.lines
    assert first.errors == second.errors
    assert first.lines != other.lines


def test_process_killed_during_a_copy_leaves_no_partial_object() -> None:
    outcomes = set()
    for seed in range(30):
        run = StoreRun(seed, SimStoreFaults())
        rng = random.Random(seed)

        async def main(run: StoreRun = run, rng: random.Random = rng) -> None:
            process = run.simulation.process("host")

            async def run_process() -> None:
                await process.run_until_end(lambda: run.copy(process, 1))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_process)
                await trio.sleep(rng.random() * 0.6)
                process.kill()
            survivor = run.simulation.process("other")
            remote = run.store.segment_store(survivor)
            (metadata,) = run.started.values()
            try:
                data = await survivor.env.in_thread(partial(remote.fetch_segment, metadata, 0, SIZE))
                assert data == random_records(SIZE, 1)
                outcomes.add("whole")
            except RemoteResourceNotFoundError:
                outcomes.add("unfinished" if run.store.uploads else "none")

        run.simulation.run(main)
    assert outcomes == {"whole", "unfinished"}


def run_once(faults: SimStoreFaults, *, lost: bool = False, down_s: float = 0.0) -> tuple[float, BaseException | None]:
    """Copy a segment and read it; return the simulated time and the error of the read."""
    run = StoreRun(1, SimStoreFaults())
    outcome: list[BaseException | None] = [None]

    async def main() -> None:
        process = run.simulation.process()
        await run.copy(process, 0)
        run.store.faults = faults
        faults.down_until_s = run.simulation.now_s() + down_s if down_s else 0.0
        (metadata,) = run.copied.values()
        if lost:
            run.store.lose(object_name(metadata))
        try:
            work = partial(run.store.segment_store(process).fetch_segment, metadata, 0, SIZE)
            await process.env.in_thread(work)
        except (RemoteStorageError, ProcessKilled) as error:
            outcome[0] = error

    run.simulation.run(main)
    return run.simulation.now_s(), outcome[0]


def test_each_fault_has_its_error_and_its_time() -> None:
    normal_s, error = run_once(SimStoreFaults())
    assert error is None
    assert type(run_once(SimStoreFaults(), lost=True)[1]) is RemoteResourceNotFoundError
    assert type(run_once(SimStoreFaults(denied=1.0))[1]) is RemoteStorageError
    assert type(run_once(SimStoreFaults(damaged=1.0))[1]) is CorruptRemoteSegmentError
    slow_s, error = run_once(SimStoreFaults(slow=1.0, slow_s=100.0))
    assert error is None
    assert slow_s > normal_s + 10
    down_s, error = run_once(SimStoreFaults(), down_s=60)
    assert type(error) is RetriableRemoteStorageError
    assert down_s >= normal_s + 4
