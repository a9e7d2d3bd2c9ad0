"""Purgatory: a table of delayed operations, which are completed by changes or by their timeout.

A delayed operation watches keys (a partition, a fetch session). A change of a key calls
`Purgatory.check_and_complete`, which checks whether each operation that watches the key can complete.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import trio

from ottla.env.env import Env
from ottla.jobs.job import Job

_KEYS_PER_STEP = 1000


class DelayedOperation:
    """Delayed operation: keys, predicate that is called with each changed key, and event set on completion."""

    __slots__ = ("event", "is_ready_after", "keys")

    def __init__(self, is_ready_after: Callable[[Hashable], bool]) -> None:
        self.keys: list[Hashable] = []
        self.is_ready_after = is_ready_after
        self.event = trio.Event()


class Purgatory:
    """Table of delayed operations by key; operations of a key are checked in order of their arrival."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._operations_by_key: dict[Hashable, dict[DelayedOperation, None]] = {}

    def __len__(self) -> int:
        return len({id(p) for parked in self._operations_by_key.values() for p in parked})

    async def wait(self, keys: Iterable[Hashable], is_ready: Callable[[], bool], timeout_ms: float) -> bool:
        """Wait until ``is_ready`` returns True, or the timeout; return True if ready, False after the timeout.

        ``is_ready`` is called at once and after each change of one of the keys, within `check_and_complete`.
        """
        return is_ready() or await self.wait_for_change(keys, lambda _: is_ready(), timeout_ms)

    async def wait_for_change(
        self, keys: Iterable[Hashable], is_ready_after: Callable[[Hashable], bool], timeout_ms: float
    ) -> bool:
        """Wait until ``is_ready_after`` returns True for a changed key, or the timeout; return True if ready.

        It is not called before a change. With many keys only the changed one is checked.
        """
        parked = DelayedOperation(is_ready_after)
        parked.keys = list(keys)
        for key in parked.keys:
            self._operations_by_key.setdefault(key, {})[parked] = None
        try:
            return await self.wait_for(parked, timeout_ms)
        finally:
            self.forget(parked)

    def watch(self, parked: DelayedOperation, key: Hashable) -> None:
        """Register an operation for a key; callers with many keys watch each key before they read its state."""
        parked.keys.append(key)
        self._operations_by_key.setdefault(key, {})[parked] = None

    async def wait_for(self, parked: DelayedOperation, timeout_ms: float) -> bool:
        """Wait until an operation completes, or the timeout; return True if it completed.

        The caller removes it from the table then, by `forget` or `release`.
        """
        with self._env.timeout(timeout_ms / 1000):
            await parked.event.wait()
        return parked.event.is_set()

    def release(self, parked: DelayedOperation) -> Job[None]:
        """Remove an operation with possibly very many keys, as a job; at once if the job is cancelled."""
        try:
            while len(parked.keys) > _KEYS_PER_STEP:
                some = parked.keys[-_KEYS_PER_STEP:]
                del parked.keys[-_KEYS_PER_STEP:]
                self._remove(parked, some)
                yield None
        finally:
            self.forget(parked)

    def forget(self, parked: DelayedOperation) -> None:
        """Remove an operation from all of its keys, so that changes do not complete it any more."""
        self._remove(parked, parked.keys)

    def _remove(self, parked: DelayedOperation, keys: Iterable[Hashable]) -> None:
        for key in keys:
            entries = self._operations_by_key.get(key)
            if entries is not None:
                entries.pop(parked, None)
                if not entries:
                    del self._operations_by_key[key]

    def check_and_complete(self, key: Hashable) -> None:
        """Check the operations that watch ``key``, which has changed; complete those whose predicate returns True.

        Each waiting task continues later, not within this call.
        """
        entries = self._operations_by_key.get(key)
        if entries:
            for parked in list(entries):
                if not parked.event.is_set() and parked.is_ready_after(key):
                    parked.event.set()
                    if len(parked.keys) <= _KEYS_PER_STEP:
                        self.forget(parked)  # otherwise the waiting request removes it in time slices (`release`)
