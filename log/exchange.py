"""Put compacted segments in the place of those they were made from, so that a power cut at any point loses nothing.

A directory keeps its names in any order it likes until it is synced. So there are three steps, and a sync of the
directory, in a thread, behind each:

1. `announce`: the new segments get their ``.swap`` names. A crash cannot undo it then: `recovery` takes each for
   all segments within its range.
2. `take_over`: the old segments leave the log, and those whose place a new one does not take by name are renamed
   ``.deleted``. Before that is on the disk no new segment may lose its ``.swap`` name: else an old segment could come
   back behind one that covers it, and recovery would take both for damage.
3. `finish`: the new segments get their own names.

Reads go on meanwhile: a new segment holds its file open and its indexes in memory until it has its own name.

Source: ``LocalLog.replaceSegments`` (apache/kafka 4.3.1), which syncs the directory only once, at the end.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.log.compaction import Cleaned
from ottla.log.names import CLEANED, SWAP
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.world.disk import Disk

# In this order: while `.log` has its first name, nothing has happened yet.
_SUFFIXES = (".txnindex", ".timeindex", ".index", ".log")


def rename_files(disk: Disk, path: str, old: str, new: str) -> None:
    """Give a segment's files, those that are there, another ending."""
    for suffix in _SUFFIXES:
        if disk.exists(f"{path}{suffix}{old}"):
            disk.rename(f"{path}{suffix}{old}", f"{path}{suffix}{new}")


class Exchange:
    """One pass's new segments on their way into a log. They lie complete and synced under their ``.cleaned`` names."""

    def __init__(self, log: PartitionLog, cleaned: list[Cleaned]) -> None:
        self._log = log
        self._truncations = log.truncations
        self._cleaned = cleaned
        self._new: list[Segment] = []
        self.merges = False
        """Whether segments left that no new one replaces by name: then their leaving must be synced of its own."""

    def _sources(self, done: Cleaned) -> list[Segment] | None:
        """The segments a new one stands for, neighbours in the log; None where the log has changed since."""
        log = self._log
        if log.closed or log.truncations != self._truncations or done.sources[0] not in log.bases:
            return None
        at = log.bases.index(done.sources[0])
        sources = log.segments[at : at + len(done.sources)]
        unchanged = [s.base_offset for s in sources] == done.sources and sources[-1] is not log.active
        return sources if unchanged else None

    def announce(self) -> bool:
        """Say that the new segments count; False where the log has changed and nothing was done. Then `settle`.

        Raises:
            OSError: final for this directory.
        """
        if any(self._sources(done) is None for done in self._cleaned):
            return False
        log = self._log
        for done in self._cleaned:
            rename_files(log.disk, f"{log.directory}/{done.base_offset:020d}", CLEANED, SWAP)
        return True

    def settle(self) -> None:
        """Wait until the names are on the disk: for a thread.

        Raises:
            OSError: final for this directory.
        """
        try:
            self._log.disk.fsync_dir(self._log.directory)
        except FileNotFoundError:
            if not self._log.closed:  # else its directory was just renamed for deletion
                raise

    def take_over(self, now_ms: int) -> bool:
        """Let the new segments serve in the place of the old ones; False where the log has changed and none does.

        Then `settle` where `merges`, then `finish`.

        Raises:
            OSError: before anything was taken over, or final: then the log is out of service.
        """
        log = self._log
        found = [self._sources(done) for done in self._cleaned]
        if None in found:
            return False
        pairs = [
            (self._held(done, sources), sources) for done, sources in zip(self._cleaned, found, strict=True) if sources
        ]
        with self._to_its_end():
            for new, sources in pairs:
                for source in sources:
                    if source.base_offset == new.base_offset:
                        source.let_go()
                    else:
                        log.retire(source, now_ms)
                        self.merges = True
                log.put_in_place(log.bases.index(new.base_offset), len(sources), [new])
                self._new.append(new)
        return True

    def _held(self, done: Cleaned, sources: list[Segment]) -> Segment:
        """A new segment with its files open: once it serves, only the disk itself may fail."""
        log, created_ms = self._log, max(source.created_ms for source in sources)
        return Segment.held(log.disk, log.directory, done.base_offset, log.settings, created_ms, SWAP)

    @contextmanager
    def _to_its_end(self) -> Iterator[None]:
        """Half an exchange cannot be gone on with: the next pass would read old files under the names of new ones."""
        try:
            yield
        except OSError as error:
            self._log.abandon()
            raise OSError(errno.EIO, f"{self._log.in_words()}: not exchanged to the end: {error}") from error

    def finish(self) -> None:
        """Give the new segments their names. The caller syncs the log's names then.

        Raises:
            OSError: final: the log is out of service.
        """
        log = self._log
        with self._to_its_end():
            for new in self._new:
                if log.closed or new not in log.segments:
                    continue  # removed since: its files bear other names already
                if not new.aborted and log.disk.exists(f"{new.path}.txnindex"):
                    log.disk.unlink(f"{new.path}.txnindex")
                rename_files(log.disk, new.path, SWAP, "")
                new.release()
        log.note_names()


def exchange(log: PartitionLog, cleaned: list[Cleaned], now_ms: int) -> bool:
    """All steps at once, for whoever may wait for the disk.

    Raises:
        OSError: final for this directory.
    """
    work = Exchange(log, cleaned)
    if not work.announce():
        return False
    work.settle()
    if not work.take_over(now_ms):
        return False
    work.settle()
    work.finish()
    work.settle()
    return True
