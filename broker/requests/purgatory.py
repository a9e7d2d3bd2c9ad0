"""Requests that must wait: one table of parked work, woken by what it waits for or by its deadline.

A parked entry names the keys it waits on (a partition, a group). Whoever changes something under a key calls
`Purgatory.check_and_complete`, and each entry parked there looks for itself whether it can go on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import trio

from ottla.env.env import Env
from ottla.jobs.job import Job

_KEYS_PER_STEP = 1000


class DelayedOperation:
    """One waiting request."""

    __slots__ = ("event", "is_ready_after", "keys")

    def __init__(self, is_ready_after: Callable[[Hashable], bool]) -> None:
        self.keys: list[Hashable] = []
        self.is_ready_after = is_ready_after
        self.event = trio.Event()


class Purgatory:
    """The table: key -> entries parked there, in the order they came."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._operations_by_key: dict[Hashable, dict[DelayedOperation, None]] = {}

    def __len__(self) -> int:
        return len({id(p) for parked in self._operations_by_key.values() for p in parked})

    async def wait(self, keys: Iterable[Hashable], is_ready: Callable[[], bool], timeout_ms: float) -> bool:
        """Wait until ``is_ready`` or the time is over; says which. ``is_ready`` is asked at each wake-up."""
        return is_ready() or await self.wait_for_change(keys, lambda _: is_ready(), timeout_ms)

    async def wait_for_change(
        self, keys: Iterable[Hashable], is_ready_after: Callable[[Hashable], bool], timeout_ms: float
    ) -> bool:
        """Wait until ``is_ready_after`` says so of a key that was woken, or the time is over; says which.

        Who waits on many keys looks at that one only: a change costs its own size.
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
        """Have an entry hear of changes under a key from now on, until it is to be forgotten: whoever has very many to
        look at first watches each, then looks at it.
        """
        parked.keys.append(key)
        self._operations_by_key.setdefault(key, {})[parked] = None

    async def wait_for(self, parked: DelayedOperation, timeout_ms: float) -> bool:
        """Wait until an entry was woken and ready, or the time is over; says which."""
        with self._env.timeout(timeout_ms / 1000):
            await parked.event.wait()
        return parked.event.is_set()

    def release(self, parked: DelayedOperation) -> Job[None]:
        """Forget an entry that may wait on very many keys; all of them at once where the job is cancelled."""
        try:
            while len(parked.keys) > _KEYS_PER_STEP:
                some = parked.keys[-_KEYS_PER_STEP:]
                del parked.keys[-_KEYS_PER_STEP:]
                self._remove(parked, some)
                yield None
        finally:
            self.forget(parked)

    def forget(self, parked: DelayedOperation) -> None:
        """An entry does not wait any more."""
        self._remove(parked, parked.keys)

    def _remove(self, parked: DelayedOperation, keys: Iterable[Hashable]) -> None:
        for key in keys:
            entries = self._operations_by_key.get(key)
            if entries is not None:
                entries.pop(parked, None)
                if not entries:
                    del self._operations_by_key[key]

    def check_and_complete(self, key: Hashable) -> None:
        """Something under ``key`` has changed."""
        entries = self._operations_by_key.get(key)
        if entries:
            for parked in list(entries):
                if not parked.event.is_set() and parked.is_ready_after(key):
                    parked.event.set()
                    if len(parked.keys) <= _KEYS_PER_STEP:
                        self.forget(parked)  # else the request that waits does it, part by part
