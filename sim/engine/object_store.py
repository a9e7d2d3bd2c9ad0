"""Simulated object store, outside all hosts: slow, failing, and with lost responses, as the seed determines.

Objects appear whole or not at all; a process that is killed during an upload leaves an unfinished one. The store draws
from its own random numbers, so that a simulation without it stays as it is.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.broker.storage.tiered.chunk_cache import CachedRemoteStorage, ReadAhead
from ottla.broker.storage.tiered.chunk_directory import ChunkCacheOptions
from ottla.broker.storage.tiered.object_store import StoredObject
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.env.memory_disk import ProcessKilled
from sim.engine.hosts import EPOCH_MS

if TYPE_CHECKING:
    from sim.engine.processes import SimProcess
    from sim.engine.simulation import Simulation

CALL_S = 0.05
"""Maximum duration of a call without faults."""
WAIT_STEP_S = 0.01
READ_AHEAD_STEP_S = 0.1


@dataclass(slots=True)
class SimStoreFaults:
    """Probabilities, from 0 to 1, that a call to the store meets a fault, and durations; by default no faults."""

    slow: float = 0.0
    slow_s: float = 10.0
    """Maximum duration of a slow call."""
    failing: float = 0.0
    """Calls that fail before they have an effect."""
    lost_response: float = 0.0
    """Calls that fail after they had their effect."""
    denied: float = 0.0
    """Calls that fail with an error that is not retriable."""
    truncated: float = 0.0
    """Uploads of which the store keeps only a part, while it reports success."""
    damaged: float = 0.0
    """Reads that return wrong bytes."""
    unfinished: float = 0.0
    """Failed uploads that are not aborted."""
    down_until_s: float = 0.0
    """Simulated time until which each call fails, after a timeout."""
    timeout_s: float = 5.0


class SimObjectStore:
    """Objects and unfinished uploads of the simulated store, which outlive processes and hosts."""

    def __init__(self, simulation: Simulation, faults: SimStoreFaults | None = None) -> None:
        self.faults = faults or SimStoreFaults()
        self.objects: dict[str, bytes] = {}
        self.modified_s: dict[str, float] = {}
        self.uploads: dict[int, str] = {}
        """Unfinished uploads by number, with the names of their objects."""
        self.upload_count = 0
        self.calls = 0
        self.simulation = simulation
        self.rng = random.Random(f"object store {simulation.seed}")

    def session(self, process: SimProcess) -> SimStoreSession:
        """Return an `ObjectStore` over this store for the calls of one process."""
        return SimStoreSession(self, process)

    def segment_store(self, process: SimProcess) -> SegmentStore:
        """Return the `RemoteStorage` of a process, whose local segments are on the disk of its host."""
        return SegmentStore(self.session(process), process.session)

    def cached_store(
        self, process: SimProcess, options: ChunkCacheOptions, read_ahead: ReadAhead | None = None
    ) -> CachedRemoteStorage:
        """Return the `RemoteStorage` of a process with a chunk cache on the disk of its host.

        Call it in a simulated thread, since it reads the directory. ``read_ahead``: runner of read-aheads, such as a
        `SimReadAhead`; None for none.
        """

        def wait(event: threading.Event) -> None:
            while not event.is_set():
                _pause(process, WAIT_STEP_S)

        return CachedRemoteStorage(self.segment_store(process), process.session, options, read_ahead, wait)

    def lose(self, name: str) -> None:
        """Remove an object without a call of a process, as by a mistake of an operator."""
        del self.objects[name]

    def orphans(self, referenced: Iterable[str]) -> list[str]:
        """Return the names of objects that are not among ``referenced``, such as those of copies without a record."""
        return sorted(self.objects.keys() - set(referenced))


def _pause(process: SimProcess, seconds: float) -> None:
    """Let ``seconds`` of simulated time pass in a thread of a process.

    Raises:
        ProcessKilled: the process ended meanwhile.
    """
    if not process.dead:
        process.threads.pause(seconds)
    if process.dead:
        raise ProcessKilled


class SimReadAhead:
    """Queue of the read-aheads of a process, which run one after the other, each in a simulated thread."""

    def __init__(self, process: SimProcess) -> None:
        self._process = process
        self._pending: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        """Queue a read-ahead; called in a thread."""
        self._pending.append(work)

    async def run(self) -> None:
        """Run queued read-aheads until the process ends."""
        while not self._process.dead:
            await self._process.env.sleep(READ_AHEAD_STEP_S)
            if self._pending:
                with suppress(ProcessKilled):
                    await self._process.env.in_thread(self._pending.pop(0))


class SimStoreSession:
    """`ObjectStore` of one process. Each call takes simulated time, so it must be made in a simulated thread.

    Each may raise RetriableRemoteStorageError or RemoteStorageError by the faults of the store, and ProcessKilled.
    """

    def __init__(self, store: SimObjectStore, process: SimProcess) -> None:
        self._store = store
        self._process = process

    def _draw(self, share: float) -> bool:
        return share > 0 and self._store.rng.random() < share

    def _enter(self, operation: str, name: str) -> None:
        """Begin a call: count it, let time pass, and fail with the probabilities in the faults of the store.

        Raises:
            RetriableRemoteStorageError: the store is down, or the call meets the fault ``failing``.
            RemoteStorageError: the call meets the fault ``denied``.
            ProcessKilled: the process ended meanwhile.
        """
        store, faults = self._store, self._store.faults
        store.calls += 1
        seconds = store.rng.random() * (faults.slow_s if self._draw(faults.slow) else CALL_S)
        down = store.simulation.now_s() < faults.down_until_s
        _pause(self._process, faults.timeout_s if down else seconds)
        store.simulation.trace_event(f"store {operation} {name}")
        if down:
            raise RetriableRemoteStorageError(f"simulated timeout: {operation} {name}")
        if self._draw(faults.failing):
            raise RetriableRemoteStorageError(f"simulated server error: {operation} {name}")
        if self._draw(faults.denied):
            raise RemoteStorageError(f"simulated denial: {operation} {name}")

    def _leave(self, operation: str, name: str) -> None:
        """End a call that had its effect: let time pass.

        Raises:
            RetriableRemoteStorageError: the response is lost (fault ``lost_response``).
            ProcessKilled: the process ended meanwhile.
        """
        _pause(self._process, self._store.rng.random() * CALL_S)
        if self._draw(self._store.faults.lost_response):
            raise RetriableRemoteStorageError(f"simulated loss of the response: {operation} {name}")

    def put(self, name: str, chunks: Iterator[bytes], minimum_bytes: int) -> None:
        """Upload an object as `ObjectStore.put`, one call for each chunk and one for its completion.

        With the fault ``truncated`` the store has only a part of it, without an error.
        """
        store = self._store
        store.upload_count += 1
        number = store.upload_count
        store.uploads[number] = name
        try:
            received = []
            for chunk in chunks:
                self._enter("upload", name)
                received.append(bytes(chunk))
            self._enter("complete", name)
        except RemoteStorageError:
            if not self._draw(store.faults.unfinished):
                store.uploads.pop(number)
            raise
        store.uploads.pop(number)
        data = b"".join(received)
        if self._draw(store.faults.truncated):
            data = data[: int(store.rng.random() * len(data))]
        store.objects[name] = data
        store.modified_s[name] = store.simulation.now_s()
        self._leave("complete", name)

    def get_range(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes ``start`` to ``end`` (exclusive) as `ObjectStore.get_range`; ``damaged`` changes a byte."""
        self._enter("get", name)
        data = self._object(name)
        if start >= len(data) and end > start:
            raise CorruptRemoteSegmentError(f"object is truncated: {name} (no byte at {start})")
        found = data[start:end]
        if found and self._draw(self._store.faults.damaged):
            at = int(self._store.rng.random() * len(found))
            return found[:at] + bytes([found[at] ^ 0x10]) + found[at + 1 :]
        return found

    def size(self, name: str) -> int:
        """Return the length of an object in bytes.

        Raises:
            RemoteResourceNotFoundError: it does not exist.
        """
        self._enter("head", name)
        return len(self._object(name))

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects with names that begin with ``prefix``, as they exist when the iteration starts."""
        self._enter("list", prefix)
        listed = [(name, len(data)) for name, data in sorted(self._store.objects.items()) if name.startswith(prefix)]
        for name, size in listed:
            modified_s = self._store.modified_s[name]
            yield StoredObject(name, size, EPOCH_MS + int(modified_s * 1000))

    def delete(self, name: str) -> None:
        """Delete an object; one that does not exist is no error."""
        self._enter("delete", name)
        self._store.objects.pop(name, None)
        self._leave("delete", name)

    def _object(self, name: str) -> bytes:
        data = self._store.objects.get(name)
        if data is None:
            raise RemoteResourceNotFoundError(f"object does not exist: {name}")
        return data
